"""Voices, their files and stores."""
