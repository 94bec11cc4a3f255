"""`dualar info`: what a model file holds, what it lacks, and the memory it needs.

Owns the page that it prints; leaves checking a file to the loaders, whose errors it prints as they are.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualar.cli import common
from dualar.cli.parts import types_by_part
from dualar.gguf import names, qwen3_names

if TYPE_CHECKING:
    from dualar._native import ModelFile
    from dualar.engine import Engine

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def info(
    model: common.ModelArgument,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="X", min=0.1, max=3600.0, help="Tell the memory for this much speech.")
    ] = 30.0,
    quiet: common.QuietOption = False,
    verbose: common.VerboseOption = 0,
) -> None:
    """Show what a model file holds and lacks.

    Parts, sizes, types, tokenizer and the memory needed. Exit code 1 where the file cannot be used.
    """
    with common.reporting(quiet=quiet, verbose=verbose):
        from dualar.engine import load
        from dualar.runtime import open_file

        file = open_file(model)
        _line("File", f"{file.path} ({common.amount(file.nbytes)})")
        _line("Architecture", _word(file.get(names.ARCHITECTURE_KEY)) or "not named")
        for title, geometry in _geometry(file):
            _line(title, geometry)
        for title, types in types_by_part(file.get(names.ARCHITECTURE_KEY), file.tensors()):
            _line(f"{title} types", types)
        _line("Tokenizer", _tokenizer(file))
        if (frontend := file.get(names.TEXT_FRONTEND)) is not None:
            _line("Text", f"read as phonemes, by the front end {_word(frontend)}")
        with load(model) as engine:  # its errors list every tensor that is missing or misshapen
            _loaded(file, engine, seconds, verbose)


def _line(title: str, text: str) -> None:
    typer.echo(f"{title:<23}{text}")


def _word(value: object) -> str:
    """A metadata value for a line: cut where it is long, nothing unprintable. The file may be wrong."""
    most = 60
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        value, most = ", ".join(value), 200
    text = str(value) if value is not None else ""
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= most else text[: most - 3] + "..."


_GEOMETRY: list[tuple[str, dict[str, str]]] = [
    (
        "Slow-AR",
        {
            names.BLOCK_COUNT: "{} layers",
            names.EMBEDDING_LENGTH: "width {}",
            names.HEAD_COUNT: "{} heads",
            names.HEAD_COUNT_KV: "{} key/value heads",
            names.KEY_LENGTH: "of {}",
            names.FEED_FORWARD_LENGTH: "feed-forward {}",
            names.VOCAB_SIZE: "vocabulary {}",
            names.CONTEXT_LENGTH: "context {}",
        },
    ),
    (
        "Fast-AR",
        {
            names.FAST_BLOCK_COUNT: "{} layers",
            names.FAST_EMBEDDING_LENGTH: "width {}",
            names.FAST_HEAD_COUNT: "{} heads",
            names.FAST_HEAD_COUNT_KV: "{} key/value heads",
            names.FAST_HEAD_DIM: "of {}",
            names.FAST_FEED_FORWARD_LENGTH: "feed-forward {}",
        },
    ),
    (
        "Codebooks",
        {
            names.NUM_CODEBOOKS: "{}",
            names.CODEBOOK_SIZE: "of {} entries",
            names.SEMANTIC_BEGIN_ID: "tokens {}",
            names.SEMANTIC_END_ID: "to {}",
        },
    ),
    (
        "Codec",
        {
            names.SAMPLE_RATE: "{} Hz",
            names.HOP_LENGTH: "{} samples a step",
            names.DOWNSAMPLE_FACTOR: "steps {} a frame",
            names.LATENT_DIM: "width {}",
            names.ENCODER_RATES: "encoder rates {}",
            names.DECODER_RATES: "decoder rates {}",
            names.RVQ_TRANSFORMER + names.WINDOW_SIZE: "window {}",
        },
    ),
]


_QWEN3_GEOMETRY: list[tuple[str, dict[str, str]]] = [
    (
        "Model",
        {
            qwen3_names.MODEL_KIND: "{}",
            qwen3_names.MODEL_SIZE: "of size {}",
        },
    ),
    ("Languages", {qwen3_names.LANGUAGE_NAMES: "{}"}),
    ("Speakers", {qwen3_names.SPEAKER_NAMES: "{}"}),
    (
        "Talker",
        {
            qwen3_names.BLOCK_COUNT: "{} layers",
            qwen3_names.EMBEDDING_LENGTH: "width {}",
            qwen3_names.HEAD_COUNT: "{} heads",
            qwen3_names.HEAD_COUNT_KV: "{} key/value heads",
            qwen3_names.KEY_LENGTH: "of {}",
            qwen3_names.FEED_FORWARD_LENGTH: "feed-forward {}",
            qwen3_names.VOCAB_SIZE: "vocabulary {}",
            qwen3_names.TEXT_VOCAB_SIZE: "text vocabulary {}",
            qwen3_names.CONTEXT_LENGTH: "context {}",
        },
    ),
    (
        "Predictor",
        {
            qwen3_names.PREDICTOR_BLOCK_COUNT: "{} layers",
            qwen3_names.PREDICTOR_EMBEDDING_LENGTH: "width {}",
            qwen3_names.PREDICTOR_HEAD_COUNT: "{} heads",
            qwen3_names.PREDICTOR_HEAD_COUNT_KV: "{} key/value heads",
            qwen3_names.PREDICTOR_KEY_LENGTH: "of {}",
            qwen3_names.PREDICTOR_FEED_FORWARD_LENGTH: "feed-forward {}",
        },
    ),
    (
        "Codebooks",
        {
            qwen3_names.NUM_CODEBOOKS: "{}",
            qwen3_names.CODEBOOK_SIZE: "of {} entries",
        },
    ),
]


def _is_qwen3(file: ModelFile) -> bool:
    return bool(file.get(names.ARCHITECTURE_KEY) == qwen3_names.ARCHITECTURE)


def _geometry(file: ModelFile) -> list[tuple[str, str]]:
    """What the metadata says of each part; only what is there, since the file may be wrong."""
    lines = []
    for title, keys in _QWEN3_GEOMETRY if _is_qwen3(file) else _GEOMETRY:
        values = ((words, file.get(key)) for key, words in keys.items())
        text = ", ".join(words.format(_word(value)) for words, value in values if value is not None and value != [])
        if text:
            lines.append((title, text))
    return lines


def _tokenizer(file: ModelFile) -> str:
    from dualar import ModelError
    from dualar.text.tokenizer import METADATA_KEY, QWEN3_REQUIRED, S2_REQUIRED, Tokenizer

    required = QWEN3_REQUIRED if _is_qwen3(file) else S2_REQUIRED
    try:
        found = Tokenizer.find_or_none(file.path, metadata_value=file.get(METADATA_KEY), required=required)
    except ModelError as error:
        return f"cannot be used: {_word(error)}"
    return "not found" if found is None else f"{found.source}, {found.vocab_size} tokens"


def _loaded(file: ModelFile, engine: Engine, seconds: float, verbose: int) -> None:
    from dualar import DualAR, ModelError

    problems: list[str] = []

    def part(get: Any) -> Any:
        try:
            return get()
        except ModelError as error:
            problems.append(str(error))
            return None

    model, codec = part(lambda: engine.model), part(lambda: engine.codec)
    rate = 0.0
    if codec is not None:
        rate = codec.sample_rate / codec.samples_per_frame
        _line("Frames", f"{rate:.2f} a second, of {codec.samples_per_frame} samples")
    if model is not None:
        frames = ceil(seconds * rate) if rate else model.context_length
        positions = min(frames, model.context_length)
        what = f"{frames / rate:.0f} s of speech ({frames} frames)" if rate else f"{frames} frames"
        _line(
            "Memory",
            f"{common.amount(file.nbytes)} weights, {common.amount(model.kv_bytes(positions))} cache for {what}",
        )
        tokenizer = part(lambda: engine.tokenizer)
        if tokenizer is not None and (prompt := engine.parts.family.prompt_name(tokenizer)):
            _line("Prompt", prompt)
        if file.get(names.SINGLE_TURN):
            _line("Voice", "its own alone; the pieces of a long text do not see one another")
        elif rate and model.context_length > 1 and isinstance(model, DualAR):  # others have no prefix to keep
            second = rate * (model.kv_bytes(2) - model.kv_bytes(1))
            limit = engine.prefix_cache.limit
            _line(
                "Prefix cache",
                f"{common.amount(second)} for a second of a voice's recording, {common.amount(limit)} at most",
            )
        if frames > model.context_length:
            _line("", f"{frames} frames are more than the model's context of {model.context_length}")
    unused = [*(model.unused_tensors if model else ()), *(codec.unused_tensors if codec else ())]
    _line("Unused tensors", _listed(unused, everything=verbose > 0))
    for problem in problems:
        common.note(f"missing: {problem}")


def _listed(names: list[str], *, everything: bool) -> str:
    """How many names there are, and the first of them, or all."""
    if not names:
        return "none"
    shown = names if everything else names[:3]
    rest = "" if len(shown) == len(names) else " ... (-v lists all)"
    return f"{len(names)}: {', '.join(shown)}{rest}"
