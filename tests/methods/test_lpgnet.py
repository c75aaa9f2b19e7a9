from __future__ import annotations

import pytest
import torch

import hushgraph as hg
from charges import charged_stages
from hushgraph.errors import UnprovenError
from hushgraph.ledger.ledger import Ledger
from hushgraph.privacy.metadata import Metadata
from small_graphs import random_graph

EDGE, BUDGET = hg.units.UndirectedEdge(), hg.Budget(4.0, 1e-5)


@pytest.mark.parametrize("hops", [1, 3])
def test_the_budget_is_divided_among_the_counts(hops: int) -> None:
    plan = hg.LPGNet(hops=hops).plan(Metadata.from_sizes(1_000, None, None, 8, 3), EDGE, BUDGET)
    assert plan["degrees"].scale == pytest.approx(hops * 2.0 / 4.0)
    assert 3.999 < plan.epsilon <= 4.0


def test_counts_are_the_only_thing_charged_and_are_kept_for_predictions(tmp_path) -> None:  # type: ignore[no-untyped-def]
    graph, ledger = random_graph(0), Ledger.in_memory(warn=False)
    model = hg.LPGNet(epochs=3).fit(graph, EDGE, BUDGET, ledger=ledger, seed=0)
    assert charged_stages(ledger) == ["degrees", "degrees"]
    counts = model.released["degrees"]
    assert [one.shape for one in counts] == [(40, 3), (40, 3)]
    model.save(tmp_path)
    again = hg.load(tmp_path)
    again.scores = None
    assert torch.equal(again.predict_proba(graph), model.predict_proba())


def test_units_with_private_records_are_refused() -> None:
    for unit in (hg.units.Node(), hg.units.BoundedDegreeNode()):
        with pytest.raises(UnprovenError, match="cluster"):
            hg.LPGNet().plan(Metadata.from_sizes(1_000, None, None, 8, 3), unit, BUDGET)


def test_labels_of_neighbors_help_where_features_say_nothing() -> None:
    """Two communities of 100 with features that are mostly noise."""
    made = torch.Generator().manual_seed(0)
    graph = random_graph(0, num_nodes=200)
    graph.y = torch.arange(200) % 2
    pairs = torch.randint(0, 100, (2, 3_000), generator=made) * 2 + torch.randint(0, 2, (3_000,), generator=made)
    pairs = pairs[:, pairs[0] != pairs[1]]
    graph.edge_index = torch.unique(torch.cat([pairs, pairs.flip(0)], dim=1), dim=1)
    graph.x = torch.randn(200, 5, generator=made) + 0.5 * graph.y[:, None]
    graph.class_names = ["a", "b"]
    alone = hg.MLP().fit(graph, EDGE, BUDGET, seed=0, ledger=Ledger.in_memory(warn=False))
    model = hg.LPGNet().fit(graph, EDGE, BUDGET, seed=0, ledger=Ledger.in_memory(warn=False))
    assert model.metrics["accuracy"]["test"] > alone.metrics["accuracy"]["test"] + 5.0
