"""A replay gives back what was released and can release nothing else. Replay = fit: tests/test_matrix_methods.py."""

from __future__ import annotations

import math

import pytest
import torch

from hushgraph.errors import InputError, PrivateAccessError
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.mechanisms import EdgeCount, Gradient, NeighborSum
from hushgraph.nn import MLP
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.training.config import Training
from hushgraph.vault import Replay
from small_graphs import random_graph

NODE = units.Node(max_degree=5)
STAGES = [Stage("sums", NeighborSum(), 2), Stage("training", Gradient(1.0, 0.5, 4))]
GRAPH = check_graph(random_graph(0))
SPLIT = {name: GRAPH.split(name) for name in ("train", "val", "test")}


def replay(
    released: dict[str, list[object]],
    graph: CheckedGraph | None = None,
    unit: units.Unit = NODE,
    epsilon: float = 50.0,
    stages: list[Stage] = STAGES,
) -> Replay:
    plan = Plan.make("toy", GRAPH.metadata, unit, Budget(epsilon, 1e-3), stages)
    return Replay(plan, released, graph, SPLIT)


def test_releases_come_back_in_their_order_and_no_more_of_them() -> None:
    vault = replay({"sums": [torch.zeros(40, 5), torch.ones(40, 5)]}, GRAPH)
    assert [float(vault.release("sums", vault.features)[0, 0]) for _ in range(2)] == [0.0, 1.0]
    with pytest.raises(InputError, match="not stored with the model; use predict_on"):
        vault.release("sums", vault.features)


def test_nothing_is_trained() -> None:
    with pytest.raises(PrivateAccessError, match="'training' trains"):
        replay({}).release("training", MLP(5, 8, 3, 2), torch.zeros(40, 5), Training(epochs=1))


def test_without_a_graph_all_that_is_not_released_is_asked_for() -> None:
    vault = replay({})
    for part in ("features", "labels", "edges"):
        with pytest.raises(InputError, match=f"reads the .*{part}; pass the graph"):
            getattr(vault, part)
    with pytest.raises(InputError, match="edges"):
        vault.raw_scores(lambda features, edges: features)
    assert torch.equal(vault.nodes("val"), GRAPH.val)
    assert vault.metadata == GRAPH.metadata


def test_with_a_graph_everything_given_is_in_the_caller_s_hands() -> None:
    vault = replay({}, GRAPH)
    assert vault.features is GRAPH.features
    assert vault.labels is GRAPH.labels
    assert vault.edges is GRAPH.edges


def test_a_stage_that_was_free_is_carried_out_again() -> None:
    count = [Stage("count", EdgeCount(100))]
    entries = GRAPH.edges.num_edges
    assert replay({}, GRAPH, units.Local(), stages=count).release("count") == entries
    assert replay({}, GRAPH, NODE, math.inf, count).release("count") == entries
    with pytest.raises(InputError, match="reads the edges"):
        replay({}, None, units.Local(), stages=count).release("count")
