"""The cases of the suite: a tiny model of each kind of each family, made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dualar
import pytest

from families.makers import MAKERS, Maker


@dataclass(frozen=True)
class Case:
    """A model file, how it was made, and an engine of it on one thread."""

    maker: Maker
    path: Path
    engine: dualar.Engine

    def load(self, **options: Any) -> dualar.Engine:
        """Another engine of the same file."""
        return dualar.load(self.path, **{"threads": 1, **options})

    @property
    def options(self) -> Any:
        """What every request to this model must say, with few frames and a sampler that every family takes."""
        return {
            **self.maker.options(self.engine),
            "sampling": dualar.SamplingConfig.hf(),
            "max_new_tokens": 9,
            "min_tokens_before_end": 4,
        }


@pytest.fixture(scope="session", params=MAKERS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    maker = MAKERS[request.param]
    path = maker.write(tmp_path_factory.mktemp("family"))
    with dualar.load(path, threads=1) as engine:
        yield Case(maker, path, engine)


@pytest.fixture
def another(case: Case) -> Iterator[Callable[..., dualar.Engine]]:
    """`another(threads=2)`: a further engine of the case's file, closed at the end."""
    made: list[dualar.Engine] = []

    def load(**options: Any) -> dualar.Engine:
        made.append(case.load(**options))
        return made[-1]

    yield load
    for engine in made:
        engine.close()
