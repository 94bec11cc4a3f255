"""Qwen3-TTS's codec: the published numbers stage by stage, streams that are exact in any chunks, and its encoder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from dualar import _core
from dualar.codec.codec import Codec
from fixtures import qwen3
from fixtures.gguf_raw import RawGguf

SAMPLES_PER_FRAME = 1920
WAVE_ATOL = 6e-5  # the published code's own two attention kernels differ by 2.3e-5
LATENT_ATOL = 1e-4


def load(path: Path) -> Codec:
    file = _core.ModelFile(str(path))
    return Codec.of(file, _core.Codec(file, _core.Runtime(threads=1)), check=lambda: None)


@pytest.fixture(scope="module")
def path(qwen3_model: Callable[..., Path]) -> Path:
    return qwen3_model("tiny")


@pytest.fixture(scope="module")
def core(path: Path) -> Any:
    return _core.Codec(_core.ModelFile(str(path)), _core.Runtime(threads=1))


@pytest.fixture(scope="module")
def codec(path: Path) -> Codec:
    return load(path)


@pytest.fixture(scope="module")
def decode() -> Any:
    """The golden decoding; codes [16, 33]."""
    arrays = qwen3.golden("codec12hz_decode")
    return arrays | {"codes": np.ascontiguousarray(arrays["codes"].T)}


@pytest.fixture(scope="module")
def encode() -> Any:
    arrays = qwen3.golden("codec12hz_encode_a")
    return arrays | {"codes": arrays["codes"].T}


def columns(flat: Any, like: Any) -> Any:
    """A probe, whose columns lie one after the other, in the golden's layout [C, T]."""
    return flat.reshape(-1, like.shape[0]).T


# ------------------------------------------------------------------------------------------------ decoding
def test_what_it_is(codec: Codec) -> None:
    assert (codec.sample_rate, codec.samples_per_frame, codec.num_codebooks) == (24000, SAMPLES_PER_FRAME, 16)
    assert codec.codebook_sizes == [128] * 16 and not codec.clamps_codes and codec.can_encode
    assert codec.unused_tensors == []


@pytest.mark.parametrize(
    ("name", "stage", "atol"),
    [
        ("decode", {"quantized": "quantized", "pre_conv": "pre_conv", "pre_transformer": "pre_transformer"}, 1e-5),
        ("decode", {"upsample.0.conv": "up0_tconv", "upsample.0": "up0", "upsample.1": "up1"}, 1e-5),
        ("decode_stages", {"decoder.0": "dec0", "decoder.1.conv": "dec1_tconv"}, 1e-5),
        ("decode_stages", {f"decoder.1.unit.{i}": f"dec1_res{i}" for i in range(3)}, 3e-5),
        ("decode_stages", {"decoder.2.unit.2": "dec2", "decoder.3.unit.2": "dec3"}, 3e-4),  # values up to 17
        ("decode_stages", {"decoder.4.unit.2": "dec4"}, 1e-3),  # up to 25
        ("decode_stages", {"samples": "dec6"}, WAVE_ATOL),
    ],
)
def test_every_stage_matches(core: Any, name: str, stage: dict[str, str], atol: float) -> None:
    arrays = qwen3.golden(f"codec12hz_{name}")
    probes = core.stream(max_frames=64)._probe(arrays["codes"].T)
    for ours, theirs in stage.items():
        np.testing.assert_allclose(columns(probes[ours], arrays[theirs]), arrays[theirs], atol=atol, rtol=0)


@pytest.mark.parametrize("name", ["codec12hz_decode", "codec12hz_decode_stages", "e2e_custom_voice"])
def test_whole_decoding_matches(codec: Codec, name: str) -> None:
    arrays = qwen3.golden(name)
    samples = codec.decode(arrays["codes"].T)
    assert samples.dtype == np.float32 and samples.shape == arrays["wav"].shape
    np.testing.assert_allclose(samples, arrays["wav"], atol=WAVE_ATOL, rtol=0)


def test_loud_samples_are_clamped(codec: Codec, core: Any) -> None:
    arrays = qwen3.golden("codec12hz_decode_stages")
    assert np.abs(arrays["dec6"]).max() > 1.2
    samples = codec.decode(arrays["codes"].T)
    assert np.abs(samples).max() == 1.0


def test_any_chunks_give_the_whole(codec: Codec, decode: Any) -> None:
    rng, codes = np.random.default_rng(0), np.tile(decode["codes"], 3)  # past the window of 16
    whole = codec.decode(codes)
    with codec.stream() as stream:
        for most in (1, 4, 20):
            stream.reset()
            pieces, at = [], 0
            while at < codes.shape[1]:
                k = int(rng.integers(1, most + 1))
                pieces.append(stream.push(codes[:, at : at + k]))
                at += k
            np.testing.assert_allclose(np.concatenate(pieces), whole, atol=WAVE_ATOL, rtol=0)
    np.testing.assert_allclose(whole[: decode["wav"].size], decode["wav"], atol=WAVE_ATOL, rtol=0)


def test_later_codes_change_nothing_before_them(codec: Codec, decode: Any) -> None:
    changed, at = decode["codes"].copy(), 17
    changed[:, at:] = 0
    a, b = codec.decode(decode["codes"]), codec.decode(changed)
    edge = at * SAMPLES_PER_FRAME
    np.testing.assert_allclose(a[:edge], b[:edge], atol=1e-6, rtol=0)
    assert np.abs(a[edge:] - b[edge:]).max() > 1e-3


def test_long_decoding_is_exact_and_keeps_its_memory(core: Any, decode: Any) -> None:
    """More frames than the published code takes at once: the end depends on the frames before, and on those alone."""
    codes = np.tile(decode["codes"], 10)  # 330
    stream = core.stream(max_frames=8)
    before = stream.nbytes
    samples = np.concatenate([stream.push(codes[:, at : at + 8]) for at in range(0, codes.shape[1], 8)])
    assert stream.nbytes == before and stream.graph_builds == 2
    # The transformer sees 15 frames before a frame in each of 2 layers, the convolutions a few more.
    again = core.stream(max_frames=80)
    near = again.push(codes[:, -80:])
    np.testing.assert_allclose(samples[-10 * SAMPLES_PER_FRAME :], near[-10 * SAMPLES_PER_FRAME :], atol=2e-4, rtol=0)


@pytest.mark.parametrize(
    ("array", "chunk", "context", "step"),
    [
        ("wav_chunk6_left14", 6, 14, 1),
        ("wav_chunk8_left3_stride7", 8, 3, 7),
        ("wav_chunk5_left5_stride7", 5, 5, 7),
    ],
)
def test_the_published_chunked_decoding_matches(codec: Codec, array: str, chunk: int, context: int, step: int) -> None:
    arrays = qwen3.golden("codec12hz_chunked")
    progress: list[tuple[int, int]] = []
    codes = arrays["codes"].T
    samples = codec.decode(
        codes, chunk_frames=chunk, left_context=context, on_progress=lambda *done: progress.append(done)
    )
    np.testing.assert_allclose(samples[::step], arrays[array], atol=WAVE_ATOL, rtol=0)
    assert progress[-1] == (33, 33) and len(progress) == -(-33 // chunk)
    assert np.abs(samples - codec.decode(codes)).max() > 1e-3  # an approximation
    np.testing.assert_allclose(codec.decode(codes, chunk_frames=300), codec.decode(codes), atol=WAVE_ATOL, rtol=0)


def test_bad_chunks(codec: Codec, decode: Any) -> None:
    cases: tuple[dict[str, Any], ...] = (
        {"chunk_frames": 0},
        {"chunk_frames": 5, "left_context": -1},
        {"left_context": 3},
    )
    for options in cases:
        with pytest.raises(ValueError, match=r"decode\.(chunk_frames|left_context)"):
            codec.decode(decode["codes"], **options)


@pytest.mark.parametrize(
    ("bad", "text"), [(128, "below 128, got 128 at codebook 3, frame 2"), (-1, "got -1 at codebook 3, frame 2")]
)
def test_codes_out_of_range_are_refused_and_change_nothing(codec: Codec, decode: Any, bad: int, text: str) -> None:
    codes = decode["codes"][:, :4].copy()
    codes[3, 2] = bad
    with pytest.raises(ValueError, match=text):
        codec.decode(codes)
    with pytest.raises(ValueError, match=text):
        codec.decode(codes, chunk_frames=2)
    with codec.stream() as stream:
        first = stream.push(decode["codes"][:, :2])
        with pytest.raises(ValueError, match=text):
            stream.push(codes)
        rest = stream.push(decode["codes"][:, 2:5])
    whole = codec.decode(decode["codes"][:, :5])
    np.testing.assert_allclose(np.concatenate([first, rest]), whole, atol=WAVE_ATOL, rtol=0)


def test_the_core_refuses_them_too(core: Any, decode: Any) -> None:
    codes = decode["codes"][:, :2].copy()
    codes[15, 1] = 128
    with pytest.raises(ValueError, match="below 128 in codebook 15, got 128"):
        core.stream().push(codes)


# ------------------------------------------------------------------------------------------------ encoding
def test_encoding_gives_the_published_codes(codec: Codec, encode: Any) -> None:
    codes = codec.encode(encode["wav"])
    assert codes.dtype == np.int32
    np.testing.assert_array_equal(codes, encode["codes"])  # 25001 samples: the last frame is nearly empty


def test_every_stage_of_the_encoder_matches(core: Any, encode: Any) -> None:
    encoder = core.encoder(max_frames=14)
    codes = encoder.finish(encode["wav"])
    np.testing.assert_array_equal(codes, encode["codes"])
    for ours, theirs in {"seanet": "seanet", "transformer": "transformer", "latent": "downsample"}.items():
        got = columns(encoder._probes()[ours], encode[theirs])
        np.testing.assert_allclose(got, encode[theirs], atol=LATENT_ATOL, rtol=0)


def test_any_pieces_give_the_same_codes(core: Any, encode: Any) -> None:
    rng, wav, size = np.random.default_rng(1), encode["wav"], SAMPLES_PER_FRAME
    encoder = core.encoder(max_frames=5)
    for _ in range(4):
        encoder.reset()
        pieces, latents, at = [], [], 0
        while len(wav) - at > 5 * size:
            k = int(rng.integers(0, 6))
            pieces.append(encoder.push(wav[at : at + k * size]))
            if k:
                latents.append(encoder._probes()["latent"])
            at += k * size
        pieces.append(encoder.finish(wav[at:]))
        latents.append(encoder._probes()["latent"])
        np.testing.assert_array_equal(np.concatenate(pieces, axis=1), encode["codes"])
        latent = columns(np.concatenate(latents), encode["downsample"])
        np.testing.assert_allclose(latent, encode["downsample"], atol=LATENT_ATOL, rtol=0)


def test_a_clip_of_many_positions(core: Any, encode: Any) -> None:
    """Attention sees all of the past, 25 positions a second: its cache grows twice here, and pieces give the whole."""
    clip = np.tile(encode["wav"][:24960], 22)  # 13 frames a time: 286 frames, 572 positions
    whole = core.encoder(max_frames=286)
    want = whole.push(clip)
    latent = whole._probes()["latent"].reshape(286, -1)
    encoder = core.encoder(max_frames=40)
    before = encoder.nbytes
    pieces, latents = [], []
    for at in range(0, len(clip), 40 * SAMPLES_PER_FRAME):
        pieces.append(encoder.push(clip[at : at + 40 * SAMPLES_PER_FRAME]))
        latents.append(encoder._probes()["latent"].reshape(-1, latent.shape[1]))
    assert encoder.nbytes > 2 * before
    np.testing.assert_allclose(np.concatenate(latents), latent, atol=LATENT_ATOL, rtol=0)
    assert (np.concatenate(pieces, axis=1) == want).mean() > 0.99  # near ties may fall either way
    # The same second of sound has other latents the second time: its attention sees the first.
    assert np.abs(latent[:13] - latent[13:26]).max() > 1e-2
    np.testing.assert_allclose(columns(latent[:12].reshape(-1), encode["downsample"])[:, :12],
                               encode["downsample"][:, :12], atol=LATENT_ATOL, rtol=0)  # fmt: skip


def test_clips_of_any_length(codec: Codec, core: Any, encode: Any) -> None:
    for samples in (1, 2, 5, 959, 1919, 1920, 1921, 30720, 30721):
        codes = codec.encode(np.resize(encode["wav"], samples))
        assert codes.shape == (16, -(-samples // SAMPLES_PER_FRAME))
        assert codes.min() >= 0 and codes.max() < 128
    assert codec.encode(np.zeros(0)).shape == (16, 0)
    assert core.encoder().finish(np.zeros(0, np.float32)).shape == (16, 0)


def test_after_its_end_a_clip_must_begin_anew(core: Any, encode: Any) -> None:
    encoder = core.encoder()
    first = encoder.finish(encode["wav"][:5000])
    for use in (encoder.push, encoder.finish):
        with pytest.raises(ValueError, match=r"reset\(\)"):
            use(encode["wav"][:1920])
    encoder.reset()
    np.testing.assert_array_equal(encoder.finish(encode["wav"][:5000]), first)


def test_bad_samples(core: Any) -> None:
    encoder = core.encoder(max_frames=2)
    for count in (1, 1921, 3 * 1920):
        with pytest.raises(ValueError, match="whole frames of 1920 samples, at most 2 a push"):
            encoder.push(np.zeros(count, np.float32))
    with pytest.raises(ValueError, match="at most 2 a push, got 3841"):
        encoder.finish(np.zeros(2 * 1920 + 1, np.float32))
    with pytest.raises(ValueError, match="finite"):
        encoder.push(np.full(1920, np.nan, np.float32))


# ------------------------------------------------------------------------------------------------ files
def test_half_precision_stays_close(qwen3_model: Callable[..., Path], codec: Codec, decode: Any) -> None:
    half = load(qwen3_model("tiny", "f16"))
    assert half.fingerprint == codec.fingerprint
    want, got = codec.decode(decode["codes"]), half.decode(decode["codes"])
    noise = np.sqrt(np.mean((got - want) ** 2)) / np.sqrt(np.mean(want**2))
    assert 0 < noise < 0.02


def test_another_codec_has_another_fingerprint(golden: Any, codec: Codec) -> None:
    other = load(golden("s2-tiny").gguf)
    assert codec.fingerprint is not None and other.fingerprint not in (None, codec.fingerprint)


def test_without_its_encoder_it_decodes_and_says_so(path: Path, codec: Codec, decode: Any, tmp_path: Path) -> None:
    raw = RawGguf.parse(path.read_bytes())
    raw.tensors = [tensor for tensor in raw.tensors if not tensor.name.startswith(b"codec.encoder")]
    (tmp_path / "half.gguf").write_bytes(raw.write())
    half = load(tmp_path / "half.gguf")
    assert not half.can_encode
    np.testing.assert_array_equal(half.decode(decode["codes"]), codec.decode(decode["codes"]))
    with pytest.raises(dualar.ModelError, match="encoder"):
        half.encode(np.zeros(1000))
