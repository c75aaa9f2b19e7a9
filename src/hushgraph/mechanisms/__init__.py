"""Everything through which private data may leave a vault."""
