"""Graphs: edges as flat arrays, sums over neighbors, rows of features, and the checks of what comes in."""
