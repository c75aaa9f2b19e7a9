"""The secret sample that studies/dpappr_runs.py measures: what it may spend, and that others are empty in it."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import ModuleType

import pytest
import torch

from hushgraph.privacy.budget import Budget
from small_graphs import random_graph


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "studies"))
    return importlib.import_module("dpappr_runs")


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 1.0])
def test_what_is_spent_on_the_sample_amplifies_to_the_budget(runs: ModuleType, epsilon: float, rate: float) -> None:
    inner = runs.before_sampling(Budget(epsilon, 1e-6), rate)
    assert math.log1p(rate * math.expm1(inner.epsilon)) == pytest.approx(epsilon)
    assert rate * inner.definite_delta == pytest.approx(1e-6)
    assert rate * inner.epsilon <= epsilon * (1.0 + 1e-12)  # it buys less than it leaves out
    if rate < 1.0:
        assert epsilon < inner.epsilon < epsilon / rate  # epsilon / rate is what the publication spends


def test_those_outside_of_the_sample_are_empty_and_the_graph_stays_as_it_is(runs: ModuleType) -> None:
    graph = random_graph(0)
    before = graph.x.clone(), graph.y.clone(), graph.edge_index.clone()
    kept = torch.arange(graph.num_nodes) % 3 == 0
    sample = runs.emptied(graph, kept)
    assert bool(kept[sample.edge_index].all())
    assert sample.edge_index.shape[1] == int(kept[graph.edge_index].all(dim=0).sum()) > 0
    assert float(sample.x[~kept].abs().sum()) == 0.0
    assert bool((sample.y[~kept] == -1).all())
    assert torch.equal(sample.x[kept], graph.x[kept])
    assert torch.equal(sample.train_mask, graph.train_mask)  # who trains is public, who is in the sample is not
    assert all(torch.equal(one, other) for one, other in zip(before, (graph.x, graph.y, graph.edge_index)))
