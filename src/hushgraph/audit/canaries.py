"""Canaries for noisy sums over neighbors: edges, or nodes with their own lists, each planted by a coin.

The graph is made for the audit. The score of a canary is the release minus what it would be without the canary (known
to the auditor), projected on the direction in which the canary moves it. Hops after the first send the rows that were
released before, which both worlds share, so the projections of all hops add up to one Gaussian with the separation mu
of the whole composition.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.audit.layout import Evidence, Layout, flip_coins, lay_out, most_canaries
from hushgraph.data.checks import CheckedGraph, check_graph
from hushgraph.data.rows import dense_rows
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.run import open_run
from hushgraph.mechanisms.aggregate import bounded_rows
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plan import AggregationStage, Plan
from hushgraph.privacy.units import Relation, Unit
from hushgraph.vault import Vault

WIDTH = 8


@dataclass(frozen=True)
class CanaryGraph:
    """A graph with canaries that send the rows of their nodes. `flips`: an absent canary sends minus its row."""

    graph: CheckedGraph
    layout: Layout
    rows: Tensor
    flips: bool = False

    @property
    def planted(self) -> np.ndarray:
        """The coins."""
        return self.layout.coins


def plant(unit: Unit, canaries: int, rng: np.random.Generator) -> CanaryGraph:
    """A graph with `canaries` canaries of `unit` (fewer, for nodes, where the graph would become too large)."""
    return plant_coins(unit, flip_coins(min(canaries, most_canaries(unit)), rng), rng)


def plant_coins(unit: Unit, coins: np.ndarray, rng: np.random.Generator) -> CanaryGraph:
    """As `plant`, with coins that were flipped before."""
    layout = lay_out(unit, coins, rng)
    rows = F.normalize(torch.from_numpy(rng.standard_normal((layout.num_nodes, WIDTH))).to(torch.float32), dim=1)
    flips = unit.relation is Relation.REPLACE
    if flips:
        rows[layout.heads[~layout.present()]] *= -1.0
    return CanaryGraph(_graph(layout.num_nodes, layout.edges(everyone=flips)), layout, rows, flips)


def observe(plan: Plan, planted: CanaryGraph, noise: NoiseSource) -> np.ndarray:
    """One score per canary after all aggregations of `plan`, run by a real vault on a ledger in memory.

    Under the noise that the plan states, scores have variance 1; their mean is 0 for absent canaries.
    """
    return observe_sums(plan, planted, noise).scores()


def observe_sums(plan: Plan, planted: CanaryGraph, noise: NoiseSource) -> Evidence:
    """What all aggregations of `plan` say about every canary."""
    run = open_run(Ledger.in_memory(warn=False), plan, "audit canaries", seeded=noise.seeded_run)
    vault = Vault(planted.graph, run, noise)
    layout, rows, flips = planted.layout, planted.rows, planted.flips
    evidence = Evidence(layout)
    for stage in aggregation_stages(plan):
        for _ in range(stage.count):
            # An audit may look at what stays in its own vault.
            released = dense_rows(vault._open(vault.aggregate(rows, stage))).to(torch.float64)
            sent = bounded_rows(_present_rows(rows, layout, flips), stage.row_norm)[layout.sender].to(torch.float64)
            absent = -sent if flips else torch.zeros_like(sent)
            evidence.add(released[layout.receiver] - absent, sent - absent, stage.std)
            rows, flips = F.normalize(released, dim=1).to(torch.float32), False
            if planted.flips:
                return evidence  # later hops send rows that both worlds share to the same list: they tell nothing more
    return evidence


def aggregation_stages(plan: Plan) -> list[AggregationStage]:
    """The sums over neighbors of `plan`."""
    return [stage for stage in plan.stages if isinstance(stage, AggregationStage)]


def _present_rows(rows: Tensor, layout: Layout, flips: bool) -> Tensor:
    """The rows as they are when every canary is planted."""
    if not flips:
        return rows
    turned = rows.clone()
    turned[layout.heads[~layout.present()]] *= -1.0
    return turned


def _graph(nodes: int, edges: Tensor) -> CheckedGraph:
    train = torch.zeros(nodes, dtype=torch.bool)
    train[0] = True
    labels = torch.zeros(nodes, dtype=torch.int64)
    data = Data(x=torch.zeros(nodes, 1), edge_index=edges, y=labels, train_mask=train, num_classes=2)
    return check_graph(data)
