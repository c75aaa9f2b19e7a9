"""Pages of methods: prose by hand in docs/methods/NAME.md, with places for what the registry knows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from docsite.markdown import listed, table
from docsite.pictures import Column, drawn
from hushgraph import registry
from hushgraph.cli.methods import settings_of
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit

TYPICAL = Metadata(10_000, 7_500, 1_000, 1_500, 64, 8)
BUDGET = Budget(4.0, 1e-6)


def names() -> list[str]:
    """All methods, in the order in which they are best read."""
    return registry.names("methods")


def filled(name: str, text: str) -> str:
    """The page with its generated parts."""
    if name not in names():
        return text
    found = registry.load("methods", name)
    for place, make in PARTS.items():
        text = text.replace(f"<!-- {place} -->", make(found))
    return text


def facts(found: Any) -> str:
    """The first lines: what it does, where it is from, how it is called."""
    called = f"`hushgraph train {found.name}` · `hushgraph.{found.__name__}` · {found.paper}"
    return f"*{found.summary[0].upper()}{found.summary[1:]}.*\n\n{called}\n"


def guarantee(found: Any) -> str:
    """For each unit, what runs exactly and what is charged."""
    rows = [
        [listed(units), ", ".join(stage.name for stage in free) or "-", "; ".join(map(_charge, charged)) or "nothing"]
        for units, free, charged in _by_unit(found)
    ]
    if not rows:
        return "No unit: this method has no privacy. It runs with `--epsilon inf` only, and its certificate says so.\n"
    return table(["unit", "runs without noise: reads what is public", "charged, with noise"], rows)


def _charge(stage: Stage) -> str:
    times = f"{stage.count} x " if stage.count > 1 else ""
    return f"{stage.name}: {times}[{stage.mechanism.name}](../mechanisms/{stage.mechanism.name}.md)"


def _by_unit(found: Any) -> list[tuple[list[str], list[Stage], list[Stage]]]:
    """Units that lead to the same stages, together."""
    groups: dict[str, tuple[list[str], list[Stage], list[Stage]]] = {}
    for name in found.units():
        unit = _unit(found, name)
        stages = list(found().stages(TYPICAL, unit, BUDGET))
        free = [stage for stage in stages if stage.is_free(unit)]
        charged = [stage for stage in stages if not stage.is_free(unit)]
        key = str([(stage.name, stage.mechanism.name, stage.count) for stage in charged] + [one.name for one in free])
        groups.setdefault(key, ([], free, charged))[0].append(name)
    return list(groups.values())


def _unit(found: Any, name: str) -> Unit:
    return next(unit for unit in registry.load("units", name).variants() if found().proves(TYPICAL, unit))


def picture(found: Any) -> str:
    """The stages in order, what each reads, and where noise is added: one score for each kind of unit."""
    scores = []
    for units, *_ in _by_unit(found)[:2]:
        unit = _unit(found, units[0])
        stages = found().stages(TYPICAL, unit, BUDGET)
        columns = [Column(s.name, s.mechanism.name, s.count, s.mechanism.reads, not s.is_free(unit)) for s in stages]
        private = {"edges", "features", "labels"} - unit.public
        scores.append(drawn(f"{found.name} under {unit.name}", columns, private))
    return "\n\n".join(scores)


def settings(found: Any) -> str:
    """Every setting with its default and what it does."""
    shown = settings_of(found)
    rows = [
        [f"`{name}`", "by rule" if default is None else f"`{default}`", shown["help"][name] or "-"]
        for name, default in shown["settings"].items()
    ]
    own = [field for field in dataclasses.fields(found) if field.metadata.get("in_python")]
    rows += [[f"`{field.name}`", "in Python only", field.metadata["help"]] for field in own]
    units = [
        f"`{unit}`: {listed([f'{k}={v}' for k, v in values.items()])}"
        for unit, values in shown["unit_settings"].items()
    ]
    text = table(["setting", "default", "what it does"], rows) if rows else "None.\n"
    return text + ("\nSettings of the unit itself: " + "; ".join(units) + ".\n" if units else "")


PARTS: dict[str, Callable[[Any], str]] = {
    "facts": facts,
    "picture": picture,
    "guarantee": guarantee,
    "settings": settings,
}
"""What stands in a page of docs/methods as `<!-- NAME -->`."""
