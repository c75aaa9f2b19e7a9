"""Declare the runs of a charged study together in the ledger, before the first of them: they compose as one plan.

A run that cannot be part of it is charged for itself and added up: one that chooses its way, one without protection,
one of two plans (inductive), one on data with a limit (whose filter adds up anyway), and one that was begun before,
since then the number of runs was not fixed beforehand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from hushgraph.ledger.ledger import Ledger
from hushgraph.privacy.plan import Plan
from hushgraph.study.cell import Cell, code_version, digest
from hushgraph.study.lab import Lab
from hushgraph.study.planned import Planned, plan_cells
from hushgraph.study.results import Results

Groups = dict[str, str]
"""The group of each cell that is in one, by the cell's identity."""


def declare(results: Results) -> Groups:
    """Enter what is missing of a charged study as groups, one for each dataset, unit and delta.

    A study that is started again finds its groups as they were declared.
    """
    begun = results.store.begun()
    fresh = [cell for cell in results.missing if not begun.get(cell.key(code_version(cell.experiment)))]
    grouped: dict[str, list[Planned]] = defaultdict(list)
    for one in _declarable(fresh):
        plan = one.plan
        data = (one.cell.identity()["dataset"], plan.unit.as_dict(), plan.budget.delta)
        grouped[digest(data)].append(one)
    found: Groups = {}
    for runs in grouped.values():
        if (name := _declared(results, runs)) is not None:
            found |= {one.cell.key(""): name for one in runs}
    return found


def _declarable(cells: Sequence[Cell]) -> list[Planned]:
    """The runs of one plan that is fixed beforehand."""
    planned, _ = plan_cells(cells)
    count: dict[str, int] = defaultdict(int)
    for one in planned:
        count[one.cell.key("")] += 1
    return [one for one in planned if count[one.cell.key("")] == 1 and _is_fixed(one.plan)]


def _is_fixed(plan: Plan) -> bool:
    return plan.budget.is_private and not plan.branches


def _declared(results: Results, runs: Sequence[Planned]) -> str | None:
    """The name of the group, entered now or found; None where a limit is set."""
    study, plan = results.study, runs[0].plan
    name = f"{study.group} {plan.unit.name} {plan.budget.definite_delta:g}"
    lab = Lab(runs[0].cell, study.ledger, f"study {study.name}")
    dataset = _dataset(lab.ledger, lab)
    for account in lab.ledger.accounts(dataset):
        if account.unit == plan.unit.as_dict():
            if name in account.groups:
                return name
            if account.phase is not None:
                return None
    lab.ledger.declare_group(name, [one.plan for one in runs], dataset=dataset)
    return name


def _dataset(ledger: Ledger, lab: Lab) -> str:
    """The dataset of a cell as the ledger knows it by its content, entered if it is new."""
    from hushgraph.graph.checks import check_graph

    checked = check_graph(lab.data)
    arrays = ledger.recognizing(checked).occasion.arrays
    name = checked.metadata.name
    return ledger.dataset_named(name) if arrays is None else ledger.dataset_for(ledger.identify(arrays), name)
