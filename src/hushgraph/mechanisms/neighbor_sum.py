"""Normalize, sum over in-neighbors, perturb: the release of GAP and ProGAP. Proof: docs/proofs/aggregation.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.quantized import QuantizedRows, quantize
from hushgraph.graph.rows import Rows, dense_rows
from hushgraph.graph.types import parts
from hushgraph.graph.weights import LEVELS
from hushgraph.mechanisms.canaries import (
    Evidence,
    Layout,
    OpenVault,
    Tally,
    audit_graph,
    lay_out,
    of_one_type,
    room_for,
)
from hushgraph.noise.normal import in_steps
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.mechanism import GaussianMechanism
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.relations import noise_factors
from hushgraph.privacy.units import Unit

_CANARY_WIDTH = 8


@dataclass(frozen=True)
class NeighborSum(GaussianMechanism):
    """`A^T X + N(0, scale^2)` with every row of X scaled to norm `row_norm` (zero rows stay zero).

    Rows are brought to whole multiples of a grid, with their norm bounded after that; they are added in exact integers,
    and the noise is that of a Gaussian rounded to the same grid. So the bound holds for the numbers that are added.

    Edges with weights count by their share of the declared bound, at most one. Where edges have types, `noise_factors`
    holds one number of at least 1 for each, and the sums over each type stand side by side: those of type t have
    `noise_factors[t]` times the noise.

    Bound: each of `footprint.receivers` rows changes by one row of norm `row_norm`, and by two where a record is
    replaced. Proof: docs/proofs/aggregation.md.
    """

    row_norm: float = 1.0
    noise_factors: tuple[float, ...] = ()

    name = "neighbor-sum"
    proof = "aggregation"
    reads = frozenset({"edges"})
    sums_by_node = True
    takes_edge_weights = True
    takes_edge_types = True
    released = "a sum over neighbors"

    def __post_init__(self) -> None:
        if any(not (math.isfinite(factor) and factor >= 1.0) for factor in self.noise_factors):
            raise InputError(f"noise_factors: expected numbers of at least 1; got {self.noise_factors}")

    @classmethod
    def of(cls, metadata: Metadata, unit: Unit, budget: Budget) -> NeighborSum:
        """The sums of a graph; where edges have types, each type with noise by its own budget, if it has one."""
        typed = metadata.edge_types or budget.relations
        return cls(noise_factors=noise_factors(metadata.edge_types, budget, unit)) if typed else cls()

    def sensitivity(self, unit: Unit) -> float:
        """sqrt(receivers) rows, twice that under replacement."""
        f = unit.footprint
        return math.sqrt(f.receivers) * self.row_norm * (2.0 if f.replaced else 1.0)

    def query(self, data: Any, rows: Rows) -> Tensor:
        """The sums of the bounded rows."""
        sums, step = self._sums(data, rows)
        return (sums.to(torch.float64) * step).to(torch.float32)

    def release(self, data: Any, scale: float, noise: NoiseSource, rows: Rows) -> Tensor:
        """The sums with noise on the same grid."""
        factors = self._factors
        sums, step = self._sums(data, rows)
        for block, factor in zip(sums.chunk(len(factors), dim=1), factors):
            block += noise.integer_gaussian(tuple(block.shape), in_steps(factor * scale, step))
        return (sums.to(torch.float64) * step).to(torch.float32)

    def _sums(self, data: Any, rows: Rows) -> tuple[Tensor, float]:
        """The sums in whole numbers, and what one of them stands for."""
        weights = data.edge_weights
        if self.noise_factors:
            of_types, bounded = (
                parts(data.mailboxes(len(self.noise_factors)), len(self.noise_factors)),
                self._whole(rows),
            )
            return torch.cat([edges.sum(bounded) for edges in of_types], dim=1), bounded.step
        edges, bounded = data.edges, self._whole(rows)
        if weights is None:
            return edges.sum(bounded), bounded.step
        return weights.sum(edges, bounded), bounded.step / LEVELS

    @property
    def _factors(self) -> tuple[float, ...]:
        return self.noise_factors or (1.0,)

    def before_noise(self, data: Any, noise: Any, *inputs: Any) -> np.ndarray:
        """The sums, each in multiples of its noise."""
        return self._in_multiples(super().before_noise(data, noise, *inputs))

    def after_noise(self, data: Any, scale: float, noise: Any, *inputs: Any) -> np.ndarray:
        """The same as released."""
        return self._in_multiples(super().after_noise(data, scale, noise, *inputs))

    def _in_multiples(self, sums: np.ndarray) -> np.ndarray:
        return sums / np.repeat(self._factors, sums.shape[1] // len(self._factors))

    def bounded(self, rows: Rows) -> Tensor:
        """The rows as they are added, in float64."""
        whole = self._whole(rows)
        return whole.values.to(torch.float64) * whole.step

    def _whole(self, rows: Rows) -> QuantizedRows:
        return quantize(dense_rows(rows), self.row_norm, normalize=True)

    @classmethod
    def variants(cls) -> Sequence[NeighborSum]:
        """Rows of length one, and of another length; edges of several types."""
        return [cls(), cls(row_norm=2.5), cls(noise_factors=(1.0, 2.0))]

    def example_inputs(self, graph: CheckedGraph) -> tuple[Rows]:
        """The features."""
        return (graph.features,)

    def most_canaries(self, stage: Stage, unit: Unit) -> int:
        """As many as fit in a graph."""
        return room_for(unit)

    def canary(
        self, stage: Stage, unit: Unit, coins: np.ndarray, open_vault: OpenVault, rng: np.random.Generator
    ) -> Evidence:
        """Edges, or nodes with their own lists, that send rows nobody else sends to their receivers.

        The score of a canary is the release minus what it would be without it, projected on the direction in which it
        moves the release. Later releases send the rows that were released before, which both worlds share, so all
        projections add up to one Gaussian with the separation mu of the whole composition.
        """
        layout = lay_out(unit, coins, rng)
        tally = Tally(layout)
        rows = F.normalize(torch.from_numpy(rng.standard_normal((layout.num_nodes, _CANARY_WIDTH))).float(), dim=1)
        flips = unit.footprint.replaced  # an absent canary then sends the opposite row
        if flips:
            rows[layout.heads[~layout.present()]] *= -1.0
        factor, number = min((factor, number) for number, factor in enumerate(self._factors))
        graph = audit_graph(torch.zeros(layout.num_nodes, 1), layout.edges(everyone=flips))
        vault = open_vault(of_one_type(graph, number, len(self._factors)) if self.noise_factors else graph)
        for _ in range(stage.count):
            whole = vault.hand_over(vault.release(stage.name, rows)).to(torch.float64)
            released = whole.chunk(len(self._factors), dim=1)[number]
            sent = self.bounded(_as_planted(rows, layout) if flips else rows)[layout.sender]
            absent = -sent if flips else torch.zeros_like(sent)
            tally.add(released[layout.receiver] - absent, sent - absent, factor * (stage.scale or 1.0))
            if flips:
                break  # later rows are shared by both worlds and go to the same list: they tell nothing more
            rows = F.normalize(released, dim=1).to(torch.float32)
        return tally.evidence("node" if unit.footprint.records else "edge")


def _as_planted(rows: Tensor, layout: Layout) -> Tensor:
    """The rows as they are when every canary is planted."""
    turned = rows.clone()
    turned[layout.heads[~layout.present()]] *= -1.0
    return turned
