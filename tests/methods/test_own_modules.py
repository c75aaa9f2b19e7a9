from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

import hushgraph as hg
from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.checks import check_graph
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.rooted import RootedSubgraphs, whole_graph
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.base import Method
from hushgraph.nn.rooted import RootedNetwork
from hushgraph.noise.source import NoiseSource
from hushgraph.training.rooted import rooted_gradient
from hushgraph.training.rooted_functional import FormedRootedGradient
from small_graphs import random_graph

BUDGET = (8.0, 1e-3)


class Encoder(nn.Module):
    """Three layers, layer norm, dropout."""

    def __init__(self, columns: int = 5, width: int = 6) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(columns, width), nn.Linear(width, width), nn.Linear(width, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.act, self.drop = nn.SELU(), nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.act(self.norms[0](self.first(x))))
        return self.last(self.drop(self.act(self.norms[1](self.second(x)))))


def head(columns: int) -> nn.Module:
    return nn.Sequential(nn.Linear(columns, 4), nn.Tanh(), nn.Linear(4, 3))


SMALL: dict[str, Any] = {"epochs": 2, "batch_size": 8, "hidden_channels": 6}
OWN: dict[str, tuple[Method, Method]] = {
    "gap": (hg.GAP(encoder=Encoder(), head=head(18), **SMALL), hg.GAP(**SMALL)),
    "progap": (hg.ProGAP(encoder=Encoder(), **SMALL), hg.ProGAP(**SMALL)),
    "dp-gnn": (hg.DPGNN(encoder=Encoder(), head=head(6), **SMALL), hg.DPGNN(**SMALL)),
    "dp-mlp": (hg.DPMLP(module=head(5), **SMALL), hg.DPMLP(**SMALL)),
    "chorus": (hg.Chorus(module=head(5), train_fraction=0.5, **SMALL), hg.Chorus(train_fraction=0.5, **SMALL)),
}


@pytest.mark.parametrize("name", OWN)
def test_epsilon_is_that_of_the_built_in_layers(name: str) -> None:
    own, usual = (method.fit(random_graph(1), hg.units.Node(max_degree=5), BUDGET) for method in OWN[name])
    assert own.certificate.epsilon == usual.certificate.epsilon
    assert [stage.event(own.unit) for stage in own.plan.stages] == [
        stage.event(usual.unit) for stage in usual.plan.stages
    ]
    assert "the modules of the user" in str(own)
    assert "the modules of the user" not in str(usual)


@pytest.mark.parametrize("name", OWN)
def test_a_model_with_own_modules_is_saved_and_read(name: str, tmp_path: Path) -> None:
    method = OWN[name][0]
    graph = random_graph(1)
    model = method.fit(graph, hg.units.Node(max_degree=5), BUDGET, ledger=Ledger(tmp_path / "book"))
    model.save(tmp_path / "model")
    needed = {} if name in ("dp-mlp", "chorus") else {"encoder": Encoder()}
    again = hg.load(tmp_path / "model", **needed)
    assert torch.equal(again.predict_proba(graph), model.predict_proba(graph))
    if needed:
        with pytest.raises(InputError, match=r"hushgraph.load\(folder, encoder=Encoder\(...\)\)"):
            hg.load(tmp_path / "model")
    with pytest.raises(InputError, match="trained without"):
        hg.load(tmp_path / "model", **needed, other=Encoder())


def test_the_same_method_starts_from_the_same_module_every_time() -> None:
    method = OWN["gap"][0]
    first, second = (method.fit(random_graph(1), hg.units.Node(max_degree=5), BUDGET, seed=3) for _ in range(2))
    assert torch.equal(first.predict_proba(), second.predict_proba())


def test_batch_norm_over_private_rows_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    batch = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6))
    ledger = Ledger(tmp_path / "book")
    with pytest.raises(UnprovenError, match=r"encoder: layer '1' .* mixes the rows of a batch"):
        hg.GAP(encoder=batch, **SMALL).fit(random_graph(1), hg.units.Node(max_degree=5), BUDGET, ledger=ledger)
    assert not ledger.exists
    model = hg.GAP(encoder=batch, **SMALL).fit(random_graph(1), "undirected-edge", BUDGET, seed=0)
    assert model.metrics["accuracy"]


def test_a_deleted_record_moves_what_an_own_module_releases_by_at_most_the_bound() -> None:
    """The whole path of one step at node level: encoder, its rows, sums over neighbors and the gradient of the head."""
    from hushgraph.training import ClippedGradient

    graph = random_graph(2)
    method = hg.GAP(encoder=Encoder(), head=head(18), **SMALL)
    unit = hg.units.Node(max_degree=5)
    plan = method.plan(check_graph(graph).metadata, unit, hg.Budget(*BUDGET))
    network = method.network(plan, torch.Generator().manual_seed(0)).eval()
    emptied = graph.x.clone()
    emptied[7] = 0.0
    rows, other = network.encoder.encode(graph.x), network.encoder.encode(emptied)
    others = torch.arange(len(rows)) != 7
    assert torch.equal(rows[others], other[others])
    assert float(rows.norm(dim=1).max()) <= 1.0 + 1e-6
    engine = ClippedGradient(network.encoder, max_grad_norm=1.0)
    moved = engine.sum(graph.x, graph.y) - engine.sum(graph.x[others], graph.y[others])
    assert float(moved.norm()) <= 1.0


@pytest.mark.parametrize("inference", ["full", "noisy"])
def test_dp_gnn_passes_messages_between_modules_of_ones_own(inference: str) -> None:
    method = hg.DPGNN(encoder=Encoder(), head=head(6), inference=inference, num_layers=2, max_degree=2, **SMALL)
    model = method.fit(random_graph(1), hg.units.Node(max_degree=5), BUDGET, ledger=Ledger.in_memory(), seed=0)
    assert isinstance(model.network, RootedNetwork)
    assert len(model.network.encoder) == len(model.network.decoder) == 0
    given = nn.utils.parameters_to_vector(method.encoder.parameters())  # type: ignore[union-attr]
    trained = nn.utils.parameters_to_vector(model.network.own_encoder.parameters())  # type: ignore[union-attr]
    assert trained.numel() == given.numel()
    assert not torch.equal(trained, given)
    batch = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6))
    with pytest.raises(UnprovenError, match="mixes the rows of a batch"):
        hg.DPGNN(encoder=batch, **SMALL).fit(random_graph(1), hg.units.Node(max_degree=5), BUDGET)


@pytest.mark.parametrize("layers", [1, 2])
def test_roots_of_a_dp_gnn_with_own_modules_are_clipped_one_by_one(layers: int) -> None:
    """The sum equals a loop over roots, and one root more or less moves it by at most the bound."""
    graph, nodes = random_graph(3), torch.arange(12)
    method = hg.DPGNN(encoder=Encoder(), head=head(6), num_layers=layers, max_degree=2)
    network = method.network(method.plan(check_graph(graph).metadata, hg.units.Node(), hg.Budget(*BUDGET)), Generator())
    network = network.eval()  # without dropout, so that a loop draws nothing else
    edges = MemoryEdges.from_edge_index(graph.edge_index, graph.num_nodes).cap(2, NoiseSource.seeded(0))
    engine = rooted_gradient(network, RootedSubgraphs(edges, nodes, layers), graph.x, graph.y[nodes], max_grad_norm=0.3)
    assert isinstance(engine, FormedRootedGradient)
    total, clipped = torch.zeros(engine.num_parameters, dtype=torch.float64), 0
    for node in nodes.tolist():
        scores = network(graph.x, whole_graph(edges.load(), layers))[node : node + 1]
        found = torch.autograd.grad(F.cross_entropy(scores, graph.y[node : node + 1]), list(network.parameters()))
        gradient = torch.cat([part.reshape(-1) for part in found]).double()
        clipped += float(gradient.norm()) > 0.3
        total += gradient * min(1.0, engine.clip_norm / float(gradient.norm()))
    assert clipped > 0
    torch.testing.assert_close(engine.sum(nodes), total, rtol=1e-4, atol=1e-5)
    for node in range(12):
        moved = engine.sum(nodes) - engine.sum(nodes[nodes != node])
        assert float(moved.norm()) <= 0.3


def test_modules_that_are_none_are_refused() -> None:
    with pytest.raises(InputError, match=r"encoder: expected a Module object.*encoder=Encoder\(...\)"):
        hg.GAP(encoder=Encoder)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown setting 'encoder'"):
        hg.GAP.from_words({"encoder": "mine"})


@pytest.mark.parametrize("unit", [hg.units.UndirectedEdge(), hg.units.Node(max_degree=5)])
def test_chorus_learns_its_model_of_features_by_a_module_of_ones_own(unit: hg.Unit) -> None:
    method = hg.Chorus(module=head(5), train_fraction=0.5, epochs=2)
    model = method.fit(random_graph(1), unit, BUDGET, ledger=Ledger.in_memory(), seed=0)
    before = nn.utils.parameters_to_vector(head(5).parameters()).numel()
    own = next(one for one in model.network.modules() if type(one).__name__ == "OwnFeatures")
    assert nn.utils.parameters_to_vector(own.parameters()).numel() == before
    given = nn.utils.parameters_to_vector(method.module.parameters())  # type: ignore[union-attr]
    assert not torch.equal(nn.utils.parameters_to_vector(own.parameters()), given)


def test_chorus_refuses_a_module_that_would_replace_nothing() -> None:
    with pytest.raises(InputError, match="all training nodes read sums"):
        hg.Chorus(module=head(5), train_fraction=1.0).fit(
            random_graph(1), hg.units.Node(max_degree=5), BUDGET, ledger=Ledger.in_memory()
        )
