"""The claim in one sentence, with what it means for one unit."""

from __future__ import annotations

import math
from typing import Any

from markupsafe import Markup

from hushgraph.ledger.certificate import Randomness
from hushgraph.methods.evaluation import EVALUATION
from hushgraph.privacy.loss import PrivacyLoss, WorstOf
from hushgraph.privacy.tradeoff import best_guess
from hushgraph.report import words
from hushgraph.report.context import RunContext
from hushgraph.report.sections import pill, section
from hushgraph.text import rounded_up

_CHECKED = {
    None: ("not verified", "warn"),
    "not verified": ("not verified", "warn"),
    "verified": ("verified against the ledger", "good"),
    "rejected": ("rejected by a sign-off", "bad"),
    "contradicted": ("contradicted by the ledger", "bad"),
}


@section(
    "claim",
    "The claim",
    after="verification",
    template="""
<div class="claim">
<div class="big"><div class="number">{{ number }}</div>
<div class="unit">{{ meaning }}<br>per {{ unit }}</div></div>
<div><blockquote>{{ claim }}</blockquote>{% for one in pills %}{{ one }} {% endfor %}</div>
</div>
{% if paper %}{{ ui.banner(paper, "warn") }}{% endif %}
{% if choice %}{{ ui.banner("Chosen by rule: " ~ choice, "plain") }}{% endif %}
<div class="facts">{% for name, value, about in tiles %}{{ ui.tile(name, value, about) }}{% endfor %}</div>
{% if curve %}
<div class="slider"><label for="delta">Read epsilon at another delta</label>
<input type="range" id="delta" min="0" max="{{ curve | length - 1 }}" step="1" value="{{ here }}">
<output id="delta-words" for="delta">epsilon {{ curve[here][1] }} at delta {{ curve[here][0] }}</output></div>
<script type="application/json" id="delta-curve">{{ curve | tojson }}</script>
{% elif profile %}{{ ui.note("Also: " ~ profile | join("; ") ~ ".") }}{% endif %}
""",
)
def claim(context: RunContext) -> dict[str, Any]:
    """The number, the sentence, its state, and epsilon at other deltas."""
    certificate = context.certificate
    exponents = sorted({-e for e in range(3, 13)} | {math.log10(context.delta)}, reverse=True)
    return {
        "number": rounded_up(context.epsilon) if certificate.is_private else "∞",
        "meaning": _meaning(context),
        "unit": context.unit.name if context.unit.trust == "central" else "person",
        "claim": words.claim(certificate),
        "pills": _pills(context),
        "paper": words.paper(certificate),
        "choice": context.reason and str(context.reason),
        "tiles": _tiles(context),
        "curve": [_point(context.loss, one) for one in exponents] if context.loss and certificate.is_private else [],
        "here": exponents.index(math.log10(context.delta)),
        "profile": words.profile(certificate) if certificate.is_private else [],
    }


def _meaning(context: RunContext) -> str:
    epsilon = f"epsilon at delta {context.delta:g}"
    if context.certificate.randomness is not Randomness.SEEDED:
        return epsilon
    return f"{epsilon}; with noise that was not seeded it would be {words.number(context.epsilon)}"


def _pills(context: RunContext) -> list[Markup]:
    found = []
    if math.isinf(context.epsilon):
        found.append(pill("no guarantee", "bad"))
    elif context.certificate.randomness is Randomness.SEEDED:
        found.append(pill("seeded run: not private", "bad"))
    elif context.certificate.is_free:
        found.append(pill("does not read what is protected", "plain"))
    if context.certificate.asymptotic:
        found.append(pill("asymptotic: proved in the limit of a long chain", "bad"))
    found.append(pill(*_CHECKED[context.verification]))
    return [*found, pill(words.accountant(context.certificate), "plain")] if context.has_noise else found


def _tiles(context: RunContext) -> list[tuple[str, str, str]]:
    tiles = []
    if context.loss is not None and context.certificate.is_private:
        guess = 100.0 * best_guess(context.loss)
        shown = f"{rounded_up(guess, 3)}%" if guess < 99.9 else "over 99.9%"
        about = "how often anyone can be right about one unit when both cases are equally likely (50%: chance)"
        tiles.append(("best possible guess", shown, about))
    tiles.append(_total(context))
    if context.accuracy() is not None:
        tiles.append((f"test {context.measure}", f"{context.accuracy():.1f}%", EVALUATION))
    if context.certificate.mu is not None:
        tiles.append(("Gaussian DP", f"μ = {context.certificate.mu:.3g}", "the whole trade-off in one number"))
    return tiles


def _total(context: RunContext) -> tuple[str, str, str]:
    found = context.total
    if words.under_a_limit(found):
        left = f"of the limit {found.limit:g}, over {words.counted(found.runs, 'run')}; until it is reached, it holds"
        return "spent on this dataset", words.number(found.used), left
    value = words.number(found.epsilon) if found.private else "not private"
    when = "now" if context.dataset is not None else "when this run ended"
    about = f"epsilon over {words.counted(found.runs, 'run')} {when}; {words.limit(found)}"
    return "spent on this dataset", value, about


def _point(loss: PrivacyLoss | WorstOf, exponent: float) -> tuple[str, str]:
    return f"{10**exponent:.3g}", rounded_up(max(loss.epsilon(10**exponent), 0.0))
