"""What is refused before a run is entered: data and options that a plan cannot follow without a free look."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from hushgraph import registry
from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.spread import SpreadEdges
from hushgraph.privacy import relations
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.metadata import EXAMPLE
from hushgraph.privacy.notes import Code, note
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.text import rounded_up
from hushgraph.training.fit_options import FitOptions

_ODD_EDGES = replace(EXAMPLE, edge_types=("one", "other"), weighted=True)


def require_fitting(options: FitOptions, plan: Plan) -> None:
    """Refuse options that a plan cannot follow: no free look at private labels, no weights that nobody reads."""
    training = _training(plan)
    problems = []
    private = [stage.name for one, stage in training if not one.runs_exactly(stage.name)]
    if options.early_stopping is not None and private:
        problems.append(
            f"early_stopping: expected validation labels that are public; got the unit '{plan.unit.name}', under which "
            "each look at them would have to be charged. Set epochs, or stop by a callback that looks at public data"
        )
    elif options.early_stopping is not None and training and not any(one.mechanism.stops_early for _, one in training):
        problems.append(
            f"early_stopping: expected a method that looks at validation nodes while it trains; got {plan.method}. Set "
            "epochs, or stop by a callback"
        )
    if options.class_weights is not None and not weighs_classes(all_stages(plan)):
        known = ", ".join(methods_where(weighs_classes))
        problems.append(f"class_weights: expected a method that weighs classes ({known}); got {plan.method}")
    if options.class_weights is not None and plan.metadata.multilabel:
        problems.append("class_weights: expected one class for each node; got a matrix of labels")
    private_stages = [stage for one, stage in training if not one.runs_exactly(stage.name)]
    if options.ranks is not None and not (private_stages and all(one.mechanism.takes_ranks for one in private_stages)):
        problems.append(
            f"ranks: expected DP-SGD on rows, as dp-mlp, gap, progap and chorus have it at node level; got "
            f"{plan.method} under '{plan.unit.name}', which one process trains"
        )
    if options.changed() and not training:
        problems.append(
            f"{', '.join(options.changed())}: expected a method that trains step by step; got {plan.method}"
        )
    InputError.collect(problems)


def require_weights_read(plan: Plan) -> None:
    """Refuse edges with weights where a stage sums them as if they had none."""
    stages = all_stages(plan)
    if _reading_edges(stages) and not weighs_edges(stages):
        raise InputError(
            f"edge_weight: expected a method that reads weights ({', '.join(methods_where(weighs_edges))}); got "
            f"{plan.method}. Drop them (data.edge_weight = None) if they do not matter"
        )


def with_types(plan: Plan) -> Plan:
    """The plan with what an edge of each type costs; refused where types, or a budget for each, are not looked at."""
    stages = all_stages(plan)
    if plan.metadata.edge_types and _reading_edges(stages) and not tells_types_apart(stages):
        known = ", ".join(methods_where(tells_types_apart))
        raise InputError(
            f"edge_type: expected a method that tells types of edges apart ({known}); got {plan.method}. Choose one "
            "type (Graph.from_pyg(data, relation=...)), or drop the types (data.edge_type = None; import the edges "
            "without --edge-type)"
        )
    costs = relations.epsilons(plan)
    if not costs:
        return plan
    priced = zip(costs.items(), relations.factors(plan))
    told = ", ".join(f"{name} {rounded_up(cost)}{_noise(factor)}" for (name, cost), factor in priced)
    return replace(plan, public=(*plan.public, note(Code.RELATIONS, costs=told, epsilons=costs)))


def require_work(graph: CheckedGraph, plan: Plan) -> None:
    """Refuse workers that would have nothing to do."""
    works = any(stage.mechanism.takes_workers for stage in all_stages(plan))
    if not isinstance(graph.edges, SpreadEdges) and not works:
        raise InputError(
            "workers: expected a graph that is named by its folder or URL, whose edges they read there, or pate, whose "
            f"teachers they train; got a graph in memory and {plan.method}. `hushgraph import` makes such a folder"
        )


def _noise(factor: float) -> str:
    """How much more noise a type gets than a stage says; nothing where it is the same."""
    return f" (sums of it have {factor:.4g} times the stated noise)" if factor > 1.0 else ""


def all_stages(plan: Plan) -> list[Stage]:
    """The stages of a plan and of all its branches."""
    return [stage for one in (plan, *plan.branches) for stage in one.stages]


def weighs_classes(stages: Sequence[Stage]) -> bool:
    """Whether all that is trained takes public factors of the loss."""
    training = [stage.mechanism for stage in stages if stage.mechanism.trains]
    return bool(training) and all(mechanism.takes_class_weights for mechanism in training)


def weighs_edges(stages: Sequence[Stage]) -> bool:
    """Whether edges are read, and nowhere as if they had no weights."""
    reading = _reading_edges(stages)
    return bool(reading) and all(mechanism.takes_edge_weights for mechanism in reading)


def tells_types_apart(stages: Sequence[Stage]) -> bool:
    """Whether edges are read, and nowhere as if they had no types."""
    reading = _reading_edges(stages)
    return bool(reading) and all(mechanism.takes_edge_types for mechanism in reading)


def methods_where(holds: Callable[[Sequence[Stage]], bool]) -> list[str]:
    """The methods for whose stages something holds, on a small graph whose edges have types and weights.

    Under the first unit that they are proved for.
    """
    found = []
    for name in registry.names("methods"):
        kind = registry.load("methods", name)
        for unit in kind.units()[:1]:
            with contextlib.suppress(InputError):  # settings that only a user knows, such as a range
                if holds(kind().stages(_ODD_EDGES, registry.load("units", unit)(), Budget(4.0, 1e-6))):
                    found.append(name)
    return found


def _training(plan: Plan) -> list[tuple[Plan, Stage]]:
    return [(one, stage) for one in plan.branches or (plan,) for stage in one.stages if stage.mechanism.trains]


def _reading_edges(stages: Sequence[Stage]) -> list[Mechanism]:
    return [stage.mechanism for stage in stages if "edges" in stage.mechanism.reads]


def require_public_classes(graph: CheckedGraph, unit: Unit, budget: Budget) -> None:
    """Where labels are private, so is the list of classes that occur among them."""
    if not graph.classes_declared and "labels" not in unit.public and budget.is_private:
        raise InputError(
            f"classes: expected their names or number to be declared, because labels are private under the unit "
            f"'{unit}'; got neither. From public knowledge, set data.class_names = [...] or data.num_classes = C; on "
            "the command line --classes C, or --classes NAME,NAME,..."
        )
