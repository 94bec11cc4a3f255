"""A run that two or more processes share: each takes its part of every batch, and their gradients are averaged.

Owns the exchange, over `torch.distributed` with gloo and a file to meet at. The first process (rank 0) decides when the
run ends and how far its schedule is, and writes the checkpoints; all of them hold the same weights at every step.
Leaves the optimizer and the schedule to `training/progress.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

from training.progress import Run


def meet(file: Path, rank: int, workers: int) -> None:
    """Wait for the others. The file must not be there from an earlier meeting."""
    distributed.init_process_group("gloo", init_method=f"file://{file.resolve()}", rank=rank, world_size=workers)


class SharedRun(Run):
    """A `Run` of each of the processes that have met; alone, it is a `Run`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.workers = distributed.get_world_size() if distributed.is_initialized() else 1
        self.leads = self.workers == 1 or distributed.get_rank() == 0

    def going_on(self) -> bool:
        if self.workers == 1:
            return super().going_on()
        told = torch.zeros(2, dtype=torch.float64)
        if self.leads:
            told = torch.tensor([super().going_on(), self.spent], dtype=torch.float64)
        distributed.broadcast(told, 0)
        self.spent = float(told[1])
        return bool(told[0])

    def average_gradients(self) -> None:
        if self.workers == 1:
            return
        grads = [p.grad for p in self.parameters.values() if p.grad is not None]
        flat = nn.utils.parameters_to_vector(grads)
        distributed.all_reduce(flat)
        nn.utils.vector_to_parameters(flat / self.workers, grads)
