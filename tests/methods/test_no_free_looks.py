"""At node level nothing that is written down may follow from private lists without a charge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hushgraph.methods.saving import save_model
from torch_geometric.data import Data

from hushgraph.data.checks import check_graph
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.base import Method
from hushgraph.methods.chorus import Chorus
from hushgraph.methods.gap import GAP
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.registry import METHODS, method_class
from small_graphs import random_graph

UNIT = units.Node(max_degree=5)
BUDGET = Budget(4.0, 1e-3)
WITHOUT_PROTECTION = {"sage", "gcn", "gin", "gat"}
AT_NODE_LEVEL = [name for name in METHODS if "node" in method_class(name).units and name not in WITHOUT_PROTECTION]


def two_graphs() -> list[Data]:
    """The same people with many and with few edges."""
    graphs = [random_graph(0, num_edges=250), random_graph(0)]
    graphs[1].edge_index = torch.stack([torch.arange(1, 9), torch.zeros(8, dtype=torch.int64)])
    return graphs


@pytest.mark.parametrize("name", AT_NODE_LEVEL)
def test_plans_do_not_depend_on_the_edges(name: str) -> None:
    method: Method = method_class(name)()
    plans = [method.plan(check_graph(graph).metadata, UNIT, BUDGET).as_dict() for graph in two_graphs()]
    assert plans[0] == plans[1]


@pytest.mark.parametrize("name", AT_NODE_LEVEL)
def test_what_a_saved_model_says_of_a_run_does_not_depend_on_the_edges(name: str, tmp_path: Path) -> None:
    written = []
    for number, graph in enumerate(two_graphs()):
        ledger = Ledger(tmp_path / f"ledger{number}")
        model = method_class(name)().fit(graph, UNIT, BUDGET, seed=0, ledger=ledger)
        assert model.metadata.num_edges is None
        folder = save_model(model, tmp_path / str(number))
        certificate = json.loads((folder / "certificate.json").read_text())
        own = {"run": certificate.pop("run"), "hash": certificate.pop("ledger_hash")}
        opened = ledger.history().of_run(own["run"], "open")[0].values
        kept = {key: value for key, value in opened.items() if key not in ("run", "time", "previous", "hash")}
        written.append((json.loads((folder / "config.json").read_text()), certificate, kept))
    assert written[0] == written[1]


def test_a_model_of_another_graph_does_not_carry_its_number_of_edges() -> None:
    graph, other = two_graphs()
    for method in (Chorus(), GAP()):
        model = method.fit(graph, UNIT, BUDGET, seed=0)
        assert model.predict_on(other, BUDGET, seed=0).metadata.num_edges is None  # type: ignore[attr-defined]
    edge = units.UndirectedEdge()
    assert Chorus().fit(graph, edge, BUDGET, seed=0).metadata.num_edges == check_graph(graph).metadata.num_edges
