"""Random numbers that protect: one secret key, named streams, exact laws."""
