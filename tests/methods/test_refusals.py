"""What is refused before a run is entered, and who is named instead: read off the plans, never listed by hand."""

from __future__ import annotations

import pytest
import torch

import hushgraph as hg
from hushgraph import registry
from hushgraph.errors import InputError
from hushgraph.methods.refusals import methods_where, tells_types_apart, weighs_classes, weighs_edges
from small_graphs import random_graph


def test_the_methods_that_weigh_classes_are_those_that_take_weights() -> None:
    named = methods_where(weighs_classes)
    assert {"gap", "progap", "chorus", "chorus-codes", "mlp", "dp-mlp", "dp-gnn", "dp-appr"} <= set(named)
    assert not {"pate", "class-dp", "noisy-moments"} & set(named)
    graph = random_graph(1)
    with pytest.raises(InputError, match=f"weighs classes .{', '.join(named)}.; got noisy-moments"):
        hg.NoisyMoments().fit(graph, "node", (8.0, 1e-3), class_weights=[1.0] * len(graph.class_names))


def test_the_methods_that_weigh_edges_are_those_that_take_weights() -> None:
    named = methods_where(weighs_edges)
    assert set(named) == {"auto", "chorus", "gap", "progap"}
    assert methods_where(tells_types_apart) == named
    graph = random_graph(1)
    graph.edge_weight, graph.weight_bound = torch.ones(graph.edge_index.shape[1]), 1.0
    refused = [name for name in ("chorus-codes", "lpgnet") if name not in named]
    for name in refused:
        with pytest.raises(InputError, match=r"reads weights .auto, chorus, gap, progap.; got " + name):
            registry.load("methods", name)().fit(graph, "undirected-edge", (4.0, 1e-3))
