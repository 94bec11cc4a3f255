"""What a request for codes must fulfil before anything is computed: its prompt, its options, its room.

Owns those checks and their words; leaves running the request to `generate`.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dualar.config import DEFAULT_MAX_NEW_TOKENS, GenerationConfig, StallGuard
from dualar.qwen3_prompt import TalkerPrompt

if TYPE_CHECKING:
    from dualar.generate import Model, Session

Int32 = npt.NDArray[np.int32]
Prompt = Int32 | TalkerPrompt
PromptLike = npt.ArrayLike | TalkerPrompt


def checked_prompt(model: Model, prompt: PromptLike) -> Prompt:
    """The prompt as the model's sessions take it: a TalkerPrompt where it has a text vocabulary, else a matrix."""
    text_vocab = getattr(model, "text_vocab_size", None)
    if text_vocab is not None:
        if not isinstance(prompt, TalkerPrompt):
            raise ValueError(f"[prompt] expected a TalkerPrompt, got {type(prompt).__name__}")
        return prompt.checked(model, text_vocab_size=text_vocab)
    if isinstance(prompt, TalkerPrompt):
        raise ValueError("[prompt] expected an array for a model of this family, got a TalkerPrompt")
    rows = 1 + model.num_codebooks
    x: npt.NDArray[Any] = np.asarray(prompt)
    if x.dtype.kind not in "iu" or x.ndim != 2 or x.shape[0] != rows or x.shape[1] == 0:
        raise ValueError(f"[prompt] expected int [{rows}, T >= 1], got {x.dtype} {list(x.shape)}")
    for name, part, size in (("token ids", x[:1], model.vocab_size), ("codes", x[1:], model.codebook_size)):
        bad = (part < 0) | (part >= size)
        if bad.any():
            raise ValueError(f"[prompt] expected {name} from 0 to {size - 1}, got {part[bad][0]}")
    return np.ascontiguousarray(x, np.int32)


def checked_fast_ar(model: Model, fast_ar: str) -> bool:
    if fast_ar not in ("cached", "recompute"):
        raise ValueError(f"[generate] expected fast_ar 'cached' or 'recompute', got {fast_ar!r}")
    if model.num_codebooks > 1 and not model.has_fast_ar:
        raise ValueError(
            f"[generate] expected a model with a Fast-AR to fill {model.num_codebooks} codebooks, got one without"
        )
    return fast_ar == "cached"


def checked_seed(seed: int | None) -> int:
    if seed is None:
        return secrets.randbits(63)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise ValueError(f"[generate] expected a seed from 0 to 2^64 - 1, got {seed!r}")
    return int(seed)


def text_limit(guard: StallGuard | None, text_tokens: int | None) -> int | None:
    if guard is None or text_tokens is None:
        return None
    if isinstance(text_tokens, bool) or not isinstance(text_tokens, int | np.integer) or text_tokens < 0:
        raise ValueError(f"[generate] expected text_tokens a whole number >= 0, or None, got {text_tokens!r}")
    return guard.frame_limit(int(text_tokens))


def frame_budget(model: Model, config: GenerationConfig, used: int, session: Session | None) -> int:
    """max_new_tokens, settled. A frame needs a position each, so the prompt and they must fit into the context."""
    room, what = model.context_length - used, f"the context of {model.context_length}"
    if session is not None and session.max_positions - used < room:
        room, what = session.max_positions - used, f"the session's {session.max_positions}"
    wanted = min(DEFAULT_MAX_NEW_TOKENS, max(room, 1)) if config.max_new_tokens is None else config.max_new_tokens
    if wanted > room:
        raise ValueError(
            f"[generate] expected prompt + max_new_tokens within {what} positions, got {used} + {wanted} = "
            f"{used + wanted}"
        )
    if config.min_tokens_before_end > wanted:
        raise ValueError(
            f"[generate] expected min_tokens_before_end at most max_new_tokens ({wanted}), "
            f"got {config.min_tokens_before_end}"
        )
    return wanted
