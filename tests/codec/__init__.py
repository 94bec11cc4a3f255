"""Codes to samples and back, as Python offers it."""
