"""Graphs as flat arrays: who sends to whom, capped lists, and sums over neighbours, in memory or on disk."""
