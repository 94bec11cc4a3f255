"""Plain numpy versions of what the core computes: what the tests hold it against."""
