"""Sound as samples: reading files, writing WAV, levels, and `Audio`, the clip that a model spoke."""

from dualar.audio.clip import Audio

__all__ = ["Audio"]
