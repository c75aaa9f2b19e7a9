"""Noisy counts of every node's neighbors in each cluster: the release of LPGNet. Proof: docs/proofs/clusters.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.quantized import QuantizedRows
from hushgraph.mechanisms.canaries import Evidence, OpenVault, audit_graph, lay_out, room_for
from hushgraph.noise.discrete import step_probability
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.mechanism import PureMechanism
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit


@dataclass(frozen=True)
class ClusterDegrees(PureMechanism):
    """Counts `[nodes, clusters]` of the nodes that send to each node, by their public cluster, with whole-number noise.

    `clusters` (one number from 0 for every node) follow from what is public or was released. Any scale will do: the
    noise is P[k] ~ (1 - p)^|k| with one p for each scale, sampled exactly.

    Bound (L1): each entry of a list that changes moves one count by one.
    """

    clusters: int = 2

    name = "cluster-degrees"
    proof = "clusters"
    reads = frozenset({"edges"})
    released = "counts of neighbors in each cluster"

    def __post_init__(self) -> None:
        if isinstance(self.clusters, bool) or not isinstance(self.clusters, int) or self.clusters < 1:
            raise InputError(f"clusters: expected a whole number of at least 1; got {self.clusters!r}")

    def sensitivity(self, unit: Unit) -> float:
        """Entries that change, where no record (and so no cluster) changes with them."""
        f = unit.footprint
        return f.own_list + f.other_entries if f.records == 0 else math.inf

    def usable_scale(self, scale: float) -> float:
        """Every scale."""
        return scale

    def realized(self, unit: Unit, scale: float) -> float | None:
        """The decay of the noise law, times the bound."""
        bound = self.sensitivity(unit)
        return bound * -math.log1p(-step_probability(1.0 / scale)) if math.isfinite(bound) else None

    def check(self, *inputs: Any) -> None:
        """One cluster for every node."""
        for clusters in inputs:
            low, high = (int(value) for value in torch.aminmax(clusters))
            if low < 0 or high >= self.clusters:
                raise InputError(f"clusters: expected numbers from 0 to {self.clusters - 1}; got {low} to {high}")

    def query(self, data: Any, clusters: Tensor) -> Tensor:
        """The exact counts, int64."""
        named = torch.nn.functional.one_hot(clusters, self.clusters).to(torch.float32)
        counts: Tensor = data.whole_lists.sum(QuantizedRows(named, bits=1, step=1.0))
        return counts

    def release(self, data: Any, scale: float, noise: NoiseSource, clusters: Tensor) -> Tensor:
        """The counts with noise."""
        counts = self.query(data, clusters)
        drawn = noise.two_sided_geometric(counts.numel(), step_probability(1.0 / scale))
        return counts + torch.from_numpy(drawn).view_as(counts)

    def example_inputs(self, graph: CheckedGraph) -> tuple[Tensor]:
        """Clusters by node number."""
        return (torch.arange(graph.metadata.num_nodes) % self.clusters,)

    def most_canaries(self, stage: Stage, unit: Unit) -> int:
        """As many as fit in a graph."""
        return room_for(unit)

    def canary(self, stage: Stage, unit: Unit, coins: Any, open_vault: OpenVault, rng: Any) -> Evidence | None:
        """Edges whose receivers hear from nobody else: how far their counts rose, in all releases together."""
        layout = lay_out(unit, coins, rng)
        vault = open_vault(audit_graph(torch.zeros(layout.num_nodes, 1), layout.edges()))
        clusters = torch.arange(layout.num_nodes) % self.clusters
        total = torch.zeros(len(coins), dtype=torch.float64)
        for _ in range(stage.count):
            seen = vault.release(stage.name, clusters)[layout.receiver, clusters[layout.sender]]
            ratio = ((seen.double()).abs() - (seen.double() - 1.0).abs()) / (stage.scale or 1.0)
            total.index_add_(0, layout.owner, ratio)
        return Evidence(total.numpy(), "edge", parts=total.numpy()[:, None])
