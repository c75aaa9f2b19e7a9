"""A dendrogram that fits the edges, as the last state of a Metropolis chain. Proof: docs/proofs/dendrogram.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hushgraph.errors import InputError
from hushgraph.graph.dendrogram import GRID, Chain, Dendrogram, likelihood, sensitivity
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.pairs import pair_ends, pair_numbers, without
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.mechanism import PureMechanism
from hushgraph.privacy.units import Unit

Ends = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class TreeMechanism(PureMechanism):
    """What the two ways to release a tree share: unordered pairs, public ones apart, and their likelihood.

    `public` False takes edges that were declared public for private ones. Each of `steps` is one proposal of a chain;
    their number is fixed before anything is read.

    Bound: the pairs that one unit changes, each of which moves the score of any tree by at most 1 (times Delta).
    """

    steps: int = 1_000_000
    public: bool = True

    proof = "dendrogram"
    law = "exponential"
    reads = frozenset({"edges"})
    released = "a dendrogram"

    def __post_init__(self) -> None:
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or self.steps < 1:
            raise InputError(f"steps: expected a whole number of at least 1; got {self.steps!r}")

    def sensitivity(self, unit: Unit) -> float:
        """How many unordered pairs one unit changes."""
        f = unit.footprint
        return (f.own_list + f.other_entries) / (2.0 if f.mirrored else 1.0)

    def before_noise(self, data: Any, noise: Any, *inputs: Any) -> np.ndarray:
        """The score of one tree, in multiples of what a pair can move it."""
        public, private = both_ends(data, public=self.public)
        nodes = data.metadata.num_nodes
        tree = Chain(nodes, NOTHING, NOTHING, NoiseSource.seeded(0)).tree
        _, score = likelihood(tree, tree.count(*public), tree.count(*private))
        return np.array([score / GRID / sensitivity(nodes)])

    def to_tensors(self, value: Dendrogram) -> dict[str, Any]:
        """The two arrays of the tree."""
        return {"order": torch.from_numpy(value.order), "depths": torch.from_numpy(value.depths)}

    def from_tensors(self, tensors: dict[str, Any]) -> Dendrogram:
        """The inverse of `to_tensors`."""
        return Dendrogram(tensors["order"].numpy(), tensors["depths"].numpy())

    def realized(self, unit: Unit, scale: float) -> float | None:
        """None: it depends on the graph; tests enumerate all graphs of five nodes."""
        return None


@dataclass(frozen=True)
class DendrogramChain(TreeMechanism):
    """One chain with target exp(L_public + L_private / (2 Delta scale)); its last tree is released.

    The promise is that of the target: it holds in the limit of a long chain, so the certificate calls it asymptotic.
    """

    name = "dendrogram-chain"
    asymptotic = True

    def query(self, data: Any, *inputs: Any) -> Dendrogram:
        """The chain with the likelihood of all edges as its target, from a fixed public generator."""
        return self._walked(data, 1.0, NoiseSource.seeded(0), self.steps)

    def release(self, data: Any, scale: float, noise: NoiseSource) -> Dendrogram:
        """The last tree of the chain."""
        return self._walked(data, 0.5 / (sensitivity(data.metadata.num_nodes) * scale), noise, self.steps)

    def _walked(self, data: Any, private_rate: float, noise: NoiseSource, steps: int) -> Dendrogram:
        chain = Chain(data.metadata.num_nodes, *both_ends(data, public=self.public), noise)
        for done in chain.steps(steps, private_rate):
            data.report(done, steps)
        return chain.tree

    @classmethod
    def variants(cls) -> list[DendrogramChain]:
        """Short chains, with and without public edges."""
        return [cls(steps=200), cls(steps=200, public=False)]


NOTHING: Ends = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def both_ends(data: Any, *, public: bool) -> tuple[Ends, Ends]:
    """The ends of the public and of the private pairs; those that were declared public are not private."""
    edges: MemoryEdges = data.whole_lists.load()
    numbers = pair_numbers(edges, undirected=True)
    if not public or data.public_edges is None:
        return NOTHING, pair_ends(numbers, edges.num_nodes, undirected=True)
    known = pair_numbers(data.public_edges, undirected=True)
    private = without(numbers, known)
    return pair_ends(known, edges.num_nodes, undirected=True), pair_ends(private, edges.num_nodes, undirected=True)
