"""The number of threads that the core chooses while it runs, on machines that are made up: no clock, no thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from core_testing import testing

Machine = Callable[[int, float], float]
"""(threads, now) -> seconds of one run."""


@dataclass
class Run:
    """A governor and one graph on a machine; `now` is the time there."""

    machine: Machine
    threads: int = 2
    most: int = 2
    now: float = 0.0
    history: list[tuple[float, int, float]] = field(default_factory=list)
    """(when it ended, threads, seconds) of each run"""

    def __post_init__(self) -> None:
        self.governor, self.work = (
            testing.ThreadGovernor(self.threads),
            testing.ThreadGovernor.Work(self.most),
        )

    def go_on(self, seconds: float, machine: Machine | None = None) -> list[tuple[float, int, float]]:
        """Run for so long, on another machine from now on where one is given; what was run."""
        self.machine = machine or self.machine
        end, first = self.now + seconds, len(self.history)
        while self.now < end:
            threads = self.governor.threads(self.work)
            took = self.machine(threads, self.now)
            self.now += took
            self.governor.ran(self.work, took, self.now)
            self.history.append((self.now, threads, took))
        return self.history[first:]


def share(runs: list[tuple[float, int, float]], threads: int) -> float:
    """Of the time, what was spent on so many threads."""
    return sum(took for _, used, took in runs if used == threads) / sum(took for _, _, took in runs)


def machine(times: dict[int, float], *, turn: float = 0.0, seed: int = 0) -> Machine:
    """Runs of times[threads] on the average: where `turn` is given, most are quick and some wait for a turn."""
    rng, quick = np.random.default_rng(seed), min(times.values())

    def seconds(threads: int, now: float) -> float:
        mean = times[threads]
        if not turn or mean <= quick:
            return mean * float(rng.uniform(0.97, 1.03))
        return quick + turn * float(rng.poisson((mean - quick) / turn))

    return seconds


QUIET = {1: 4e-4, 2: 3e-4}  # a graph of small nodes


def test_a_quiet_machine_keeps_all_threads() -> None:
    assert share(Run(machine(QUIET)).go_on(20), 2) == 1


def test_a_machine_that_stands_still_now_and_then_does_not_count_as_busy() -> None:
    steady, last = machine(QUIET), [0.0]

    def stalls(threads: int, now: float) -> float:
        if now - last[0] < 2:
            return steady(threads, now)
        last[0] = now
        return 0.2

    assert share(Run(stalls).go_on(30), 2) == 1


@pytest.mark.parametrize("slow", [5.0, 20.0, 500.0])
def test_where_waits_cost_more_than_they_bring_it_runs_on_one_thread(slow: float) -> None:
    run = Run(machine(QUIET))
    run.go_on(2)
    busy = machine({1: 6e-4, 2: 3e-4 * slow}, turn=0.004, seed=1)
    first = run.go_on(1, busy)
    assert share(first, 1) > 0.5
    assert share(run.go_on(20), 1) > 0.85


def test_it_grows_back_when_the_machine_is_quiet_again() -> None:
    run = Run(machine(QUIET))
    run.go_on(2)
    run.go_on(30, machine({1: 6e-4, 2: 6e-3}, turn=0.004))
    run.go_on(6, machine(QUIET))  # the longest pause before a try is five seconds
    assert share(run.go_on(20), 2) == 1


def test_it_keeps_all_threads_where_one_would_be_slower_still() -> None:
    """As with large nodes: beside one busy process a core, two threads get half of each core."""
    run = Run(machine({1: 0.06, 2: 0.03}))
    run.go_on(3)
    busy = {1: 0.15, 2: 0.07}
    runs = run.go_on(60, machine(busy))
    assert share(runs, 2) > 0.9
    assert np.mean([took for _, _, took in runs]) < 1.1 * busy[2]


def test_graphs_share_the_decision() -> None:
    """A frame is one large graph and some small ones; threads that sleep in one are not there for the next."""
    governor, small, large = (
        testing.ThreadGovernor(2),
        testing.ThreadGovernor.Work(2),
        testing.ThreadGovernor.Work(2),
    )
    now, quiet, busy = 0.0, {1: 1.3, 2: 1.0}, {1: 2.0, 2: 30.0}
    for slow in [quiet] * 50 + [busy] * 50:
        for work, seconds in [(large, 0.004), *[(small, 0.001)] * 4]:
            took = seconds * slow[governor.threads(work)]
            now += took
            governor.ran(work, took, now)
    assert (governor.threads(small), governor.threads(large)) == (1, 1)


@pytest.mark.parametrize(("threads", "limits"), [(1, 1), (2, 2), (16, 16)])
def test_a_graph_runs_on_no_more_threads_than_it_is_worth(threads: int, limits: int) -> None:
    governor = testing.ThreadGovernor(threads)
    assert governor.limit == limits
    assert [governor.threads(testing.ThreadGovernor.Work(most)) for most in (1, 2, 64)] == [
        1,
        min(2, threads),
        threads,
    ]


def test_beside_one_busy_core_of_many_it_leaves_that_one() -> None:
    quiet = {16: 1.0, 15: 1.06, 8: 1.9, 4: 3.7, 2: 7.3, 1: 14.0}
    busy = quiet | {16: 2.2}
    run = Run(lambda threads, now: quiet[threads] * 1e-2, threads=16, most=16)
    run.go_on(3)
    assert share(run.go_on(60, lambda threads, now: busy[threads] * 1e-2), 15) > 0.8
    run.go_on(40, lambda threads, now: quiet[threads] * 1e-2)  # 6 % are a small loss, which adds up slowly
    assert share(run.go_on(20), 16) == 1


def test_a_first_run_counts_for_nothing() -> None:
    """It touches new memory: as the best time that is known it would hide everything that follows."""
    governor, work = testing.ThreadGovernor(2), testing.ThreadGovernor.Work(2)
    governor.ran(work, 1.0, 1.0)
    for i in range(9):
        governor.ran(work, 0.001, 1.001 + i * 0.001)
        assert not governor.held_up
    governor.ran(work, 0.009, 1.02)
    assert governor.held_up


def test_a_context_that_grows_is_not_taken_for_a_busy_machine() -> None:
    """A step of a batch takes longer and longer; ten times as long after ten minutes."""
    grown = Run(lambda threads, now: (1 + 9 * now / 600) * {1: 0.018, 2: 0.01}[threads])
    assert share(grown.go_on(600), 2) > 0.97
