"""Edges drawn anew from a dendrogram with noisy counts: the second half of EdgeRR. Proof: docs/proofs/dendrogram.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch

from hushgraph.errors import InputError
from hushgraph.graph.dendrogram import Dendrogram, balanced
from hushgraph.graph.dendrogram_cells import Cells
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.pairs import pair_ends, pair_numbers, unordered_numbers, without
from hushgraph.mechanisms.canaries import Evidence, OpenVault, audit_graph
from hushgraph.mechanisms.pair_release import PairRelease, Pairs
from hushgraph.noise.discrete import step_probability
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit

_MOST_LEAVES = 200_000


@dataclass(frozen=True)
class DendrogramEdges(PairRelease):
    """Private edges are counted by where they part in a released tree, with discrete Laplace noise, and drawn anew.

    Every pair is in one count, so all counts together cost what one costs. A subtree is counted as a whole where the
    noise would be large against its pairs: 1 / (epsilon L R) at least `split_share` and 1 / (epsilon s (s - 1)) at
    least `whole_share`, with L, R and s leaves left, right and below. All pairs of a count share one probability, cut
    to [0, 1]. Public edges come out as they are; with `public` False there are none.
    """

    public: bool = True
    split_share: float = 0.05
    whole_share: float = 0.01

    name, proof, law = "dendrogram-edges", "dendrogram", "discrete-laplace"

    def __post_init__(self) -> None:
        for name in ("split_share", "whole_share"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise InputError(f"{name}: expected a positive, finite number; got {getattr(self, name)!r}")
        if not self.undirected:
            raise InputError("dendrogram-edges: expected undirected pairs; a dendrogram has no directions")

    def usable_scale(self, scale: float) -> float:
        """Any: the noise is the difference of two waiting times, whose decay is a real number."""
        return scale

    def realized(self, unit: Unit, scale: float) -> float | None:
        """The decay of the noise law, times the pairs that change."""
        bits = self.sensitivity(unit)
        return bits * -math.log1p(-step_probability(1.0 / scale)) if math.isfinite(bits) else None

    def check(self, *inputs: Any) -> None:
        """A dendrogram."""
        if len(inputs) != 1 or not isinstance(inputs[0], Dendrogram):
            raise InputError("dendrogram-edges: expected a released dendrogram")

    def release(self, data: Any, scale: float, noise: NoiseSource, tree: Dendrogram) -> MemoryEdges:
        """Counts with noise, probabilities, and edges by their coins."""
        pairs, cells = self.pairs(data), self.cells(tree, scale)
        noisy = self._noisy(cells.counts(*self._ends(pairs.linked, tree)), scale, noise)
        open_pairs = cells.sizes - cells.counts(*self._ends(pairs.public, tree))
        rates = np.clip(noisy / np.maximum(open_pairs, 1), 0.0, 1.0)
        drawn = np.sort(unordered_numbers(*cells.draw(rates, noise.stream("edges"))))
        return pairs.graph(without(drawn, pairs.public))

    def cells(self, tree: Dendrogram, scale: float) -> Cells:
        """How the pairs are counted; it follows from the tree and the noise."""
        leaves = tree.last - tree.first + 1
        small = (scale / tree.pairs >= self.split_share) & (scale / (leaves * (leaves - 1)) >= self.whole_share)
        return Cells.of_tree(tree, small)

    def pairs(self, data: Any) -> Pairs:
        """As for other releases of graphs; without `public` all pairs are private."""
        if self.public:
            return super().pairs(data)
        edges: MemoryEdges = data.whole_lists.load()
        linked = pair_numbers(edges, undirected=True)
        return Pairs(linked, np.empty(0, dtype=np.int64), edges.num_nodes, undirected=True)

    @staticmethod
    def _ends(numbers: np.ndarray, tree: Dendrogram) -> tuple[np.ndarray, np.ndarray]:
        return pair_ends(numbers, tree.num_nodes, undirected=True)

    @staticmethod
    def _noisy(counts: np.ndarray, scale: float, noise: NoiseSource) -> np.ndarray:
        return counts + noise.stream("counts").two_sided_geometric(len(counts), step_probability(1.0 / scale))

    # What tests go through

    def before_noise(self, data: Any, noise: Any, *inputs: Any) -> np.ndarray:
        """The count of every inner node; cells are these, or sums of these."""
        return inputs[0].count(*self._ends(self.pairs(data).linked, inputs[0])).astype(np.float64)

    def after_noise(self, data: Any, scale: float, noise: Any, *inputs: Any) -> np.ndarray:
        """The same counts with noise."""
        return self._noisy(self.before_noise(data, noise, *inputs), scale, noise)

    @classmethod
    def variants(cls) -> Sequence[Self]:
        """As published."""
        return [cls()]

    def example_inputs(self, graph: Any) -> tuple[Any, ...]:
        """A balanced tree in a fixed order."""
        return (balanced(np.arange(graph.metadata.num_nodes)),)

    # Canaries: one pair in each of many subtrees that are counted as a whole, and apart

    def most_canaries(self, stage: Stage, unit: Unit) -> int:
        """As many subtrees as are planted within seconds."""
        return max(4, _MOST_LEAVES // self._block(stage))

    def canary(self, stage: Stage, unit: Unit, coins: np.ndarray, open_vault: OpenVault, rng: Any) -> Evidence | None:
        """Whether any edge came out in the subtree of each canary, for units that are edges."""
        if unit.footprint.records:
            return None
        leaves, blocks = self._block(stage), len(coins)
        planted = leaves * torch.from_numpy(np.flatnonzero(coins))
        pairs = torch.stack([planted, planted + 1])
        edges = torch.cat([pairs, pairs.flip(0)], dim=1) if unit.footprint.mirrored else pairs
        vault = open_vault(audit_graph(torch.zeros(leaves * blocks, 1), edges))
        found: MemoryEdges = vault.release(stage.name, _apart(blocks, leaves))
        source, target = (found.edge_index() // leaves).numpy()
        seen = np.bincount(source[source == target], minlength=blocks) > 0
        return Evidence((2.0 * seen - 1.0) / (stage.scale or 1.0), "edge")

    def _block(self, stage: Stage) -> int:
        """So many leaves that a subtree is counted apart from others."""
        return 2 + math.isqrt(math.ceil((stage.scale or 1.0) / self.split_share))


def _apart(blocks: int, leaves: int) -> Dendrogram:
    """A tree in which every block of leaves is a subtree."""
    depths = blocks + np.tile(np.arange(leaves), blocks)
    depths[leaves - 1 :: leaves] = np.arange(blocks)
    return Dendrogram(np.arange(blocks * leaves), depths[:-1])
