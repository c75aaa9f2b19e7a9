from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import Tensor

from hushgraph.noise.source import NoiseSource


class HalfNoise:
    """Broken on purpose: a source whose Gaussian noise is half of what was asked for."""

    def __init__(self, source: NoiseSource) -> None:
        self.source = source
        self.seeded_run = source.seeded_run

    def stream(self, label: str) -> HalfNoise:
        return HalfNoise(self.source.stream(label))

    def gaussian(self, shape: tuple[int, ...], std: float = 1.0, *rest: object) -> Tensor:
        return self.source.gaussian(shape, std / 2.0)

    def integer_gaussian(self, shape: tuple[int, ...], std: float) -> Tensor:
        return self.source.integer_gaussian(shape, std / 2.0)

    def __getattr__(self, name: str) -> object:
        return getattr(self.source, name)


@pytest.fixture
def half_noise() -> Callable[[int], HalfNoise]:
    """A source with half the noise, from a seed."""
    return lambda seed: HalfNoise(NoiseSource.seeded(seed))
