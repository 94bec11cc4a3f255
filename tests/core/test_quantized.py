"""Every weight type of the published files, on a wide toy model, against the same weights dequantized.

With quantized weights the core rounds activations to 8 bits before a product, as ggml does, so logits agree to what
that rounding allows, not to float32's digits. BF16 activations are rounded by ggml; those of F16 weights only in the
all-vocabulary head.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from core_testing import testing
from dualar import _core
from fixtures.make_toy_model import write_toy_model
from fixtures.s2_layout import WIDE
from reference.gguf_weights import Weights
from reference.s2 import DualAR

# Root-mean-square difference over the root-mean-square of the deviation of the logits. One rounding of activations to
# b bits is an error of 2^-b/sqrt(12) of their largest value; some twenty products follow one another in this model.
LARGEST_ERROR = {
    "F32": 2e-6,
    "F16": 2e-3,
    "BF16": 1e-2,
    "Q8_0": 3e-2,
    "Q4_0": 3e-2,
    "Q4_K": 3e-2,
    "Q5_K": 3e-2,
    "Q6_K": 3e-2,
}
PACKED = ("F32", "F16", "Q8_0", "Q4_0", "Q4_K")  # types with products of our own (csrc/nn/packed_matrix.h)


@dataclass
class Case:
    """A file, the core's model of it and the reference on the dequantized weights."""

    type_name: str
    path: Path
    model: _core.DualAR
    reference: DualAR

    def prompt(self, T: int) -> np.ndarray:
        rng, m = np.random.default_rng(3), self.model
        prompt = np.zeros((1 + m.num_codebooks, T), np.int32)
        prompt[0] = rng.integers(0, m.semantic_begin_id, T)
        prompt[:, T // 2 :] = rng.integers(0, m.codebook_size, (1 + m.num_codebooks, T - T // 2))
        prompt[0, T // 2 :] += m.semantic_begin_id
        return prompt


def error(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.sqrt(np.mean((got - want) ** 2)) / np.std(want))


@pytest.fixture(scope="module", params=list(LARGEST_ERROR))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    path = tmp_path_factory.mktemp("wide") / f"{request.param}.gguf"
    write_toy_model(path, geometry=WIDE, weight_type=request.param, quantize=_core.quantize)
    model = _core.DualAR(_core.ModelFile(str(path)), _core.Runtime(threads=2), im_end_id=0)
    return Case(request.param, path, model, DualAR(Weights(path, dtype=np.float64)))


def test_the_file_holds_the_type(case: Case) -> None:
    types = {name: kind for name, kind, _ in _core.ModelFile(str(case.path)).tensors()}
    for name in ("embeddings.weight", "layers.0.attention.wqkv.weight", "fast_layers.1.feed_forward.w2.weight"):
        assert types[name].upper() == case.type_name


@pytest.mark.parametrize("T", [1, 5, 40])
def test_prefill(case: Case, T: int) -> None:
    prompt = case.prompt(T)
    out = case.model.session(max_positions=64, kv_type="f32").prefill(prompt, all_positions=True, full_vocab=True)
    logits, hidden = case.reference.session().feed(prompt)
    assert error(out.logits, logits) < LARGEST_ERROR[case.type_name]
    assert error(out.hidden, hidden) < LARGEST_ERROR[case.type_name]


def test_steps_and_sliced_head(case: Case) -> None:
    prompt = case.prompt(12)
    session, reference = case.model.session(max_positions=64, kv_type="f32"), case.reference.session()
    session.prefill(prompt[:, :6])
    reference.feed(prompt[:, :6])
    for t in range(6, 12):
        out = session.step(prompt[:, t])
        logits, _ = reference.feed(prompt[:, t : t + 1])
        assert error(out.logits, logits[0, case.model.main_ids]) < LARGEST_ERROR[case.type_name]


def test_fast_ar(case: Case) -> None:
    rng, session = np.random.default_rng(4), case.model.session(max_positions=8)
    hidden = rng.standard_normal(case.model.hidden_size).astype(np.float32)
    codes = rng.integers(0, case.model.codebook_size, case.model.num_codebooks - 1)
    cached = [session.fast_begin(hidden, int(codes[0]))] + [session.fast_step(int(c)) for c in codes[1:]]
    for k, logits in enumerate(cached, start=1):
        want = case.reference.fast_decode(hidden, codes[:k])
        assert error(logits, want) < LARGEST_ERROR[case.type_name]
        assert error(session.fast_decode(hidden, codes[:k]), want) < LARGEST_ERROR[case.type_name]


def test_both_fast_paths_agree_code_for_code(case: Case) -> None:
    """Bit for bit where the products are ours."""
    rng, session = np.random.default_rng(5), case.model.session(max_positions=8)
    for _ in range(20):
        hidden = rng.standard_normal(case.model.hidden_size).astype(np.float32)
        code, prefix = 1, [1]
        logits = session.fast_begin(hidden, code)
        while len(prefix) < case.model.num_codebooks - 1:
            again = session.fast_decode(hidden, np.array(prefix))
            if case.type_name in PACKED:
                np.testing.assert_array_equal(logits, again)
            assert int(logits.argmax()) == int(again.argmax())
            prefix.append(int(logits.argmax()))
            logits = session.fast_step(prefix[-1])


@pytest.mark.parametrize("type_name", ["Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "F16", "BF16", "F32"])
def test_quantize_round_trip(type_name: str) -> None:
    """The private quantizer and its inverse, so that the files above hold what they should."""
    values = np.random.default_rng(0).standard_normal((3, 512)).astype(np.float32)
    back = testing.dequantize(_core.quantize(values, type_name), type_name, 3, 512)
    bits = {"F32": 24, "F16": 11, "BF16": 8, "Q8_0": 8, "Q6_K": 6, "Q5_K": 5, "Q4_K": 4, "Q4_0": 4}[type_name]
    assert np.abs(back - values).max() <= 2.0 ** -(bits - 1) * np.abs(values).max()


def test_a_type_without_support_is_named(toy_model: Path, tmp_path: Path) -> None:
    """I32 in the place of F32 in the tensor table of a copy."""
    data = bytearray(toy_model.read_bytes())
    name = b"norm.weight"
    at = data.find(len(name).to_bytes(8, "little") + name)  # the whole name, so that no longer one matches
    type_at = at + 8 + len(name) + 4 + 8
    assert data[type_at : type_at + 4] == bytes(4)
    data[type_at] = 26  # I32: as wide, so that all else still fits
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(data)
    with pytest.raises(_core.ModelError, match=r"norm\.weight"):
        _core.DualAR(_core.ModelFile(str(bad)), _core.Runtime(threads=1), im_end_id=0)
