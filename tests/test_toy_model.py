"""The toy model is complete, small, the same each time, lively, and ends by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from dualar.families.s2_prompt import build_prompt
from dualar.text.tokenizer import METADATA_KEY, Tokenizer
from fixtures import make_toy_model, s2_layout
from reference.gguf_weights import Weights
from reference.s2 import Codec, DualAR

SHORT = "Hello there, how are you today?"
LONG = "The north wind blew as hard as he could, but the traveller folded his cloak around him. " * 3


def load(path: Path) -> tuple[Weights, DualAR, Tokenizer]:
    w = Weights(path, dtype=np.float32)
    return w, DualAR(w), Tokenizer.find(path, metadata_value=w.kv(METADATA_KEY))


def speak(ar: DualAR, tokenizer: Tokenizer, text: str, *, max_frames: int) -> tuple[np.ndarray, bool]:
    prompt = build_prompt(
        text,
        tokenizer=tokenizer,
        num_codebooks=ar.num_codebooks,
        codebook_size=ar.codebook_size,
        semantic_begin_id=ar.semantic_begin,
    )
    return ar.greedy(prompt, max_frames=max_frames, im_end=tokenizer.im_end_id)


def test_complete_and_small(toy_model: Path) -> None:
    w, ar, tokenizer = load(toy_model)
    assert toy_model.stat().st_size < 3_000_000
    assert w.kv("fish-speech.context_length") == 2048
    tokenizer.check_model(
        vocab_size=w.kv("fish-speech.vocab_size"),
        semantic_begin_id=ar.semantic_begin,
        semantic_end_id=ar.semantic_end,
    )
    geometry, _ = make_toy_model.with_tokenizer(s2_layout.TOY)
    assert w.names() == [s.name for s in s2_layout.tensor_specs(geometry)]
    assert all(np.isfinite(w[name]).all() for name in w.names())


def test_the_same_file_from_the_command_line(toy_model: Path, tmp_path: Path) -> None:
    """In another process, so that no hash seed or training order shows in the file."""
    out = tmp_path / "out.gguf"
    subprocess.run([sys.executable, make_toy_model.__file__, str(out)], check=True, stdout=subprocess.PIPE)
    assert out.read_bytes() == toy_model.read_bytes()
    make_toy_model.write_toy_model(out, seed=1)
    assert out.read_bytes() != toy_model.read_bytes()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_lively_and_ends_by_itself(seed: int, tmp_path: Path) -> None:
    make_toy_model.write_toy_model(tmp_path / "toy.gguf", seed=seed)
    w, ar, tokenizer = load(tmp_path / "toy.gguf")
    codes, ended = speak(ar, tokenizer, SHORT, max_frames=100)
    longer, longer_ended = speak(ar, tokenizer, LONG, max_frames=400)
    assert ended and longer_ended
    assert 20 <= codes.shape[1] < longer.shape[1]
    for row in codes:
        assert len(set(row.tolist())) >= codes.shape[1] / 3  # no code repeated over and over
    codec = Codec(w)
    assert w.kv("fish_speech.codec.sample_rate") == 44100 and codec.samples_per_frame == 2048
    audio = codec.decode(codes)
    assert audio.shape == (2048 * codes.shape[1],)
    assert 0.05 < np.sqrt(np.mean(audio**2)) < 0.3
    assert np.abs(audio).max() < 0.95 and abs(audio.mean()) < 0.05
    by_frame = np.sqrt(np.mean(audio.reshape(-1, 2048) ** 2, axis=1))
    assert by_frame.min() > 0.02  # sound in every frame


@pytest.mark.parametrize("weight_type", ["F16", "BF16", "Q8_0", "Q4_0"])
def test_wide_model_in_other_types(weight_type: str, tmp_path: Path) -> None:
    path = tmp_path / "wide.gguf"
    make_toy_model.write_toy_model(
        path,
        geometry=s2_layout.WIDE,
        weight_type=weight_type,
        codec_type="F16",
        codec_vector_type="F16",
        with_tokenizer_inside=False,
    )
    w = Weights(path, dtype=np.float32)
    assert w.kv(METADATA_KEY) is None
    assert w.type_name("layers.0.feed_forward.w2.weight") == weight_type
    assert w.type_name("layers.0.ffn_norm.weight") == "F32"
    assert w.type_name("c.decoder.model.1.block.0.alpha") == "F16"
    tokenizer = Tokenizer.from_json(make_toy_model.train_tokenizer(s2_layout.WIDE.codebook_size))
    codes, ended = speak(DualAR(w), tokenizer, SHORT, max_frames=4)
    assert codes.shape == (10, 4) and not ended


def test_wide_rows_fit_every_quantized_type(tmp_path: Path) -> None:
    """K types by a callable; this one only counts and gives bytes of the right number."""
    seen: set[str] = set()

    def quantize(values: np.ndarray, type_name: str) -> bytes:
        assert values.dtype == np.float32 and values.ndim == 2 and values.shape[1] % 256 == 0
        seen.add(type_name)
        return bytes(values.size // 256 * 144)  # a Q4_K block of 256 is 144 bytes

    path = tmp_path / "wide.gguf"
    make_toy_model.write_toy_model(path, geometry=s2_layout.WIDE, weight_type="Q4_K", quantize=quantize)
    assert seen == {"Q4_K"}
    assert Weights(path).type_name("codebook_embeddings.weight") == "Q4_K"
    geometry, _ = make_toy_model.with_tokenizer(s2_layout.WIDE)
    for type_name in ("Q4_K", "Q5_K", "Q6_K", "Q8_0", "Q4_0"):
        assert all(spec.nbytes > 0 for spec in s2_layout.tensor_specs(geometry, weight_type=type_name))
