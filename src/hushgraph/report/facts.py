"""The report as data: `privacy.json`, for programs that decide or collect.

Names and meanings of version 1 stay; later versions may add names (docs/report.md has the list).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hushgraph.files.writing import json_text
from hushgraph.ledger.certificate import Certificate
from hushgraph.privacy.tradeoff import best_guess, detection_rate
from hushgraph.report.context import RunContext

SCHEMA = "hushgraph-privacy/1"
FALSE_ALARMS = (0.01, 0.001)


def privacy_facts(context: RunContext) -> dict[str, Any]:
    """What is known about a run, as plain values; nothing in it is private."""
    certificate = context.certificate
    return {
        "schema": SCHEMA,
        "run": certificate.run,
        "method": certificate.method,
        "chosen": certificate.chosen,
        "dataset": certificate.dataset,
        "what": context.what,
        "private": certificate.is_private,
        "unit": {**context.unit.as_dict(), "protects": context.unit.protects, "relation": context.unit.relation.value},
        "epsilon": certificate.epsilon,
        "delta": certificate.delta,
        "profile": dict(certificate.profile),
        "mu": certificate.mu,
        "accountant": certificate.accountant,
        "asymptotic": list(certificate.asymptotic),
        "attacker": attacker(context),
        "released": [asdict(charge) for charge in certificate.charges],
        "public": [note.as_dict() | {"words": str(note)} for note in certificate.public],
        "not_protected": [note.as_dict() | {"words": str(note)} for note in certificate.unprotected],
        "randomness": certificate.randomness.value,
        "features": None if context.features is None else _second(context.features),
        "paper": None if certificate.paper is None else certificate.paper.as_dict(),
        "dataset_total": asdict(context.total),
        "verification": context.verification or "not verified",
        "operator": certificate.operator,
        "purpose": certificate.purpose,
        "ledger": {"hash": certificate.ledger_hash, "in_memory": certificate.ledger_in_memory},
        "versions": dict(certificate.versions),
    }


def _second(certificate: Certificate) -> dict[str, Any]:
    """The promise about the features of a released graph."""
    unit = certificate.unit.as_dict()
    return {"run": certificate.run, "unit": unit, "epsilon": certificate.epsilon, "delta": certificate.delta}


def attacker(context: RunContext) -> dict[str, Any] | None:
    """The most that the best attacker can do about one unit; None where nothing is protected, or nothing released."""
    if context.loss is None or not context.certificate.is_private:
        return None
    found = {f"{rate:g}": detection_rate(context.loss, rate) for rate in FALSE_ALARMS}
    return {"best_guess": best_guess(context.loss), "found_at_false_alarms": found}


def render_facts(context: RunContext) -> str:
    """`privacy_facts` as JSON."""
    return json_text(privacy_facts(context))
