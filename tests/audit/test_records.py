"""Certificates that were changed after the fact, or were never right: seen without a canary."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hushgraph.audit import audit_run
from hushgraph.audit.records import Record
from hushgraph.audit.result import AuditResult, Bound, Finding, Reason, Skipped, Verdict
from hushgraph.methods import auto
from hushgraph.methods.gap import GAP
from hushgraph.methods.model import Model
from hushgraph.methods.pgc import PGC
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.units import DirectedEdge, Local, Node, UndirectedEdge
from small_graphs import random_graph

Edit = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def model() -> Model:
    return GAP(epochs=1).fit(random_graph(0), UndirectedEdge(), Budget(1.0, 1e-4))


def audited(model: Model, folder: Path, edit: Edit) -> AuditResult:
    """The audit of a folder whose certificate was edited."""
    path = model.save(folder) / "certificate.json"
    (folder / "manifest.json").unlink()
    certificate = json.loads(path.read_text())
    edit(certificate)
    path.write_text(json.dumps(certificate))
    return audit_run(folder, canaries=200, seed=1)


def set_to(**values: Any) -> Edit:
    return lambda certificate: certificate.update(values)


def less_noise(certificate: dict[str, Any]) -> None:
    certificate["charges"][0]["scale"] *= 0.999999


def larger_bound(certificate: dict[str, Any]) -> None:
    certificate["charges"][0]["sensitivity"] *= 1.01


def once_more(certificate: dict[str, Any]) -> None:
    certificate["charges"][0]["count"] += 1


@pytest.mark.parametrize(
    ("edit", "bound"),
    [
        (set_to(epsilon=0.2), Bound.EPSILON_ON_RECORD),
        (set_to(epsilon=0.2, charges=[]), Bound.EPSILON_ON_RECORD),
        (set_to(delta=1e-9), Bound.EPSILON_ON_RECORD),
        (set_to(unit=Node().as_dict()), Bound.EPSILON_ON_RECORD),
        (less_noise, Bound.NOISE_ON_RECORD),
        (larger_bound, Bound.NOISE_ON_RECORD),
        (once_more, Bound.NOISE_ON_RECORD),
    ],
)
def test_a_record_that_does_not_fit_its_plan_is_contradicted(
    model: Model, tmp_path: Path, edit: Edit, bound: Bound
) -> None:
    found = audited(model, tmp_path, edit)
    assert found.verdict is Verdict.CONTRADICTED
    assert bound in {finding.bound for finding in found.findings if finding.contradicts}
    json.dumps(found.as_dict(), allow_nan=False)


def test_an_honest_record_is_not(model: Model, tmp_path: Path) -> None:
    found = audited(model, tmp_path, set_to())
    assert found.verdict is Verdict.CONSISTENT
    assert found.skipped == ()
    assert found.run == model.certificate.run


def test_a_record_that_differs_and_costs_no_more_is_named(model: Model, tmp_path: Path) -> None:
    def more_noise(certificate: dict[str, Any]) -> None:
        for charge in certificate["charges"]:
            charge["scale"] *= 1.5

    found = audited(model, tmp_path, more_noise)
    assert found.verdict is Verdict.CONSISTENT
    assert found.skipped == (Skipped(Reason.RECORD_DIFFERS, "aggregation"),)


def test_charges_that_are_missing_or_unknown_are_named(model: Model, tmp_path: Path) -> None:
    def renamed(certificate: dict[str, Any]) -> None:
        certificate["charges"][0]["stage"] = "another"

    found = audited(model, tmp_path, renamed)
    assert found.verdict is Verdict.CONSISTENT
    assert found.skipped == (
        Skipped(Reason.OUTSIDE_PLAN, "another"),
        Skipped(Reason.NOT_ON_RECORD, "aggregation"),
    )


def test_another_mechanism_on_record_is_named(model: Model, tmp_path: Path) -> None:
    def other(certificate: dict[str, Any]) -> None:
        certificate["charges"][0]["mechanism"] = "label-sum"

    assert audited(model, tmp_path, other).skipped == (Skipped(Reason.RECORD_DIFFERS, "aggregation"),)


def test_a_run_that_made_fewer_releases_may_claim_less(model: Model) -> None:
    once = replace(model.certificate.charges[0], count=1)

    def findings(epsilon: float) -> list[Finding]:
        return Record(replace(model.certificate, charges=(once,), epsilon=epsilon), model.plan).findings()

    assert findings(0.8) == []
    assert [finding.bound for finding in findings(0.3)] == [Bound.EPSILON_ON_RECORD]


def test_a_run_that_chose_must_claim_the_costliest_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "needed_degree", lambda *_: 6.0)
    monkeypatch.setattr(auto, "PAIR_ERROR", 100.0)  # so few nodes have no better answer to give
    model = auto.Auto().fit(random_graph(1), Node(max_degree=5), Budget(4.0, 1e-3), seed=0)
    record = Record(model.certificate, model.plan, model.run_plan)
    assert record.findings() == []
    assert record.skipped() == []
    assert [stage.name for stage in record.before] == [auto.COUNT, auto.PAIRS]
    alone = Record(replace(model.certificate, epsilon=model.plan.epsilon), model.plan, model.run_plan)
    assert [finding.bound for finding in alone.findings()] == [Bound.EPSILON_ON_RECORD]


def test_a_claim_for_a_run_without_protection_is_contradicted(tmp_path: Path) -> None:
    model = GAP(epochs=1).fit(random_graph(0), UndirectedEdge(), Budget(float("inf"), 1e-4))
    found = audited(model, tmp_path, set_to(epsilon=1.0))
    assert found.verdict is Verdict.CONTRADICTED
    assert found.lower_bound == float("inf")


def test_a_smaller_claim_in_paper_mode_is_contradicted(tmp_path: Path) -> None:
    model = GAP(epochs=1).fit(random_graph(0), DirectedEdge(), Budget(1.0, 1e-4), paper_mode=True)

    def claim_half(certificate: dict[str, Any]) -> None:
        certificate["paper"]["epsilon"] /= 2.0

    found = audited(model, tmp_path, claim_half)
    caught = [finding for finding in found.findings if finding.bound is Bound.EPSILON_ON_RECORD]
    assert [(round(one.claimed, 2), round(one.lower_bound, 2)) for one in caught] == [(0.5, 1.0)]


def test_a_report_that_costs_more_than_claimed_is_contradicted(tmp_path: Path) -> None:
    model = PGC(low=0.0, high=1.0, epochs=1).fit(random_graph(0), Local(private_labels=False), Budget(10.0, 1e-4))
    found = audited(model, tmp_path, set_to(epsilon=2.0))
    assert [finding.claimed for finding in found.findings if finding.contradicts] == [2.0]
