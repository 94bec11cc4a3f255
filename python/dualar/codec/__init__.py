"""The neural codec: codes to samples and back, streams with state, and the fingerprint of its codebooks."""

from dualar.codec.codec import Codec, CodecStream

__all__ = ["Codec", "CodecStream"]
