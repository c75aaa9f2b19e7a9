from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.metrics import roc_auc_score

import hushgraph as hg
from hushgraph.attacks.links import LinkTeller
from hushgraph.attacks.targets import target_of
from hushgraph.audit.result import Verdict
from hushgraph.audit.run import audit_plan, audit_run
from hushgraph.errors import InputError
from hushgraph.ledger.certificate import Certificate
from hushgraph.ledger.checking import Status
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.manifest import verify_model
from hushgraph.mechanisms import DendrogramChain, DendrogramChoice, DendrogramEdges
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code
from hushgraph.report.words import explain
from small_graphs import random_graph

BUDGET = hg.Budget(2.0, 1e-3)
SIZES = Metadata.from_sizes(2_000, None, None, 50, 5)
CHAIN, CHOICE = (
    hg.EdgeRR(steps_per_node=10, epochs=3),
    hg.EdgeRR(tree="choice", candidates=4, steps_per_node=10, epochs=3),
)
HRG = hg.PrivHRG(steps_per_node=10, epochs=3)


def partly_public() -> Any:
    data = random_graph(0)
    data.public_edge_index = data.edge_index[:, (data.edge_index.sum(0) % 3) == 0]
    return data


def directions(edges: torch.Tensor) -> set[tuple[int, int]]:
    return {(int(a), int(b)) for a, b in edges.t()}


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_epsilon_is_divided_between_the_tree_and_the_counts(share: float) -> None:
    plan = hg.EdgeRR(tree_share=share).plan(SIZES, hg.units.PrivateEdge(), hg.Budget(1.0, 1e-6))
    tree, graph = plan["tree"], plan["graph"]
    assert isinstance(tree.mechanism, DendrogramChain)
    assert isinstance(graph.mechanism, DendrogramEdges)
    assert 1.0 / tree.scale == pytest.approx(share, rel=1e-3)
    assert 1.0 / graph.scale == pytest.approx(1.0 - share, rel=1e-3)
    assert 0.999 < plan.epsilon <= 1.0
    assert tree.mechanism.steps_per_node == 100


def test_the_exact_choice_is_planned_by_a_setting() -> None:
    plan = CHOICE.plan(SIZES, hg.units.PrivateEdge(), hg.Budget(2.0, 1e-6))
    assert plan["tree"].mechanism == DendrogramChoice(steps_per_node=10, candidates=4)


@pytest.mark.parametrize(("method", "limit"), [(CHAIN, ("tree",)), (CHOICE, ()), (HRG, ("tree",))])
def test_whether_the_promise_is_asymptotic_is_a_field_of_the_certificate(method: Any, limit: tuple[str, ...]) -> None:
    certificate = method.fit(partly_public(), None, BUDGET, ledger=Ledger.in_memory(warn=False)).certificate
    assert certificate.asymptotic == limit
    assert Certificate.from_dict(certificate.as_dict()) == certificate
    assert certificate.as_dict()["asymptotic"] == list(limit)
    assert ("limit of a long Markov chain" in " ".join(explain(certificate).split())) == bool(limit)
    assert certificate.epsilon <= 2.0


def test_public_edges_come_out_and_set_the_unit() -> None:
    data = partly_public()
    found = hg.release_graph(CHAIN, data, None, BUDGET)
    assert found.certificate.unit == hg.units.PrivateEdge()
    assert directions(data.public_edge_index) <= directions(found.data.edge_index)
    codes = {note.code for note in found.certificate.unprotected}
    assert {Code.PUBLIC_EDGES, Code.PUBLIC_PART} <= codes
    assert directions(found.data.edge_index) == directions(found.data.edge_index.flip(0))


def test_the_baseline_takes_public_edges_for_private_ones() -> None:
    found = hg.release_graph(HRG, partly_public(), None, BUDGET)
    assert found.certificate.unit == hg.units.UndirectedEdge()
    assert Code.PUBLIC_EDGES not in {note.code for note in found.certificate.unprotected}


@pytest.mark.parametrize("method", [CHAIN, CHOICE, HRG])
def test_a_released_graph_loads_verifies_and_is_audited(method: Any, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    found = hg.release_graph(method, partly_public(), None, BUDGET, ledger=ledger)
    folder = found.save(tmp_path / "graph")
    assert verify_model(folder, ledger).status is Status.VERIFIED
    assert directions(hg.datasets.load(folder).edge_index) == directions(found.data.edge_index)
    result = audit_run(folder, canaries=1_000, seed=0)
    assert result.verdict.value == "consistent"
    assert {finding.stages for finding in result.findings} >= {("graph",), ("tree",)}
    assert not result.skipped


@pytest.mark.parametrize("method", [CHAIN, CHOICE])
def test_a_tree_stage_with_a_fraction_of_its_noise_is_caught(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 canaries from a fixed seed; the tree is drawn at 8 times its epsilon."""
    plan = method.plan(Metadata.from_sizes(200, None, None, 10, 2), hg.units.PrivateEdge(), hg.Budget(2.0, 1e-4))
    right = audit_plan(plan, canaries=1_000, seed=0)
    assert right.verdict is Verdict.CONSISTENT
    kind = type(plan["tree"].mechanism)
    drawn = kind.release
    monkeypatch.setattr(kind, "release", lambda self, data, scale, noise: drawn(self, data, scale / 8.0, noise))
    assert audit_plan(plan, canaries=1_000, seed=0).verdict is Verdict.CONTRADICTED


def test_long_chains_are_refused_where_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushgraph.methods.edge_rr.COMPILED", False)
    with pytest.raises(InputError, match=r"at most 1000000 proposals .* numba"):
        hg.EdgeRR().plan(Metadata.from_sizes(20_000, None, None, 10, 2), hg.units.PrivateEdge(), hg.Budget(2.0, 1e-7))
    assert CHAIN.plan(SIZES, hg.units.PrivateEdge(), hg.Budget(1.0, 1e-6)).epsilon <= 1.0


@pytest.mark.parametrize("method", [CHAIN, CHOICE, HRG])
def test_a_model_predicts_the_same_after_saving(method: Any, tmp_path: Path) -> None:
    data = partly_public()
    model = method.fit(data, None, BUDGET, ledger=Ledger(tmp_path / "ledger"))
    model.save(tmp_path / "model")
    again = hg.load(tmp_path / "model")
    assert torch.equal(model.predict(), again.predict())


def test_linkteller_finds_private_edges_in_a_raw_graph_and_none_in_a_released_one() -> None:
    """An attacker who queries a GCN about private pairs: 0.95 without protection, chance on the released graph."""
    data = random_graph(1, num_nodes=400, num_edges=1_600)
    known = data.edge_index.sum(0) % 5 != 0
    data.public_edge_index = data.edge_index[:, known]
    secret = data.clone()
    secret.edge_index = data.edge_index[:, ~known]

    def auc(graph: Any) -> float:
        unlimited, ledger = hg.Budget(float("inf")), Ledger.in_memory(warn=False)
        model = hg.GCN(epochs=30).fit(graph, None, unlimited, ledger=ledger, seed=0)
        found = LinkTeller(sources=60, per_source=20).run(target_of(model, graph), secret)
        return float(roc_auc_score(found.truth, found.scores))

    assert auc(data) > 0.9
    for epsilon in (0.1, 1.0):
        released = hg.release_graph(hg.EdgeRR(steps_per_node=200), data, None, hg.Budget(epsilon, 1e-6), seed=2)
        assert 0.4 < auc(released.data) < 0.6
