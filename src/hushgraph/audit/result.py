"""What an audit found: codes and numbers, and the sentences that are made of them last."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from hushgraph.files.writing import plain

FORMAT = 2
SYNTHETIC = (
    "The audit ran the same mechanisms, with the run's own plan, on data made for the audit; the real data was not "
    "read and its ledger was not charged."
)

SEEDED = (
    "NOT PRIVATE: the noise of this run was seeded and can be drawn again. The audit is about the mechanisms, with "
    "noise that nobody can repeat:"
)


class Bound(StrEnum):
    """How a number was come by."""

    GAUSSIAN = "gaussian"
    CURVE = "curve"
    REPEATED = "repeated-batches"
    ONE_RUN_CURVE = "one-run-curve"
    ONE_RUN = "one-run"
    ONE_RUN_PURE = "one-run-pure"
    THRESHOLD = "threshold"
    PARTS = "threshold-of-parts"
    LAW = "law"
    NOISE_ON_RECORD = "noise-on-record"
    EPSILON_ON_RECORD = "epsilon-on-record"


class Reason(StrEnum):
    """Why something was not audited."""

    NO_CANARY = "no-canary"
    BRANCH = "branch"
    NEVER_READS = "never-reads"
    NO_CLAIM = "no-claim"
    PAPER_UNPROVED = "paper-unproved"
    OUTSIDE_PLAN = "outside-plan"
    NOT_ON_RECORD = "not-on-record"
    RECORD_DIFFERS = "record-differs"


class Verdict(StrEnum):
    """What follows for the claim."""

    CONTRADICTED = "contradicted"
    CONSISTENT = "consistent"
    NOTHING = "nothing to audit"


@dataclass(frozen=True)
class Finding:
    """One bound on the epsilon of some stages: what was planted, on how many canaries, against which claim.

    `lower_bound` holds with the audit's confidence. `strict_bound` holds with the far higher confidence at which a
    contradiction is declared, so that a correct mechanism is not called broken by chance.
    """

    bound: Bound
    stages: tuple[str, ...]
    claimed: float
    lower_bound: float
    strict_bound: float
    canaries: int = 0
    planted: str | None = None
    parts: int = 1

    @property
    def contradicts(self) -> bool:
        """Whether the claim is refuted."""
        return self.strict_bound > self.claimed

    @property
    def name(self) -> str:
        """What was looked at, in words."""
        where = " and ".join(f"'{stage}'" for stage in self.stages)
        if self.bound is Bound.NOISE_ON_RECORD:
            return f"noise on record for {where}"
        if self.bound is Bound.EPSILON_ON_RECORD:
            return "epsilon on record"
        if self.bound is Bound.LAW:
            return f"law of {where}"
        return (
            f"all audited stages together, {where}" if len(self.stages) > 1 else f"{self.planted} canaries in {where}"
        )

    @property
    def method(self) -> str:
        """How it was looked at, in words."""
        return _BOUNDS[self.bound].format(parts=self.parts)

    def as_dict(self) -> dict[str, Any]:
        """The finding as plain JSON values, with its words beside them."""
        values: dict[str, Any] = plain(asdict(self))
        return {**values, "contradicts": self.contradicts, "name": self.name, "method": self.method}


@dataclass(frozen=True)
class Skipped:
    """Something that was not audited, and why; `stage` is None where it is the whole run."""

    reason: Reason
    stage: str | None = None

    def __str__(self) -> str:
        return _REASONS[self.reason].format(stage=self.stage)

    def as_dict(self) -> dict[str, Any]:
        """The codes, with their words beside them."""
        return {"reason": self.reason.value, "stage": self.stage, "sentence": str(self)}


@dataclass(frozen=True)
class AuditResult:
    """All findings of one audit. The first finding is the one that was chosen in advance to stand for the run."""

    method: str
    unit: str
    planted_unit: str
    claimed: float
    delta: float
    confidence: float
    findings: tuple[Finding, ...]
    skipped: tuple[Skipped, ...] = ()
    run: str | None = None
    seeded: bool = False
    """The noise of the run was seeded: whoever knows the seed can take it away, whatever the mechanisms do."""

    @property
    def lower_bound(self) -> float:
        """The proven lower bound on epsilon, with the audit's confidence; 0 when nothing could be measured."""
        return self.findings[0].lower_bound if self.findings else 0.0

    @property
    def verdict(self) -> Verdict:
        """What follows from all findings together."""
        if any(finding.contradicts for finding in self.findings):
            return Verdict.CONTRADICTED
        return Verdict.CONSISTENT if self.findings else Verdict.NOTHING

    def sentence(self) -> str:
        """The result in one sentence; of a run with seeded noise, after a warning."""
        return f"{SEEDED} {self._result()}" if self.seeded else self._result()

    def _result(self) -> str:
        unseen = "; ".join(map(str, self.skipped))
        if not self.findings:
            return f"nothing to audit: {unseen or 'the run releases nothing that depends on the unit'}"
        claim = f"claimed epsilon {self.claimed:.4g} ({self.unit}, delta {self.delta:g})"
        bound = f"proven lower bound {self.lower_bound:.4g} at {self.confidence:.0%} confidence"
        left_out = f". NOT AUDITED: {unseen}" if unseen else ""
        if self.verdict is Verdict.CONTRADICTED:
            worst = max((f for f in self.findings if f.contradicts), key=lambda f: f.strict_bound - f.claimed)
            return (
                f"CONTRADICTED: {claim}; {bound}. {worst.name} ({worst.method}): at least {worst.strict_bound:.4g}, "
                f"claimed {worst.claimed:.4g}{left_out}"
            )
        if self.lower_bound > self.claimed:
            bound += f", above the claim, as {1.0 - self.confidence:.0%} of such bounds may be"
        return f"consistent: {claim}; {bound}. This does not prove the claim{left_out}"

    def as_dict(self) -> dict[str, Any]:
        """The result as plain JSON values, with its sentence beside them."""
        values: dict[str, Any] = {
            "format": FORMAT,
            "run": self.run,
            "method": self.method,
            "unit": self.unit,
            "planted_unit": self.planted_unit,
            "claimed": plain(self.claimed),
            "delta": self.delta,
            "confidence": self.confidence,
            "lower_bound": plain(self.lower_bound),
            "verdict": self.verdict.value,
            "seeded": self.seeded,
            "sentence": self.sentence(),
            "findings": [finding.as_dict() for finding in self.findings],
            "skipped": [one.as_dict() for one in self.skipped],
            "ran_on": SYNTHETIC,
        }
        return values


_BOUNDS = {
    Bound.GAUSSIAN: "Gaussian trade-off",
    Bound.CURVE: "own trade-off curve",
    Bound.REPEATED: "own trade-off curve, if batches repeat",
    Bound.ONE_RUN_CURVE: "one run, f-DP",
    Bound.ONE_RUN: "one run, (epsilon, delta)",
    Bound.ONE_RUN_PURE: "one run, pure epsilon",
    Bound.THRESHOLD: "Clopper-Pearson",
    Bound.PARTS: "Clopper-Pearson on each of {parts} parts",
    Bound.LAW: "exact enumeration",
    Bound.NOISE_ON_RECORD: "accounting",
    Bound.EPSILON_ON_RECORD: "accounting",
}

_REASONS = {
    Reason.NO_CANARY: "no canaries are known for the stage '{stage}'",
    Reason.BRANCH: "'{stage}' is a branch that has not been taken yet",
    Reason.NEVER_READS: "the run never reads what the unit protects",
    Reason.NO_CLAIM: "the run claims no protection",
    Reason.PAPER_UNPROVED: "nothing is proved for the honest unit in paper mode, so there is nothing to contradict",
    Reason.OUTSIDE_PLAN: "the stage '{stage}' was charged and is no part of the plan",
    Reason.NOT_ON_RECORD: "the stage '{stage}' was planned and the certificate lists no charge for it",
    Reason.RECORD_DIFFERS: "the charge on record for '{stage}' is not the planned one, though it costs no more",
}
