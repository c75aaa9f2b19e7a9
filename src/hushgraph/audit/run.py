"""Audit a run: plant canaries, run the plan's own mechanisms, bound epsilon from below, compare with the claim.

What is claimed for the audited stages is priced for the unit the run *states*; the canaries are changes of the unit
that the data really has. The two differ in paper mode, and that is how a claim per directed edge on a symmetric graph
is caught.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hushgraph.accounting import events
from hushgraph.accounting.label_sum import LabelSumStage
from hushgraph.accounting.plan import AggregationStage, GradientStage, Plan, Stage, UnprotectedStage
from hushgraph.accounting.privacy_loss import COARSE_GRID, PrivacyLoss
from hushgraph.audit import bounds, one_run
from hushgraph.audit.canaries import observe, plant
from hushgraph.audit.gradients import observe_training
from hushgraph.audit.label_canaries import label_stages, observe_labels, plant_labels
from hushgraph.audit.result import AuditResult, Finding
from hushgraph.errors import AuditContradiction
from hushgraph.mechanisms.noise import NoiseSource
from hushgraph.report.record import read_run, rebuild_plan

CANARIES = 10_000
MOST_GRADIENT_CANARIES = 2_000
FALSE_ALARM = 1e-4  # of one finding: how often a correct mechanism may be called broken

Bound = Callable[[np.ndarray, np.ndarray, float, float], float]
_RELEASED = re.compile(r"^(?P<name>.+): \d+ x [^,]+, noise std (?P<std>\S+), sensitivity \S+$")


def audit_run(
    source: Any, *, canaries: int = CANARIES, confidence: float = 0.95, seed: int | None = None
) -> AuditResult:
    """Audit a trained model or its folder. `seed` repeats an audit; it protects nothing and spends nothing."""
    record = read_run(source)
    if not math.isfinite(record.epsilon) or record.epsilon == 0.0:
        why = "the run claims no protection" if record.epsilon else "the run never reads what the unit protects"
        unit = record.unit.name
        return AuditResult(
            record.method, unit, unit, record.epsilon, record.delta, confidence, (), (why,), record.certificate["run"]
        )
    plan = rebuild_plan(record)
    found = audit_plan(plan, canaries=canaries, confidence=confidence, seed=seed)
    released = record.certificate["released"]
    return AuditResult(
        method=record.method,
        unit=plan.unit.name,
        planted_unit=found.planted_unit,
        claimed=found.claimed if plan.stages else plan.budget.epsilon,
        delta=found.delta,
        confidence=confidence,
        findings=(*found.findings, *_recorded_noise(plan, released)),
        skipped=(*found.skipped, *_unused(plan, released)),
        run=record.certificate["run"],
    )


def audit_plan(
    plan: Plan,
    *,
    canaries: int = CANARIES,
    confidence: float = 0.95,
    seed: int | None = None,
    noise: NoiseSource | None = None,
) -> AuditResult:
    """Audit the mechanisms that carry out `plan`. Tests hand in a broken `noise` source to see it caught."""
    rng = np.random.default_rng(seed)
    if noise is None:
        noise = NoiseSource.from_os() if seed is None else NoiseSource.seeded(seed)
    sums = [stage for stage in plan.stages if isinstance(stage, AggregationStage)]
    steps = [stage for stage in plan.stages if isinstance(stage, GradientStage)]
    findings: list[Finding] = []
    if sums:
        planted = plant(plan.charged_unit, canaries, rng)
        findings += _audit_sums(plan, sums, observe(plan, planted, noise), planted.planted, confidence)
    if labels := label_stages(plan):
        hidden = plant_labels(plan, canaries, rng)
        findings += _audit_sums(plan, labels, observe_labels(plan, hidden, noise), hidden.planted, confidence)
    for stage in steps:
        if plan.charged_unit.examples_touched():
            count = min(canaries, MOST_GRADIENT_CANARIES)
            findings += _audit_gradients(plan, stage, count, confidence, noise.stream(f"audit/{stage.name}"), rng)
    known = (AggregationStage, LabelSumStage, GradientStage, UnprotectedStage)
    skipped = tuple(f"no canaries are known for the stage '{s.name}'" for s in plan.stages if not isinstance(s, known))
    return AuditResult(
        method=plan.method,
        unit=plan.unit.name,
        planted_unit=plan.charged_unit.name,
        claimed=plan.epsilon,
        delta=plan.budget.definite_delta,
        confidence=confidence,
        findings=tuple(findings),
        skipped=skipped,
    )


def require_consistent(result: AuditResult) -> None:
    """Raise when the audit contradicts the claim."""
    if result.verdict == "contradicted":
        raise AuditContradiction(result.sentence())


def _audit_sums(
    plan: Plan, stages: Sequence[Stage], scores: np.ndarray, coins: np.ndarray, confidence: float
) -> list[Finding]:
    delta = plan.budget.definite_delta
    kind = "edge" if plan.charged_unit.examples_touched() == 0 else "node"
    name = f"{kind} canaries in {'sums of labels' if isinstance(stages[0], LabelSumStage) else 'noisy sums'}"
    methods: dict[str, Bound] = {
        "Gaussian trade-off": bounds.gaussian_bound,
        "one run, f-DP": _gaussian_one_run,
        "one run, (epsilon, delta)": one_run.one_run_bound,
        "Clopper-Pearson": bounds.threshold_bound,
    }
    return [
        Finding(
            name=name,
            method=method,
            canaries=len(coins),
            claimed=_price(plan, stages),
            lower_bound=bound(scores, coins, delta, confidence),
            strict_bound=bound(scores, coins, delta, 1.0 - FALSE_ALARM),
        )
        for method, bound in methods.items()
    ]


def _audit_gradients(
    plan: Plan,
    stage: GradientStage,
    canaries: int,
    confidence: float,
    noise: NoiseSource,
    rng: np.random.Generator,
) -> list[Finding]:
    seen = observe_training(plan, stage, canaries, noise, rng)
    delta, claimed = plan.budget.definite_delta, _price(plan, [stage])
    curve = one_run.loss_curve(PrivacyLoss(stage.event(plan.unit), plan.unit.relation, COARSE_GRID), points=80)

    findings = []
    for law, scores in {"Poisson batches": seen.poisson, "repeated batches": seen.periodic}.items():
        low = one_run.one_run_bound(scores, seen.planted, delta, confidence)
        strict = one_run.one_run_bound(scores, seen.planted, delta, 1.0 - FALSE_ALARM)
        # The whole curve can be refuted where no single epsilon is: then more than the claim is certain.
        refuted = bounds.refutes_curve(scores, seen.planted, curve, FALSE_ALARM)
        findings.append(
            Finding(
                name=f"gradient canaries in '{stage.name}'",
                method=f"one run, {law}",
                canaries=canaries,
                claimed=claimed,
                lower_bound=low,
                strict_bound=max(strict, math.nextafter(claimed, math.inf)) if refuted else strict,
            )
        )
    return findings


def _gaussian_one_run(scores: np.ndarray, planted: np.ndarray, delta: float, confidence: float) -> float:
    mu = one_run.one_run_f_bound(scores, planted, one_run.gaussian_curve, 20.0, confidence)
    return bounds.gaussian_epsilon(mu, delta)


def _price(plan: Plan, stages: Sequence[Stage]) -> float:
    """What the run claims for these stages alone, for the unit it states."""
    event = events.composed([stage.event(plan.unit) for stage in stages])
    return PrivacyLoss(event, plan.unit.relation).epsilon(plan.budget.definite_delta)


def _unused(plan: Plan, released: Sequence[str]) -> list[str]:
    """In words, what was charged for and is no part of the model's own plan (a choice was made after the release)."""
    named = [match["name"] for line in released if (match := _RELEASED.match(line))]
    planned = {stage.name for stage in plan.stages}
    return [f"the model that was kept does not read the stage '{name}'" for name in named if name not in planned]


def _recorded_noise(plan: Plan, released: Sequence[str]) -> list[Finding]:
    """A contradiction where the certificate records less noise than its own epsilon needs; nothing otherwise."""
    found = []
    for line in released:
        match = _RELEASED.match(line)
        stage = next((s for s in plan.stages if match and s.name == match["name"]), None)
        if match is None or stage is None:
            continue
        noise = float(match["std"])
        if noise < stage.std * (1.0 - 2e-3):  # the record is rounded to four digits, calibration to one in a thousand
            recorded = [s if s.name != stage.name else replace(s, std=noise) for s in plan.stages]
            real = _price(plan, recorded)
            found.append(Finding(f"noise on record for '{stage.name}'", "accounting", 0, plan.epsilon, real, real))
    return found
