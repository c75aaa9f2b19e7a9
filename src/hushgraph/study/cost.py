"""What a study would cost: each run, all runs on a dataset together, and choosing among them.

Plans are made from public sizes; nothing is released. Runs that a study file fixes beforehand compose as one plan,
which is how a charged study enters them in the ledger.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hushgraph.ledger.prices import loss_of
from hushgraph.privacy.many import epsilon_at_most
from hushgraph.privacy.units import Unit
from hushgraph.study.cell import digest
from hushgraph.study.planned import Planned, RunCost, Watch, plan_cells
from hushgraph.study.spec import Study
from hushgraph.study.views import Choice


@dataclass(frozen=True)
class Together:
    """All runs of a study on one dataset, for one unit.

    `epsilon` is an upper bound on that of the protected runs. Runs without protection (`open_runs`) are counted apart:
    with one of them nothing is promised.
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


def cost_of(study: Study, watch: Watch | None = None, workers: int = 0) -> Cost:
    """Plan every kind of run once, in `workers` processes (0: here), and add up."""
    cells = list({cell.key(""): cell for cell in study.cells}.values())
    planned, runs = plan_cells(cells, watch, workers)
    tuning = () if study.choose is None else tuple(_tuning(planned, study.choose))
    return Cost(tuple(runs), tuple(_together(planned)), tuning)


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
    """Epsilon of runs that were fixed beforehand, together, from above: cells of one kind share their plan."""
    plans = {id(one.plan): one.plan for one in runs}
    counts = Counter(id(one.plan) for one in runs)
    ways = [(plan.ways(unit), counts[key]) for key, plan in plans.items()]
    bound = epsilon_at_most(ways, unit.relation, delta)
    if bound is not None:
        return bound
    return loss_of([way for way, count in ways for _ in range(count)], unit.relation).epsilon(delta)


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
