"""Converts published checkpoints to GGUF files with the keys and tensor names that the core reads."""
