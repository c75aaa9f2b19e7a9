"""What a cell can do, one file each. An experiment takes a `Lab` and returns a dictionary of metrics."""
