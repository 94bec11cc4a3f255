"""The trainer's torch modules against the engine, on a tiny model, and its quantizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from dualar.families.s2_prompt import build_prompt
from fixtures.quantizer import saved_quantizer

from training.text import build_tokenizer


def write_run(run: Path, *, language: Any, model: Any, codec: Any, tokenizer_json: str) -> None:
    """What a training leaves in its folder, where the codec's stages have trained all of the codec."""
    import json

    import torch

    (run / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
    (run / "lm.json").write_text(json.dumps(language.as_dict()))
    torch.save({"model": model.state_dict()}, run / "lm.pt")
    torch.save(saved_quantizer(codec, silent_codes=[1]), run / "quantizer.pt")
    for stage in ("decoder", "encoder"):
        torch.save({"model": codec.state_dict()}, run / f"{stage}.pt")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, dualar.Engine]:
    """A dual-AR and a codec with random weights, and the engine with the same, F32."""
    torch = pytest.importorskip("torch", reason="the trainer's modules need PyTorch: pip install dualar[train]")
    from dualar.convert.model_file import convert

    from training.codec import Codec, CodecConfig
    from training.dual_ar import DualAR, DualARConfig
    from training.export import write_checkpoint

    torch.manual_seed(0)
    tokenizer_json = build_tokenizer(32)
    tokenizer = dualar.Tokenizer(tokenizer_json)
    assert tokenizer.semantic_begin_id is not None
    language = DualARConfig(
        vocab_size=tokenizer.vocab_size + 3,
        semantic_begin_id=tokenizer.semantic_begin_id,
        codebook_size=32,
        num_codebooks=3,
        context_length=128,
        dim=32,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=8,
        feed_forward=48,
        fast_dim=24,
        fast_heads=2,
        fast_kv_heads=1,
        fast_head_dim=12,
        fast_feed_forward=40,
    )
    model = DualAR(language).eval()
    sound = CodecConfig(
        encoder_dim=4,
        encoder_rates=(2, 4),
        decoder_dim=32,
        decoder_rates=(4, 2),
        latent_dim=16,
        downsample_factors=(2, 3),
        codebook_dim=6,
        semantic_codebook_size=32,
        residual_codebooks=2,
        residual_codebook_size=16,
        layers=2,
        heads=2,
        head_dim=8,
        feed_forward=24,
        window=5,
    )
    codec = Codec(sound).eval()
    with torch.no_grad():
        for parameter in [*model.parameters(), *codec.parameters()]:
            if parameter.ndim == 1 or (
                parameter.ndim == 3 and parameter.shape[0] == 1
            ):  # norms, gammas, biases, alphas
                parameter.add_(0.1 * torch.randn_like(parameter))
    run = tmp_path_factory.mktemp("trained")
    write_run(run, language=language, model=model, codec=codec, tokenizer_json=tokenizer_json)
    write_checkpoint(run, run / "checkpoint")
    convert(run / "checkpoint", run / "tiny.gguf", weight_type="f32")
    return model, codec, dualar.load(run / "tiny.gguf", threads=1)


def test_dual_ar_is_the_engines(tiny: tuple[Any, Any, dualar.Engine]) -> None:
    import torch

    model, _, engine = tiny
    prompt = build_prompt(
        "sˈɛvən, tˈɜɹn ˌɔn ðə lˈIt.",
        tokenizer=engine.tokenizer,
        num_codebooks=3,
        codebook_size=32,
        semantic_begin_id=model.config.semantic_begin_id,
    )
    codes = np.random.default_rng(1).integers(0, 32, (3, 5)).astype(np.int32)
    columns = np.concatenate([prompt, np.concatenate([codes[:1] + model.config.semantic_begin_id, codes])], axis=1)
    session = engine.model.session(max_positions=columns.shape[1])
    out = session.prefill(columns, all_positions=True, full_vocab=True)
    with torch.no_grad():
        hidden = model.hidden(torch.from_numpy(columns).long()[None])[0]
        fast = model.fast_logits(hidden[-1:], torch.from_numpy(codes.T[:1].copy()).long())[0]
    np.testing.assert_allclose(out.hidden, hidden.numpy(), atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(out.logits, model.logits(hidden).detach().numpy(), atol=1e-4, rtol=1e-4)
    for k in range(1, 3):
        got = engine.model.fast_decode(out.hidden[-1], codes[:k, 0])
        np.testing.assert_allclose(got, fast[k - 1].numpy(), atol=1e-4, rtol=1e-4)


def test_codec_is_the_engines(tiny: tuple[Any, Any, dualar.Engine]) -> None:
    import torch

    _, codec, engine = tiny
    rng = np.random.default_rng(2)
    codes = np.stack([rng.integers(0, size, 9) for size in codec.config.codebook_sizes]).astype(np.int32)
    samples = rng.normal(0, 0.3, 9 * codec.config.samples_per_frame).astype(np.float32)
    with torch.no_grad():
        sound = codec.decode(torch.from_numpy(codes).long()[None])[0].numpy()
        encoded = codec.encode(torch.from_numpy(samples)[None])[0].numpy()
    assert engine.codec.samples_per_frame == codec.config.samples_per_frame
    np.testing.assert_allclose(engine.codec.decode(codes), sound, atol=3e-5)
    np.testing.assert_array_equal(engine.codec.encode(samples, sample_rate=engine.codec.sample_rate), encoded)


def test_codebooks_find_the_nearest_centre() -> None:
    torch = pytest.importorskip("torch", reason="the trainer's modules need PyTorch: pip install dualar[train]")
    from training.analysis import assign, k_means
    from training.codec import VectorQuantizer
    from training.train_codec import set_codebook

    torch.manual_seed(0)
    values = torch.randn(500, 4) * torch.tensor([3.0, 1.0, 0.3, 0.1])
    centres = k_means(values, 16)
    nearest, _ = assign(values, centres)
    assert len(nearest.unique()) == 16
    member = VectorQuantizer(8, 6, 16)
    set_codebook(member, centres)
    latent = torch.cat([values, torch.randn(500, 4)], 1).T[None]
    with torch.no_grad():
        assert torch.equal(member.encode(latent)[0], nearest)
        torch.testing.assert_close(member.decode(nearest[None])[0, :4].T, centres[nearest], atol=1e-5, rtol=1e-5)
        assert member.decode(nearest[None])[0, 4:].abs().max() == 0
