from __future__ import annotations

import pytest
import torch
from torch import nn

from hushgraph.errors import InputError
from hushgraph.nn.feature_scores import feature_scores
from small_graphs import random_graph

pytest.importorskip("captum")


def linear(weights: list[list[float]]) -> nn.Linear:
    layer = nn.Linear(len(weights[0]), len(weights), bias=False)
    layer.weight.data = torch.tensor(weights)
    return layer


def test_importance_of_a_linear_model_is_weight_times_distance_from_the_mean() -> None:
    graph = random_graph(0)
    graph.public_mask = torch.arange(40) < 10
    model = linear([[1.0, 2.0, 0.0, 0.0, -4.0], [0.0] * 5])
    rows = graph.x[:10]
    first = (model(rows)[:, 0] >= model(rows)[:, 1]).float().unsqueeze(1)  # the second class has no gradient
    sizes = (first * (rows - rows.mean(0)) * model.weight[0]).abs().mean(0).detach()
    found = feature_scores(model, graph)
    assert found.importance == pytest.approx((sizes / sizes.sum()).tolist(), rel=1e-4)
    assert found.sensitivity == (0.2,) * 5
    assert sum(found.importance) == pytest.approx(1.0)


def test_sensitivity_is_what_masking_changes() -> None:
    graph = random_graph(0)
    graph.public_mask = torch.arange(40) < 10
    masked = graph.x[:10].clone()
    masked[:, 1] += 3.0
    masked[:, 4] -= 1.0
    found = feature_scores(linear([[1.0] * 5, [0.0] * 5]), graph, masked)
    assert found.sensitivity == pytest.approx((0.0, 0.75, 0.0, 0.0, 0.25), abs=1e-6)
    with pytest.raises(InputError, match="a row for each public record"):
        feature_scores(linear([[1.0] * 5, [0.0] * 5]), graph, masked[:3])


def test_protected_records_are_refused_and_never_read() -> None:
    graph, model = random_graph(0), linear([[1.0] * 5, [0.0] * 5])
    with pytest.raises(InputError, match="public_mask"):
        feature_scores(model, graph)
    graph.public_mask = torch.zeros(40, dtype=torch.bool)
    with pytest.raises(InputError, match="at least one public record"):
        feature_scores(model, graph)
    graph.public_mask[:5] = True
    before = feature_scores(model, graph)
    graph.x[5:] = 1e6
    assert feature_scores(model, graph) == before
