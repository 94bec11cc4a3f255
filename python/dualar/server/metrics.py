"""What is counted, in Prometheus' text format.

Owns the names of the measures. Leaves counting to those who call it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_FACTORS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "dualar_requests", "Speech requests by how they ended", ["outcome"], registry=self.registry
        )
        self._first_audio = Histogram(
            "dualar_time_to_first_audio_seconds", "From the request to its first samples", buckets=_SECONDS,
            registry=self.registry,
        )  # fmt: skip
        self._factor = Histogram(
            "dualar_real_time_factor", "Seconds that a request took for a second of sound", buckets=_FACTORS,
            registry=self.registry,
        )  # fmt: skip
        self._frames = Counter("dualar_frames", "Frames that were decoded", registry=self.registry)
        self._steps = Counter("dualar_step_seconds", "Seconds in steps of the batch", registry=self.registry)
        self._decode = Counter("dualar_decode_seconds", "Seconds in the codec", registry=self.registry)
        self._audio = Counter("dualar_audio_seconds", "Seconds of sound that were made", registry=self.registry)

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """A measure that is read when it is asked for."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def ended(self, outcome: str) -> None:
        self._requests.labels(outcome).inc()

    def heard(self, *, first_audio_s: float | None, spent_s: float, audio_s: float) -> None:
        """A request that was answered whole."""
        if first_audio_s is not None:
            self._first_audio.observe(first_audio_s)
        if audio_s > 0:
            self._factor.observe(spent_s / audio_s)

    def stepped(self, seconds: float) -> None:
        self._steps.inc(seconds)

    def decoded(self, seconds: float, frames: int, audio_s: float) -> None:
        self._decode.inc(seconds)
        self._frames.inc(frames)
        self._audio.inc(audio_s)

    def text(self) -> bytes:
        """All of them; reads a file of the system's, so not for the event loop."""
        return generate_latest(self.registry)


def resident_bytes() -> float:
    """What the process holds of the machine's memory; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return 0.0
