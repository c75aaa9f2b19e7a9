from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCN as PygGCN

import hushgraph as hg
from charges import charged_stages
from hushgraph.audit.run import audit_plan, audit_run
from hushgraph.errors import BudgetError, InputError, PrivateAccessError
from hushgraph.graph.checks import check_graph
from hushgraph.ledger.checking import Status
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.manifest import verify_model
from hushgraph.methods.running import open_vault
from hushgraph.privacy.plan import Plan
from small_graphs import random_graph

EDGES, FEATURES = hg.Budget(1.0, 1e-4), hg.Budget(2.0, 1e-4)
PRIVATE, PERSON = hg.units.PrivateEdge(), hg.units.Local(private_labels=False)
HETERO = hg.HeteroRR(hg.EdgeRR(steps_per_node=10), hg.FeatureRR(low=0.0, high=1.0, bins=5))


def partly_public() -> Any:
    data = random_graph(0)
    data.x = data.x.sigmoid()
    data.public_edge_index = data.edge_index[:, (data.edge_index.sum(0) % 3) == 0]
    return data


def plans() -> tuple[Plan, Plan]:
    return HETERO.plans(check_graph(partly_public()).metadata, PRIVATE, EDGES, FEATURES)


def test_a_replacement_has_two_promises_for_two_units_in_one_ledger(tmp_path: Path) -> None:
    data, ledger = partly_public(), Ledger(tmp_path / "ledger")
    found = HETERO.release(data, EDGES, FEATURES, ledger=ledger)
    assert found.features is not None
    assert (found.certificate.unit, found.certificate.epsilon) == (PRIVATE, 1.0)
    assert (found.features.certificate.unit, found.features.certificate.epsilon) == (PERSON, 2.0)
    assert sorted(charged_stages(ledger)) == ["features", "graph", "tree"]
    assert ledger.total(data.name, PRIVATE).epsilon == pytest.approx(1.0)
    assert ledger.total(data.name, PERSON).epsilon == pytest.approx(2.0)
    for other in (hg.units.Local(), hg.units.Node(), hg.units.UndirectedEdge()):  # labels, or public edges, went out
        assert ledger.total(data.name, other).epsilon == math.inf


def test_the_folder_verifies_loads_and_is_audited(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    found = HETERO.release(partly_public(), EDGES, FEATURES, ledger=ledger)
    folder = found.save(tmp_path / "graph")
    verified = verify_model(folder, ledger)
    assert verified.status is Status.VERIFIED
    assert sum(finding.what == "certificate" for finding in verified.findings) == 2
    assert audit_run(folder, canaries=200, seed=0).verdict.value == "consistent"
    assert audit_plan(Plan.from_dict(json.loads((folder / "config.json").read_text())["features"]["plan"]), seed=0)
    values = json.loads((folder / "certificate-features.json").read_text())
    (folder / "certificate-features.json").write_text(json.dumps({**values, "epsilon": 1.0}))
    assert verify_model(folder, ledger).status is Status.CONTRADICTED


def test_any_network_of_pyg_trains_on_the_folder(tmp_path: Path) -> None:
    ledger = Ledger.in_memory(warn=False)
    folder = HETERO.release(partly_public(), EDGES, FEATURES, ledger=ledger).save(tmp_path)
    data = next(iter(DataLoader([hg.datasets.load(folder)])))
    network = PygGCN(data.num_features, 8, 2, 3)
    loss = torch.nn.functional.cross_entropy(network(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask])
    loss.backward()
    assert torch.isfinite(loss)


def test_raw_features_do_not_come_out() -> None:
    data = partly_public()
    found = HETERO.release(data, EDGES, FEATURES, ledger=Ledger.in_memory(warn=False)).data
    middles = (torch.arange(5) + 0.5) / 5
    assert torch.isclose(found.x.unsqueeze(-1), middles, atol=1e-6).any(dim=-1).all()
    assert torch.equal(found.y, data.y)


@pytest.mark.parametrize(("which", "kept"), [(0, {"edges", "labels"}), (1, {"features", "labels"})])
def test_each_run_is_given_its_own_part_alone(which: int, kept: set[str]) -> None:
    plan, graph = plans()[which], check_graph(partly_public())
    assert plan.holds == kept
    assert Plan.from_dict(plan.as_dict()) == plan
    vault, _ = open_vault(graph, plan, Ledger.in_memory(warn=False), None, None)
    if which:
        assert vault.edges.num_edges == 0  # public under the unit local, and still not there
        assert vault._graph.public_edges is None
    else:
        assert vault.features.shape == (graph.metadata.num_nodes, 0)
        with pytest.raises(PrivateAccessError):
            _ = vault.edges


def test_a_run_that_holds_everything_is_still_charged_for_all_units() -> None:
    data, ledger = partly_public(), Ledger.in_memory(warn=False)
    hg.FeatureRR(low=0.0, high=1.0, epochs=1).fit(data, PERSON, FEATURES, ledger=ledger)
    assert ledger.total(data.name, PRIVATE).epsilon == math.inf  # edges are public there: they were handed out


def test_a_limit_on_one_unit_refuses_both_and_leaves_no_run_open(tmp_path: Path) -> None:
    ledger, data = Ledger(tmp_path / "ledger"), partly_public()
    HETERO.release(data, EDGES, FEATURES, ledger=ledger)
    ledger.set_limit(3.0, 1e-3, unit=PERSON)
    with pytest.raises(BudgetError):
        HETERO.release(data, EDGES, FEATURES, ledger=ledger)
    assert len(charged_stages(ledger)) == 3
    history = ledger.history()
    assert all(history.is_closed(run) for run in history.runs())
    assert ledger.total(data.name, PRIVATE).epsilon == pytest.approx(1.0)


def test_budgets_without_an_end_and_other_methods_are_refused() -> None:
    data, endless = partly_public(), hg.Budget(math.inf)
    with pytest.raises(InputError, match="features: expected a finite epsilon"):
        HETERO.release(data, EDGES, endless)
    with pytest.raises(InputError, match="expected a finite epsilon"):
        HETERO.release(data, endless, FEATURES)
    with pytest.raises(InputError, match="releases a graph; gap does not"):
        hg.HeteroRR(hg.GAP(), hg.FeatureRR(low=0, high=1)).release(data, EDGES, FEATURES)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="low, high"):
        hg.HeteroRR().release(data, EDGES, FEATURES)
