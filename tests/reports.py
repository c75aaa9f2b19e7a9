"""Runs that tests of reports share: models of a small graph, contexts without a model, and rendered sections."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import hushgraph as hg
from hushgraph import registry
from hushgraph.ledger.certificate import Certificate, Charge, DatasetTotal, Randomness
from hushgraph.mechanisms.neighbor_sum import NeighborSum
from hushgraph.methods.model import Model
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.loss import NO_LOSS
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Local, UndirectedEdge, Unit
from hushgraph.report.context import RunContext
from hushgraph.report.page import render_section
from hushgraph.report.sections import all_sections
from small_graphs import random_graph, with_public_nodes

_QUICK: dict[str, Any] = {
    "epochs": 1,
    "hidden_channels": 4,
    "batch_size": 10,
    "ensemble_size": 2,
    "low": -3.0,
    "high": 3.0,
}
_QUICK |= {"learner": "ridge", "teachers": 3, "queries": 4, "steps": 3, "frequencies": 8}


def quick(name: str) -> hg.Method:
    """The method called `name`, small."""
    kind = registry.load("methods", name)
    known = {field.name for field in dataclasses.fields(kind)}
    method: hg.Method = kind(**{key: value for key, value in _QUICK.items() if key in known})
    return method


def unit_for(name: str, method: hg.Method) -> Unit:
    """The unit called `name`, as the method takes it, for the small graph."""
    kind = registry.load("units", name)
    if any(field.name == "max_degree" for field in dataclasses.fields(kind)):
        found: Unit = kind(max_degree=30)
        return found
    return Local(private_labels=method.name == "lpgnn") if name == "local" else kind()


def cases() -> Iterator[tuple[str, str, float]]:
    """Every method under every unit it has a proof for, and each once without protection."""
    for name in registry.names("methods"):
        proven = registry.load("methods", name).units()
        yield from ((name, unit, 4.0) for unit in proven if (name, unit) != ("auto", "record"))
        yield name, "local" if proven == ["local"] else "undirected-edge", math.inf


def fitted(name: str, unit: str, epsilon: float, **options: Any) -> Model:
    """A model of the small graph."""
    method = quick(name)
    graph = with_public_nodes(random_graph(1, symmetric=unit != "directed-edge"))
    return method.fit(graph, unit_for(unit, method), Budget(epsilon, 1e-3), **options)


def context(
    method: str = "gap",
    epsilon: float = 4.0,
    test: float | None = 60.0,
    classes: list[float | None] | None = None,
    **changes: Any,
) -> RunContext:
    """A context made by hand: two sums over neighbors."""
    unit, metadata = UndirectedEdge(), Metadata(100, 75, 10, 15, 4, 3)
    private = 0.0 < epsilon < math.inf
    stages = (Stage("sums", NeighborSum(), 2, scale=3.0),)
    charge = Charge("sums", "neighbor-sum", "gaussian", None, 2, 3.0, math.sqrt(2.0))
    certificate = Certificate(
        run="0123456789abcdef",
        method=method,
        chosen=None,
        dataset="toy",
        unit=unit,
        epsilon=epsilon,
        delta=1e-5,
        profile={},
        mu=None,
        accountant=NO_LOSS if epsilon == 0.0 else "exact Gaussian",
        charges=(charge,) if private else (),
        public=(),
        unprotected=unit.unprotected,
        randomness=Randomness.SYSTEM if private else Randomness.UNUSED,
        paper=None,
        reason=None,
        total=DatasetTotal(epsilon, 1e-5, "together", math.isfinite(epsilon), 1, None),
        operator="ann",
        purpose="",
        unpublished=False,
        ledger_in_memory=False,
        ledger_hash="f" * 64,
        versions={"hushgraph": "0"},
    )
    metrics: dict[str, Any] = {"accuracy": {"train": test, "val": test, "test": test}}
    if classes is not None:
        metrics["test_by_class"] = [
            {"class": number, "train": 20 - number, "tested": 10, "accuracy": value}
            for number, value in enumerate(classes)
        ]
        metrics["test_balanced_accuracy"] = 55.5
    plan = Plan(method, metadata, unit, Budget(4.0, 1e-5), stages)
    made = RunContext(method=method, parameters={}, plan=plan, certificate=certificate, metrics=metrics)
    return replace(made, **changes)


def shown(name: str, about: RunContext) -> str:
    """One section as HTML."""
    return str(render_section(next(one for one in all_sections() if one.name == name), about))
