"""Families of models: everything in Python that differs between them, a few files for each family.

`base.py` says what a family declares, `registry.py` finds the family of a file.
"""
