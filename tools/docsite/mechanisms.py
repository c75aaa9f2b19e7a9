"""Pages of mechanisms, all generated: what is released, the proof, the bound per unit, the canary, who uses it."""

from __future__ import annotations

import math
from functools import cache

import docs
from docsite.markdown import about, table
from docsite.methods import BUDGET, TYPICAL
from hushgraph import registry, testing
from hushgraph.errors import HushgraphError
from hushgraph.privacy.mechanism import Mechanism


def names() -> list[str]:
    """All mechanisms."""
    return registry.names("mechanisms")


def page(name: str) -> str:
    """One mechanism."""
    found = registry.load("mechanisms", name)
    variants = list(found.variants())
    one = variants[0] if variants else found
    canary = found.canary is not Mechanism.canary
    users = ", ".join(f"[`{method}`](../methods/{method}.md)" for method in _users().get(name, ()))
    rows = [
        ["releases", one.released],
        ["reads", docs.reads(name)],
        ["noise", one.law],
        ["sampling", one.sampling or "-"],
        ["proof", "none: nothing is promised" if one.proof == "none" else f"[{one.proof}](../proofs/{one.proof}.md)"],
        [
            "canary",
            "yes: `hushgraph audit` plants units and looks for them"
            if canary
            else "no: an audit names the stage as not covered",
        ],
        ["used by", users or "no method by default"],
    ]
    asymptotic = (
        "\n!!! warning\n    Proved in the limit of a long chain only; certificates say so.\n" if one.asymptotic else ""
    )
    head = f"# `{name}`\n\n{about(found)}\n{asymptotic}\n{table(rows[0], rows[1:])}"
    return f"{head}\n## Bound per unit\n\n{_bounds(variants)}"


def _bounds(variants: list[Mechanism]) -> str:
    """Units down, typical parameters across."""
    if not variants:
        return "It covers whole runs, whose mechanisms have their own bounds.\n"
    head = ["unit", *[docs.called(one).replace(f"`{one.name}`", "").strip() or "default" for one in variants]]
    rows = []
    for name in registry.names("units"):
        unit = registry.load("units", name).variants()[0]
        rows.append([f"`{unit}`", *[docs.cell(testing.Cell(one, unit)) for one in variants]])
    words = "How far one unit can move one answer before noise. *Free*: all that is read is public under the unit. "
    words += "*Refused*: no bound is proved, so the library does not run it.\n\n"
    return words + table(head, rows)


@cache
def _users() -> dict[str, list[str]]:
    """The methods whose stages use each mechanism, under any unit that they are proved for."""
    users: dict[str, list[str]] = {}
    for name in registry.names("methods"):
        method = registry.load("methods", name)()
        for unit in testing.units():
            try:
                stages = method.stages(TYPICAL, unit, BUDGET)
            except HushgraphError:
                continue
            for stage in stages:
                known = users.setdefault(stage.mechanism.name, [])
                if name not in known and (stage.is_free(unit) or math.isfinite(stage.mechanism.sensitivity(unit))):
                    known.append(name)
    return users
