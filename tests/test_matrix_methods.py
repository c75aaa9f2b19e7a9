"""Every registered method under every registered unit: its plan reads back, and a replay gives the scores of fit."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from hushgraph import registry
from hushgraph.errors import InputError
from hushgraph.graph.checks import check_graph
from hushgraph.methods.base import Method
from hushgraph.methods.model import Model
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.plan import Plan
from hushgraph.privacy.units import Unit
from hushgraph.testing import units
from small_graphs import random_graph, with_public_nodes

QUICK = {"epochs": 2, "hidden_channels": 4, "batch_size": 8, "patience": 2, "low": -3.0, "high": 3.0, "label_steps": 2}
QUICK |= {"learner": "ridge", "teachers": 4, "queries": 3, "steps": 3, "frequencies": 8}
BUDGETS = [Budget(4.0), Budget(math.inf)]


def quick(name: str) -> Method:
    """A method with settings that train fast; those it does not have are left out."""
    found = registry.load("methods", name)
    known = {field.name for field in dataclasses.fields(found)}
    method: Method = found(**{key: value for key, value in QUICK.items() if key in known})
    return method


def graph_for(unit: Unit) -> Data:
    """A ring whose degrees are within every promise, with short cuts in one direction for directed units."""
    graph = random_graph(3)
    ring = torch.stack([torch.arange(40), torch.arange(40).roll(-1)])
    directed = unit.name == "directed-edge"
    graph.edge_index = ring if directed else torch.cat([ring, ring.flip(0)], dim=1)
    return with_public_nodes(graph)


CASES = [(name, unit, budget) for name in registry.names("methods") for unit in units() for budget in BUDGETS]


def ids(value: Any) -> str:
    if isinstance(value, Budget):
        return f"{value.epsilon:g}"
    return value if isinstance(value, str) else "-".join(map(str, value.as_dict().values()))


def planned(name: str, unit: Unit, budget: Budget) -> Plan | None:
    try:
        return quick(name).plan(check_graph(graph_for(unit)).metadata, unit, budget)
    except InputError:
        return None


@pytest.mark.parametrize(("name", "unit", "budget"), CASES, ids=ids)
def test_a_plan_reads_back_and_meets_its_budget(name: str, unit: Unit, budget: Budget) -> None:
    metadata = check_graph(graph_for(unit)).metadata
    plan = planned(name, unit, budget)
    if plan is None:
        assert not quick(name).proves(metadata, unit)
        return
    assert quick(name).proves(metadata, unit) or not budget.is_private
    again = Plan.from_dict(json.loads(json.dumps(plan.as_dict(), allow_nan=False)))
    assert again == plan
    assert plan.epsilon <= budget.epsilon
    assert again.epsilon == plan.epsilon


@pytest.mark.parametrize(("name", "unit", "budget"), CASES, ids=ids)
def test_a_replay_gives_the_scores_of_fit(name: str, unit: Unit, budget: Budget) -> None:
    graph = graph_for(unit)
    if planned(name, unit, budget) is None:
        with pytest.raises(InputError):
            quick(name).fit(graph, unit, budget, seed=1)
        return
    model = quick(name).fit(graph, unit, budget, seed=1)
    if model.scores is None:
        assert model.kept, "a model without scores keeps something else"
        return
    replayed = dataclasses.replace(model, scores=None)
    if kept_inside(model):
        with pytest.raises(InputError, match="not stored with the model"):
            replayed.predict_proba(graph)
        return
    assert torch.equal(replayed.predict_proba(graph), model.predict_proba())


def kept_inside(model: Model) -> bool:
    """Whether some release stayed in the vault as part of each node's own record, so that there is no replay."""
    plan = model.plan
    used = [stage for stage in plan if not stage.mechanism.trains and not plan.runs_exactly(stage.name)]
    return any(stage.mechanism.stays_private(plan.unit) for stage in used)


def test_every_method_is_proved_for_some_unit_or_says_that_it_never_is() -> None:
    proved = {name: registry.load("methods", name).units() for name in registry.names("methods")}
    assert [name for name, found in proved.items() if not found] == ["sage", "gcn", "gin", "gat"]
    assert proved["gap"] == [*proved["mlp"], "node", "node-replace", "bounded-degree-node"]
    assert proved["dp-gnn"] == ["node", "node-replace"]
    assert proved["dp-mlp"] == ["node", "node-replace", "bounded-degree-node", "node-with-edges", "record"]
    assert proved["mlp"] == ["undirected-edge", "private-edge", "directed-edge"]
    assert proved["lpgnn"] == proved["pgc"] == ["local"]
