"""A study beside what was stored of it: which cells are there, which are missing, and their metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hushgraph.study.cell import Cell, code_version, digest
from hushgraph.study.kept import read_kept, shortened
from hushgraph.study.spec import Study
from hushgraph.study.store import Result, State, Store

if TYPE_CHECKING:
    from hushgraph.study.table import Table
    from hushgraph.study.views import View


@dataclass(frozen=True)
class Row:
    """A cell that has a result."""

    cell: Cell
    metrics: Mapping[str, float | None]


@dataclass(frozen=True)
class Results:
    """Read once; make a new one to see what came in since.

    With `any_code`, a cell that this version of the code did not run takes its newest result of another version, or the
    one that is kept beside the study (`kept`).
    """

    study: Study
    store: Store
    any_code: bool = False

    @cached_property
    def by_cell(self) -> list[tuple[Cell, Result | None]]:
        """Every cell with its result."""
        cells, found = self.study.cells, self.store.results()
        others = {**read_kept(self.study), **self.store.of_other_code(cells)} if self.any_code else {}
        ended = [
            (cell, found.get(cell.key(code_version(cell.experiment))) or others.get(digest(cell.identity())))
            for cell in cells
        ]
        return [(cell, shortened(one)) for cell, one in ended] if self.any_code else ended

    @property
    def rows(self) -> list[Row]:
        """The cells that are done."""
        return [Row(cell, one.metrics) for cell, one in self.by_cell if one is not None and one.state is State.DONE]

    @property
    def missing(self) -> list[Cell]:
        """The cells that nobody has run, each once."""
        return list({cell.key(""): cell for cell, one in self.by_cell if one is None}.values())

    @property
    def counts(self) -> Counter[str]:
        """How many cells are done, refused, failed and missing, each counted once."""
        states = {cell.key(""): "missing" if one is None else one.state.value for cell, one in self.by_cell}
        return Counter(states.values())

    @property
    def of_other_code(self) -> int:
        """How many missing cells another version of the code has a result for."""
        missing = self.missing
        return len(self.store.of_other_code(missing)) if missing else 0

    def ended(self, *states: State) -> list[tuple[Cell, Result]]:
        """The cells that ended in one of these ways, each once."""
        found = {cell.key(""): (cell, one) for cell, one in self.by_cell if one is not None and one.state in states}
        return list(found.values())

    def metrics(self) -> list[str]:
        """The names of all metrics there are."""
        return list(dict.fromkeys(name for row in self.rows for name in row.metrics))

    def where(self, wanted: Mapping[str, Any]) -> list[Row]:
        """The rows whose axes have these values, or one of them where a list is given."""
        return [row for row in self.rows if matches(row.cell, wanted)]

    def table(self, view: View | None = None, **options: Any) -> Table:
        """A table of means with intervals; options are those of `View`."""
        from hushgraph.study.table import make_table
        from hushgraph.study.views import View as Asked

        return make_table(self, view if view is not None else Asked("table", "table", **options))


def matches(cell: Cell, wanted: Mapping[str, Any]) -> bool:
    """Whether a cell's axes have these values."""
    return all(_same(cell.axis(axis), value) for axis, value in wanted.items())


def _same(found: Any, wanted: Any) -> bool:
    options = wanted if isinstance(wanted, list | tuple) else [wanted]
    return any(found == one or str(found) == str(one) or _number(found) == _number(one) is not None for one in options)


def _number(value: Any) -> float | None:
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None


def distinct(values: Iterable[Any]) -> list[Any]:
    """Values in their order, each once; numbers ascending."""
    found = list(dict.fromkeys(values))
    if found and all(isinstance(one, int | float) and not isinstance(one, bool) for one in found):
        return sorted(found)
    return found
