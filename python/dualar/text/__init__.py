"""Text before it reaches a model: plain text, cutting into pieces, front ends to phonemes, and token ids."""

from dualar.text.plain import plain_text

__all__ = ["plain_text"]
