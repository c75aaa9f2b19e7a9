"""Private selection as an experiment: the best of a random number of runs, charged as one.

experiment: select
methods: [gap]
settings:
  over: {hops: [1, 2, 3], lr: [0.01, 0.05]}
  mean: 10
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from hushgraph import registry
from hushgraph.errors import InputError
from hushgraph.study.axes import Needs, typed
from hushgraph.study.experiments.fit import Metrics, facts_of, measured
from hushgraph.study.lab import Lab

if TYPE_CHECKING:
    from hushgraph.methods.base import Method
    from hushgraph.privacy.plan import Plan

_PRICE = ("mean", "shape", "score_share")


class Select:
    """Candidates are the cell's method with every combination of the settings in `over`."""

    needs = Needs(axes=("datasets", "methods", "epsilons"), settings=("over", *_PRICE))
    released = ("proved_epsilon",)

    def __call__(self, lab: Lab, over: Mapping[str, Sequence[Any]], **price: float) -> Metrics:
        """Measures of the run that was chosen; nothing of the others, not even the time they took."""
        from hushgraph.methods.select import fit_best

        lab.hides_time = True
        data, methods = lab.data, candidates(lab, over)
        model = fit_best(methods, data, lab.unit, lab.budget, ledger=lab.ledger, seed=lab.seed, **price)
        chosen = model.method.as_dict()
        lab.facts |= {**facts_of(model), "chosen": {key: chosen[key] for key in over}, "candidates": len(methods)}
        lab.facts["epsilon_of_one_run"] = model.plan.epsilon
        return {**measured(model, data), "proved_epsilon": model.certificate.epsilon}

    def plans(self, lab: Lab, over: Mapping[str, Sequence[Any]], **price: float) -> list[tuple[str, Plan]]:
        """The whole selection as one plan."""
        from hushgraph.graph.checks import check_graph
        from hushgraph.methods.select import selection_plan

        checked, methods = check_graph(lab.data), candidates(lab, over)
        unit = lab.unit or methods[0].default_unit(checked)
        plan = selection_plan(methods, checked.metadata, unit, lab.budget, **price)
        return [(str(lab.cell.axis("dataset")), plan)]


def candidates(lab: Lab, over: Mapping[str, Sequence[Any]]) -> list[Method]:
    """The method of the cell with every combination of settings."""
    if not isinstance(over, Mapping) or not over or any(not isinstance(one, list) or not one for one in over.values()):
        raise InputError(f"over: expected settings with lists of values to choose from; got {over!r}")
    named = lab.cell.method
    if named is None:
        raise InputError("select: expected a method to choose settings of; got none")
    kind = registry.load("methods", named.name)
    return [kind(**{**named.settings, **typed(kind, dict(zip(over, one)))}) for one in product(*over.values())]


select = Select()
