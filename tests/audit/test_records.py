"""Certificates that were changed after the fact, or were never right: seen without a canary."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hushgraph.audit import audit_run
from hushgraph.audit.records import Record
from hushgraph.audit.result import AuditResult, Bound, Reason, Skipped, Verdict
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
    certificate = json.loads(path.read_text())
    edit(certificate)
    path.write_text(json.dumps(certificate))
    return audit_run(folder, canaries=200, seed=1)


def set_to(**values: Any) -> Edit:
    return lambda certificate: certificate.update(values)


def less_noise(certificate: dict[str, Any]) -> None:
    certificate["charges"][0]["scale"] *= 0.999999


def longer_rows(certificate: dict[str, Any]) -> None:
    certificate["charges"][0]["mechanism"]["row_norm"] = 2.0


def once_more(certificate: dict[str, Any]) -> None:
    certificate["charges"].append(certificate["charges"][0])


def another_stage(certificate: dict[str, Any]) -> None:
    certificate["charges"].append({**certificate["charges"][0], "name": "another"})


@pytest.mark.parametrize(
    ("edit", "bound"),
    [
        (set_to(epsilon=0.2), Bound.EPSILON_ON_RECORD),
        (set_to(epsilon=0.2, charges=[]), Bound.EPSILON_ON_RECORD),
        (set_to(delta=1e-9), Bound.EPSILON_ON_RECORD),
        (set_to(unit=Node().as_dict()), Bound.EPSILON_ON_RECORD),
        (less_noise, Bound.NOISE_ON_RECORD),
        (longer_rows, Bound.NOISE_ON_RECORD),
        (once_more, Bound.NOISE_ON_RECORD),
        (another_stage, Bound.EPSILON_ON_RECORD),
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


def test_a_record_without_charges_is_named(model: Model, tmp_path: Path) -> None:
    found = audited(model, tmp_path, lambda certificate: certificate.pop("charges"))
    assert found.verdict is Verdict.CONSISTENT
    assert found.skipped == (Skipped(Reason.NO_RECORD),)


def test_a_run_that_made_fewer_releases_may_claim_less(model: Model) -> None:
    certificate = model.certificate.as_dict()
    half = [charge for charge in certificate["charges"] if charge["name"] == "aggregation"][:1]
    record = Record.read(model.plan, {**certificate, "charges": half, "epsilon": 0.8})
    assert record.findings() == []
    assert Record.read(model.plan, {**certificate, "charges": half, "epsilon": 0.3}).findings()


def test_a_claim_for_a_run_without_protection_is_contradicted(tmp_path: Path) -> None:
    model = GAP(epochs=1).fit(random_graph(0), UndirectedEdge(), Budget(float("inf"), 1e-4))
    found = audited(model, tmp_path, set_to(epsilon=1.0))
    assert found.verdict is Verdict.CONTRADICTED
    assert found.lower_bound == float("inf")


def test_a_smaller_claim_in_paper_mode_is_contradicted(tmp_path: Path) -> None:
    model = GAP(epochs=1).fit(random_graph(0), DirectedEdge(), Budget(1.0, 1e-4), paper_mode=True)

    def claim_half(certificate: dict[str, Any]) -> None:
        certificate["claimed"]["epsilon"] /= 2.0

    found = audited(model, tmp_path, claim_half)
    caught = [finding for finding in found.findings if finding.bound is Bound.EPSILON_ON_RECORD]
    assert [(round(one.claimed, 2), round(one.lower_bound, 2)) for one in caught] == [(0.5, 1.0)]


def test_a_report_that_costs_more_than_claimed_is_contradicted(tmp_path: Path) -> None:
    model = PGC(low=0.0, high=1.0, epochs=1).fit(random_graph(0), Local(private_labels=False), Budget(10.0, 1e-4))

    def louder(certificate: dict[str, Any]) -> None:
        certificate["charges"][0]["mechanism"]["randomizer"]["mechanism"]["epsilon"] *= 2.0

    found = audited(model, tmp_path, louder)
    assert {Bound.NOISE_ON_RECORD, Bound.EPSILON_ON_RECORD} <= {one.bound for one in found.findings if one.contradicts}
