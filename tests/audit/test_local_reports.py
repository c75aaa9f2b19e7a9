from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph import datasets
from hushgraph.audit import audit_plan, audit_run
from hushgraph.audit.local_reports import collect
from hushgraph.audit.result import AuditResult
from hushgraph.data.metadata import PublicFacts
from hushgraph.local import Laplace, MultiBit, OneBit, Piecewise, RandomizedResponse
from hushgraph.methods.local_base import LocalMethod
from hushgraph.methods.lpgnn import LPGNN
from hushgraph.methods.pgc import PGC
from hushgraph.methods.pgc_links import PGCLinks
from hushgraph.methods.saving import save_model
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.units import Local

FACTS = PublicFacts(500, 2000, 250, 125, 125, 12, 5)
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


def audited(method: LocalMethod, unit: Local, epsilon: float, canaries: int = 4000) -> AuditResult:
    plan = method.plan(FACTS, unit, hg.Budget(epsilon, 1e-6))
    return audit_plan(plan, canaries=canaries, seed=1, method=method, facts=FACTS)


@pytest.mark.parametrize(("method", "unit", "epsilon"), KINDS, ids=NAMES)
def test_laws_are_enumerated_and_drawn_reports_come_close(method: LocalMethod, unit: Local, epsilon: float) -> None:
    found = audited(method, unit, epsilon)
    assert found.verdict == "consistent"
    assert found.skipped == ()
    assert found.lower_bound == pytest.approx(epsilon, rel=1e-9)
    assert found.findings[0].method == "exact enumeration"
    drawn = [finding for finding in found.findings if "Clopper-Pearson" in finding.method]
    assert {finding.name for finding in drawn} == {
        f"reports drawn in '{stage.name}'" for stage in method.plan(FACTS, unit, hg.Budget(epsilon, 1e-6)).stages
    }
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
    assert found.verdict == "contradicted"
    assert not any(finding.contradicts for finding in found.findings if finding.method == "exact enumeration")


def test_a_law_that_claims_less_than_it_realizes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = RandomizedResponse.law

    def law(self: RandomizedResponse, value: int) -> tuple[np.ndarray, np.ndarray]:
        return right(RandomizedResponse(1.1 * self.epsilon, self.classes), value)

    monkeypatch.setattr(RandomizedResponse, "law", law)
    found = audited(*KINDS[2])
    assert found.findings[0].contradicts
    assert found.lower_bound == pytest.approx(1.1)


def test_the_audited_randomizer_is_the_one_that_the_method_uses() -> None:
    method, unit, epsilon = KINDS[0]
    plan = method.plan(FACTS, unit, hg.Budget(epsilon, 1e-6))
    coins = np.random.default_rng(0).random(300) < 0.5
    kept = collect(method, FACTS, plan, coins, NoiseSource.seeded(0))
    assert kept["features"].randomizer == MultiBit(epsilon / 2, 12)
    assert kept["labels"].randomizer == RandomizedResponse(epsilon / 2, 5)
    assert kept["features"].scores.shape == (300, MultiBit(epsilon / 2, 12).bits)


def test_without_the_method_local_reports_are_said_to_be_left_out() -> None:
    method, unit, epsilon = KINDS[0]
    found = audit_plan(method.plan(FACTS, unit, hg.Budget(epsilon, 1e-6)), seed=0)
    assert found.verdict == "nothing to audit"
    assert "'features' needs the method" in found.sentence()


@pytest.mark.parametrize("method", [LPGNN(low=0.0, high=1.0, epochs=1), PGC(low=0.0, high=1.0, epochs=1)])
def test_a_trained_model_is_audited_from_its_folder(tmp_path: Path, method: LocalMethod) -> None:
    model = method.fit(datasets.load("campus", num_nodes=200), None, hg.Budget(10.0, 1e-5))
    found = audit_run(save_model(model, tmp_path / "run"), canaries=1000, seed=2)
    assert found.verdict == "consistent"
    assert found.lower_bound == pytest.approx(10.0, rel=1e-6)
    assert found.skipped == ()

    certificate = json.loads((tmp_path / "run" / "certificate.json").read_text())
    (tmp_path / "run" / "certificate.json").write_text(json.dumps({**certificate, "epsilon": 2.0}))
    found = audit_run(tmp_path / "run", canaries=1000, seed=2)
    assert found.verdict == "contradicted"
    assert any("report on record" in finding.name for finding in found.findings)
