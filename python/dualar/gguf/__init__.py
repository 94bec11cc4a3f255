"""Names of keys and tensors in GGUF files, and which part of a file a tensor belongs to (`parts.py`).

The lists of names equal the core's headers; a test compares them.
"""
