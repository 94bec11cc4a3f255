"""Names of keys and tensors in GGUF files, one module for each part of a file, equal to the core's headers."""
