"""Text to token ids and back, with the `tokenizers` library.

Owns finding a model's tokenizer, the ids of the control tokens that the prompt needs, and the promise that a user's
text never becomes a control token. Leaves a prompt's template to its family. The library is imported on first use.

How the promise is kept: the library finds its *added* tokens, special or not, anywhere in its input. So text goes to a
second tokenizer, over the same vocabulary, that has no added tokens. Where a file also lists control tokens in the
vocabulary proper, the second one is built from the file without them and without the merges that make them. Speaker
tags, the one exception, are cut out of the text beforehand and looked up.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dualar.files import POINTER_SIZE, pointer_problem
from dualar.text.tokenizer_json import byte_symbols, patterns, without_tokens

if TYPE_CHECKING:
    import tokenizers


class PromptTokenizer(Protocol):
    """What a prompt needs of a tokenizer; `dualar.Tokenizer` has it."""

    def encode_text(self, text: str) -> list[int]: ...
    def encode_template(self, piece: str) -> list[int]: ...


FILE_NAME = "tokenizer.json"
METADATA_KEY = "tokenizer.huggingface.json"

SPEAKER_TAG = re.compile(r"<\|speaker:[0-9]+\|>")
"""What a speaker tag looks like in a text; it is one only where the vocabulary has it."""

_CONTROL = re.compile(r"<\|.+\|>", re.DOTALL)
_SEMANTIC = re.compile(r"<\|semantic:([0-9]+)\|>")
VOICE_CHAT_TOKENS = ("<|im_start|>", "<|im_end|>", "<|voice|>")
"""The control tokens that a tokenizer must have, unless a family needs others: a chat's, and the one before speech."""

CHAT, INTERLEAVE = "chat", "interleave"
"""Kinds of prompts: a chat's messages, or turns one after the other."""
_INTERLEAVE_TOKENS = ("<|begin_of_text|>", "<|interleave|>")  # a chat's vocabulary has no such beginning

# Letters that a file's own split pattern is tried with, beside those that stand in it; how many of one, and the seconds
# of processor time that they may take. A sound pattern takes some microseconds.
_TRIED = "a1 .-\n\t'中\u0301\U0001f600"
_TRIED_LENGTH, _TRIED_LETTERS, _TRIED_SECONDS = 64, 256, 0.1
_PROBE = "Naïve 漢字, 😀!\n"


class Tokenizer:
    """A byte-level BPE tokenizer with the control tokens that a model's prompt needs.

    Ids are those of the model's embedding rows. Instances are immutable and may be shared between threads.
    """

    def __init__(self, text: str, *, source: str = FILE_NAME, required: Sequence[str] = VOICE_CHAT_TOKENS) -> None:
        """text: the content of a tokenizer.json. source: where it came from, for messages. required: control tokens
        that it must have, `<|im_start|>` and `<|im_end|>` first.

        Errors: ModelError where it cannot be read, is no byte-level BPE, or lacks a control token.
        """
        self._source = source
        self._full = self._load(text)
        added = {token.content: i for i, token in self._full.get_added_tokens_decoder().items()}
        vocabulary: dict[str, int] = self._full.get_vocab(with_added_tokens=False)
        alike = (token for token in vocabulary if token.startswith("<|"))  # few of many
        listed = {token for token in alike if _CONTROL.fullmatch(token)} | (added.keys() & vocabulary.keys())
        self._control = added | {token: vocabulary[token] for token in listed}
        self._vocab_size = max([*vocabulary.values(), *added.values()], default=-1) + 1
        ordinary = {i for token, i in vocabulary.items() if token not in listed}
        shared = sorted(ordinary.intersection(self._control.values()))
        if shared:
            some = ", ".join(map(str, shared[:8])) + (" ..." if len(shared) > 8 else "")
            raise self._error("an id of its own for each token", f"{len(shared)} shared: {some}")
        self._require_byte_level(vocabulary)
        self._plain = self._without_control_tokens(text, listed)
        self._require_kept_text()
        self._require_cheap_patterns()

        missing = [token for token in required if not self._is_parsed(token)]
        if missing:
            raise self._error(f"the control tokens {', '.join(required)}", f"none for {', '.join(missing)}")
        self._im_start_id, self._im_end_id = (self._control[token] for token in required[:2])
        self._voice_id = self._control.get("<|voice|>")
        self._semantic_ids = self._find_semantic_ids()
        self._speaker_ids = {t: i for t, i in self._control.items() if SPEAKER_TAG.fullmatch(t)}

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        """From the content of a tokenizer.json. Errors as the constructor's."""
        return cls(text)

    @classmethod
    def find(
        cls,
        model_path: str | os.PathLike[str],
        *,
        metadata_value: object = None,
        explicit: str | os.PathLike[str] | None = None,
        required: Sequence[str] = VOICE_CHAT_TOKENS,
    ) -> Tokenizer:
        """The tokenizer of the model file at `model_path`.

        The first of: `explicit` (a tokenizer.json or its folder), tokenizer.json beside the model, the same in the
        parent folder, `metadata_value` (what the model file has under the key `tokenizer.huggingface.json`, None where
        it has nothing). What is found first is used or refused, never passed over. required: as for the constructor.
        Errors: ModelError where there is none, or as the constructor's.
        """
        found = cls.find_or_none(model_path, metadata_value=metadata_value, explicit=explicit, required=required)
        if found is None:
            folder = Path(os.path.abspath(model_path)).parent
            raise _model_error(
                f"[tokenizer] expected {FILE_NAME} in {folder} or {folder.parent}, or the key {METADATA_KEY} in "
                f"{os.fspath(model_path)}, got none of them: pass tokenizer=PATH"
            )
        return found

    @classmethod
    def find_or_none(
        cls,
        model_path: str | os.PathLike[str],
        *,
        metadata_value: object = None,
        explicit: str | os.PathLike[str] | None = None,
        required: Sequence[str] = VOICE_CHAT_TOKENS,
    ) -> Tokenizer | None:
        """As `find`, but None where there is no tokenizer. A bad one is a ModelError still."""
        if explicit is not None:
            path = Path(explicit)
            return cls._read(path / FILE_NAME if path.is_dir() else path, required)
        folder = Path(os.path.abspath(model_path)).parent  # a link's own folder, not its target's
        for path in (folder / FILE_NAME, folder.parent / FILE_NAME):
            if path.exists():
                return cls._read(path, required)
        if metadata_value is None:
            return None
        where = f"{os.fspath(model_path)}, key {METADATA_KEY}"
        if not isinstance(metadata_value, str):
            raise _model_error(f"[tokenizer] {where}: expected a string, got {type(metadata_value).__name__}")
        return cls(metadata_value, source=where, required=required)

    @property
    def source(self) -> str:
        """Where the tokenizer was read from."""
        return self._source

    @property
    def vocab_size(self) -> int:
        """One past the highest id; a model's embedding may have more rows."""
        return self._vocab_size

    @property
    def im_start_id(self) -> int:
        """`<|im_start|>`, which opens a message."""
        return self._im_start_id

    @property
    def im_end_id(self) -> int:
        """`<|im_end|>`, which closes a message; drawn by the model, it ends the speech."""
        return self._im_end_id

    @property
    def voice_id(self) -> int | None:
        """`<|voice|>`, after which a model of the S2 family speaks; None where the vocabulary has none."""
        return self._voice_id

    @property
    def semantic_begin_id(self) -> int | None:
        """`<|semantic:0|>`; the code c is this id + c. None where the vocabulary has no semantic tokens."""
        return self._semantic_ids.start if self._semantic_ids else None

    @property
    def semantic_end_id(self) -> int | None:
        """The last semantic token's id, itself included. None where there are none."""
        return self._semantic_ids[-1] if self._semantic_ids else None

    @property
    def control_ids(self) -> frozenset[int]:
        """Every id that no text can produce: all control tokens but the speaker tags."""
        return frozenset(self._control.values()) - frozenset(self._speaker_ids.values())

    def control_id(self, token: str) -> int | None:
        """The id of a control token (`<|interleave|>`); None where the vocabulary has no such one."""
        return self._control.get(token)

    @property
    def prompt_kind(self) -> str:
        """Which kind of prompt these control tokens are for: CHAT, or INTERLEAVE."""
        return INTERLEAVE if all(token in self._control for token in _INTERLEAVE_TOKENS) else CHAT

    def encode_text(self, text: str) -> list[int]:
        """A user's text -> ids, each token once, nothing added before or after.

        Speaker tags that the vocabulary has (`<|speaker:0|>`) become their token; whatever else looks like a control
        token is spelled out as ordinary text. Errors: TypeError where text is no str; ValueError where it holds a lone
        surrogate, which no encoding of Unicode can carry.
        """
        _require_unicode(text)
        ids: list[int] = []
        start = 0
        for tag in SPEAKER_TAG.finditer(text):
            if tag.group() in self._speaker_ids:
                ids += self._encode_plain(text[start : tag.start()])
                ids.append(self._speaker_ids[tag.group()])
                start = tag.end()
        return ids + self._encode_plain(text[start:])

    def text_places(self, text: str) -> list[tuple[int, int]]:
        """For each id of `encode_text` the place text[start:end] that it stands for. Errors as for `encode_text`."""
        _require_unicode(text)
        places: list[tuple[int, int]] = []
        start = 0
        for tag in SPEAKER_TAG.finditer(text):
            if tag.group() in self._speaker_ids:
                places += self._plain_places(text, start, tag.start())
                places.append(tag.span())
                start = tag.end()
        return places + self._plain_places(text, start, len(text))

    def encode_template(self, piece: str) -> list[int]:
        """A piece of the prompt's template -> ids, control tokens parsed. Never give it a user's text."""
        _require_unicode(piece)
        return self._encode(self._full, piece)

    def decode(self, ids: Iterable[int]) -> str:
        """Ids -> text, control tokens spelled out."""
        return self._decode(self._full, list(ids))

    def check_model(self, *, vocab_size: int, semantic_begin_id: int, semantic_end_id: int) -> None:
        """ModelError where this tokenizer has more ids than a model's vocab_size, or its semantic tokens are not those
        from semantic_begin_id to semantic_end_id."""
        if self._vocab_size > vocab_size:
            raise self._error(f"at most {vocab_size} tokens, the model's vocab_size", str(self._vocab_size))
        ids = (self.semantic_begin_id, self.semantic_end_id)
        if self._semantic_ids and ids != (semantic_begin_id, semantic_end_id):
            raise self._error(
                f"semantic tokens at {semantic_begin_id} to {semantic_end_id}, as the model has them",
                f"{ids[0]} to {ids[1]}",
            )

    # -------------------------------------------------------------- construction
    @classmethod
    def _read(cls, path: Path, required: Sequence[str]) -> Tokenizer:
        try:
            if path.exists() and not path.is_file():  # a pipe would make us wait
                raise OSError("not a file")
            data = path.read_bytes()
            if problem := pointer_problem(data[:POINTER_SIZE]):
                raise _model_error(f"[tokenizer] {path}: {problem}")
            text = data.decode("utf-8-sig")  # some editors begin a text with a byte-order mark
        except (OSError, UnicodeDecodeError) as error:
            raise _model_error(f"[tokenizer] expected a readable file at {path}, got {error}") from error
        return cls(text, source=str(path), required=required)

    def _load(self, text: str) -> tokenizers.Tokenizer:
        import tokenizers

        try:
            with self._no_panic("reading it"):
                loaded = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # the library raises no other kind
            raise self._error(f"the JSON of a {FILE_NAME}", str(error)) from error
        if not isinstance(loaded.model, tokenizers.models.BPE):
            raise self._error("a byte-level BPE model", type(loaded.model).__name__)
        # A file may ask for these; each would lose, pad or vary the user's text.
        loaded.no_truncation()
        loaded.no_padding()
        loaded.model.dropout = None
        return loaded

    def _without_control_tokens(self, text: str, listed: set[str]) -> tokenizers.Tokenizer:
        """A tokenizer whose output is never one of the control tokens; `listed` are those in the vocabulary proper."""
        import tokenizers

        if listed:
            try:
                return self._load(without_tokens(text, listed))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise self._error("a vocabulary and merges that can do without control tokens", repr(error)) from error
        # The common case shares the vocabulary, which is what takes time to build.
        plain = tokenizers.Tokenizer(self._full.model)
        if self._full.normalizer is not None:
            plain.normalizer = self._full.normalizer
        if self._full.pre_tokenizer is not None:
            plain.pre_tokenizer = self._full.pre_tokenizer
        if self._full.decoder is not None:
            plain.decoder = self._full.decoder
        return plain

    def _require_byte_level(self, vocabulary: dict[str, int]) -> None:
        # The bytes that UTF-8 uses: with their symbols in the vocabulary no text is unknown to a byte-level BPE.
        used = [*range(0xC0), *range(0xC2, 0xF5)]
        symbols = byte_symbols()
        missing = [f"{byte:02X}" for byte in used if symbols[byte] not in vocabulary or symbols[byte] in self._control]
        if missing:
            some = " ".join(missing[:8]) + (" ..." if len(missing) > 8 else "")
            raise self._error("a byte-level BPE with a token for each byte", f"none for {len(missing)} bytes: {some}")

    def _require_kept_text(self) -> None:
        kept = self._decode(self._plain, self._encode_plain(_PROBE))
        if kept.strip() != _PROBE.strip():  # some put a space before the first word
            raise self._error(f"a byte-level BPE that keeps {_PROBE!r}", repr(kept))

    def _is_parsed(self, token: str) -> bool:
        return token in self._control and self.encode_template(token) == [self._control[token]]

    def _find_semantic_ids(self) -> range:
        found = {int(m.group(1)): i for t, i in self._control.items() if (m := _SEMANTIC.fullmatch(t))}
        begin = found.get(0, 0)
        for code in range(len(found)):
            if found.get(code) != begin + code:
                raise self._error(f"<|semantic:{code}|> at id {begin + code}, in a row", str(found.get(code)))
        return range(begin, begin + len(found))

    def _require_cheap_patterns(self) -> None:
        """ModelError for a pattern that backtracks, whose time doubles with each letter: it is tried on some texts."""
        parts = [part for part in (self._plain.pre_tokenizer, self._plain.normalizer) if part is not None]
        found = "".join(pattern for part in parts for pattern in patterns(json.loads(part.__getstate__())))
        letters = dict.fromkeys(found[:_TRIED_LETTERS])
        for letter in [*letters, *_TRIED]:
            began = time.thread_time()
            self._encode_plain(letter * _TRIED_LENGTH + "\0" + found)  # a search may begin at a letter of the pattern
            if time.thread_time() - began > _TRIED_SECONDS:
                raise self._error(
                    "a split pattern that is quick for any text", f"one that is slow for {letter!r} alone"
                )

    def _encode_plain(self, text: str) -> list[int]:
        return self._encode(self._plain, text)

    def _encode(self, tokenizer: tokenizers.Tokenizer, text: str) -> list[int]:
        with self._no_panic(f"encoding {text if len(text) <= 40 else text[:37] + '...'!r}"):
            return list(tokenizer.encode(text, add_special_tokens=False).ids)

    def _plain_places(self, text: str, start: int, end: int) -> list[tuple[int, int]]:
        with self._no_panic(f"encoding {text[start : min(end, start + 37)]!r}"):
            offsets = self._plain.encode(text[start:end], add_special_tokens=False).offsets
        return [(start + first, start + last) for first, last in offsets]

    def _decode(self, tokenizer: tokenizers.Tokenizer, ids: list[int]) -> str:
        with self._no_panic("decoding"):
            return str(tokenizer.decode(ids, skip_special_tokens=False))

    @contextlib.contextmanager
    def _no_panic(self, work: str) -> Iterator[None]:
        """Raise a ModelError for a panic in the library, which is a BaseException that `except Exception` misses."""
        try:
            yield
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            raise self._error(f"a tokenizer that works, {work}", f"a failure of the library: {error}") from None

    def _error(self, expected: str, got: str) -> Exception:
        return _model_error(f"[tokenizer] {self._source}: expected {expected}, got {got}")


def _require_unicode(text: str) -> None:
    if not isinstance(text, str):
        raise TypeError(f"[text] expected a str, got {type(text).__name__}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"[text] expected valid Unicode, got the lone surrogate U+{ord(text[error.start]):04X} "
            f"at character {error.start}"
        ) from error


def _model_error(text: str) -> Exception:
    from dualar._native import ModelError

    return ModelError(text)
