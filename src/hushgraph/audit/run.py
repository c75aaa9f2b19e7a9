"""Audit a run: plant canaries, run the plan's own mechanisms, bound epsilon from below, compare with the claim.

The plan is the one that the run was made with, as its folder stores it. What is claimed is priced for the unit that the
run *states*; the canaries are changes of the unit that the data really has. The two differ in paper mode, and that is
how a claim per directed edge on a symmetric graph is caught.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from torch import Tensor

from hushgraph.audit.findings import Judge, Seen, laws
from hushgraph.audit.records import Record
from hushgraph.audit.result import AuditResult, Finding, Reason, Skipped, Verdict
from hushgraph.errors import AuditContradiction, InputError
from hushgraph.files.reading import damage_named, read_json
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.rows import dense_rows
from hushgraph.ledger.certificate import Certificate, Randomness
from hushgraph.ledger.manifest import require_uncontradicted
from hushgraph.ledger.project import default_ledger
from hushgraph.ledger.run import CoveredCharges
from hushgraph.mechanisms.canaries import flip_coins
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.vault import PrivateRows, Progress, Vault

if TYPE_CHECKING:
    from hushgraph.ledger.run import Run

CANARIES = 10_000


def audit_run(
    source: Any, *, canaries: int = CANARIES, confidence: float = 0.95, seed: int | None = None
) -> AuditResult:
    """Audit a trained model or its folder. `seed` repeats an audit; it protects nothing and spends nothing."""
    record = _read(source)
    found = _audited(record.plan, record.before, canaries, confidence, seed, None)
    return replace(
        found,
        claimed=record.epsilon,
        findings=(*found.findings, *record.findings()),
        skipped=(*found.skipped, *record.skipped()),
        run=record.certificate.run,
        seeded=record.certificate.randomness is Randomness.SEEDED,
    )


def audit_plan(
    plan: Plan,
    *,
    canaries: int = CANARIES,
    confidence: float = 0.95,
    seed: int | None = None,
    noise: NoiseSource | None = None,
) -> AuditResult:
    """Audit the mechanisms that carry out `plan`. Tests pass a broken `noise` source to see it caught."""
    return _audited(plan, (), canaries, confidence, seed, noise)


def require_consistent(result: AuditResult) -> None:
    """Raise when the audit contradicts the claim."""
    if result.verdict is Verdict.CONTRADICTED:
        raise AuditContradiction(result.sentence())


def _read(source: Any) -> Record:
    """The plan and the certificate of a model, or of its folder, whose files are checked first, as `load` does."""
    if hasattr(source, "plan") and hasattr(source, "certificate"):
        return Record(source.certificate, source.plan, source.run_plan)
    folder = Path(source)
    with damage_named(folder, do="Restore the folder from a copy, or train again"):
        require_uncontradicted(folder, default_ledger(near=folder))
        config = read_json(folder / "config.json", of="a trained model")
        if not config.get("plan"):
            raise InputError(f"{folder}: expected a model with its plan; got one without, which another version wrote")
        certificate = Certificate.from_dict(read_json(folder / "certificate.json", of="a trained model"))
        whole = config.get("run_plan")
        return Record(certificate, Plan.from_dict(config["plan"]), None if whole is None else Plan.from_dict(whole))


def _audited(
    plan: Plan, before: Sequence[Stage], canaries: int, confidence: float, seed: int | None, noise: NoiseSource | None
) -> AuditResult:
    """Audit the stages of `plan`, and those `before` it in the same run."""
    stages = [stage for stage in (*before, *plan.stages) if not stage.is_free(plan.unit)]
    unit = plan.stated_unit
    findings, skipped = [], [Skipped(Reason.BRANCH, branch.method) for branch in plan.branches]
    if not math.isfinite(plan.epsilon):
        skipped.append(Skipped(Reason.NO_CLAIM if plan.paper is None else Reason.PAPER_UNPROVED))
    elif not stages:
        skipped.append(Skipped(Reason.NEVER_READS))
    else:
        if noise is None:
            noise = NoiseSource.of(seed)
        findings = _findings(plan, stages, canaries, confidence, noise, np.random.default_rng(seed))
        seen = {name for finding in findings for name in finding.stages}
        skipped += [Skipped(Reason.NO_CANARY, stage.name) for stage in stages if stage.name not in seen]
    return AuditResult(
        method=plan.method,
        unit=unit.name,
        planted_unit=plan.unit.name,
        claimed=plan.epsilon if plan.paper is None else plan.paper.epsilon,
        delta=plan.budget.definite_delta,
        confidence=confidence,
        findings=tuple(findings),
        skipped=tuple(skipped),
    )


def _findings(
    plan: Plan,
    stages: Sequence[Stage],
    canaries: int,
    confidence: float,
    noise: NoiseSource,
    rng: np.random.Generator,
) -> list[Finding]:
    """What canaries say, with the same coins in all stages, and what laws say; laws first where all are known."""
    for stage in stages:
        canaries = min(canaries, stage.mechanism.most_canaries(stage, plan.unit))
    coins = flip_coins(canaries, rng)
    seen: list[Seen] = []
    for stage in stages:
        evidence = stage.mechanism.canary(stage, plan.unit, coins, VaultMaker(plan, stage, noise), rng)
        if evidence is not None:
            seen.append((stage, evidence))
    drawn, exact = Judge(plan, coins, confidence).findings(seen), laws(plan, stages)
    enumerated = {name for finding in exact for name in finding.stages}
    return [*exact, *drawn] if all(stage.name in enumerated for stage, _ in seen) else [*drawn, *exact]


@dataclass
class VaultMaker:
    """Opens vaults for one stage of a plan, each with noise of its own; nobody's ledger is charged."""

    plan: Plan
    stage: Stage
    noise: NoiseSource
    _opened: int = field(default=0, init=False)

    def __call__(self, graph: CheckedGraph, progress: Progress | None = None) -> Vault:
        """A vault with `graph` in it that releases the stage, as often as it was planned, and nothing else."""
        alone = replace(self.plan, metadata=graph.metadata, stages=(self.stage,), branches=(), paper=None)
        noise = self.noise.stream(f"audit/{self.stage.name}/{self._opened}")
        self._opened += 1
        return _PlantedVault(graph, alone, cast("Run", CoveredCharges()), noise, progress)


class _PlantedVault(Vault):
    """Holds data that was made for the audit: nothing in it is anybody's, so the audit may open every handle."""

    def hand_over(self, scores: Tensor | PrivateRows | None) -> Tensor | None:
        """What any handle stands for."""
        return None if scores is None else dense_rows(self._open(scores))
