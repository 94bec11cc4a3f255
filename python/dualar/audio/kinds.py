"""What a file seems to be, by its first bytes, for the error where it is no sound file that can be read.

Owns `kind_of`. Leaves reading sound to `read.py`.
"""

from __future__ import annotations

# (offset, bytes there) -> what such a file is. The signatures are those of the formats' own specifications.
_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (4, b"ftypM4A", "M4A (AAC in MP4)"),
    (4, b"ftyp", "MP4, M4A or another file of its family"),
    (0, b"\x1aE\xdf\xa3", "WebM or Matroska"),
    (0, b"#!AMR", "AMR"),
    (0, b"0&\xb2u\x8ef\xcf\x11", "WMA or another ASF file"),
    (0, b"ADIF", "AAC"),
    (0, b"FORM", "AIFF"),
    (0, b"caff", "CAF"),
    (0, b"wvpk", "WavPack"),
    (0, b"MAC ", "Monkey's Audio"),
    (0, b"MThd", "MIDI, which has notes and no sound"),
    (0, b"RIFF", "a RIFF file that is no WAV, such as AVI"),
    (0, b"GGUF", "GGUF, a model file"),
    (0, b"\x93NUMPY", "NumPy's .npy"),
    (0, b"DUALARV\0", "a .voice file"),
    (0, b"S2VOICE\0", "a .s2voice file"),
    (0, b"%PDF", "PDF"),
    (0, b"PK\x03\x04", "ZIP"),
    (0, b"\x1f\x8b", "gzip"),
    (0, b"\x89PNG", "a PNG picture"),
    (0, b"\xff\xd8\xff", "a JPEG picture"),
    (0, b"version https://git-lfs", "a Git LFS pointer: fetch the file with `git lfs pull`"),
)


def kind_of(head: bytes) -> str | None:
    """What a file with these first bytes (16 or more where it has them) seems to be; None where nothing tells."""
    for offset, signature, kind in _SIGNATURES:
        if head[offset : offset + len(signature)] == signature:
            return kind
    if len(head) >= 2 and head[0] == 0xFF and head[1] & 0xF6 == 0xF0:  # ADTS: twelve sync bits, layer 0
        return "AAC"
    start = head.lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html", b"<?xml")):
        return "HTML or XML, perhaps the page of an error in place of a download"
    try:
        text = head.decode("utf-8", "strict") if head else ""
    except UnicodeDecodeError as error:
        text = head[: error.start].decode() if error.start > len(head) - 4 else ""  # a letter may be cut at the end
    return "text" if text and all(character.isprintable() or character.isspace() for character in text) else None
