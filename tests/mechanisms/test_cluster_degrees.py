from __future__ import annotations

import math

import pytest
import torch

from audit_plans import plan_of
from hushgraph.audit.run import audit_plan
from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.checks import check_graph
from hushgraph.mechanisms import ClusterDegrees
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import units
from hushgraph.privacy.plan import Stage
from matrix_graphs import view_of
from small_graphs import random_graph


def test_counts_equal_naive_ones() -> None:
    graph = check_graph(random_graph(0))
    clusters = torch.arange(40) % 3
    found = ClusterDegrees(3).query(view_of(graph, ClusterDegrees(3), None), clusters)
    expected = torch.zeros(40, 3, dtype=torch.int64)
    for source, target in graph.edges.edge_index().t().tolist():
        expected[target, clusters[source]] += 1
    assert torch.equal(found, expected)


@pytest.mark.parametrize("scale", [0.25, 1.0, 7.3])
def test_the_decay_of_the_noise_is_what_is_charged(scale: float) -> None:
    """Empirical P[|Z| > 0] of 40,000 draws, seeded: 6 standard errors."""
    graph, mechanism = check_graph(random_graph(0, num_nodes=2_000, num_edges=500)), ClusterDegrees(20)
    clusters, view = torch.arange(2_000) % 20, view_of(graph, mechanism, None)
    noise = mechanism.release(view, scale, NoiseSource.seeded(0), clusters) - mechanism.query(view, clusters)
    decay = math.exp(-1.0 / scale)
    zero = (1.0 - decay) / (1.0 + decay)
    found = float((noise == 0).double().mean())
    assert found == pytest.approx(zero, abs=6.0 * math.sqrt(zero * (1.0 - zero) / noise.numel()))
    realized = mechanism.realized(units.UndirectedEdge(), scale)
    assert realized is not None
    assert 2.0 / scale * (1.0 - 1e-9) < realized <= 2.0 / scale


def test_records_that_change_are_refused_and_clusters_are_checked() -> None:
    for unit in (units.Node(), units.BoundedDegreeNode(max_degree=3), units.Record()):
        with pytest.raises(UnprovenError, match="cluster"):
            ClusterDegrees().event(unit, 1.0)
    with pytest.raises(InputError, match="0 to 1; got 0 to 2"):
        ClusterDegrees(2).check(torch.tensor([0, 2]))
    with pytest.raises(InputError, match="clusters"):
        ClusterDegrees(0)


class HalfScale(ClusterDegrees):
    """Broken on purpose: half the noise."""

    def release(self, data, scale, noise, clusters):  # type: ignore[no-untyped-def]
        return super().release(data, scale / 2.0, noise, clusters)


def test_canaries_come_close_and_catch_half_the_noise() -> None:
    unit = units.UndirectedEdge()
    found = {}
    for kind in (ClusterDegrees, HalfScale):
        result = audit_plan(plan_of(unit, Stage("counts", kind(3), 2, noise=None, scale=2.0)), canaries=8_000, seed=0)
        found[kind] = next(one for one in result.findings if one.planted)
    assert 1.0 < found[ClusterDegrees].lower_bound <= 2.0
    assert found[HalfScale].lower_bound > 2.0
