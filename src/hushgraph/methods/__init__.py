"""One file per method, each reading like its paper's algorithm."""
