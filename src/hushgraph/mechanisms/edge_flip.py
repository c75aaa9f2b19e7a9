"""Randomized response on every pair of nodes: the release of EdgeRand and ARR. Proof: docs/proofs/graph-release.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hushgraph.errors import InputError
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.pairs import merged
from hushgraph.mechanisms.pair_release import PairRelease
from hushgraph.noise.discrete import ROUNDING, SMALLEST_P
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.units import Unit

_LARGEST_LOSS = 60.0


@dataclass(frozen=True)
class EdgeFlip(PairRelease):
    """Every bit is flipped with probability 1 / (1 + e^(1/scale)); links that come out are then kept with rate `keep`.

    `keep` = 1 is EdgeRand; ARR (asymmetric randomized response) keeps so many that the density stays as it is. It is
    public: a setting, or computed from what was released before. Time and memory are in proportion to the links that
    go in and come out.
    """

    name = "edge-flip"
    law = "randomized-response"

    def check(self, *inputs: Any) -> None:
        """A rate between 0 and 1."""
        for keep in inputs:
            if not 0.0 <= keep <= 1.0:
                raise InputError(f"keep: expected a rate from 0 to 1; got {keep!r}")

    def rates(self, scale: float, keep: float = 1.0) -> tuple[float, float]:
        """How likely a linked and an unlinked pair come out: (present, absent).

        Rounded so that present / absent and (1 - absent) / (1 - present) are at most e^(1/scale) for the two doubles
        that the coins use.
        """
        loss = 1.0 / scale
        if loss > _LARGEST_LOSS:
            raise InputError(f"{self.name}: expected an epsilon of at most {_LARGEST_LOSS:g} a pair; got {loss:.4g}")
        absent = keep / (1.0 + math.exp(loss)) * (1.0 + ROUNDING)
        if absent < SMALLEST_P:
            return 0.0, 0.0
        both = absent * math.exp(loss), absent * math.exp(-loss) - math.expm1(-loss)
        return min(both) * (1.0 - 4.0 * ROUNDING), absent

    def release(self, data: Any, scale: float, noise: NoiseSource, keep: float = 1.0) -> MemoryEdges:
        """Links that stay, by their own coins, and pairs that become links: a coin for every pair, links put aside."""
        present, absent = self.rates(scale, keep)
        pairs = self.pairs(data)
        stays = pairs.linked[noise.stream("present").bernoulli_places(len(pairs.linked), present)]
        becomes = pairs.private_apart(noise.stream("absent").bernoulli_places(pairs.total, absent))
        return pairs.graph(merged(stays, becomes))

    def keep_rate(self, scale: float, density: float) -> float:
        """The rate at which a graph of this density keeps it, on average."""
        present, absent = self.rates(scale)
        density = min(max(density, 0.0), 1.0)
        return min(1.0, density / (density * present + (1.0 - density) * absent))

    def realized(self, unit: Unit, scale: float) -> float | None:
        """The larger log ratio of the two answers of one pair, times the pairs that change; fewer links tell less."""
        present, absent = self.rates(scale)
        one = max(math.log(present / absent), math.log1p(-absent) - math.log1p(-present))
        return self.sensitivity(unit) * one if math.isfinite(self.sensitivity(unit)) else None
