"""What a study would cost: each run, all runs on a dataset together, and choosing among them.

Plans are made from public sizes; nothing is released. Runs that a study file fixes beforehand compose as one plan,
which is how a charged study enters them in the ledger.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hushgraph.errors import HushgraphError
from hushgraph.ledger.prices import loss_of
from hushgraph.privacy.plan import Plan
from hushgraph.privacy.units import Unit
from hushgraph.study.axes import experiment_named
from hushgraph.study.cell import Cell, digest
from hushgraph.study.lab import Lab
from hushgraph.study.spec import Study
from hushgraph.study.views import Choice


@dataclass(frozen=True)
class RunCost:
    """What one kind of run costs on one dataset, and how many of the study are of that kind.

    `epsilon` is proved; `claimed` is what a publication would say, in paper mode. A run that the library refuses has
    `refused` instead.
    """

    label: str
    dataset: str
    count: int
    unit: str = ""
    epsilon: float = math.inf
    delta: float = 0.0
    claimed: float | None = None
    refused: str = ""


@dataclass(frozen=True)
class Together:
    """All runs of a study on one dataset, for one unit.

    `epsilon` is that of the protected runs. Runs without protection (`open_runs`) are counted apart: with one of them
    nothing is promised.
    """

    dataset: str
    unit: str
    runs: int
    epsilon: float
    delta: float
    open_runs: int = 0


@dataclass(frozen=True)
class TuningCost:
    """What choosing among settings costs where the runs of all of them are published: all of them together.

    `free_scores` says whether the measure the choice goes by follows from what is public or released.
    """

    dataset: str
    unit: str
    settings: int
    runs: int
    one: float
    all: float
    delta: float
    free_scores: bool


@dataclass(frozen=True)
class Cost:
    """The price list of a study."""

    runs: tuple[RunCost, ...]
    together: tuple[Together, ...]
    tuning: tuple[TuningCost, ...] = ()


@dataclass(frozen=True)
class Planned:
    """A run that could be planned."""

    cell: Cell
    dataset: str
    plan: Plan


def cost_of(study: Study) -> Cost:
    """Plan every kind of run once and add up."""
    planned, runs = plan_cells(list({cell.key(""): cell for cell in study.cells}.values()))
    tuning = () if study.choose is None else tuple(_tuning(planned, study.choose))
    return Cost(tuple(runs), tuple(_together(planned)), tuning)


def plan_cells(cells: Sequence[Cell]) -> tuple[list[Planned], list[RunCost]]:
    """The plan of every cell, made once for each kind, and what each kind costs."""
    runs: list[RunCost] = []
    planned: list[Planned] = []
    for kind in _kinds(cells).values():
        found, rows = _planned(kind[0], len(kind))
        runs += rows
        planned += [Planned(cell, name, plan) for name, plan in found for cell in kind]
    return planned, runs


def _kinds(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    """Cells by what decides their plan: everything but the seed, attacks and audits."""
    found: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        values = {**cell.identity(), "seed": 0, "attacks": [], "audit": None}
        found[digest(values)].append(cell)
    return found


def _planned(cell: Cell, count: int) -> tuple[list[tuple[str, Plan]], list[RunCost]]:
    """The plans of one cell and what they cost; why there are none where it has none."""
    label, dataset = str(cell).rpartition(", seed")[0], str(cell.axis("dataset") or "-")
    experiment = experiment_named(cell.experiment)
    if not hasattr(experiment, "plans"):
        return [], [RunCost(label, dataset, count, refused="this experiment does not say what it releases")]
    try:
        plans: list[tuple[str, Plan]] = experiment.plans(Lab(cell), **cell.settings)
    except HushgraphError as error:
        return [], [RunCost(label, dataset, count, refused=str(error))]
    rows = []
    for name, plan in plans:
        claimed = None if plan.paper is None else plan.paper.epsilon
        facts = (plan.unit.name, plan.epsilon, plan.budget.definite_delta, claimed)
        rows.append(RunCost(label, name, count, *facts))
    return plans, rows


def _together(planned: Sequence[Planned]) -> list[Together]:
    grouped: dict[tuple[str, str], list[Planned]] = defaultdict(list)
    for one in planned:
        grouped[one.dataset, digest(one.plan.unit.as_dict())].append(one)
    found = []
    for (dataset, _), runs in grouped.items():
        unit, delta = runs[0].plan.unit, max(run.plan.budget.definite_delta for run in runs)
        kept = [run for run in runs if run.plan.budget.is_private]
        rest = len(runs) - len(kept)
        found.append(Together(dataset, unit.name, len(kept), composed(kept, unit, delta), delta, rest))
    return found


def composed(runs: Sequence[Planned], unit: Unit, delta: float) -> float:
    """Epsilon of runs that were fixed beforehand, together."""
    return loss_of([one.plan.ways(unit) for one in runs], unit.relation).epsilon(delta)


def _tuning(planned: Sequence[Planned], choice: Choice) -> list[TuningCost]:
    """What the choice costs on each dataset, for each unit and budget."""
    grouped: dict[tuple[Any, ...], list[Planned]] = defaultdict(list)
    for one in planned:
        if not one.plan.budget.is_private or not choice.concerns(one.cell):
            continue
        budget = (one.plan.budget.epsilon, one.plan.budget.delta)
        grouped[one.dataset, digest(one.plan.unit.as_dict()), budget].append(one)
    found = []
    for (dataset, _, _), runs in grouped.items():
        settings = Counter(tuple(str(run.cell.axis(axis)) for axis in choice.over) for run in runs)
        unit, delta = runs[0].plan.unit, runs[0].plan.budget.definite_delta
        each, together = max(run.plan.epsilon for run in runs), composed(runs, unit, delta)
        free = choice.scores == "public" or "labels" in unit.public
        found.append(TuningCost(dataset, unit.name, len(settings), len(runs), each, together, delta, free))
    return found
