"""The file of a job: keeps the finished pieces of a long text, so that an interrupted run can be continued.

Owns its format, and the check that a file belongs to a request. Leaves the pieces to `plan.py`.

The file is UTF-8 text with a JSON object in each line. The first line describes the request: `format` "dualar job",
`version` 1, `seed`, `pieces` (how many the text has) and `request`, fingerprints of text, voice, model and options.
Each further line is a finished piece, in the order of finishing; of two lines for one piece the later counts. A piece
has the fields of `NarratedPiece`, its codes as a list for each codebook, and `crc`, the CRC-32 of its codes as int32,
little-endian, row by row; `words` is null or a list of [text, start, end, sample_start, sample_end]. Its `sample_start`
is null while pieces in front of it are not finished. A last line that was
cut short, as by a power cut, is ignored.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any, get_args

import numpy as np

from dualar.codec.codec import Codec
from dualar.codes import require_codes
from dualar.config import GenerationConfig, whole_number
from dualar.files import check_writable
from dualar.generation.checks import checked_seed
from dualar.generation.frames import FinishReason
from dualar.narration.plan import NOT_PLACED, NarratedPiece, TextPlan
from dualar.text.places import TimedWord
from dualar.text.split import Piece
from dualar.voices.voice import Voice

FORMAT, VERSION = "dualar job", 1

_SAMPLED_BYTES = 1 << 20  # of each of the places in a model file that its fingerprint reads
_SAMPLED_PLACES = 8


@dataclass(frozen=True)
class JobRequest:
    """What a job is for: the pieces of the text, and under each name the fingerprint or value of what it depends on."""

    pieces: tuple[Piece, ...]
    identity: dict[str, str]

    @classmethod
    def of(
        cls,
        plan: TextPlan,
        *,
        voice: Voice | None,
        generation: GenerationConfig,
        model: str,
        loop: dict[str, str],
    ) -> JobRequest:
        """model: the file's path. loop: the other options that decide the codes, by name."""
        config = plan.config
        options = {
            **{name: getattr(generation, name) for name in ("max_new_tokens", "min_tokens_before_end")},
            "sampling": {"family": generation.sampling.family, **asdict(generation.sampling)},
            "stall_guard": None if generation.stall_guard is None else asdict(generation.stall_guard),
            "piece_size": config.piece_size,
            "context_tokens": config.context_tokens,
            "pauses": config.pauses,
            **({"context": "first piece"} if config.rows > 1 else {}),
            **({"one_sentence": True} if config.one_sentence else {}),
            **loop,
        }
        identity = {
            "text": _digest(plan.text.encode()),
            "voice": "none"
            if voice is None
            else _digest(repr(voice.codes.shape).encode() + voice.codes.tobytes() + voice.transcript.encode()),
            "model": model_fingerprint(model),
        }
        for name, value in options.items():
            identity[name] = json.dumps(value, sort_keys=True)
        return cls(plan.pieces, identity)


class Job:
    """A job's file: the pieces in it, to which finished ones are added."""

    def __init__(self, path: Path, seed: int, pieces: dict[int, NarratedPiece]) -> None:
        """Use `Job.open` to make one."""
        self.path = path
        self.seed = seed
        self._pieces = pieces

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], request: JobRequest, *, seed: int | None, num_codebooks: int, codec: Codec
    ) -> Job:
        """Continue the job of this file, or begin one where there is none.

        Errors: ValueError, naming what differs, for a file that belongs to another request or seed, is damaged, or is
        no job; OSError where it cannot be read or written.
        """
        target = Path(path)
        if not target.exists():
            check_writable(target)
            job = cls(target, checked_seed(seed), {})
            begun: dict[str, Any] = {
                "format": FORMAT,
                "version": VERSION,
                "seed": job.seed,
                "pieces": len(request.pieces),
            }
            job._append({**begun, "request": request.identity})
            return job
        lines = _read(target)
        header = lines[0]
        if seed is not None and seed != header["seed"]:
            raise ValueError(f"[job] expected seed {header['seed']}, with which {target} was begun, got {seed}")
        begun_with = header["request"]
        for name in {**request.identity, **begun_with}:
            there, value = begun_with.get(name, "none"), request.identity.get(name, "none")
            if there != value:
                raise ValueError(
                    f"[job] expected the {name} with which {target} was begun ({there}), got another ({value}): it "
                    "cannot be continued with this"
                )
        pieces: dict[int, NarratedPiece] = {}
        for number, line in enumerate(lines[1:], 2):
            piece = _piece(target, number, line, request.pieces, num_codebooks, max(codec.codebook_sizes))
            pieces[piece.index] = piece
        _cut_to_lines(target)
        return cls(target, header["seed"], pieces)

    def finished(self, index: int, retries: int) -> NarratedPiece | None:
        """The piece, where it is finished; None too for one that failed in fewer attempts than `retries` allows."""
        piece = self._pieces.get(index)
        return None if piece is None or (piece.error is not None and piece.attempts <= retries) else piece

    def attempts(self, index: int) -> int:
        """How many attempts were made at a piece."""
        return self._pieces[index].attempts if index in self._pieces else 0

    def add(self, piece: NarratedPiece) -> None:
        """Add a piece; it is on the disk when this returns."""
        codes = np.ascontiguousarray(piece.codes, "<i4")
        entry = {f.name: getattr(piece, f.name) for f in fields(piece)}
        entry["words"] = None if piece.words is None else [astuple(word) for word in piece.words]
        if piece.sample_start == NOT_PLACED:
            entry["sample_start"] = None
        self._append({**entry, "codes": codes.tolist(), "crc": zlib.crc32(codes.tobytes())})
        self._pieces[piece.index] = piece

    def _append(self, entry: dict[str, Any]) -> None:
        data = json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        try:
            with open(self.path, "ab") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise type(error)(error.errno, f"[job] cannot write {self.path}: {error.strerror or error}") from error


def settled_samples(path: str | os.PathLike[str], *, retries: int) -> list[int]:
    """The ends, in samples of the whole, of the pieces that a run with `retries` takes from a job as they are."""
    target = Path(path)
    entries: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(_read(target)[1:], 2):
        if not isinstance(line.get("index"), int) or not isinstance(line.get("sample_start"), int | None):
            raise _damaged(target, number, "a finished piece", repr(line)[:60])
        entries[line["index"]] = line
    ends: list[int] = []
    while (entry := entries.get(len(ends))) is not None:
        if entry.get("error") is not None and entry["attempts"] <= retries:
            break
        if entry["sample_start"] is None:
            break
        ends.append(entry["sample_start"] + entry["sample_count"])
    return ends


def model_fingerprint(path: str) -> str:
    """A hash of a model file's size and of 1 MiB at each of 8 places, its beginning and its end among them."""
    size = os.path.getsize(path)
    digest = hashlib.sha256(str(size).encode())
    with open(path, "rb") as file:
        for place in range(_SAMPLED_PLACES):
            file.seek(max(0, size - _SAMPLED_BYTES) * place // (_SAMPLED_PLACES - 1))
            digest.update(file.read(_SAMPLED_BYTES))
    return digest.hexdigest()[:32]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _read(path: Path) -> list[dict[str, Any]]:
    """The lines of a job's file, the first one checked; text after the last line feed is left out."""
    data = path.read_bytes()
    lines: list[dict[str, Any]] = []
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict):
            raise _damaged(path, number, "a JSON object", repr(line[:60]))
        lines.append(entry)
    header = lines[0] if lines else {}
    if header.get("format") != FORMAT or not isinstance(header.get("request"), dict):
        raise ValueError(f"[job] expected the file of a job, got another: {path}")
    if header.get("version") != VERSION:
        raise ValueError(f"[job] expected version {VERSION} of a job, got {header.get('version')!r}: {path}")
    checked_seed(header.get("seed"))
    return lines


def _cut_to_lines(path: Path) -> None:
    """Remove a last line that was cut short, so that the next one does not continue it."""
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)


def _piece(
    path: Path, number: int, line: dict[str, Any], pieces: Sequence[Piece], num_codebooks: int, codebook_size: int
) -> NarratedPiece:
    """A finished piece, each field checked."""
    try:
        index = whole_number("index", line["index"], 0, len(pieces) - 1)
        text = pieces[index]
        if (line["text"], line["start"], line["ends"]) != (text.text, text.start, text.end):
            raise ValueError("another text")
        if line["finish_reason"] not in (*get_args(FinishReason), None):
            raise ValueError("an unknown finish_reason")
        codes = np.asarray(line["codes"])
        if codes.size == 0 and len(line["codes"]) == num_codebooks:
            codes = np.zeros((num_codebooks, 0), np.int32)
        else:
            require_codes("codes", codes, num_codebooks=num_codebooks, codebook_size=codebook_size)
        codes = np.ascontiguousarray(codes, np.int32)
        if zlib.crc32(codes.astype("<i4").tobytes()) != line["crc"]:
            raise ValueError("codes that are not those of their checksum")
        if not isinstance(line["error"], str | None):
            raise ValueError("an error that is no text")
        counts = {
            name: whole_number(name, line[name], 0, 2**62) for name in ("attempts", "padded_frames", "sample_count")
        }
        start = line["sample_start"]
        return NarratedPiece(
            index=index,
            text=text.text,
            start=text.start,
            ends=text.end,
            codes=codes,
            seed=checked_seed(line["seed"]),
            finish_reason=line["finish_reason"],
            error=line["error"],
            sample_start=NOT_PLACED if start is None else whole_number("sample_start", start, 0, 2**62),
            words=_words(line.get("words"), text.text),
            **counts,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, number, "a finished piece", f"{type(error).__name__}: {error}") from error


def _words(listed: Any, text: str) -> tuple[TimedWord, ...] | None:
    """The words of a piece, where the run that made it knew when they are heard. ValueError for what are no words."""
    if listed is None:
        return None
    words = []
    for word, start, end, sample_start, sample_end in listed:
        numbers = [whole_number("words", number, 0, 2**62) for number in (start, end, sample_start, sample_end)]
        if word != text[start:end]:
            raise ValueError("a word of another text")
        words.append(TimedWord(text=word, start=start, end=end, sample_start=numbers[2], sample_end=numbers[3]))
    return tuple(words)


def _damaged(path: Path, line: int, expected: str, got: str) -> ValueError:
    return ValueError(f"[job] expected {expected} in line {line} of {path}, got {got}: the file is damaged")
