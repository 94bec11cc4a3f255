"""One training run: optimizer, learning rate over time, checkpoints to go on from, a log."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

CHECKPOINT_SECONDS = 120.0
LOG_STEPS = 50


class Run:
    """Trains the modules `parts` (prefix -> module) for `minutes` of processor time, over all runs.

    Of processor time, so that the learning rate falls with the work that is done, whatever else the machine does.

    The checkpoint holds what each part learnt under its prefix, and an average of the weights over the last steps,
    which is what is used. Its log is the same path with the ending .jsonl.
    """

    leads = True  # False in all but one of the processes that share a run

    def __init__(
        self, path: Path, parts: Mapping[str, nn.Module], *, minutes: float, optimizers: list[torch.optim.Optimizer],
        average: float = 0.998,
    ) -> None:  # fmt: skip
        self.path, self.minutes, self.optimizers, self.decay = path, minutes, optimizers, average
        self.parameters = {f"{prefix}.{n}" if prefix else n: p for prefix, m in parts.items()
                           for n, p in m.named_parameters()}  # fmt: skip
        self.bases = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
        self.step, self.spent = 0, 0.0
        self.average = {name: p.detach().clone() for name, p in self.parameters.items()}
        if path.exists():
            saved = torch.load(path, weights_only=True)
            for name, p in self.parameters.items():
                p.data.copy_(saved["last"][name])
            self.average = {k: v.clone() for k, v in saved["model"].items()}
            for optimizer, content in zip(optimizers, saved["optimizers"], strict=True):
                optimizer.load_state_dict(content)
            self.step, self.spent = saved["step"], saved["spent"]
        self.started, self.saved = time.process_time(), time.monotonic()
        self.before = self.spent
        self.sums: dict[str, float] = {}
        self.stopped = False
        signal.signal(signal.SIGTERM, self._stop)
        print(f"{path.stem}: {sum(p.numel() for p in self.parameters.values())} parameters, from step {self.step}, "
              f"{self.spent / 60:.1f} min", flush=True)  # fmt: skip

    def _stop(self, *_: object) -> None:
        self.stopped = True

    def going_on(self) -> bool:
        """False when the time is over, or the process was asked to end; the checkpoint is then written."""
        now = time.monotonic()
        self.spent = self.before + time.process_time() - self.started
        over = self.stopped or self.spent >= self.minutes * 60
        if over or now - self.saved > CHECKPOINT_SECONDS:
            self.save()
            self.saved = now
        return not over

    def update(self, loss: Tensor, terms: Mapping[str, float]) -> None:
        share = min(self.spent / (self.minutes * 60), 1.0)
        warm = min(1.0, (self.step + 1) / 100)
        factor = warm * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * share)))
        for optimizer, bases in zip(self.optimizers, self.bases, strict=True):
            for group, base in zip(optimizer.param_groups, bases, strict=True):
                group["lr"] = base * factor
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.average_gradients()
        norm = nn.utils.clip_grad_norm_(self.parameters.values(), 1.0)
        if bool(norm.isfinite()):
            for optimizer in self.optimizers:
                optimizer.step()
        self.step += 1
        decay = min(self.decay, self.step / (self.step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.values()), list(self.parameters.values()), 1 - decay)
        for name, value in {"loss": float(loss.detach()), "norm": float(norm), **terms}.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        if self.step % LOG_STEPS == 0 and self.leads:
            means = {name: round(total / LOG_STEPS, 4) for name, total in self.sums.items()}
            line = {"step": self.step, "minutes": round(self.spent / 60, 2), **means}
            with self.path.with_suffix(".jsonl").open("a") as log:
                log.write(json.dumps(line) + "\n")
            print(line, flush=True)
            self.sums.clear()

    def average_gradients(self) -> None:
        """Nothing here; where several processes share a run, their mean."""

    def save(self) -> None:
        content = {
            "model": self.average,
            "last": {name: p.detach() for name, p in self.parameters.items()},
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": self.step,
            "spent": self.spent,
        }
        partial = self.path.with_suffix(".partial")
        torch.save(content, partial)
        os.replace(partial, self.path)
