"""Draws and the options of the samplers."""
