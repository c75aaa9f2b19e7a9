"""What is refused before a run is entered: data and options that a plan cannot follow without a free look."""

from __future__ import annotations

from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.plan import Plan
from hushgraph.privacy.units import Unit
from hushgraph.training.fit_options import FitOptions


def require_fitting(options: FitOptions, plan: Plan) -> None:
    """Refuse options that a plan cannot follow: no free look at private labels, no weights that nobody reads."""
    plans = plan.branches or (plan,)
    training = [(one, stage) for one in plans for stage in one.stages if stage.mechanism.trains]
    problems = []
    private = [stage.name for one, stage in training if not one.runs_exactly(stage.name)]
    if options.early_stopping is not None and private:
        problems.append(
            f"early_stopping: expected validation labels that are public; got the unit '{plan.unit.name}', under which "
            "each look at them would have to be charged. Set epochs, or stop by a callback that looks at public data"
        )
    unread = [stage.name for _, stage in training if not stage.mechanism.takes_class_weights]
    if options.class_weights is not None and (unread or not training):
        problems.append(
            f"class_weights: expected gap, progap, chorus, mlp or dp-mlp, which weigh classes; got {plan.method}"
        )
    if options.changed() and not training:
        problems.append(
            f"{', '.join(options.changed())}: expected a method that trains step by step; got {plan.method}"
        )
    InputError.collect(problems)


def require_weights_read(plan: Plan) -> None:
    """Refuse edges with weights where a stage sums them as if they had none."""
    stages = [stage for one in (plan, *plan.branches) for stage in one.stages if "edges" in stage.mechanism.reads]
    if any(not stage.mechanism.takes_edge_weights for stage in stages):
        raise InputError(
            f"edge_weight: expected a method that reads weights, gap or progap; got {plan.method}. Drop them "
            "(data.edge_weight = None) if they do not matter"
        )


def require_public_classes(graph: CheckedGraph, unit: Unit, budget: Budget) -> None:
    """Where labels are private, so is the list of classes that occur among them."""
    if not graph.classes_declared and "labels" not in unit.public and budget.is_private:
        raise InputError(
            f"classes: expected their names or number to be declared, because labels are private under the unit "
            f"'{unit}'; got neither. From public knowledge, set data.class_names = [...] or data.num_classes = C; on "
            "the command line --classes C, or --classes NAME,NAME,..."
        )
