"""The pairs with the largest noisy bits: the release of LapGraph. Proof: docs/proofs/graph-release.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.edges import MemoryEdges
from hushgraph.mechanisms.pair_release import PairRelease
from hushgraph.noise.discrete import step_probability
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.units import Unit

_TAIL_ROUNDING = 2.0**-36
_SLACK = 12.0  # standard deviations by which more pairs are drawn than wanted


@dataclass(frozen=True)
class NoisyEdges(PairRelease):
    """Every bit gets discrete Laplace noise of this scale; the `count` pairs with the largest sums are the graph.

    A bit counts `grain` steps of a whole-number scale, so that sums are compared exactly; ties are settled by lot.
    Pairs whose sum is below a public threshold are never drawn: it lies so low that enough others remain.
    """

    grain: int = 1024

    name = "noisy-edges"
    law = "noisy-top"

    def __post_init__(self) -> None:
        if isinstance(self.grain, bool) or not isinstance(self.grain, int) or not 1 <= self.grain <= 1 << 20:
            raise InputError(f"grain: expected a whole number from 1 to 2^20; got {self.grain!r}")

    def check(self, *inputs: Any) -> None:
        """A whole number of links."""
        for count in inputs:
            if not isinstance(count, int) or count < 0:
                raise InputError(f"count: expected a whole number of at least 0; got {count!r}")

    def step(self, scale: float) -> float:
        """The probability p of the noise law P[k] ~ (1 - p)^|k|, with `grain` steps of loss at most 1 / scale."""
        return step_probability(1.0 / (scale * self.grain))

    def tail(self, scale: float, total: int, count: int) -> tuple[int, float]:
        """The least sum that is drawn, and how likely an unlinked pair reaches it (rounded up)."""
        p = self.step(scale)
        decay = -math.log1p(-p)
        wanted = count + _SLACK * math.sqrt(count) + 100.0
        least = max(1, math.floor((math.log(total / wanted) - math.log(2.0 - p)) / decay)) if total else 1
        return least, math.exp(-decay * least) / (2.0 - p) * (1.0 + _TAIL_ROUNDING)

    def release(self, data: Any, scale: float, noise: NoiseSource, count: int) -> MemoryEdges:
        """Sums of all linked pairs, and of those unlinked ones that reach the threshold; then the largest."""
        p, pairs = self.step(scale), self.pairs(data)
        least, rate = self.tail(scale, pairs.total, count)
        of_links = self.grain + noise.stream("present").two_sided_geometric(len(pairs.linked), p)
        reached = of_links >= least
        apart = pairs.private_apart(noise.stream("absent").bernoulli_places(pairs.total, rate))
        of_others = least + noise.stream("excess").geometric(len(apart), p)
        numbers = np.concatenate((pairs.linked[reached], apart))
        order = np.argsort(numbers, kind="stable")  # two runs; which of them are links must not decide ties
        sums = np.concatenate((of_links[reached], of_others))[order]
        return pairs.graph(numbers[order][largest(sums, count, noise.stream("ties"))])

    def realized(self, unit: Unit, scale: float) -> float | None:
        """`grain` steps of the noise law, times the pairs that change."""
        bits = self.sensitivity(unit)
        return bits * self.grain * -math.log1p(-self.step(scale)) if math.isfinite(bits) else None

    def example_inputs(self, graph: CheckedGraph) -> tuple[int]:
        """As many links as the graph has nodes."""
        return (graph.metadata.num_nodes,)

    def canary_inputs(self, pairs: int) -> tuple[Any, ...]:
        """Half as many links as are planted, so that the threshold lies beyond a bit: there the ratio is largest."""
        return (max(1, pairs // 4),)


def largest(sums: np.ndarray, count: int, noise: NoiseSource) -> np.ndarray:
    """A mask of the `count` largest sums; ties for the last places are settled by lot."""
    if count >= len(sums):
        return np.ones(len(sums), dtype=bool)
    if count == 0:
        return np.zeros(len(sums), dtype=bool)
    last = np.partition(sums, len(sums) - count)[len(sums) - count]
    chosen = sums > last
    ties = np.flatnonzero(sums == last)
    lots = noise.integers(len(ties), 1 << 53).numpy()
    chosen[ties[np.argsort(lots, kind="stable")[: count - int(chosen.sum())]]] = True
    return chosen
