"""A noise source that takes every way its draws can go, with the probability of each: exact laws of small releases.

Draws of whole-number noise end `_FAR` steps out, where less than 1e-8 is left for losses of 1 a step.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

_FAR = 19


class EveryOutcome:
    """Stands in for a `NoiseSource`: what is drawn follows a path of choices, which `outcomes` tries one by one."""

    def __init__(self, path: list[int]) -> None:
        self.path, self.sizes, self.probability = path, [], 1.0

    def stream(self, name: str) -> EveryOutcome:
        """The same: draws are independent anyway."""
        return self

    def _choose(self, values: Sequence[Any], chances: Sequence[float]) -> Any:
        if len(self.sizes) == len(self.path):
            self.path.append(0)
        place = self.path[len(self.sizes)]
        self.sizes.append(len(values))
        self.probability *= chances[place]
        return values[place]

    def bernoulli_places(self, count: int, rate: float) -> np.ndarray:
        """The places of the coins that come up."""
        coins = [self._choose((0, 1), (1.0 - rate, rate)) for _ in range(count)]
        return np.flatnonzero(coins)

    def geometric(self, count: int, p: float) -> np.ndarray:
        """Waiting times."""
        values = range(_FAR)
        chances = [p * (1.0 - p) ** k for k in values]
        return np.array([self._choose(values, chances) for _ in range(count)], dtype=np.int64)

    def two_sided_geometric(self, count: int, p: float) -> np.ndarray:
        """P[k] in proportion to (1 - p)^|k|."""
        values = range(-_FAR, _FAR + 1)
        chances = [p / (2.0 - p) * (1.0 - p) ** abs(k) for k in values]
        return np.array([self._choose(values, chances) for _ in range(count)], dtype=np.int64)

    def integers(self, count: int, bound: int) -> torch.Tensor:
        """Lots without ties: an order of all, each as likely."""
        orders = list(itertools.permutations(range(count)))
        return torch.tensor(self._choose(orders, [1.0 / len(orders)] * len(orders)), dtype=torch.int64)


def outcomes(run: Callable[[EveryOutcome], Any]) -> Iterator[tuple[Any, float]]:
    """What `run` returns on every path, with its probability."""
    path: list[int] = []
    while True:
        noise = EveryOutcome(path)
        yield run(noise), noise.probability
        while path and path[-1] == noise.sizes[len(path) - 1] - 1:
            path.pop()
        if not path:
            return
        path[-1] += 1


def largest_loss(one: dict[Any, float], other: dict[Any, float]) -> float:
    """The largest log ratio of two laws; infinite where one has an outcome that the other has not."""
    return max(math.log(chance / other[out]) if other.get(out) else math.inf for out, chance in one.items() if chance)
