"""The checks of a request for codes before anything is computed: its options, and whether it fits into the context.

Owns those checks and their error texts. Leaves the prompt to `prompts.py`, and running the request to `batch.py`.
"""

from __future__ import annotations

import secrets

import numpy as np

from dualar.config import DEFAULT_MAX_NEW_TOKENS, GenerationConfig, StallGuard
from dualar.model import Model, Session


def checked_fast_ar(model: Model, fast_ar: str) -> str:
    """`fast_ar`; ValueError for another word, or for a model whose further codebooks nothing fills."""
    if fast_ar not in ("cached", "recompute"):
        raise ValueError(f"[generate] expected fast_ar 'cached' or 'recompute', got {fast_ar!r}")
    if model.num_codebooks > 1 and not model.has_fast_ar:
        raise ValueError(
            f"[generate] expected a model with a Fast-AR to fill {model.num_codebooks} codebooks, got one without"
        )
    return fast_ar


def checked_seed(seed: int | None) -> int:
    """The seed as an int, a random one for None; ValueError for one that is not from 0 to 2^64 - 1."""
    if seed is None:
        return secrets.randbits(63)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise ValueError(f"[generate] expected a seed from 0 to 2^64 - 1, got {seed!r}")
    return int(seed)


def text_limit(guard: StallGuard | None, text_tokens: int | None) -> int | None:
    """Most frames that the stall guard allows for a text of `text_tokens` tokens; None for no limit."""
    if guard is None or text_tokens is None:
        return None
    if isinstance(text_tokens, bool) or not isinstance(text_tokens, int | np.integer) or text_tokens < 0:
        raise ValueError(f"[generate] expected text_tokens a whole number >= 0, or None, got {text_tokens!r}")
    return guard.frame_limit(int(text_tokens))


def frame_budget(model: Model, config: GenerationConfig, used: int, session: Session | None) -> int:
    """How many frames a request may make: max_new_tokens, by default 1024 or what the context leaves.

    used: positions that the prompt, and what is in the session before it, take; each frame takes one more. ValueError
    where max_new_tokens does not fit into the context or the session.
    """
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
