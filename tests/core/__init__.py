"""The compiled core: kernels, models and files, against plain code and published numbers."""
