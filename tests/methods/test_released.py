from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from scipy import sparse

import hushgraph as hg
from charges import charged_stages
from hushgraph.audit.run import audit_run
from hushgraph.datasets.splits import to_torch_csr
from hushgraph.errors import BudgetError, InputError, UnprovenError
from hushgraph.ledger.checking import Status
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.manifest import verify_model
from small_graphs import random_graph

EDGE, BUDGET = hg.units.UndirectedEdge(), hg.Budget(4.0, 1e-3)


@pytest.mark.parametrize("method", [hg.EdgeRand(), hg.LapGraph(), hg.ARR()])
def test_a_released_graph_loads_verifies_and_is_audited(method: hg.Method, tmp_path: Path) -> None:
    graph, ledger = random_graph(0), Ledger(tmp_path / "ledger")
    found = hg.release_graph(method, graph, EDGE, BUDGET, ledger=ledger)
    folder = found.save(tmp_path / "graph")
    assert sorted(path.name for path in folder.iterdir()) == [
        "certificate.json",
        "config.json",
        "graph.npz",
        "ledger_head.json",
        "manifest.json",
    ]
    assert verify_model(folder, ledger).status is Status.VERIFIED
    again = hg.datasets.load(folder)
    assert torch.equal(again.x, graph.x)
    assert torch.equal(again.y, graph.y)
    assert torch.equal(again.train_mask, graph.train_mask)
    assert set(map(tuple, again.edge_index.t().tolist())) == set(map(tuple, found.data.edge_index.t().tolist()))
    result = audit_run(folder, canaries=4_000, seed=0)
    assert result.verdict.value == "consistent"
    assert {finding.stages for finding in result.findings} >= {("graph",)}


def test_the_promise_is_that_of_fit_with_the_same_method(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    found = hg.release_graph(hg.ARR(), random_graph(0), EDGE, BUDGET, ledger=ledger, seed=3)
    model = hg.ARR(epochs=1).fit(random_graph(0), EDGE, BUDGET, seed=3, ledger=Ledger.in_memory(warn=False))
    assert found.certificate.epsilon == model.certificate.epsilon
    assert torch.equal(found.data.edge_index, model.released["graph"][0].edge_index())
    assert charged_stages(ledger) == ["count", "graph"]


def test_a_changed_graph_is_contradicted(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    folder = hg.release_graph(hg.ARR(), random_graph(0), EDGE, BUDGET, ledger=ledger).save(tmp_path / "graph")
    hg.datasets.write_npz(random_graph(0), folder / "graph.npz")  # the raw graph in its place
    assert verify_model(folder, ledger).status is Status.CONTRADICTED


def test_directed_and_sparse_graphs(tmp_path: Path) -> None:
    graph = random_graph(0, symmetric=False)
    graph.x = to_torch_csr(sparse.csr_matrix((graph.x * (graph.x > 0)).numpy()))
    found = hg.release_graph(hg.LapGraph(), graph, hg.units.DirectedEdge(), BUDGET, ledger=Ledger.in_memory(warn=False))
    again = hg.datasets.load(found.save(tmp_path))  # the file says that it is directed
    assert torch.equal(again.x.to_dense(), graph.x.to_dense())
    assert again.edge_index.shape[1] == found.num_edges


def test_nothing_is_released_without_a_promise(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    with pytest.raises(InputError, match="finite epsilon"):
        hg.release_graph(hg.ARR(), random_graph(0), EDGE, hg.Budget(math.inf, 1e-3), ledger=ledger)
    with pytest.raises(InputError, match="releases a graph; gap does not"):
        hg.release_graph(hg.GAP(), random_graph(0), EDGE, BUDGET, ledger=ledger)
    with pytest.raises(UnprovenError):
        hg.release_graph(hg.ARR(), random_graph(0), hg.units.Node(), BUDGET, ledger=ledger)
    assert not ledger.exists


def test_a_second_graph_is_charged_and_a_limit_holds(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    graph = random_graph(0)
    hg.release_graph(hg.ARR(), graph, EDGE, BUDGET, ledger=ledger)
    ledger.set_limit(6.0, 1e-3)
    hg.release_graph(hg.ARR(), graph, EDGE, hg.Budget(1.0, 1e-3), ledger=ledger)
    with pytest.raises(BudgetError):
        hg.release_graph(hg.ARR(), graph, EDGE, BUDGET, ledger=ledger)
    assert charged_stages(ledger) == 2 * ["count", "graph"]


def test_what_is_written_names_the_plan(tmp_path: Path) -> None:
    folder = hg.release_graph(hg.ARR(), random_graph(0), EDGE, BUDGET, ledger=Ledger.in_memory(warn=False)).save(
        tmp_path
    )
    config = json.loads((folder / "config.json").read_text())
    assert config["method"] == "arr"
    assert [stage["name"] for stage in config["plan"]["stages"]] == ["count", "graph", "features", "labels"]
