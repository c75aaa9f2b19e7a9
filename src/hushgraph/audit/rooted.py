"""Canaries for gradients of rooted subgraphs: a node whose record turns round every example that it can reach.

A canary is a node with a full list of K receivers, who send to K nodes each, and so on for r layers: N(K, r) roots with
the canary among them, all in one feature column of their own. A root's own features point one way; the canary's are so
much louder that every root it reaches points the other way. Weights are so small that the network is linear, and so the
clipped gradient of each root is C or -C in the canary's column. If the canary's record becomes null, its own example
vanishes and the other N - 1 turn round. If it is replaced, the other record names another list, and 2N - 1 turn round.
These are the changes that the accounting charges for (docs/proofs/dpgnn.md), so the bound can come close to it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.audit.gradients import LOUD, GradientScores, SumsWatcher, most_gradient_canaries
from hushgraph.audit.layout import flip_coins
from hushgraph.data.checks import CheckedGraph, check_graph
from hushgraph.data.rows import SparseRows
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.run import open_run
from hushgraph.nn.rooted import RootedNetwork
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.mixture import occurrence_bound
from hushgraph.privacy.plan import Plan, RootedGradientStage
from hushgraph.privacy.units import Relation
from hushgraph.vault import Recipe, Vault

MOST_ROOTS = 60_000


def most_rooted_canaries(plan: Plan, stage: RootedGradientStage) -> int:
    """How many canaries fit: each takes as many roots as it can touch."""
    return max(100, min(most_gradient_canaries(stage), MOST_ROOTS // stage.touched(plan.charged_unit)[0]))


def observe_rooted_training(
    plan: Plan, stage: RootedGradientStage, canaries: int | np.ndarray, noise: NoiseSource, rng: np.random.Generator
) -> GradientScores:
    """Run the stage's private training on canaries alone (so many, or with these coins), in a vault of its own."""
    planted = flip_coins(canaries, rng) if isinstance(canaries, int) else canaries
    run = open_run(Ledger.in_memory(warn=False), plan, "audit canaries", seeded=noise.seeded_run)
    graph = canary_trees(plan, stage, planted)
    network = _small_network(len(planted), stage.layers)
    column = network.encoder[0].weight
    assert isinstance(column, Tensor)
    watch = SumsWatcher(column, stage, stage.touched(plan.charged_unit))
    vault = Vault(graph, run, noise, lambda *_: watch.step())
    recipe = Recipe(epochs=1, lr=watch.scale * stage.sample_rate * graph.train.numel(), optimizer="sgd")
    vault.train_rooted(network, recipe, stage, stage.name)
    return watch.scores(planted)


def canary_trees(plan: Plan, stage: RootedGradientStage, planted: np.ndarray) -> CheckedGraph:
    """All canaries with the trees that they reach: one tree each, or two under replacement."""
    unit, canaries = plan.charged_unit, len(planted)
    assert unit.max_out_degree is not None
    degree = min(stage.max_degree, unit.max_out_degree)
    below = occurrence_bound(degree, stage.layers) - 1
    replaces = unit.relation is Relation.REPLACE
    size = 1 + (2 if replaces else 1) * below
    first = size * torch.arange(canaries)
    present = torch.from_numpy(planted)

    sender, receiver = _tree(degree, stage.layers)
    trees = []
    for start, named in ((0, present), (below, ~present)) if replaces else ((0, present),):
        # Entry 0 of the tree is the canary itself, whose list is there only if its record names this tree.
        own = sender == 0
        fixed = torch.stack([sender[~own] + start, receiver[~own] + start])
        trees.append(_repeated(fixed, first))
        trees.append(_repeated(torch.stack([sender[own], receiver[own] + start]), first[named]))
    return _graph(torch.cat(trees, dim=1), _signs(present, below, replaces, stage.layers), size)


def _tree(degree: int, layers: int) -> tuple[Tensor, Tensor]:
    """The edges of a tree with root 0 in which everybody sends to `degree` others, down to `layers`."""
    nodes = occurrence_bound(degree, layers)
    receiver = torch.arange(1, nodes)
    return (receiver - 1) // degree, receiver


def _repeated(edges: Tensor, first: Tensor) -> Tensor:
    """The same edges, moved to start at each of `first`."""
    return (edges.unsqueeze(1) + first.reshape(1, -1, 1)).reshape(2, -1)


def _signs(present: Tensor, below: int, replaces: bool, layers: int) -> Tensor:
    """`[canaries, nodes of one]`: the feature of every node, in multiples of `LOUD`.

    A mean over few rows takes at most half of a message away, a layer at a time: 4^r drowns out all others.
    """
    louder = 4.0**layers
    canary = torch.where(present, louder, -louder if replaces else 0.0).unsqueeze(1)
    others = [-torch.ones(len(present), below), *([torch.ones(len(present), below)] if replaces else [])]
    return torch.cat([canary, *others], dim=1)


def _graph(edges: Tensor, signs: Tensor, size: int) -> CheckedGraph:
    canaries, nodes = len(signs), signs.numel()
    values = LOUD * signs.flatten()
    there = values != 0.0
    ends = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cumsum(there, 0)])
    columns = torch.arange(canaries).repeat_interleave(size)
    data = Data(
        x=SparseRows(ends, columns[there], values[there], (nodes, canaries)),
        edge_index=edges,
        y=torch.zeros(nodes, dtype=torch.int64),
        train_mask=torch.ones(nodes, dtype=torch.bool),
        num_classes=2,
    )
    return check_graph(data)


def _small_network(canaries: int, layers: int) -> RootedNetwork:
    """One hidden number; all weights that a gradient passes on its way to the first layer are 1 or -1."""
    network = RootedNetwork(canaries, 1, 2, num_layers=layers, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        for layer in network.convolutions:
            for name, parameter in layer.named_parameters():
                if name.endswith("weight"):
                    parameter.fill_(1.0)
        last = network.decoder[0].weight
        assert isinstance(last, Tensor)
        last.copy_(torch.tensor([[1.0], [-1.0]]))
    return network
