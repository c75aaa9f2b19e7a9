"""Write the tables that follow from the registry between their markers: `make docs`.

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`; what is there is replaced.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from pathlib import Path

from hushgraph import registry
from hushgraph.methods.base import Method
from hushgraph.methods.refusals import methods_where, tells_types_apart, weighs_classes, weighs_edges
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.calibration import noise_scale
from hushgraph.privacy.events import gaussian
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan
from hushgraph.privacy.tradeoff import best_guess, detection_rate
from hushgraph.privacy.units import Relation
from hushgraph.testing import Cell, matrix

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    ROOT / "README.md",
    *(
        ROOT / "docs" / name
        for name in ("data.md", "mechanisms.md", "methods/index.md", "which-unit.md", "tutorials/officer.md")
    ),
)
_TABLE = re.compile(r"<!-- table: (\w+) -->\n.*?<!-- end of table -->", flags=re.DOTALL)


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    shown = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in shown)


def methods() -> str:
    """Every method, the units it is proved for, and where it comes from."""
    rows = []
    for name in registry.names("methods"):
        found = registry.load("methods", name)
        proved = ", ".join(f"`{unit}`" for unit in found.units()) or "none: needs `--epsilon inf`"
        rows.append([f"`{name}`", found.summary, proved, found.paper])
    return table(["name", "what it does", "units", "from"], rows)


def units() -> str:
    """Every unit: what changes, and what is left unprotected."""
    rows = []
    for name in registry.names("units"):
        found = registry.load("units", name)()
        rows.append([f"`{name}`", found.change, "; ".join(map(str, found.unprotected))])
    return table(["unit", "what one neighbor changes", "what stays public or is not protected"], rows)


def mechanisms() -> str:
    """Every mechanism: what it reads, its noise, its proof."""
    rows = []
    for name in registry.names("mechanisms"):
        found = registry.load("mechanisms", name)
        one = next(iter(found.variants()), found)
        proof = "none" if one.proof == "none" else f"[{one.proof}](proofs/{one.proof}.md)"
        rows.append([f"`{name}`", one.released, reads(name), one.law, one.sampling or "-", proof])
    return table(["mechanism", "releases", "reads", "noise", "sampling", "proof"], rows)


def reads(name: str) -> str:
    """The parts of a dataset that a mechanism looks at, in words."""
    variants = registry.load("mechanisms", name).variants()
    parts = {", ".join(sorted(one.reads)) for one in variants}
    return " or ".join(sorted(parts)) or "what its runs read"


def bounds() -> str:
    """The matrix: each typical mechanism under each unit, with the bound where there is one."""
    cells = list(matrix())
    shown = list(dict.fromkeys(one.unit for one in cells if one.unit == _first(one.unit.name)))
    rows = []
    for mechanism in dict.fromkeys(one.mechanism for one in cells):
        own = {one.unit: one for one in cells if one.mechanism == mechanism}
        rows.append([called(mechanism), *[cell(own[unit]) for unit in shown]])
    return table(["mechanism", *[f"`{unit.name}`" for unit in shown]], rows)


def _first(name: str) -> object:
    return registry.load("units", name).variants()[0]


def called(mechanism: Mechanism) -> str:
    """The mechanism with the parameters in which it differs from its default."""
    shown = {field.name: (getattr(mechanism, field.name), field.default) for field in dataclasses.fields(mechanism)}
    changed = [f"{name}={_value(value)}" for name, (value, default) in shown.items() if value != default]
    return f"`{mechanism.name}`" + (f" {', '.join(changed)}" if changed else "")


def _value(value: object) -> str:
    if hasattr(value, "name"):
        return str(value.name)
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def cell(found: Cell) -> str:
    """A bound, rounded up, or why there is none."""
    if found.status != "bounded":
        return found.status
    if found.mechanism.law == "randomizer":
        return "per person"
    return f"{math.ceil(found.bound * 1000) / 1000:g}"


def guesses() -> str:
    """What the best attacker can do about one unit, by the exact curve of one Gaussian release."""
    rows = []
    for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0, 8.0):
        multiplier = noise_scale(gaussian, Relation.ADD_OR_REMOVE, Budget(epsilon, 1e-6))
        loss = PrivacyLoss(gaussian(multiplier), Relation.ADD_OR_REMOVE)
        shares = best_guess(loss), detection_rate(loss, 0.01)
        rows.append([f"{epsilon:g}", *(f"{math.ceil(100 * share)} of 100" for share in shares)])
    return table(["epsilon", "right guesses at most", "found at one false alarm in 100, at most"], rows)


_ON_GRAPHS = Metadata(500, 300, 100, 100, 784, 4, num_public=200)
"""Sizes for a plan of any method: features that could be pictures, public records for PATE."""


def labels_and_edges() -> str:
    """Which methods take several classes a node, class weights, edge weights and types of edges."""
    named = [methods_where(fact) for fact in (weighs_classes, weighs_edges, tells_types_apart)]
    rows = []
    for name in registry.names("methods"):
        kind = registry.load("methods", name)
        plan = _example_plan(kind)
        reads_edges = any("edges" in stage.mechanism.reads for one in (plan, *plan.branches) for stage in one)
        marks = ["yes" if name in names else "-" for names in named]
        edges = marks[1:] if reads_edges else ["not looked at" if kind.trust == "local" else "reads none"] * 2
        rows.append([f"`{name}`", "yes" if kind.takes_multilabel else f"no: {kind.one_class}", marks[0], *edges])
    head = ["method", "several classes a node", "class weights", "edge weights", "edge types"]
    return table(head, rows)


def _example_plan(kind: type[Method]) -> Plan:
    """A plan of a method under the first unit it is proved for, without protection where there is none."""
    method = kind(low=0.0, high=1.0) if kind.trust == "local" else kind()  # type: ignore[call-arg]
    if not kind.units():
        return method.plan(_ON_GRAPHS, registry.load("units", "undirected-edge")(), Budget(math.inf))
    variants = registry.load("units", kind.units()[0]).variants()
    unit = next(unit for unit in variants if method.proves(_ON_GRAPHS, unit))
    return method.plan(_ON_GRAPHS, unit, Budget(4.0, 1e-6))


TABLES: dict[str, Callable[[], str]] = {
    "methods": methods,
    "units": units,
    "mechanisms": mechanisms,
    "bounds": bounds,
    "guesses": guesses,
    "tasks": labels_and_edges,
}


def written(page: Path) -> str:
    """The page with its tables as they should be."""

    def replaced(found: re.Match[str]) -> str:
        return f"<!-- table: {found[1]} -->\n{TABLES[found[1]]()}<!-- end of table -->"

    return _TABLE.sub(replaced, page.read_text(encoding="utf-8"))


def main() -> None:
    """Write all pages."""
    for page in PAGES:
        text = written(page)
        if text != page.read_text(encoding="utf-8"):
            page.write_text(text, encoding="utf-8")
            print(f"wrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
