from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from hushgraph.noise.source import NoiseSource


class HalfNoise:
    """Broken on purpose: a source whose Gaussian noise is half of what was asked for."""

    def __init__(self, source: NoiseSource) -> None:
        self.source = source

    def stream(self, label: str) -> HalfNoise:
        return HalfNoise(self.source.stream(label))

    def __getattr__(self, name: str) -> Any:
        right = getattr(self.source, name)
        if not name.endswith("gaussian"):
            return right

        def halved(shape: Any, std: float = 1.0, *rest: Any, **options: Any) -> Tensor:
            return right(shape, std / 2.0, *rest, **options)

        return halved


@pytest.fixture
def half_noise() -> Callable[[int], NoiseSource]:
    """A source with half the noise, from a seed."""
    return lambda seed: HalfNoise(NoiseSource.seeded(seed))  # type: ignore[return-value]
