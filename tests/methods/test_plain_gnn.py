from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from hushgraph.errors import UnprovenError
from hushgraph.methods.model import load
from hushgraph.methods.plain_gnn import GAT, GCN, GIN, GraphSAGE
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from small_graphs import random_graph

INFINITE = Budget(math.inf, 1e-3)


@pytest.mark.parametrize("method", [GraphSAGE, GCN])
def test_a_finite_budget_is_refused_and_an_infinite_one_promises_nothing(method, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    graph = random_graph(1)
    with pytest.raises(UnprovenError, match="epsilon=inf"):
        method().fit(graph, units.UndirectedEdge(), Budget(1.0, 1e-3))
    model = method(hidden_channels=4, epochs=3).fit(graph, units.UndirectedEdge(), INFINITE, seed=0)
    assert math.isinf(model.certificate.epsilon)
    assert not model.certificate.is_private
    loaded = load(model.save(tmp_path / "m"))
    assert torch.allclose(loaded.predict_proba(graph), model.predict_proba(), atol=1e-5)


def test_seeded_training_repeats_and_leaves_the_global_generator_alone() -> None:
    graph, state = random_graph(1), torch.random.get_rng_state()
    one, two = (
        GraphSAGE(hidden_channels=4, epochs=3, dropout=0.5).fit(graph, None, INFINITE, seed=4) for _ in range(2)
    )
    assert torch.equal(one.predict_proba(), two.predict_proba())
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("method", [GraphSAGE, GCN, GIN, GAT])
def test_the_trained_network_is_pygs_own(method) -> None:  # type: ignore[no-untyped-def]
    graph = random_graph(1)
    model = method(hidden_channels=4, epochs=5, dropout=0.3).fit(graph, None, INFINITE, seed=0)
    with torch.no_grad():
        expected = model.network.eval()(graph.x, graph.edge_index)
    assert torch.allclose(model.scores, expected, atol=1e-5)


def test_the_epoch_with_the_best_validation_accuracy_is_kept() -> None:
    graph = random_graph(1)
    val = graph.val_mask
    reached = [
        float(
            (GCN(hidden_channels=4, epochs=epochs).fit(graph, None, INFINITE, seed=0).predict()[val] == graph.y[val])
            .float()
            .mean()
        )
        for epochs in (1, 5, 20)
    ]
    assert reached == sorted(reached)
