"""Checkpoints to GGUF: the names of the files that the core reads."""
