"""Canaries for noisy sums over neighbours: edges, or nodes with their own lists, each planted by a coin.

The graph is made for the audit. Canaries are disjoint: each moves rows that no other canary touches, so one run gives
as many independent observations as there are canaries. The score of a canary is the release minus what it would be
without the canary (known to the auditor), projected on the direction in which the canary moves it. Hops after the
first send the rows that were released before, which both worlds share, so the projections of all hops add up to one
Gaussian with the separation mu of the whole composition.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.accounting.plan import AggregationStage, Plan
from hushgraph.errors import InputError
from hushgraph.intake import CheckedGraph, check_graph
from hushgraph.ledger import Ledger
from hushgraph.mechanisms.aggregate import bounded_rows
from hushgraph.mechanisms.noise import NoiseSource
from hushgraph.nn.sparse import dense_rows
from hushgraph.run import open_run
from hushgraph.units import DirectedEdge, Node, Relation, UndirectedEdge, Unit
from hushgraph.vault import Vault

WIDTH = 8
BASE_NODES = 100
LARGEST_GRAPH = 60_000


@dataclass(frozen=True)
class CanaryGraph:
    """A graph with canaries. Canary `owner[i]` sends the row of node `sender[i]` to node `receiver[i]`, if planted.

    An undirected edge has two such pairs, a node as many as its list is long. `absent_rows` is what the senders' rows
    become when the canary is not there: -1 times the row under replacement, 0 otherwise.
    """

    graph: CheckedGraph
    planted: np.ndarray
    owner: Tensor
    sender: Tensor
    receiver: Tensor
    rows: Tensor
    flips: bool = field(default=False)


def plant(unit: Unit, canaries: int, rng: np.random.Generator) -> CanaryGraph:
    """A graph with `canaries` canaries of `unit` (fewer, for nodes, where the graph would become too large)."""
    if canaries < 4:
        raise InputError(f"canaries: expected at least 4; got {canaries}")
    if isinstance(unit, UndirectedEdge | DirectedEdge):
        return _edges(canaries, rng, both=isinstance(unit, UndirectedEdge))
    if isinstance(unit, Node):
        return _nodes(unit, min(canaries, max(4, LARGEST_GRAPH // (unit.max_degree + 1))), rng)
    raise InputError(f"no canaries are known for sums over neighbours under the unit '{unit}'")


def observe(plan: Plan, planted: CanaryGraph, noise: NoiseSource) -> np.ndarray:
    """One score per canary after all aggregations of `plan`, run by a real vault on a ledger in memory.

    Under the noise that the plan states, scores have variance 1; their mean is 0 for absent canaries.
    """
    run = open_run(Ledger(), plan, "audit canaries", seeded=noise.seeded_run)
    vault = Vault(planted.graph, run, noise)
    rows, flips = planted.rows, planted.flips
    total = torch.zeros(len(planted.planted), dtype=torch.float64)
    information = torch.zeros_like(total)
    for stage in plan.stages:
        if not isinstance(stage, AggregationStage):
            continue
        for _ in range(stage.count):
            # An audit may look at what stays in its own vault.
            released = dense_rows(vault._open(vault.aggregate(rows, stage)))
            sent = bounded_rows(_present_rows(rows, planted, flips), stage.row_norm)
            change = (2.0 if flips else 1.0) * sent[planted.sender].to(torch.float64)
            absent = -sent[planted.sender].to(torch.float64) if flips else torch.zeros_like(change)
            residual = released[planted.receiver].to(torch.float64) - absent
            total.index_add_(0, planted.owner, (residual * change).sum(dim=1) / stage.std**2)
            information.index_add_(0, planted.owner, (change * change).sum(dim=1) / stage.std**2)
            rows, flips = F.normalize(released, dim=1), False
            if planted.flips:
                break  # later hops send rows that both worlds share to the same list: they tell nothing more
    return (total / information.clamp_min(1e-300).sqrt()).numpy()


def _present_rows(rows: Tensor, planted: CanaryGraph, flips: bool) -> Tensor:
    """The rows as they are when every canary is planted."""
    if not flips:
        return rows
    turned = rows.clone()
    absent = torch.from_numpy(~planted.planted)[planted.owner]
    senders = torch.unique(planted.sender[absent])
    turned[senders] = -rows[senders]
    return turned


def _edges(canaries: int, rng: np.random.Generator, *, both: bool) -> CanaryGraph:
    planted = rng.random(canaries) < 0.5
    left = BASE_NODES + 2 * torch.arange(canaries)
    right = left + 1
    sender = torch.cat([left, right]) if both else left
    receiver = torch.cat([right, left]) if both else right
    owner = torch.arange(canaries).repeat(2 if both else 1)
    kept = torch.from_numpy(planted)[owner]
    nodes = BASE_NODES + 2 * canaries
    edges = torch.cat([base_edges(rng, both), torch.stack([sender[kept], receiver[kept]])], dim=1)
    return CanaryGraph(_graph(nodes, edges), planted, owner, sender, receiver, _unit_rows(nodes, rng))


def _nodes(unit: Node, canaries: int, rng: np.random.Generator) -> CanaryGraph:
    planted = rng.random(canaries) < 0.5
    planted[:2], planted[2:4] = True, False
    degree = unit.max_degree
    first = BASE_NODES + (degree + 1) * torch.arange(canaries)
    owner = torch.arange(canaries).repeat_interleave(degree)
    sender = first[owner]
    receiver = sender + 1 + torch.arange(degree).repeat(canaries)
    nodes = BASE_NODES + (degree + 1) * canaries
    rows = _unit_rows(nodes, rng)
    flips = unit.relation is Relation.REPLACE
    if flips:
        kept = torch.ones(len(owner), dtype=torch.bool)
        rows[first[torch.from_numpy(~planted)]] *= -1.0
    else:
        kept = torch.from_numpy(planted)[owner]
    edges = torch.stack([sender[kept], receiver[kept]])
    return CanaryGraph(_graph(nodes, edges), planted, owner, sender, receiver, rows, flips)


def base_edges(rng: np.random.Generator, both: bool) -> Tensor:
    """A few ordinary edges among the base nodes; one direction only, or both."""
    pairs = torch.from_numpy(rng.integers(0, BASE_NODES, size=(2, 4 * BASE_NODES)))
    pairs = pairs[:, pairs[0] < pairs[1]]
    return torch.cat([pairs, pairs.flip(0)], dim=1) if both else pairs


def _unit_rows(nodes: int, rng: np.random.Generator) -> Tensor:
    return F.normalize(torch.from_numpy(rng.standard_normal((nodes, WIDTH))).to(torch.float32), dim=1)


def _graph(nodes: int, edges: Tensor) -> CheckedGraph:
    train = torch.zeros(nodes, dtype=torch.bool)
    train[0] = True
    labels = torch.zeros(nodes, dtype=torch.int64)
    data = Data(x=torch.zeros(nodes, 1), edge_index=edges, y=labels, train_mask=train, num_classes=2)
    return check_graph(data)
