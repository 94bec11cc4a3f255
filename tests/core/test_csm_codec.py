"""Mimi, CSM's codec: the published numbers stage by stage, its window, exact streams, and its encoder."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dualar import _core
from dualar.codec.codec import Codec
from dualar.convert.model_file import convert
from fixtures import csm

ATOL = 1e-4  # as the golden's makers suggest


@pytest.fixture(scope="module")
def cores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    found = {}
    for name in csm.NAMES:
        path = tmp_path_factory.mktemp("csm") / f"{name}.gguf"
        convert(csm.FOLDER / name, path, weight_type="f32")
        found[name] = _core.ModelFile(str(path))
    return found


@pytest.fixture(scope="module")
def codecs(cores: dict[str, Any]) -> dict[str, Codec]:
    runtime = _core.Runtime(threads=1)
    return {n: Codec.of(f, _core.Codec(f, runtime), check=lambda: None) for n, f in cores.items()}


def test_what_it_is(codecs: dict[str, Codec]) -> None:
    codec = codecs["csm-tiny"]
    assert (codec.sample_rate, codec.samples_per_frame, codec.num_codebooks) == (24000, 1920, 32)
    assert codec.can_encode and codec.unused_tensors == []


def test_every_stage_matches(cores: dict[str, Any]) -> None:
    arrays = csm.golden("mimi_decode_stages")
    stages = {
        "quantized": "quantized", "pre_upsample": "upsample", "transformer": "transformer", "decoder.0": "dec0",
        "decoder.1.conv": "dec1_tconv", **{f"decoder.{i}.unit.0": f"dec{i}" for i in range(1, 5)}, "samples": "wav",
    }  # fmt: skip
    codes = np.ascontiguousarray(arrays["codes"].T)
    stream = _core.Codec(cores["csm-tiny"], _core.Runtime(threads=1)).stream(max_frames=codes.shape[1])
    probes = stream._probe(codes)
    for ours, theirs in stages.items():
        wanted = arrays[theirs].reshape(-1) if theirs == "wav" else arrays[theirs].T.reshape(-1)
        assert np.abs(probes[ours].reshape(-1) - wanted).max() < ATOL, ours


@pytest.mark.parametrize("frames", [1, 3, 26])
def test_the_window_is_that_of_the_original(codecs: dict[str, Codec], frames: int) -> None:
    arrays = csm.golden("mimi_decode_window")
    codes = np.ascontiguousarray(arrays["codes"].T)
    assert np.abs(arrays["wav_window"] - arrays["wav_full"]).max() > 10 * ATOL
    stream = codecs["csm-tiny-eq"].stream()
    wav = np.concatenate([stream.push(codes[:, i : i + frames]) for i in range(0, 26, frames)])
    assert np.abs(wav - arrays["wav_window"].reshape(-1)).max() < ATOL


def test_generated_codes_become_the_published_sound(codecs: dict[str, Codec]) -> None:
    for case in ("gen_end", "gen_context_one"):
        arrays = csm.golden(case)
        codes = arrays["codes"][: len(arrays["codes"]) - int(arrays["ended"])]
        wav = codecs["csm-tiny"].decode(np.ascontiguousarray(codes.T))
        assert np.abs(wav - arrays["wav"].reshape(-1)).max() < ATOL


def test_encode(codecs: dict[str, Codec]) -> None:
    arrays, padded = csm.golden("mimi_encode"), csm.golden("mimi_encode_padded")
    found = codecs["csm-tiny"].encode(arrays["wav"].reshape(-1)).T
    assert len(found) == 13
    np.testing.assert_array_equal(found[:12], arrays["codes"][:12])
    # The last frame is cut short: it is filled up as the original does it, not as transformers does.
    np.testing.assert_array_equal(found, padded["codes_moshi"].reshape(found.shape))


@pytest.mark.parametrize("chunks", [[11], [2, 1, 5, 3]])
def test_encoding_in_pieces_is_the_whole(cores: dict[str, Any], chunks: list[int]) -> None:
    arrays = csm.golden("mimi_encode_stream")
    encoder = _core.Codec(cores["csm-tiny"], _core.Runtime(threads=1)).encoder(max_frames=11)
    wav, first, found = arrays["wav"].reshape(-1).astype(np.float32), 0, []
    for frames in chunks:
        found.append(encoder.push(wav[first * 1920 : (first + frames) * 1920]))
        first += frames
    np.testing.assert_array_equal(np.concatenate(found, axis=1).T, arrays["codes"].reshape(-1, 32))
