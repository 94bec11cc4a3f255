"""Voices: a recording as codes, its file formats, the store of named ones, cloning, and the speaker encoder."""

from dualar.voices.voice import Voice

__all__ = ["Voice"]
