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

from hushgraph.audit import bounds, one_run
from hushgraph.audit.family import Family, family_bound, one_run_family_bound
from hushgraph.audit.local_reports import audit_reports, local_stages
from hushgraph.audit.result import AuditResult, Finding
from hushgraph.audit.watching import KNOWN, Watched, watch
from hushgraph.data.metadata import PublicFacts
from hushgraph.errors import AuditContradiction
from hushgraph.methods.base import Method
from hushgraph.methods.local_base import LocalMethod
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import events
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.report.record import RunRecord, read_run, rebuild_method, rebuild_plan

CANARIES = 10_000
FALSE_ALARM = 1e-4  # of one finding: how often a correct mechanism may be called broken

Bound = Callable[[np.ndarray, np.ndarray, float, float], float]
_RELEASED = re.compile(r"^(?P<name>.+): \d+ x [^,]+, noise std (?P<std>\S+), sensitivity \S+$")
_COUNTED = re.compile(r"^(?P<name>.+): \d+ x noisy count(?: of pairs)?,")
_REPORTED = re.compile(
    r"^(?P<name>.+): \d+ x local report \(.*?(?P<epsilon>[\d.e+-]+)(?: for the whole row| together)?\)$"
)


def audit_run(
    source: Any, *, canaries: int = CANARIES, confidence: float = 0.95, seed: int | None = None
) -> AuditResult:
    """Audit a trained model or its folder. `seed` repeats an audit; it protects nothing and spends nothing."""
    record = read_run(source)
    if not math.isfinite(record.epsilon) or record.epsilon == 0.0:
        unit, why = record.unit.name, _why_nothing(record)
        return AuditResult(
            record.method, unit, unit, record.epsilon, record.delta, confidence, (), (why,), record.certificate["run"]
        )
    plan = rebuild_plan(record)
    found = audit_plan(
        plan,
        canaries=canaries,
        confidence=confidence,
        seed=seed,
        method=rebuild_method(record),
        facts=PublicFacts(**record.config["facts"]),
    )
    released = record.certificate["released"]
    return AuditResult(
        method=record.method,
        unit=plan.unit.name,
        planted_unit=found.planted_unit,
        claimed=plan.budget.epsilon,
        delta=found.delta,
        confidence=confidence,
        findings=(*found.findings, *_recorded_noise(plan, released), *_recorded_reports(plan, released)),
        skipped=(*found.skipped, *_unused(plan, released), *_counted(released)),
        run=record.certificate["run"],
    )


def audit_plan(
    plan: Plan,
    *,
    canaries: int = CANARIES,
    confidence: float = 0.95,
    seed: int | None = None,
    noise: NoiseSource | None = None,
    method: Method | None = None,
    facts: PublicFacts | None = None,
) -> AuditResult:
    """Audit the mechanisms that carry out `plan`. Tests hand in a broken `noise` source to see it caught.

    Local reports are audited with the `method` that collects them, on people with as many features as `facts` say.
    """
    rng = np.random.default_rng(seed)
    if noise is None:
        noise = NoiseSource.from_os() if seed is None else NoiseSource.seeded(seed)
    coins, watched = watch(plan, canaries, noise, rng)
    findings = _findings(plan, watched, coins, confidence)
    skipped = [f"no canaries are known for the stage '{s.name}'" for s in plan.stages if not isinstance(s, KNOWN)]
    if reports := local_stages(plan):
        if isinstance(method, LocalMethod) and facts is not None:
            findings += audit_reports(method, facts, plan, canaries, confidence, FALSE_ALARM, noise, rng)
        else:
            skipped += [f"the stage '{s.name}' needs the method that collects it" for s in reports]
    return AuditResult(
        method=plan.method,
        unit=plan.unit.name,
        planted_unit=plan.charged_unit.name,
        claimed=plan.epsilon,
        delta=plan.budget.definite_delta,
        confidence=confidence,
        findings=tuple(findings),
        skipped=tuple(skipped),
    )


def require_consistent(result: AuditResult) -> None:
    """Raise when the audit contradicts the claim."""
    if result.verdict == "contradicted":
        raise AuditContradiction(result.sentence())


def _why_nothing(record: RunRecord) -> str:
    if record.epsilon == 0.0:
        return "the run never reads what the unit protects"
    if record.certificate.get("claimed"):
        return "nothing is proved for the honest unit in paper mode, so there is nothing to contradict"
    return "the run claims no protection"


def _findings(plan: Plan, watched: Sequence[Watched], coins: np.ndarray, confidence: float) -> list[Finding]:
    """First the bound for everything together, then stage by stage."""
    if not watched:
        return []
    if len(watched) == 1 and watched[0].normal is not None:
        return _of_normal(plan, watched[0], watched[0].normal, coins, confidence, alone=True)
    stages = [stage for one in watched for stage in one.stages]
    name = "all stages together" if len(watched) > 1 else watched[0].name
    found = _of_ratios(plan, Watched(name, stages, np.sum([one.ratios for one in watched], axis=0)), coins, confidence)
    for one in watched if len(watched) > 1 else ():
        if one.normal is not None:
            found += _of_normal(plan, one, one.normal, coins, confidence, alone=False)
        else:
            found += _of_ratios(plan, one, coins, confidence, brief=True)
    for one in watched:
        if one.repeated is not None:
            found += _of_ratios(plan, replace(one, ratios=one.repeated), coins, confidence, brief=True, kind="repeated")
    return found


def _of_normal(
    plan: Plan, one: Watched, scores: np.ndarray, coins: np.ndarray, confidence: float, *, alone: bool
) -> list[Finding]:
    """Sums with Gaussian noise: scores are normal, which gives the sharpest bound."""
    methods: dict[str, Bound] = {"Gaussian trade-off": bounds.gaussian_bound}
    if alone:
        methods |= {
            "one run, f-DP": _gaussian_one_run,
            "one run, (epsilon, delta)": one_run.one_run_bound,
            "Clopper-Pearson": bounds.threshold_bound,
        }
    return [_finding(plan, one, method, bound, scores, coins, confidence) for method, bound in methods.items()]


def _of_ratios(
    plan: Plan, one: Watched, coins: np.ndarray, confidence: float, *, brief: bool = False, kind: str = "own"
) -> list[Finding]:
    """Anything else: the curve of the mechanism itself, with its noise as the unknown."""
    family = Family(one.stages, plan.charged_unit)

    def curve(scores: np.ndarray, planted: np.ndarray, delta: float, level: float) -> float:
        return family_bound(scores, planted, family, delta, level)

    def dependent(scores: np.ndarray, planted: np.ndarray, delta: float, level: float) -> float:
        return one_run_family_bound(scores[0], planted, family, delta, level)

    def any_law(scores: np.ndarray, planted: np.ndarray, delta: float, level: float) -> float:
        return one_run.one_run_bound(scores[0], planted, delta, level)

    words = "own trade-off curve" if kind == "own" else "own trade-off curve, if batches repeat"
    methods: dict[str, Bound] = {words: curve}
    if not brief:
        methods |= {"one run, f-DP": dependent, "one run, (epsilon, delta)": any_law}
    return [_finding(plan, one, method, bound, one.ratios, coins, confidence) for method, bound in methods.items()]


def _finding(
    plan: Plan, one: Watched, method: str, bound: Bound, scores: np.ndarray, coins: np.ndarray, confidence: float
) -> Finding:
    delta = plan.budget.definite_delta
    return Finding(
        name=one.name,
        method=method,
        canaries=len(coins),
        claimed=_price(plan, one.stages),
        lower_bound=bound(scores, coins, delta, confidence),
        strict_bound=bound(scores, coins, delta, 1.0 - FALSE_ALARM),
    )


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


def _counted(released: Sequence[str]) -> list[str]:
    """In words, the counts: their law is known exactly, and a choice made from them is no part of the model's plan."""
    named = [match["name"] for line in released if (match := _COUNTED.match(line))]
    return [f"the stage '{name}' has no canaries: its law is enumerated in the tests" for name in named]


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


def _recorded_reports(plan: Plan, released: Sequence[str]) -> list[Finding]:
    """A contradiction where the certificate records local reports that cost more than its own epsilon allows."""
    found = []
    for line in released:
        match = _REPORTED.match(line)
        stage = next((s for s in local_stages(plan) if match and s.name == match["name"]), None)
        if match is None or stage is None:
            continue
        real = float(match["epsilon"])
        if real > stage.epsilon * (1.0 + 1e-5):  # the record is rounded to six digits
            found.append(Finding(f"report on record for '{stage.name}'", "accounting", 0, stage.epsilon, real, real))
    return found
