"""EdgeRR (HeteroRR, edge part): a dendrogram learned from public and private edges, and private edges drawn anew.

1. A dendrogram is released: the last tree of a chain with target exp(L_public + eps1 / (2 Delta) L_private), or, by
   `tree=choice`, one of several trees made from public edges, drawn by the exponential mechanism. Either chain starts
   at a tree of the public edges.
2. How many private edges part at each of its inner nodes is released with noise; new private edges are drawn.
3. A network is trained on the public edges and those. That is post-processing and costs nothing.

The chain's promise holds in the limit of a long chain and the certificate says so (`asymptotic`); that of the choice
is exact. Proof: docs/proofs/dendrogram.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.dendrogram import COMPILED
from hushgraph.graph.edges import MemoryEdges
from hushgraph.mechanisms.dendrogram import DendrogramChain, TreeMechanism
from hushgraph.mechanisms.dendrogram_choice import DendrogramChoice
from hushgraph.mechanisms.dendrogram_edges import DendrogramEdges
from hushgraph.methods.perturbed import GraphRelease
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Note
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import PrivateEdge, Unit
from hushgraph.settings import setting
from hushgraph.vault import Vault

_MOST_PLAIN_STEPS = 1_000_000
"""Proposals that plain Python makes in a minute or so."""


@dataclass(frozen=True)
class TreeRelease(GraphRelease):
    """A tree, and the edges that are drawn from it."""

    steps_per_node: int = setting(100, least=1, help="proposals of the chain for every node; fixed beforehand")
    tree_share: float = setting(0.5, above=0, below=1, help="share of epsilon for the tree; the rest is for the counts")
    split_share: float = setting(0.05, above=0, help="noise to pairs of an inner node, from which on a subtree is one")
    whole_share: float = setting(0.01, above=0, help="the same for all pairs of the subtree")

    uses_public = True

    def graph_stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """The tree and the counts; epsilon is divided between them by `tree_share`."""
        _require_compiled(self.steps_per_node * metadata.num_nodes)
        edges = DendrogramEdges(public=self.uses_public, split_share=self.split_share, whole_share=self.whole_share)
        return [
            Stage("tree", self.tree_mechanism(), noise=1.0 / self.tree_share),
            Stage("graph", edges, noise=1.0 / (1.0 - self.tree_share)),
        ]

    def tree_mechanism(self) -> TreeMechanism:
        """How the tree is released."""
        return DendrogramChain(self.steps_per_node, self.uses_public)

    def released_graph(self, vault: Vault) -> MemoryEdges:
        """The tree, then the edges; without protection the edges as they are."""
        if vault.plan.runs_exactly("graph"):
            edges: MemoryEdges = vault.release("graph")
            return edges
        found: MemoryEdges = vault.release("graph", vault.release("tree"))
        return found


def _require_compiled(steps: int) -> None:
    if steps > _MOST_PLAIN_STEPS and not COMPILED:
        raise InputError(
            f"steps_per_node: expected at most {_MOST_PLAIN_STEPS} proposals in all where numba is not installed; got "
            f"{steps}. Install it (pip install 'hushgraph[fast]'), or set steps_per_node lower"
        )


@dataclass(frozen=True)
class EdgeRR(TreeRelease):
    """Edge-aware randomized response: public edges help to find the tree, and come out as they are."""

    tree: str = setting("chain", among=("chain", "choice"), help="chain, as published (asymptotic); choice: exact")
    candidates: int = setting(64, least=1, help="trees made from public edges, with tree=choice")

    name = "edge-rr"
    summary = "a dendrogram from public and private edges, private edges drawn anew from it, then a graph network"
    paper = "Tran et al., IEEE Big Data 2022"

    def tree_mechanism(self) -> TreeMechanism:
        """A chain over all edges, or a choice among trees of the public ones."""
        if self.tree == "chain":
            return super().tree_mechanism()
        return DendrogramChoice(self.steps_per_node, candidates=self.candidates)

    def default_unit(self, graph: CheckedGraph) -> Unit:
        """One private edge, where edges were declared public."""
        return super().default_unit(graph) if graph.public_edges is None else PrivateEdge()


@dataclass(frozen=True)
class PrivHRG(TreeRelease):
    """The hierarchical random graph without public edges: the baseline. Edges that were declared public are private."""

    name = "priv-hrg"
    summary = "a dendrogram from private edges alone, all edges drawn anew from it, then a graph network"
    paper = "Xiao, Chen, Tan, KDD 2014"
    uses_public = False

    def unprotected_notes(self, metadata: Metadata, unit: Unit) -> Sequence[Note]:
        """None: no edge comes out as it is."""
        return []
