"""Weights of edges within a declared bound, in sixteenths of it, and exact sums with them.

A weight is rounded to a level from 0 to 16, a public function of that weight alone. A sum with weights is put together
from the bits of the levels: the edges with a bit set are summed like any others, in whole numbers, and shifted. So it
is exact, and one edge adds level / 16 times a row: never more than the row. Proof: docs/proofs/aggregation.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.edges import Edges, MemoryEdges
from hushgraph.graph.packed import pack
from hushgraph.graph.quantized import QuantizedRows

LEVELS = 16
_BITS = LEVELS.bit_length()


@dataclass(frozen=True, eq=False)
class EdgeWeights:
    """The level of every edge; `pairs` are `target << 32 | source`, sorted. An edge that is not there has the bound."""

    pairs: np.ndarray
    levels: np.ndarray

    @classmethod
    def of(cls, edge_index: Tensor, weights: Tensor, bound: float) -> EdgeWeights:
        """From weights from 0 to `bound`, larger ones cut to it; of repeated edges the largest weight is kept."""
        levels = (weights.double() / bound * LEVELS).clamp(0, LEVELS).round().to(torch.int64).numpy()
        pairs = pack(edge_index[1].numpy(), edge_index[0].numpy())
        order = np.lexsort((-levels, pairs))
        pairs, first = np.unique(pairs[order], return_index=True)
        return cls(pairs, levels[order][first])

    def sum(self, edges: Edges, rows: QuantizedRows) -> Tensor:
        """The weighted sums over in-neighbors, int64, in units of `rows.step / LEVELS`."""
        held = edges.load()
        targets = np.repeat(np.arange(held.num_nodes, dtype=np.int64), np.diff(held.offsets.numpy()))
        pairs = pack(targets, held.sources.numpy())
        levels = self._levels(pairs)
        total = torch.zeros(rows.shape, dtype=torch.int64)
        for bit in range(_BITS):
            chosen = pairs[(levels >> bit) & 1 == 1]
            if len(chosen):
                total += MemoryEdges.from_packed(chosen, held.num_nodes).sum(rows).to(torch.int64) << bit
        return total

    def _levels(self, pairs: np.ndarray) -> np.ndarray:
        if not len(self.pairs):
            return np.full(len(pairs), LEVELS)
        place = np.minimum(np.searchsorted(self.pairs, pairs), len(self.pairs) - 1)
        return np.where(self.pairs[place] == pairs, self.levels[place], LEVELS)


def weights_of(data: Any, edge_index: Tensor) -> EdgeWeights | None:
    """The weights of a graph (`data.edge_weight`, with `data.weight_bound` from public knowledge), if it has any."""
    given = getattr(data, "edge_weight", None)
    if given is None:
        return None
    found, bound = torch.as_tensor(given), getattr(data, "weight_bound", None)
    problems = []
    if not isinstance(bound, int | float) or isinstance(bound, bool) or not (math.isfinite(bound) and bound > 0):
        problems.append(f"weight_bound: expected a number above 0 from public knowledge; got {bound!r}")
    if found.shape != (edge_index.shape[1],):
        problems.append(f"edge_weight: expected one number per edge, [{edge_index.shape[1]}]; got {list(found.shape)}")
    elif found.numel() and not bool((torch.isfinite(found) & (found >= 0)).all()):
        problems.append("edge_weight: expected finite numbers of at least 0; got others. Split signs into two graphs")
    InputError.collect(problems)
    assert isinstance(bound, int | float)
    return EdgeWeights.of(edge_index, found, float(bound))
