"""Runs one request alone: a batch of one row, whose frames the caller takes one by one.

Owns `FrameLoop`, an iterator over the frames, and `generate`. Leaves the row to `batch.py`, the draws and the stop
rules to `rules.py`, and the options to `requests.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Unpack

from dualar.config import GenerationConfig, SamplingConfig
from dualar.generation.batch import Batch
from dualar.generation.frames import FinishReason, Frame, Generation
from dualar.generation.prefix_cache import PrefixCache
from dualar.generation.requests import GenerationOptions, GenerationRequest
from dualar.generation.rules import FrameRules
from dualar.model import Model, PromptLike, Session
from dualar.text.places import TimedWord, WordMap


class FrameLoop(Iterator[Frame]):
    """Iterator over the frames of one request; `result()` gives all of them as a Generation.

    Each `next` runs the model for one frame. `close()` ends it early; frames so far are kept. One thread at a time.

    Options as for `generate`; those of `config` replace its keywords. A ValueError comes on creation, before anything
    is computed; ModelError (NaN logits) and BackendError (the device) while iterating.
    """

    def __init__(
        self,
        model: Model,
        prompt: PromptLike,
        config: GenerationConfig | None = None,
        *,
        seed: int | None = None,
        text_tokens: int | None = None,
        fast_ar: str = "cached",
        kv_type: str = "auto",
        session: Session | None = None,
        prefix_cache: PrefixCache | None = None,
        word_map: WordMap | None = None,
    ) -> None:
        self._rules = FrameRules(
            model, prompt, config, seed=seed, text_tokens=text_tokens, session=session, word_map=word_map
        )
        self._batch = Batch(model, max_rows=1, fast_ar=fast_ar, kv_type=kv_type, prefix_cache=prefix_cache)
        self._row = self._batch._enter(self._rules, None, session=session)
        self._raised = False  # whether the error that ended the row was raised: it is raised once

    @property
    def seed(self) -> int:
        """The seed of its draws."""
        return self._rules.seed

    @property
    def max_new_tokens(self) -> int:
        """Most frames that it may make."""
        return self._rules.max_new_tokens

    @property
    def frames(self) -> int:
        """Frames so far."""
        return self._rules.frames

    @property
    def padded_frames(self) -> int:
        """How many of them have zeros because a Fast-AR computation failed."""
        return self._rules.padded_frames

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why it ended; None while it goes on."""
        return self._rules.finish_reason

    def __next__(self) -> Frame:
        while not self._row.done:
            before = self._rules.frames
            self._batch.step()
            if self._rules.frames > before:
                return self._rules.last_frame
        if self._row.error is not None and not self._raised:
            self._raised = True
            raise self._row.error
        raise StopIteration

    def next_words(self, *, last: bool = False) -> tuple[TimedWord, ...]:
        """The words that were spoken since the last call, each once; with `last`, all that are left. Needs word_map."""
        return self._rules.next_words(last=last)

    def close(self) -> None:
        """Stop before the next frame; finish_reason is "cancelled" unless the loop had ended."""
        self._batch.close()

    def result(self) -> Generation:
        """The frames so far, also after an error. A loop that has not ended is closed first."""
        self.close()
        self._rules.cancel()
        return self._row._generation()


def run(loop: FrameLoop, on_frame: Callable[[Frame], object] | None) -> Generation:
    """Run the loop to its end, or until on_frame, which is called with each frame, returns False."""
    for frame in loop:
        if on_frame is not None and on_frame(frame) is False:
            loop.close()
    return loop.result()


def generate(
    model: Model,
    prompt: PromptLike,
    *,
    fast_ar: str = "cached",
    kv_type: str = "auto",
    session: Session | None = None,
    prefix_cache: PrefixCache | None = None,
    **options: Unpack[GenerationOptions],
) -> Generation:
    """Run a model on a prompt, int [1 + N, T] or a TalkerPrompt, until it ends the speech or a stop rule does.

    options: the fields of `GenerationRequest`; by default sampling is `SamplingConfig.fish()` and min_tokens_before_end
    0. fast_ar: "cached" or "recompute", the same codes. kv_type: as for `DualAR.session`. session: an existing session
    to run in, which may hold earlier positions that the prompt then continues; by default a new one of just the
    positions that the request needs. prefix_cache: keeps the part of the prompt that holds a voice's recording.

    If a Fast-AR computation fails (BackendError), the rest of that frame is 0 and `padded_frames` counts it.
    Errors: ValueError for a prompt or option out of range; ModelError for logits that are NaN; BackendError for the
    Slow-AR's device.
    """
    request = GenerationRequest(prompt=prompt, **options)
    loop = FrameLoop(
        model,
        prompt,
        request.config(sampling=SamplingConfig.fish(), min_tokens_before_end=0),
        seed=request.seed,
        text_tokens=request.text_tokens,
        word_map=request.word_map,
        fast_ar=fast_ar,
        kv_type=kv_type,
        session=session,
        prefix_cache=prefix_cache,
    )
    return run(loop, request.on_frame)
