"""How long the rest takes: from cells that were timed, with a range, and nothing where nothing is known."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hushgraph.study.cell import Cell, digest

Kind = tuple[Any, ...]


@dataclass(frozen=True)
class Remaining:
    """Seconds left: what is likely, a low and a high guess, and for how many cells nothing is known."""

    likely: float
    low: float
    high: float
    unknown: int

    def __str__(self) -> str:
        if self.unknown and not self.likely:
            return "time left not known yet"
        words = f"about {duration(self.likely)}"
        if duration(self.low) != duration(self.high):
            words += f" ({duration(self.low)} to {duration(self.high)})"
        return words + (f" and {self.unknown} run(s) that nothing is known of" if self.unknown else "")


@dataclass
class Timings:
    """Seconds of cells that ended, by kind: same experiment, data, method and settings first, then looser kinds."""

    seen: dict[Kind, list[float]] = field(default_factory=dict)

    @classmethod
    def of(cls, timed: Iterable[tuple[dict[str, Any], float]]) -> Timings:
        """From cells as they are stored."""
        found = cls()
        for identity, seconds in timed:
            found._add(_kinds(identity), seconds)
        return found

    def add(self, cell: Cell, seconds: float) -> None:
        """One more cell that ended."""
        self._add(_kinds(cell.identity()), seconds)

    def _add(self, kinds: Sequence[Kind], seconds: float) -> None:
        for kind in kinds:
            self.seen.setdefault(kind, []).append(seconds)

    def of_cell(self, cell: Cell) -> list[float]:
        """The times of the cells most like this one; none where no such cell was timed."""
        return next((self.seen[kind][-50:] for kind in _kinds(cell.identity()) if kind in self.seen), [])

    def kind(self, cell: Cell) -> Kind:
        """What cells of about the same time share."""
        return _kinds(cell.identity())[-1]

    def remaining(self, cells: Sequence[Cell], workers: int) -> Remaining:
        """What is left for these cells; nothing is assumed of cells unlike all that were timed."""
        known = [found for cell in cells if (found := self.of_cell(cell))]
        at_once = max(1, min(workers, len(cells)))
        longest = max((statistics.median(found) for found in known), default=0.0)

        def total(pick: Any) -> float:
            return float(sum(pick(found) for found in known)) / at_once

        likely = max(total(statistics.median), longest)
        return Remaining(likely, total(min), max(total(max), likely), len(cells) - len(known))


def _kinds(identity: dict[str, Any]) -> list[Kind]:
    """From the closest kind to the loosest: another dataset may take any time, so it is never left out."""
    method = identity["method"] or {}
    settings = digest([method.get("settings"), identity["settings"]])
    level = digest([identity["unit"], identity["label_share"], identity["inference"]])
    first = (identity["experiment"], digest(identity["dataset"]), method.get("name"))
    extra = digest([identity["attacks"], identity["audit"]])
    return [(*first, extra, settings, level), (*first, extra, settings), (*first, extra)]


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 90.0:
        return f"{seconds:.0f} s"
    minutes = seconds / 60.0
    return f"{minutes:.0f} min" if minutes < 90.0 else f"{minutes / 60.0:.1f} h"
