from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.data import Data

from hushgraph.attacks.targets import method_trainer, target_of
from hushgraph.methods.chorus import Chorus
from hushgraph.methods.gap import GAP
from hushgraph.methods.lpgnn import LPGNN
from hushgraph.methods.mlp import DPMLP, MLP
from hushgraph.methods.plain_gnn import GCN
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from small_graphs import random_graph

EDGE, NODE = units.UndirectedEdge(), units.Node(max_degree=5)
BUDGET, INFINITE = Budget(4.0, 1e-3), Budget(math.inf, 1e-3)
QUICK = GAP(hidden_channels=4, epochs=2, batch_size=8)


def test_a_model_of_sums_shows_what_was_sent_and_what_was_released(graph: Data) -> None:
    model = QUICK.fit(graph, EDGE, BUDGET, seed=0)
    target = target_of(model, graph)
    assert target.name == "gap, undirected-edge epsilon 4"
    sent = model.network.encoder.encode(graph.x)
    released = [F.normalize(rows, dim=1) for rows in model.released["aggregation"]]
    torch.testing.assert_close(target.embeddings, torch.cat([sent, *released], dim=1))


def test_at_node_level_features_are_private_and_only_releases_are_shown(graph: Data) -> None:
    target = target_of(QUICK.fit(graph, NODE, BUDGET, seed=0), graph)
    assert target.embeddings is not None
    assert target.embeddings.shape == (40, 8)
    nothing = target_of(DPMLP(epochs=1, batch_size=8).fit(graph, NODE, BUDGET, seed=0), graph)
    assert nothing.embeddings is None


def test_a_network_without_privacy_answers_directly(graph: Data) -> None:
    model = GCN(hidden_channels=4, epochs=3).fit(graph, EDGE, INFINITE, seed=0)
    target = target_of(model, graph)
    changed = graph.x.clone()
    changed[3] += 1.0
    expected = model.network.eval()(changed, graph.edge_index).softmax(dim=1)
    torch.testing.assert_close(target.needs("query")(changed), expected, rtol=1e-4, atol=1e-5)
    assert target.embeddings is not None
    assert target.embeddings.shape == (40, 4)
    assert target.name == "gcn"


def test_a_model_that_costs_nothing_answers_directly_too(graph: Data) -> None:
    target = target_of(MLP(epochs=1).fit(graph, EDGE, BUDGET, seed=0), graph)
    torch.testing.assert_close(target.needs("query")(graph.x), target.posteriors)


@pytest.mark.parametrize("method", [QUICK, Chorus(hops=1, epochs=1)])
def test_queries_are_new_releases_and_add_up(method: GAP | Chorus, graph: Data) -> None:
    target = target_of(method.fit(graph, EDGE, BUDGET, seed=0), graph)
    one, two = (target.needs("query")(graph.x) for _ in range(2))
    assert not torch.equal(one, two)
    assert target.notes["epsilon of all queries together"] > 1.3 * target.notes["epsilon"]


@pytest.mark.parametrize(
    ("method", "unit", "budget"),
    [
        (QUICK, NODE, BUDGET),
        (DPMLP(epochs=1, batch_size=8), NODE, BUDGET),
        (GCN(hidden_channels=4, epochs=2), NODE, INFINITE),
        (LPGNN(low=-1.0, high=1.0, epochs=2, label_steps=2), units.Local(), BUDGET),
    ],
)
def test_every_kind_of_method_can_be_trained_by_an_attacker(
    method: GAP | DPMLP | GCN | LPGNN, unit: units.Unit, budget: Budget, graph: Data
) -> None:
    predict = method_trainer(method, unit, budget)(graph, 0)
    other = random_graph(3, num_nodes=50)
    assert predict(other).shape == (50, 3)
    assert torch.equal(predict(other), predict(other))
