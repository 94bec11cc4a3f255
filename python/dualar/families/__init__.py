"""Families of models: all that differs between them stands here, a few files for each family.

`base.py` says what a family declares, `registry.py` finds the family of a file.
"""
