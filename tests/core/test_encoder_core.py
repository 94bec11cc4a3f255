"""The codec's encoder in the core: the published latent and codes, and a clip in pieces that equals the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dualar import _core

LATENT_ATOL = 1e-4
DECIDED = 1e-3  # a code whose margin is smaller may fall either way, and so may those after it


class Case:
    """One golden codec, its clip as whole frames and what the published code made of it."""

    def __init__(self, golden: Any, name: str) -> None:
        pair = golden(name)
        arrays = np.load(pair.npz)
        self.codec = _core.Codec(_core.ModelFile(str(pair.gguf)), _core.Runtime(threads=1))
        wav = arrays["codec_wav"].reshape(-1)
        self.samples = np.pad(wav, (0, -len(wav) % self.codec.samples_per_frame))
        self.frames = len(self.samples) // self.codec.samples_per_frame
        self.latent = arrays["codec_encoder_latent"].reshape(-1, self.frames).T
        self.codes = arrays["codec_encoded"].reshape(-1, self.frames)
        self.margin = arrays["codec_encoded_margin"].reshape(-1, self.frames)


def latent(encoder: Any, frames: int) -> Any:
    """What the last push, of so many frames, gave the quantizer: [frames, dim]."""
    return encoder._probes()["latent"].reshape(frames, -1)


@pytest.fixture(scope="module", params=["s2-tiny", "s2-variant", "s2-edge"])
def case(request: pytest.FixtureRequest, golden: Any) -> Case:
    return Case(golden, request.param)


def test_latent_and_codes_match(case: Case) -> None:
    encoder = case.codec.encoder(max_frames=case.frames)
    codes = encoder.push(case.samples)
    np.testing.assert_allclose(latent(encoder, case.frames), case.latent, atol=LATENT_ATOL, rtol=0)
    decided = np.cumprod(case.margin >= DECIDED, axis=0).astype(bool)
    assert decided.mean() > 0.8
    assert codes.dtype == np.int32
    np.testing.assert_array_equal(codes[decided], case.codes[decided])


def test_pieces_give_the_whole(case: Case) -> None:
    rng, frame = np.random.default_rng(0), case.codec.samples_per_frame
    samples = np.tile(case.samples, 4)
    whole = case.codec.encoder(max_frames=4 * case.frames)
    want = whole.push(samples)
    want_latent = latent(whole, 4 * case.frames)
    encoder = case.codec.encoder(max_frames=7)
    for _ in range(3):
        encoder.reset()
        pieces, latents, start = [], [], 0
        while start < 4 * case.frames:
            k = int(rng.integers(0, 8))
            pieces.append(encoder.push(samples[start * frame : (start + k) * frame]))
            if pieces[-1].size:
                latents.append(latent(encoder, pieces[-1].shape[1]))
            start += k
        np.testing.assert_allclose(np.concatenate(latents), want_latent, atol=LATENT_ATOL, rtol=0)
        np.testing.assert_array_equal(np.concatenate(pieces, axis=1), want)


def test_later_samples_change_nothing_before_them(case: Case) -> None:
    changed, at = case.samples.copy(), case.frames // 2
    changed[at * case.codec.samples_per_frame :] *= -0.5
    a = case.codec.encoder(max_frames=case.frames)
    b = case.codec.encoder(max_frames=case.frames)
    np.testing.assert_array_equal(a.push(case.samples)[:, :at], b.push(changed)[:, :at])
    latent_a, latent_b = latent(a, case.frames), latent(b, case.frames)
    np.testing.assert_allclose(latent_a[:at], latent_b[:at], atol=1e-6, rtol=0)
    assert np.abs(latent_a[at:] - latent_b[at:]).max() > 1e-3


def test_bad_samples(golden: Any) -> None:
    case = Case(golden, "s2-tiny")
    frame, encoder = case.codec.samples_per_frame, case.codec.encoder(max_frames=4)
    for count in (1, frame + 1, 5 * frame):
        with pytest.raises(ValueError, match="whole frames"):
            encoder.push(np.zeros(count, np.float32))
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match="finite"):
            encoder.push(np.full(frame, value, np.float32))
    with pytest.raises(ValueError, match="floats"):
        encoder.push(np.zeros(frame, np.int16))
    assert encoder.push(np.zeros(0, np.float32)).shape == (case.codec.num_codebooks, 0)
    with pytest.raises(ValueError, match="max_frames"):
        case.codec.encoder(max_frames=0)


def test_silence_has_codes(case: Case) -> None:
    codes = case.codec.encoder().push(np.zeros(3 * case.codec.samples_per_frame, np.float32))
    assert codes.shape == (case.codec.num_codebooks, 3) and (codes >= 0).all()
