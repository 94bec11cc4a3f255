"""Text on its way to a model: what is kept of it, where it may be cut, and its token ids."""

from dualar.text.plain import plain_text

__all__ = ["plain_text"]
