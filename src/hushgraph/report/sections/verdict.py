"""The first screen: what a person who signs needs to know, in words that need no knowledge of the field."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hushgraph.ledger.certificate import Randomness
from hushgraph.privacy.tradeoff import best_guess, detection_rate
from hushgraph.privacy.unit import Relation
from hushgraph.report import words
from hushgraph.report.context import RunContext
from hushgraph.report.sections import section
from hushgraph.text import rounded_up

_STRENGTHS = (
    (0.60, "Well protected", "good"),
    (0.75, "Fairly protected", "good"),
    (0.95, "Weakly protected", "warn"),
    (1.00, "Hardly protected in the worst case", ""),
)
"""What a guarantee is called, by how often the best attacker may be right."""

_SCALE = "Well: at most 60 right guesses in 100, where a coin has 50. Fairly: 75. Weakly: 95. Hardly: more than that."


@dataclass(frozen=True)
class Verdict:
    """One sentence, what color it has, rows of what stands behind it, and what its words mean."""

    sentence: str
    kind: str
    rows: tuple[tuple[str, str], ...]
    scale: str


@section(
    "verdict",
    "Verdict",
    template="""
{{ ui.banner(verdict.sentence, verdict.kind) }}
{{ ui.table([], verdict.rows) }}
{{ ui.note(verdict.scale) }}
""",
)
def verdict(context: RunContext) -> dict[str, Any]:
    """One sentence, then what is protected, how well, what is not, what was checked, and what is left to do."""
    return {"verdict": verdict_of(context)}


def verdict_of(context: RunContext) -> Verdict:
    """The verdict on a run."""
    sentence, kind = _verdict(context)
    rows = (
        ("What is protected", _protected(context)),
        ("How well", _how_well(context)),
        ("Also", _second(context)),
        ("What is not", _not_protected(context)),
        ("Checked", _checked(context)),
        ("All runs on this data", _all_runs(context)),
        ("Left to do", _left(context)),
    )
    return Verdict(sentence, kind, tuple(row for row in rows if row[1]), _scale(context))


def _verdict(context: RunContext) -> tuple[str, str]:
    certificate = context.certificate
    if context.verification == "contradicted":
        return f"Do not rely on this {context.what}: what it says of itself is not what the ledger says.", ""
    if context.verification == "rejected":
        return f"Do not rely on this {context.what}. {context.headline}.", ""
    if not certificate.is_private:
        made = "trained on" if context.what == "model" else "made from"
        return f"This {context.what} protects nothing: it must be treated like the data it was {made}.", ""
    if certificate.is_free:
        return f"Nothing in this {context.what} depends on {context.unit.protects}.", "good"
    strength, kind = _strength(context)
    unsure = "" if context.verification == "verified" else " This was not verified: see below."
    limit = " The proof is for a limit that no finite run reaches." if certificate.asymptotic else ""
    kind = "warn" if (unsure or limit) and kind else kind
    return f"{strength}: {context.unit.protects}.{limit}{unsure}", kind


def _strength(context: RunContext) -> tuple[str, str]:
    guess = best_guess(context.loss) if context.loss is not None else 1.0
    return next((name, kind) for most, name, kind in _STRENGTHS if guess <= most)


def _protected(context: RunContext) -> str:
    if not context.certificate.is_private:
        return "nothing"
    whom = f", from everybody who sees the {context.what}" if context.unit.trust == "central" else ""
    return f"{context.unit.protects}{whom}, whatever they know or compute besides"


_CASES = {
    Relation.ADD_OR_REMOVE: "with and without",
    Relation.NULL: "with and without",
    Relation.REPLACE: "one version and another",
}
"""What an attacker has to tell apart."""


def _how_well(context: RunContext) -> str:
    if context.loss is None or not context.certificate.is_private:
        return ""
    guess = rounded_up(100.0 * best_guess(context.loss), 3)
    at_one, at_tenth = (rounded_up(100.0 * detection_rate(context.loss, rate), 2) for rate in (0.01, 0.001))
    return (
        f"Of 100 guesses between {_CASES[context.unit.relation]}, at most {guess} are right. Who accepts one false "
        f"alarm in 100 finds at most {at_one} of 100; with one in 1,000, at most {at_tenth} of 100. That is epsilon "
        f"{words.number(context.epsilon)} at delta {context.delta:g}."
    )


def _second(context: RunContext) -> str:
    """The promise about the features of a released graph, where there is one."""
    return "" if context.features is None else f"A second promise, about features: {words.claim(context.features)}"


def _not_protected(context: RunContext) -> str:
    if not context.certificate.is_private:
        return "everything"
    return "; ".join(str(note) for note in context.certificate.unprotected)


def _all_runs(context: RunContext) -> str:
    found = context.total
    if not words.under_a_limit(found):
        return words.total(found)
    runs = words.counted(found.runs, "run")
    return (
        f"epsilon {words.number(found.used)} used over {runs}, of a limit of {found.limit:g} at delta {found.delta:g}; "
        "whatever is run until the limit is reached, it holds"
    )


_CHECKS = {
    None: "nothing: no ledger was at hand when this page was written",
    "verified": "{what}, certificate and ledger agree",
    "not verified": "a part could not be checked",
    "rejected": "a person whose word counts has rejected it",
    "contradicted": "the ledger says something else",
}


def _checked(context: RunContext) -> str:
    return _CHECKS[context.verification].format(what=context.what)


def _left(context: RunContext) -> str:
    """What the reader can do next, where the ledger is at hand."""
    certificate, state = context.certificate, context.dataset
    if certificate.randomness is Randomness.SEEDED:
        again = "Train" if context.what == "model" else "Release"
        return f"{again} it again without a seed before anything leaves the house."
    if context.verification == "rejected":
        return ""
    if state is None or context.verification != "verified":
        return "hushgraph verify FOLDER says what is missing."
    steps = []
    if state.total.limit is None and math.isfinite(state.total.epsilon):
        limit = f"hushgraph ledger limit --dataset {state.name} --unit {state.unit} --epsilon E --delta D"
        steps.append(f"No limit is set for this data: {limit}.")
    if not any(run.signed for run in state.runs if run.run == certificate.run):
        steps.append(f"Nobody has signed this run: hushgraph ledger approve {certificate.run} --as NAME.")
    return " ".join(steps)


def _scale(context: RunContext) -> str:
    return _SCALE if context.loss is not None and context.certificate.is_private else ""
