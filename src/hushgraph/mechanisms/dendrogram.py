"""A dendrogram that fits the edges, as the last state of a Metropolis chain. Proof: docs/proofs/dendrogram.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hushgraph.errors import InputError
from hushgraph.graph.bisection import bisected
from hushgraph.graph.dendrogram import GRID, Chain, Dendrogram, likelihood, sensitivity
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.pairs import pair_ends, pair_numbers, without
from hushgraph.mechanisms.canaries import Evidence, OpenVault, audit_graph
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.mechanism import PureMechanism
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit

Ends = tuple[np.ndarray, np.ndarray]
_MOST_CANARIES = 1_000


@dataclass(frozen=True)
class TreeMechanism(PureMechanism):
    """What the two ways to release a tree share: unordered pairs, public ones apart, and their likelihood.

    `public` False takes edges that were declared public for private ones. Trees come from a chain with so many
    proposals for every node, fixed before anything is read. It starts at a tree of the public edges.

    Bound: the pairs that one unit changes, each of which moves the score of any tree by at most 1 (times Delta).
    """

    steps_per_node: int = 100
    public: bool = True

    proof = "dendrogram"
    law = "exponential"
    reads = frozenset({"edges"})
    released = "a dendrogram"

    def __post_init__(self) -> None:
        given = self.steps_per_node
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise InputError(f"steps_per_node: expected a whole number of at least 1; got {given!r}")

    def sensitivity(self, unit: Unit) -> float:
        """How many unordered pairs one unit changes."""
        f = unit.footprint
        return (f.own_list + f.other_entries) / (2.0 if f.mirrored else 1.0)

    def before_noise(self, data: Any, noise: Any, *inputs: Any) -> np.ndarray:
        """The score of one tree, in multiples of what a pair can move it."""
        public, private = both_ends(data, public=self.public)
        nodes = data.metadata.num_nodes
        tree = bisected(nodes, public)
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

    # Canaries: graphs of three nodes, each in a vault of its own, since one tree says little about many pairs

    def most_canaries(self, stage: Stage, unit: Unit) -> int:
        """As many small vaults as are opened within seconds."""
        return _MOST_CANARIES

    def canary(self, stage: Stage, unit: Unit, coins: np.ndarray, open_vault: OpenVault, rng: Any) -> Evidence | None:
        """The pair (0, 1) is linked by coin beside the linked pair (0, 2): which two leaves part last?

        With both pairs linked, the tree that parts 0 first explains them best, without the canary the one that parts 1
        first; either is preferred by a factor of e^(1 / (2 scale)) over the other two.
        """
        if unit.footprint.records:
            return None
        graphs = [_three_nodes(planted, both=unit.footprint.mirrored) for planted in (False, True)]
        found = [_parted_first(open_vault(graphs[int(coin)]).release(stage.name)) for coin in coins]
        ratios = np.array([1.0, -1.0, 0.0])[found] / (2.0 * (stage.scale or 1.0))
        return Evidence(ratios, "edge")


def _three_nodes(planted: bool, *, both: bool) -> Any:
    pairs = torch.tensor([[0, 0], [2, 1]])[:, : 1 + planted]
    return audit_graph(torch.zeros(3, 1), torch.cat([pairs, pairs.flip(0)], dim=1) if both else pairs)


def _parted_first(tree: Dendrogram) -> int:
    """The leaf of three that the root parts from the other two."""
    return int(tree.order[0 if tree.depths[0] < tree.depths[1] else 2])


@dataclass(frozen=True)
class DendrogramChain(TreeMechanism):
    """One chain with target exp(L_public + L_private / (2 Delta scale)); its last tree is released.

    The promise is that of the target: it holds in the limit of a long chain, so the certificate calls it asymptotic.
    """

    name = "dendrogram-chain"
    asymptotic = True

    def query(self, data: Any, *inputs: Any) -> Dendrogram:
        """The chain with the likelihood of all edges as its target, from a fixed public generator."""
        return self._walked(data, 1.0, NoiseSource.seeded(0))

    def release(self, data: Any, scale: float, noise: NoiseSource) -> Dendrogram:
        """The last tree of the chain."""
        return self._walked(data, 0.5 / (sensitivity(data.metadata.num_nodes) * scale), noise)

    def _walked(self, data: Any, private_rate: float, noise: NoiseSource) -> Dendrogram:
        nodes, (public, private) = data.metadata.num_nodes, both_ends(data, public=self.public)
        chain, steps = Chain(nodes, public, private, noise, start_of(nodes, public)), self.steps_per_node * nodes
        for done in chain.steps(steps, private_rate):
            data.report(done, steps)
        return chain.tree

    @classmethod
    def variants(cls) -> list[DendrogramChain]:
        """Short chains, with and without public edges."""
        return [cls(steps_per_node=20), cls(steps_per_node=20, public=False)]


NOTHING: Ends = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def start_of(num_nodes: int, public: Ends) -> Dendrogram | None:
    """The tree of the public edges, which a chain starts at; None where there are no such edges."""
    return bisected(num_nodes, public) if len(public[0]) else None


def both_ends(data: Any, *, public: bool) -> tuple[Ends, Ends]:
    """The ends of the public and of the private pairs; those that were declared public are not private."""
    edges: MemoryEdges = data.whole_lists.load()
    numbers = pair_numbers(edges, undirected=True)
    if not public or data.public_edges is None:
        return NOTHING, pair_ends(numbers, edges.num_nodes, undirected=True)
    known = pair_numbers(data.public_edges, undirected=True)
    private = without(numbers, known)
    return pair_ends(known, edges.num_nodes, undirected=True), pair_ends(private, edges.num_nodes, undirected=True)
