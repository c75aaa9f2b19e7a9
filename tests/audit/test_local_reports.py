from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audit_plans import PEOPLE, observed, plan_of
from hushgraph import datasets
from hushgraph.audit import audit_plan, audit_run
from hushgraph.audit.result import AuditResult, Bound, Verdict
from hushgraph.local import Laplace, MultiBit, OneBit, Piecewise, RandomizedResponse, UnaryEncoding, feature_randomizer
from hushgraph.mechanisms import LocalReport
from hushgraph.methods.local import LocalMethod
from hushgraph.methods.lpgnn import LPGNN
from hushgraph.methods.pgc import PGC, PGCLinks
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Local

PUBLIC_LABELS = Local(private_labels=False)
KINDS: list[tuple[LocalMethod, Local, float]] = [
    (LPGNN(low=0.0, high=1.0), Local(), 4.0),
    (LPGNN(low=-2.0, high=3.0), PUBLIC_LABELS, 6.0),
    (LPGNN(features="codes"), Local(), 1.0),
    (PGC(low=0.0, high=1.0), PUBLIC_LABELS, 12.0),
    (PGC(low=0.0, high=1.0, mechanism="laplace"), PUBLIC_LABELS, 12.0),
    (PGC(low=0.0, high=5.0, mechanism="piecewise"), PUBLIC_LABELS, 24.0),
    (PGCLinks(low=0.0, high=1.0), PUBLIC_LABELS, 12.0),
]
NAMES = ["lpgnn", "lpgnn, labels public", "lpgnn, labels only", "pgc", "pgc, laplace", "pgc, piecewise", "pgc-links"]
DRAWN = (Bound.THRESHOLD, Bound.PARTS)


def audited(method: LocalMethod, unit: Local, epsilon: float) -> AuditResult:
    return audit_plan(method.plan(PEOPLE, unit, Budget(epsilon, 1e-6)), canaries=4000, seed=1)


@pytest.mark.parametrize(("method", "unit", "epsilon"), KINDS, ids=NAMES)
def test_laws_are_enumerated_and_drawn_reports_come_close(method: LocalMethod, unit: Local, epsilon: float) -> None:
    found = audited(method, unit, epsilon)
    assert found.verdict is Verdict.CONSISTENT
    assert found.skipped == ()
    assert found.findings[0].bound is Bound.LAW
    assert found.lower_bound == pytest.approx(epsilon, rel=1e-9)
    drawn = [finding for finding in found.findings if finding.bound in DRAWN]
    stages = [stage for stage in method.plan(PEOPLE, unit, Budget(epsilon, 1e-6)) if not stage.is_free(unit)]
    assert [finding.stages for finding in drawn] == [(stage.name,) for stage in stages]
    assert all(0.75 * finding.claimed < finding.lower_bound <= finding.claimed for finding in drawn)


def louder(kind: Any) -> Any:
    """Broken on purpose: the device draws its report as if it had one and a half times the budget."""
    right = kind.perturb

    def perturb(self: Any, values: Any, rng: Any = None) -> Any:
        shape = {"sampled": self.bits} if isinstance(self, MultiBit) else {}
        return right(replace(self, epsilon=1.5 * self.epsilon, **shape), values, rng)

    return perturb


@pytest.mark.parametrize(
    ("kind", "which"), [(MultiBit, 1), (RandomizedResponse, 2), (OneBit, 3), (Laplace, 4), (Piecewise, 5)]
)
def test_a_device_that_spends_more_than_it_says_is_caught(
    monkeypatch: pytest.MonkeyPatch, kind: Any, which: int
) -> None:
    monkeypatch.setattr(kind, "perturb", louder(kind))
    found = audited(*KINDS[which])
    assert found.verdict is Verdict.CONTRADICTED
    assert not any(finding.contradicts for finding in found.findings if finding.bound is Bound.LAW)


def test_a_law_that_claims_less_than_it_realizes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = RandomizedResponse.law

    def law(self: RandomizedResponse, value: int) -> tuple[np.ndarray, np.ndarray]:
        return right(RandomizedResponse(1.1 * self.epsilon, self.classes), value)

    monkeypatch.setattr(RandomizedResponse, "law", law)
    found = audited(*KINDS[2])
    assert found.findings[0].contradicts
    assert found.lower_bound == pytest.approx(1.1)


@pytest.mark.parametrize(
    "report",
    [
        LocalReport(feature_randomizer("hybrid", 8.0, 12), low=-1.0, high=4.0),
        LocalReport(feature_randomizer("three-output", 8.0, 12), low=tuple(range(12)), high=tuple(range(5, 17))),
        LocalReport(RandomizedResponse(2.0, 2), "labels"),
        LocalReport(MultiBit(8.0, 12), range_from_data=True),
    ],
    ids=["hybrid", "a range for each column", "two classes", "range from data"],
)
def test_any_randomizer_can_be_audited(report: LocalReport) -> None:
    """No method uses these; their own descriptions of parts and extremes suffice."""
    plan = plan_of(Local(), Stage("report", report, noise=None, scale=1.0))
    coins, evidence = observed(plan, 4000, seed=0)
    assert evidence.parts is not None
    assert evidence.parts.shape == (4000, report.randomizer.parts)
    assert report.realized(Local(), 1.0) == pytest.approx(report.epsilon)
    # The means of 2,000 ratios each lie far apart, as the two extreme records do.
    assert evidence.ratios[coins].mean() > 0.5 > -0.5 > evidence.ratios[~coins].mean()


def test_people_are_fewer_when_records_are_long() -> None:
    stage = Stage("report", LocalReport(MultiBit(8.0, 20_000)), noise=None, scale=1.0)
    assert stage.mechanism.most_canaries(stage, Local()) == 400


@pytest.mark.parametrize("method", [LPGNN(low=0.0, high=1.0, epochs=1), PGC(low=0.0, high=1.0, epochs=1)])
def test_a_trained_model_is_audited_from_its_folder(tmp_path: Path, method: LocalMethod) -> None:
    model = method.fit(datasets.load("campus", num_nodes=200), None, Budget(10.0, 1e-5))
    found = audit_run(model.save(tmp_path / "run"), canaries=1000, seed=2)
    assert found.verdict is Verdict.CONSISTENT
    assert found.lower_bound == pytest.approx(10.0, rel=1e-6)
    assert found.skipped == ()


@pytest.mark.parametrize("kind", ["symmetric", "optimized"])
def test_bits_about_a_label_are_audited_like_a_class(kind: Any) -> None:
    """A collection may ask for bits; the audit of its model draws such reports."""
    mechanism = LocalReport(UnaryEncoding(2.0, 4, kind), "labels")
    plan = plan_of(Local(), Stage("labels", mechanism, noise=None, scale=1.0))
    found = audit_plan(plan, canaries=4000, seed=1)
    assert found.verdict is Verdict.CONSISTENT
    assert found.lower_bound == pytest.approx(2.0, rel=1e-9)
    (drawn,) = [finding for finding in found.findings if finding.bound in DRAWN]
    assert 0.75 * 2.0 < drawn.lower_bound <= 2.0
