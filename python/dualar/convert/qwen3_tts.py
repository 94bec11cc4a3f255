"""Qwen3-TTS checkpoints (12 Hz): which keys and tensors of talker, code predictor and tokenizer go into a model file.

Owns the reading of config.json and the plan of those parts. Leaves the speech tokenizer and the speaker encoder to
`qwen3_codec.py`, checking and writing to `plan.py` and `model_file.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dualar.convert.checkpoint import open_checkpoint
from dualar.convert.gguf_writer import Value
from dualar.convert.model_file import ModelFile
from dualar.convert.plan import Part, Planned, Storage, same, stacked, vector
from dualar.convert.published import listed, read_json
from dualar.convert.qwen3_codec import codec_part, speaker_part
from dualar.convert.settings import Settings
from dualar.convert.tokenizer_files import qwen_tokenizer_json
from dualar.gguf import names
from dualar.gguf import qwen3_names as keys

MODEL_TYPE = "qwen3_tts"

_TOKENIZER_TYPE = "qwen3_tts_tokenizer_12hz"
_CONTROL_IDS = 1024  # ids at the end of the talker's vocabulary that are no codes
_MAX_LAYERS = 1024
_MAX_DIM = 1 << 20
_CONTROL = {
    keys.CODEC_PAD_ID: "codec_pad_id",
    keys.CODEC_BOS_ID: "codec_bos_id",
    keys.CODEC_EOS_ID: "codec_eos_token_id",
    keys.CODEC_THINK_ID: "codec_think_id",
    keys.CODEC_NOTHINK_ID: "codec_nothink_id",
    keys.CODEC_THINK_BOS_ID: "codec_think_bos_id",
    keys.CODEC_THINK_EOS_ID: "codec_think_eos_id",
}
_TEXT_CONTROL = {
    keys.TTS_PAD_ID: "tts_pad_token_id",
    keys.TTS_BOS_ID: "tts_bos_token_id",
    keys.TTS_EOS_ID: "tts_eos_token_id",
}


@dataclass(frozen=True)
class _Decoder:
    """Sizes of a stack of transformer blocks."""

    dim: int
    feed_forward: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_base: float
    eps: float


def model_file(folder: Path) -> ModelFile:
    """The model file of the checkpoint in `folder`. One ModelError for all that its config lacks."""
    config = Settings(read_json(folder / "config.json"), source=str(folder / "config.json"))
    speaker_metadata, speaker_plan = _speaker(config)
    metadata, plan = describe(config)
    talker = config.inside("talker_config")
    codec_metadata, codec = codec_part(
        folder,
        codebooks=talker.integer("num_code_groups"),
        codebook_size=talker.inside("code_predictor_config").integer("vocab_size"),
    )
    metadata |= {**_sampling(folder), **speaker_metadata, **codec_metadata}
    metadata[names.TOKENIZER] = qwen_tokenizer_json(folder, vocab_size=talker.integer("text_vocab_size"))
    return ModelFile(metadata, [Part(open_checkpoint(folder), plan + speaker_plan), codec])


def _speaker(config: Settings) -> tuple[dict[str, Value], list[Planned]]:
    """The speaker encoder, which the models that clone voices have; problems stay in `config`."""
    if config.text("tts_model_type") != "base":
        return {}, []
    dim = config.inside("talker_config").integer("hidden_size", 1, _MAX_DIM)
    return speaker_part(config.inside("speaker_encoder_config"), dim=dim)


def describe(config: Settings) -> tuple[dict[str, Value], list[Planned]]:
    """Keys and tensors of the talker and the code predictor. One ModelError for all that the config lacks."""
    config.text("model_type", (MODEL_TYPE,))
    config.text("tokenizer_type", (_TOKENIZER_TYPE,))
    kind = config.text("tts_model_type", ("base", "custom_voice", "voice_design"))
    talker = config.inside("talker_config")
    predictor = talker.inside("code_predictor_config")
    main, fast = _decoder(talker), _decoder(predictor)
    vocab = talker.integer("vocab_size", _CONTROL_IDS + 1)
    text_vocab, text_dim = talker.integer("text_vocab_size"), talker.integer("text_hidden_size")
    codebooks = talker.integer("num_code_groups", 2, 1024)
    codes = predictor.integer("vocab_size")
    if codes != vocab - _CONTROL_IDS:
        predictor.note(
            "vocab_size", f"{vocab - _CONTROL_IDS}, the talker's less {_CONTROL_IDS} control ids", str(codes)
        )
    if predictor.integer("num_code_groups", 2, 1024) != codebooks:
        predictor.note("num_code_groups", f"{codebooks}, as the talker has", str(predictor.integer("num_code_groups")))
    talker.inside("rope_scaling")  # its sections change nothing: a token's three positions are one
    metadata: dict[str, Value] = {
        names.ARCHITECTURE_KEY: keys.ARCHITECTURE,
        keys.MODEL_KIND: kind,
        keys.MODEL_SIZE: config.text("tts_model_size"),
        keys.CONTEXT_LENGTH: talker.integer("max_position_embeddings"),
        keys.VOCAB_SIZE: vocab,
        keys.TEXT_VOCAB_SIZE: text_vocab,
        keys.TEXT_EMBEDDING_LENGTH: text_dim,
        keys.NUM_CODEBOOKS: codebooks,
        keys.CODEBOOK_SIZE: codes,
        keys.EMBEDDING_LENGTH: main.dim,
        keys.FEED_FORWARD_LENGTH: main.feed_forward,
        keys.BLOCK_COUNT: main.layers,
        keys.HEAD_COUNT: main.heads,
        keys.HEAD_COUNT_KV: main.kv_heads,
        keys.KEY_LENGTH: main.head_dim,
        keys.ROPE_FREQ_BASE: main.rope_base,
        keys.RMS_EPSILON: main.eps,
        keys.PREDICTOR_EMBEDDING_LENGTH: fast.dim,
        keys.PREDICTOR_FEED_FORWARD_LENGTH: fast.feed_forward,
        keys.PREDICTOR_BLOCK_COUNT: fast.layers,
        keys.PREDICTOR_HEAD_COUNT: fast.heads,
        keys.PREDICTOR_HEAD_COUNT_KV: fast.kv_heads,
        keys.PREDICTOR_KEY_LENGTH: fast.head_dim,
        keys.PREDICTOR_ROPE_FREQ_BASE: fast.rope_base,
        keys.PREDICTOR_RMS_EPSILON: fast.eps,
    }
    for key, name in _CONTROL.items():
        metadata[key] = talker.integer(name, vocab - _CONTROL_IDS, vocab - 1)
    for key, name in _TEXT_CONTROL.items():
        metadata[key] = config.integer(name, 0, text_vocab - 1)
    metadata.update(_languages_and_speakers(talker, vocab))
    config.require()
    plan = [
        same(keys.TEXT_EMBEDDINGS, "talker.model.text_embedding.weight", (text_vocab, text_dim), Storage.TABLE),
        *_linear(keys.TEXT_PROJECTION_IN, "talker.text_projection.linear_fc1", text_dim, text_dim),
        *_linear(keys.TEXT_PROJECTION_OUT, "talker.text_projection.linear_fc2", main.dim, text_dim),
        same(keys.EMBEDDINGS, "talker.model.codec_embedding.weight", (vocab, main.dim), Storage.TABLE),
        *_blocks(keys.LAYER, "talker.model.layers.", main),
        vector(keys.NORM, "talker.model.norm.weight", main.dim),
        same(keys.OUTPUT, "talker.codec_head.weight", (vocab, main.dim), Storage.MATRIX),
        *_predictor(main, fast, codebooks - 1, codes),
    ]
    return metadata, plan


def _decoder(config: Settings) -> _Decoder:
    config.only("attention_bias", False)
    config.only("hidden_act", "silu")
    config.only("use_sliding_window", False)
    heads = config.integer("num_attention_heads", 1, 1024)
    kv_heads = config.integer("num_key_value_heads", 1, 1024)
    if heads % kv_heads != 0:
        config.note("num_key_value_heads", f"a divisor of the {heads} heads", str(kv_heads))
    head_dim = config.integer("head_dim", 2, 65536)
    if head_dim % 2 != 0:
        config.note("head_dim", "an even number", str(head_dim))
    return _Decoder(
        dim=config.integer("hidden_size", 1, _MAX_DIM),
        feed_forward=config.integer("intermediate_size", 1, _MAX_DIM),
        layers=config.integer("num_hidden_layers", 1, _MAX_LAYERS),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rope_base=config.real("rope_theta", 1.0, 1e12),
        eps=config.real("rms_norm_eps", 0.0, 1.0),
    )


def _languages_and_speakers(talker: Settings, vocab: int) -> dict[str, Value]:
    languages, speakers = talker.inside("codec_language_id"), talker.inside("spk_id")
    dialects = talker.inside("spk_is_dialect") if "spk_is_dialect" in talker else None
    of_speakers = []
    for name in speakers.names():
        # For a speaker without a dialect the config has false, or no entry.
        found = "" if dialects is None or name not in dialects else dialects.text_or_false(name)
        if dialects is not None and found and found not in languages:
            dialects.note(name, f"a language among {listed(languages.names())}", repr(found))
        of_speakers.append(found)
    return {
        keys.LANGUAGE_NAMES: languages.names(),
        keys.LANGUAGE_IDS: [languages.integer(name, 0, vocab - 1) for name in languages.names()],
        keys.SPEAKER_NAMES: speakers.names(),
        keys.SPEAKER_IDS: [speakers.integer(name, 0, vocab - 1) for name in speakers.names()],
        keys.SPEAKER_DIALECTS: of_speakers,
    }


def _sampling(folder: Path) -> dict[str, Value]:
    path = folder / "generation_config.json"
    if not path.exists():
        return {}
    config = Settings(read_json(path), source=str(path))
    found: dict[str, Value] = {}
    for key, name, sampled in (
        (keys.TEMPERATURE, "temperature", "do_sample"),
        (keys.PREDICTOR_TEMPERATURE, "subtalker_temperature", "subtalker_dosample"),
    ):
        if name in config:
            found[key] = config.real(name, 0.0, 100.0)
        if sampled in config and not config.boolean(sampled):
            found[key] = 0.0
    for key, name in ((keys.TOP_K, "top_k"), (keys.PREDICTOR_TOP_K, "subtalker_top_k")):
        if name in config:
            found[key] = config.integer(name, 0)
    for key, name in ((keys.TOP_P, "top_p"), (keys.PREDICTOR_TOP_P, "subtalker_top_p")):
        if name in config:
            found[key] = config.real(name, 0.0, 1.0)
    if "repetition_penalty" in config:
        found[keys.REPETITION_PENALTY] = config.real("repetition_penalty", 0.01, 100.0)
    config.require()
    return found


def _linear(target: str, source: str, rows: int, columns: int) -> list[Planned]:
    return [
        same(f"{target}.weight", f"{source}.weight", (rows, columns), Storage.MATRIX),
        vector(f"{target}.bias", f"{source}.bias", rows),
    ]


def _blocks(target: str, source: str, d: _Decoder) -> list[Planned]:
    q, kv = d.heads * d.head_dim, d.kv_heads * d.head_dim
    plan = []
    for i in range(d.layers):
        to, of = f"{target}{i}.", f"{source}{i}."
        qkv = [(f"{of}self_attn.{part}_proj.weight", rows) for part, rows in (("q", q), ("k", kv), ("v", kv))]
        plan += [
            vector(to + names.ATTENTION_NORM, f"{of}input_layernorm.weight", d.dim),
            stacked(f"{to}{names.WQKV}.weight", qkv, d.dim, Storage.MATRIX),
            same(f"{to}{names.WO}.weight", f"{of}self_attn.o_proj.weight", (d.dim, q), Storage.MATRIX),
            vector(to + names.Q_NORM, f"{of}self_attn.q_norm.weight", d.head_dim),
            vector(to + names.K_NORM, f"{of}self_attn.k_norm.weight", d.head_dim),
            vector(to + names.FFN_NORM, f"{of}post_attention_layernorm.weight", d.dim),
            same(to + names.W1, f"{of}mlp.gate_proj.weight", (d.feed_forward, d.dim), Storage.MATRIX),
            same(to + names.W3, f"{of}mlp.up_proj.weight", (d.feed_forward, d.dim), Storage.MATRIX),
            same(to + names.W2, f"{of}mlp.down_proj.weight", (d.dim, d.feed_forward), Storage.MATRIX),
        ]
    return plan


def _predictor(main: _Decoder, fast: _Decoder, books: int, codes: int) -> list[Planned]:
    of = "talker.code_predictor."
    tables = [(f"{of}model.codec_embedding.{i}.weight", codes) for i in range(books)]
    heads = [(f"{of}lm_head.{i}.weight", codes) for i in range(books)]
    project = (
        []
        if fast.dim == main.dim
        else _linear(keys.PREDICTOR_PROJECT_IN, f"{of}small_to_mtp_projection", fast.dim, main.dim)
    )
    return [
        stacked(keys.PREDICTOR_EMBEDDINGS, tables, main.dim, Storage.TABLE),
        *project,
        *_blocks(keys.PREDICTOR_LAYER, f"{of}model.layers.", fast),
        vector(keys.PREDICTOR_NORM, f"{of}model.norm.weight", fast.dim),
        stacked(keys.PREDICTOR_OUTPUT, heads, fast.dim, Storage.MATRIX),
    ]
