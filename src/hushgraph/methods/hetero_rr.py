"""HeteroRR: a permanent private replacement of a graph, features by FeatureRR and edges by EdgeRR (Tran et al. 2022).

1. Every person's features are randomized on the device at epsilon_f: the unit is local, one person's features.
2. Private edges are drawn anew at epsilon_e from a dendrogram: the unit is one private edge, held by a curator.
3. What comes out replaces the graph. Any network can be trained on it, by anybody, and that costs nothing more.

These are two promises about two different changes, so they are two runs in one ledger, and their epsilons do not add
up. Each run is given its own part of the data and the labels, nothing else (`Plan.holds`): the one about edges never
sees a feature, the one about features never sees an edge. So neither costs the unit of the other anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hushgraph.errors import HushgraphError, InputError
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.edge_rr import EdgeRR
from hushgraph.methods.feature_rr import FeatureRR
from hushgraph.methods.perturbed import GraphRelease
from hushgraph.methods.released import FeaturePromise, ReleasedGraph, graph_of, require_release
from hushgraph.methods.running import enter
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan
from hushgraph.privacy.units import Local, Unit
from hushgraph.vault import Progress, Vault


@dataclass(frozen=True)
class HeteroRR:
    """`edges` is any method that releases a graph, `features` a FeatureRR with the public range of the features."""

    edges: GraphRelease = field(default_factory=EdgeRR)
    features: FeatureRR = field(default_factory=FeatureRR)

    name = "hetero-rr"

    def plans(self, metadata: Metadata, unit: Unit, budget: Budget, feature_budget: Budget) -> tuple[Plan, Plan]:
        """What is released of the edges, and what of the features."""
        require_release(self.edges, budget)
        if not feature_budget.is_private:
            raise InputError("features: expected a finite epsilon; without one these would be the features themselves")
        of_features = self.features.plan(metadata, Local(private_labels=False), feature_budget)
        of_edges = self.edges.plan(metadata, unit, budget)
        return of_edges.restricted("edges", "labels"), of_features.restricted("features", "labels")

    def release(
        self,
        graph: Any,
        budget: Budget,
        feature_budget: Budget,
        *,
        unit: Unit | None = None,
        ledger: Ledger | None = None,
        num_edges: int | None = None,
        seed: int | None = None,
        progress: Progress | None = None,
    ) -> ReleasedGraph:
        """The replacement: edges within `budget` for `unit` (by rule one edge), features within `feature_budget`."""
        checked = graph if isinstance(graph, CheckedGraph) else check_graph(graph, num_edges=num_edges)
        unit = self.edges.default_unit(checked) if unit is None else unit
        unit.check(checked)
        plans = self.plans(checked.metadata, unit, budget, feature_budget)
        edges, features = _vaults(checked, plans, ledger, seed, progress)
        x, found = self.features.estimates(features), self.edges.released_graph(edges)
        runs = [vault.close() for vault in (edges, features)]
        certificates = [run.certificate() for run in runs]
        promise = FeaturePromise(self.features, plans[1], certificates[1])
        seconds = sum([*edges.seconds.values(), *features.seconds.values()])
        data = graph_of(checked, found, x)
        return ReleasedGraph(data, self.edges, plans[0], certificates[0], seconds, runs[0].ledger, promise)


class _OneRun(Vault):
    """A vault that keeps its run, to close it."""

    def close(self) -> Any:
        self._run.close()
        return self._run


def _vaults(
    graph: CheckedGraph, plans: tuple[Plan, Plan], ledger: Ledger | None, seed: int | None, progress: Progress | None
) -> tuple[_OneRun, _OneRun]:
    """Both runs are entered before anything is released, or neither is left open."""
    first, noise = enter(graph, plans[0], ledger, seed)
    try:
        second, other = enter(graph, plans[1], first.ledger if ledger is None else ledger, seed)
    except HushgraphError:
        first.close()
        raise
    return _OneRun(graph, plans[0], first, noise, progress), _OneRun(graph, plans[1], second, other, progress)
