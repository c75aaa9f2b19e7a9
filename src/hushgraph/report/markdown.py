"""The report in Markdown, and a model card with the front matter that model hubs read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hushgraph.methods.evaluation import EVALUATION
from hushgraph.report import words
from hushgraph.report.context import RunContext
from hushgraph.report.sections.nist import nist_rows
from hushgraph.report.sections.reporting import reporting_rows
from hushgraph.report.sections.verdict import verdict_of

_CARD = """---
library_name: hushgraph
pipeline_tag: graph-ml
tags:
- graph-machine-learning
- differential-privacy
- {method}
---
"""


def render_markdown(context: RunContext) -> str:
    """Everything that a page says in words; plots stay on the page."""
    return _joined(
        [
            f"# {_plain(context.label)} on {_plain(context.certificate.dataset)}: privacy report",
            *_verdict(context),
            *_claim(context),
            *_figures(context),
            *_checklist("Reporting list (How to DP-fy ML)", reporting_rows(context)),
            *_checklist("NIST SP 800-226", nist_rows(context)),
        ]
    )


def render_card(context: RunContext) -> str:
    """A model card: what the model is, its guarantee, its limits, how it was measured."""
    certificate = context.certificate
    made = "trained on" if context.what == "model" else "released from"
    settings = [(key, str(value)) for key, value in context.parameters.items() if value is not None]
    return _joined(
        [
            _CARD.format(method=context.method) + f"\n# {_plain(context.label)} {made} {_plain(certificate.dataset)}",
            *_verdict(context),
            *_claim(context),
            *_section("Not to be used for", _bullets(_misuses(context))),
            *_figures(context),
            *_section("Settings", _table(("setting", "value"), settings)),
            *_section("Versions", [words.versions(certificate)]),
        ]
    )


def _verdict(context: RunContext) -> list[str]:
    found = verdict_of(context)
    return _section("Verdict", [f"**{_plain(found.sentence)}**", "", *_table(("", ""), found.rows), "", found.scale])


def _claim(context: RunContext) -> list[str]:
    certificate = context.certificate
    extra = [one for one in (words.paper(certificate), words.asymptotic(certificate)) if one]
    return [
        *_section("Claim", [_plain(words.claim(certificate)), *extra]),
        *_section("Released", _bullets(words.released(certificate) or ["nothing that depends on the unit"])),
        *_section("Taken as public", _bullets([str(note) for note in certificate.public] or ["nothing"])),
    ]


def _figures(context: RunContext) -> list[str]:
    splits = [(split, context.accuracy(split)) for split in ("train", "val", "test")]
    rows = [(split, f"{value:.1f}%") for split, value in splits if value is not None]
    return _section(f"Accuracy ({EVALUATION})", _table(("split", "accuracy"), rows)) if rows else []


def _misuses(context: RunContext) -> list[str]:
    if not context.certificate.is_private:
        return ["anything outside the house: it has no guarantee and must be treated like its training data"]
    kept = [f"keeping secret what is not protected: {note}" for note in context.certificate.unprotected]
    return [*kept, "another unit of protection than the one named: epsilons of different units cannot be compared"]


def _checklist(title: str, rows: Sequence) -> list[str]:
    return _section(title, _table(("item", "state", "in this run"), [(r.name, r.state, r.words) for r in rows]))


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"


def _section(title: str, lines: Iterable[str]) -> list[str]:
    return ["", f"## {title}", "", *lines]


def _bullets(items: Iterable[str]) -> list[str]:
    return [f"- {_plain(item)}" for item in items]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(_plain(cell).replace('|', '/') for cell in row)} |" for row in lines]


def _plain(text: str) -> str:
    """Text that comes from outside (names, purposes), so that it stays text: no markup, no second line."""
    return " ".join(str(text).split()).replace("<", "&lt;").replace("`", "'").replace("[", "(").replace("]", ")")
