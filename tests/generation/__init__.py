"""Requests to frames of codes: loops, batches, prefixes, word times."""
