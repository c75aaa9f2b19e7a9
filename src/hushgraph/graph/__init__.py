"""Graphs as flat arrays: who sends to whom, capped lists, and sums over neighbors, in memory or on disk."""
