"""What an audit found, as plain values."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

FORMAT = 1
SYNTHETIC = (
    "The audit ran the same mechanisms, with the run's own plan, on data made for the audit; the real data was not "
    "read and its ledger was not charged."
)


@dataclass(frozen=True)
class Finding:
    """One bound: what was measured, on how many canaries, against which claim.

    `lower_bound` holds with the audit's confidence. `strict_bound` holds with the far higher confidence at which a
    contradiction is declared, so that a correct mechanism is not called broken by chance.
    """

    name: str
    method: str
    canaries: int
    claimed: float
    lower_bound: float
    strict_bound: float

    @property
    def contradicts(self) -> bool:
        """Whether the claim is refuted."""
        return self.strict_bound > self.claimed

    def as_dict(self) -> dict[str, Any]:
        """The finding as plain JSON values."""
        values = {key: _finite(value) for key, value in asdict(self).items()}
        return {**values, "contradicts": self.contradicts}


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
    skipped: tuple[str, ...] = ()
    run: str | None = None

    @property
    def lower_bound(self) -> float:
        """The proven lower bound on epsilon, with the audit's confidence; 0 when nothing could be measured."""
        return self.findings[0].lower_bound if self.findings else 0.0

    @property
    def verdict(self) -> str:
        """`contradicted`, `consistent`, or `nothing to audit`."""
        if any(finding.contradicts for finding in self.findings):
            return "contradicted"
        return "consistent" if self.findings else "nothing to audit"

    def sentence(self) -> str:
        """The result in one sentence."""
        if not self.findings:
            return f"nothing to audit: {'; '.join(self.skipped) or 'the run releases nothing that depends on the unit'}"
        claim = f"claimed epsilon {self.claimed:.4g} ({self.unit}, delta {self.delta:g})"
        bound = f"proven lower bound {self.lower_bound:.4g} at {self.confidence:.0%} confidence"
        unseen = f". NOT AUDITED: {'; '.join(self.skipped)}" if self.skipped else ""
        if self.verdict == "contradicted":
            worst = max((f for f in self.findings if f.contradicts), key=lambda f: f.strict_bound - f.claimed)
            return (
                f"CONTRADICTED: {claim}; {bound}. {worst.name} ({worst.method}): at least {worst.strict_bound:.4g}, "
                f"claimed {worst.claimed:.4g}{unseen}"
            )
        return f"consistent: {claim}; {bound}. This does not prove the claim{unseen}"

    def as_dict(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        return {
            "format": FORMAT,
            "run": self.run,
            "method": self.method,
            "unit": self.unit,
            "planted_unit": self.planted_unit,
            "claimed": _finite(self.claimed),
            "delta": self.delta,
            "confidence": self.confidence,
            "lower_bound": _finite(self.lower_bound),
            "verdict": self.verdict,
            "sentence": self.sentence(),
            "findings": [finding.as_dict() for finding in self.findings],
            "skipped": list(self.skipped),
            "ran_on": SYNTHETIC,
        }


def _finite(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
