"""The plan of every run of a study, made once for each kind of run, from public sizes alone; nothing is released."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hushgraph.errors import HushgraphError
from hushgraph.executors.base import Lost, working
from hushgraph.privacy.plan import Plan
from hushgraph.study.axes import experiment_named
from hushgraph.study.cell import Cell, digest
from hushgraph.study.lab import Lab
from hushgraph.study.workers import prepare
from hushgraph.text import rounded_up

Watch = Callable[[int, int], None]
"""Told how many kinds of runs are planned, and how many there are."""
_DATA = ("dataset", "split", "split_seed", "inference", "label_share")
"""What decides the graph of a cell."""


@dataclass(frozen=True)
class RunCost:
    """What one kind of run costs on one dataset, and how many of the study are of that kind.

    `epsilon` is proved; `claimed` is what a publication would say, in paper mode. A run that the library refuses has
    `refused` instead; one of an experiment that does not say what it releases is `silent`.
    """

    label: str
    dataset: str
    count: int
    unit: str = ""
    epsilon: float = math.inf
    delta: float = 0.0
    claimed: float | None = None
    refused: str = ""
    silent: bool = False

    @property
    def is_known(self) -> bool:
        """Whether there is an epsilon."""
        return not (self.silent or self.refused)

    @property
    def price(self) -> str:
        """Epsilon, or why none is known, in words."""
        if self.silent:
            return "not known: the experiment does not say what it releases"
        return f"refused: {self.refused}" if self.refused else rounded_up(self.epsilon)


@dataclass(frozen=True)
class Planned:
    """A run that could be planned."""

    cell: Cell
    dataset: str
    plan: Plan


@dataclass(frozen=True)
class _Kind:
    """The first of `count` cells that have the same plan."""

    number: int
    cell: Cell
    count: int


def plan_cells(
    cells: Sequence[Cell], watch: Watch | None = None, workers: int = 0
) -> tuple[list[Planned], list[RunCost]]:
    """The plan of every cell, made once for each kind, and what each kind costs; in `workers` processes (0: here)."""
    kinds = list(_kinds(cells).values())
    waiting = [_Kind(number, kinds[number][0], len(kinds[number])) for number in reversed(_by_data(kinds))]
    made: dict[int, _Prices] = {}
    if workers:
        prepare(cells)
    with working(workers) as executor:
        assert executor is not None
        for kind, found in executor.each(_planned, lambda: waiting.pop() if waiting else None):
            made[kind.number] = _planned(kind) if isinstance(found, Lost) else found
            if watch is not None:
                watch(len(made), len(kinds))
    runs = [row for number in range(len(kinds)) for row in made[number][1]]
    planned = [
        Planned(cell, name, plan)
        for number, kind in enumerate(kinds)
        for name, plan in made[number][0]
        for cell in kind
    ]
    return planned, runs


def _by_data(kinds: Sequence[Sequence[Cell]]) -> list[int]:
    """The numbers of the kinds in an order that loads and checks every graph once."""
    first = [kind[0] for kind in kinds]
    data = [digest([cell.identity()[part] for part in _DATA]) for cell in first]
    places = {one: place for place, one in reversed(list(enumerate(data)))}
    return sorted(range(len(kinds)), key=lambda number: places[data[number]])


def _kinds(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    """Cells by what decides their plan: everything but the seed, attacks and audits."""
    found: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        values = {**cell.identity(), "seed": 0, "attacks": [], "audit": None}
        found[digest(values)].append(cell)
    return found


_Prices = tuple[list[tuple[str, Plan]], list[RunCost]]


def _planned(kind: _Kind) -> _Prices:
    """The plans of one kind and what they cost; why there are none where it has none."""
    cell, count = kind.cell, kind.count
    label, dataset = str(cell).rpartition(", seed")[0], str(cell.axis("dataset") or "-")
    experiment = experiment_named(cell.experiment)
    if not hasattr(experiment, "plans"):
        return [], [RunCost(label, dataset, count, silent=True)]
    try:
        plans: list[tuple[str, Plan]] = experiment.plans(Lab(cell), **cell.settings)
    except HushgraphError as error:
        return [], [RunCost(label, dataset, count, refused=str(error))]
    rows = []
    for name, plan in plans:
        claimed = None if plan.paper is None else plan.paper.epsilon
        facts = (plan.unit.name, plan.epsilon, plan.budget.definite_delta, claimed)
        rows.append(RunCost(label if len(plans) == 1 else f"{label}, {plan.method}", name, count, *facts))
    return plans, rows
