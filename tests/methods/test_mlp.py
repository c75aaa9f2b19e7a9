from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from hushgraph.errors import InputError, UnprovenError
from hushgraph.methods.mlp import DPMLP, MLP
from hushgraph.methods.model import load
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from small_graphs import random_graph

EDGE, NODE = units.UndirectedEdge(), units.Node()
BUDGET = Budget(4.0, 1e-3)


def test_an_mlp_costs_nothing_at_edge_level() -> None:
    model = MLP(epochs=3).fit(random_graph(1), EDGE, BUDGET, seed=0)
    assert model.certificate.epsilon == 0.0
    changed = random_graph(1)
    changed.edge_index = changed.edge_index[:, :0]
    changed.edge_index = torch.tensor([[0, 1], [1, 0]])
    again = MLP(epochs=3).fit(changed, EDGE, BUDGET, seed=0)
    assert torch.equal(model.predict_proba(), again.predict_proba())


def test_a_plain_mlp_has_no_proof_at_node_level() -> None:
    with pytest.raises(UnprovenError, match="raw labels and has no privacy proof"):
        MLP().fit(random_graph(1), NODE, BUDGET)


def test_dp_mlp_matches_the_published_noise() -> None:
    sizes = Metadata.from_sizes(18_939, 1_354_934, 14_204)
    plan = DPMLP().plan(sizes, NODE, Budget(8.0, 1e-5), paper_mode=True)
    assert plan["classifier"].scale == pytest.approx(0.677, rel=3e-3)  # the clip norm is 1
    assert plan.paper is not None
    assert plan.epsilon < plan.paper.epsilon <= 8.0


@pytest.mark.parametrize("unit", [NODE, units.NodeReplace(), units.Record()])
def test_dp_mlp_trains_under_every_record_unit(unit: units.Unit) -> None:
    model = DPMLP(epochs=2, batch_size=10).fit(random_graph(1), unit, BUDGET, seed=0)
    assert 0.0 < model.certificate.epsilon <= 4.0


def test_dp_mlp_refuses_edge_units_where_training_is_free() -> None:
    with pytest.raises(InputError, match="use mlp, which is free"):
        DPMLP().fit(random_graph(1), EDGE, BUDGET)


def test_an_infinite_budget_trains_plainly_and_promises_nothing() -> None:
    model = DPMLP(epochs=2).fit(random_graph(1), NODE, Budget(math.inf, 1e-3), seed=0)
    assert math.isinf(model.certificate.epsilon)


def test_a_saved_model_needs_the_features(tmp_path: Path) -> None:
    graph = random_graph(1)
    model = DPMLP(epochs=2, batch_size=10).fit(graph, NODE, BUDGET, seed=0)
    loaded = load(model.save(tmp_path / "m"))
    with pytest.raises(InputError, match="pass the graph"):
        loaded.predict()
    assert torch.allclose(loaded.predict_proba(graph), model.predict_proba(), atol=1e-6)
