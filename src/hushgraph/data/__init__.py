"""Data on its way in: checked graphs, their public metadata, sparse rows."""
