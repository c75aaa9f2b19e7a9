"""Every registered mechanism under every registered unit is free, bounded or refused, and is what it says.

Bounds are compared with what all neighbors of small graphs do to the answer. A class that is registered later is in
the matrix without a test of its own.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from hushgraph.errors import BudgetError, CalibrationError, PrivateAccessError, UnprovenError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.run import Run, open_run
from hushgraph.mechanisms import EdgeCount, LabelSum, LocalReport, NeighborSum, PairCount
from hushgraph.mechanisms.view import View
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import events, units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.testing import Cell, Variations, matrix, mechanisms
from hushgraph.testing import units as all_units
from hushgraph.vault import PrivateRows, Vault
from matrix_graphs import GRAPHS, fits, largest_share, own_rows, realized, view_of

BUDGET = Budget(2.0, 1e-3)
ROOTS = 1e-12  # bounds and norms are roots in double precision; sums are exact, and the bound of gradients has room
TIGHT = 0.7
LOOSE = {
    "rooted-gradient",  # needs a graph of its own: tests/mechanisms/test_rooted_gradient.py reaches its bound
    "dendrogram-chain",  # needs the worst of all trees: tests/graph/test_dendrogram.py reaches the bound
    "dendrogram-choice",
    "weighted-gradient",  # needs rows that are all moved at once: tests/mechanisms/test_weighted_gradient.py
    "pagerank-gradient",  # charged as if every example turned into its opposite
    "pagerank-rows",  # these need a star whose hub goes: tests/mechanisms/test_pagerank_rows.py
    "pagerank-top",
    "pagerank-values",
    "pagerank-laplace",
}
LOOSE_PAIRS = {("group-gradient", "node-replace")}  # likewise: tests/mechanisms/test_group_gradient.py


def ids(value: Any) -> str:
    if isinstance(value, Cell):
        return f"{ids(value.mechanism)}-{ids(value.unit)}"
    parameters = [getattr(value, field.name) for field in dataclasses.fields(value)]
    shown = [f"{one:.3g}" if isinstance(one, float) else getattr(one, "name", str(one)) for one in parameters]
    return "-".join([value.name, *shown])


def cells(status: str) -> list[Cell]:
    return [cell for cell in matrix() if cell.status == status]


def noisy(cell: Cell) -> bool:
    """Whether the mechanism hides numbers, or the bits of pairs, by noise; a randomizer draws a whole report."""
    return cell.mechanism.law in ("gaussian", "discrete-laplace", "randomized-response", "noisy-top", "exponential")


def graph_for(unit: units.Unit) -> CheckedGraph:
    return next(graph for graph in GRAPHS if fits(graph, unit) and graph.edges.num_edges)


# Bounded


@pytest.mark.parametrize("cell", [cell for cell in cells("bounded") if noisy(cell)], ids=ids)
def test_no_neighbor_moves_the_answer_by_more_than_the_bound(cell: Cell) -> None:
    assert largest_share(cell) <= 1.0 + ROOTS


def test_bounds_are_tight_for_some_variant_of_every_bounded_pair() -> None:
    best: dict[tuple[str, str], float] = defaultdict(float)
    for cell in cells("bounded"):
        if noisy(cell) and cell.mechanism.name not in LOOSE:
            pair = (cell.mechanism.name, cell.unit.name)
            if pair in LOOSE_PAIRS:
                continue
            best[pair] = max(best[pair], largest_share(cell))
    assert {pair: share for pair, share in best.items() if share < TIGHT} == {}


PAIRED = [*all_units(), units.BoundedDegreeNode(3), units.BoundedDegreeNode(4), units.BoundedDegreeNode(8)]


def share_under(charged: units.Unit, cell: Cell) -> float:
    """The largest change that the unit of `cell` makes to a run that was charged for another one, over its bound."""
    changes = [
        realized(cell, graph, other, 0, charged)
        for graph in GRAPHS
        if fits(graph, charged)
        for other in cell.unit.neighbors(Variations(graph), np.random.default_rng(0))
    ]
    return max(changes, default=0.0) / cell.bound


@pytest.mark.parametrize("charged", PAIRED, ids=ids)
def test_a_run_priced_for_another_unit_keeps_to_the_bounds_of_that_unit(charged: units.Unit) -> None:
    """All pairs of units: where one covers the other, no neighbor of the other moves an answer beyond its bound."""
    for mechanism in (NeighborSum(), LabelSum(), EdgeCount(3), PairCount()):
        if Cell(mechanism, charged).status != "bounded":
            continue
        for other in PAIRED:
            cell = Cell(mechanism, other)
            if cell.status == "bounded" and charged.covers(other, edges="edges" in mechanism.reads):
                assert share_under(charged, cell) <= 1.0 + ROOTS, (mechanism, other)


def test_a_promise_of_a_larger_degree_does_not_cover_a_smaller_one() -> None:
    """Lists as long as the larger promise allows move sums by more than the smaller one's bound."""
    large, small = units.BoundedDegreeNode(8), units.BoundedDegreeNode(4)
    assert share_under(large, Cell(NeighborSum(), small)) > 1.2
    assert not large.covers(small)
    assert large.covers(small, edges=False)
    assert small.covers(large)
    assert small.covers(units.UndirectedEdge())


@dataclass(frozen=True)
class HalfBound(NeighborSum):
    """Claims half of what is true."""

    def sensitivity(self, unit: units.Unit) -> float:
        return 0.5 * super().sensitivity(unit)


@dataclass(frozen=True)
class DividedEverywhere(LabelSum):
    """Divides by the length of a list, and claims that this is bounded where the length itself changes."""

    def sensitivity(self, unit: units.Unit) -> float:
        return 1.0


@dataclass(frozen=True)
class Refilled(NeighborSum):
    """Cuts lists by an order of those who are left, so that a freed place is taken by another."""

    def query(self, data: Any, rows: Any) -> Any:
        edges = data.whole_lists.edge_index()
        named = torch.zeros(data.metadata.num_nodes, dtype=torch.bool).index_fill_(0, edges[0], True)
        order = sorted(edges.t().tolist(), key=lambda edge: (not bool(named[edge[1]]), edge[1]))
        kept, sums = defaultdict(int), torch.zeros(data.metadata.num_nodes, rows.shape[1])
        for source, target in order:
            if kept[source] < 4:
                kept[source] += 1
                sums[target] += self.bounded(rows)[source]
        return sums


@pytest.mark.parametrize(
    ("mechanism", "unit"),
    [
        (HalfBound(), units.UndirectedEdge()),
        (DividedEverywhere(divided=True), units.UndirectedEdge()),
        (DividedEverywhere(divided=True), units.BoundedDegreeNode(max_degree=8)),
        (Refilled(), units.Node(max_degree=4)),
        (NeighborSum(), units.DirectedEdge()),
    ],
    ids=ids,
)
def test_broken_mechanisms_are_caught(mechanism: Mechanism, unit: units.Unit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one is no broken mechanism, but directed accounting on graphs where an edge is two entries."""
    if isinstance(unit, units.DirectedEdge):
        monkeypatch.setattr(units.DirectedEdge, "neighbors", lambda *a: units.UndirectedEdge().neighbors(*a[1:]))
        monkeypatch.setattr(units.DirectedEdge, "check", lambda *a: units.UndirectedEdge().check(a[1]))
    largest_share.cache_clear()
    share = largest_share(Cell(mechanism, unit))
    largest_share.cache_clear()
    assert share > 1.0 + ROOTS


# Free


def answer(cell: Cell, graph: CheckedGraph, inputs: tuple[Any, ...]) -> np.ndarray:
    """What the mechanism computes without noise: its value, or the weights that it trained."""
    view, mechanism = view_of(graph, cell.mechanism, cell.unit), cell.mechanism
    if not mechanism.trains:
        return mechanism.before_noise(view, NoiseSource.seeded(0), *inputs)
    module = copy.deepcopy(inputs[0])
    mechanism.query(view, module, *inputs[1:])
    return nn.utils.parameters_to_vector(module.parameters()).detach().numpy()


def raw_answer(cell: Cell, graph: CheckedGraph, inputs: tuple[Any, ...]) -> Any:
    value = cell.mechanism.query(view_of(graph, cell.mechanism, cell.unit), *inputs)
    return value.edge_index() if hasattr(value, "edge_index") else value


@pytest.mark.parametrize("cell", cells("free"), ids=ids)
def test_a_free_answer_does_not_move_over_the_neighbors(cell: Cell) -> None:
    """Inputs are public there (the vault refuses others), so they are those of the first graph throughout."""
    compute: Callable[..., Any] = answer if noisy(cell) else raw_answer
    compared = 0
    for graph in (one for one in GRAPHS if fits(one, cell.unit)):
        inputs = cell.mechanism.example_inputs(graph)
        expected = np.asarray(compute(cell, graph, inputs))
        for other in cell.unit.neighbors(Variations(graph), np.random.default_rng(0)):
            assert np.array_equal(expected, np.asarray(compute(cell, other, inputs)))
            compared += 1
    assert compared > 20


@pytest.mark.parametrize("cell", cells("free"), ids=ids)
def test_a_free_stage_costs_nothing_and_refuses_private_inputs(cell: Cell) -> None:
    graph = graph_for(cell.unit)
    vault, run = open_vault(cell, graph)
    inputs = cell.mechanism.example_inputs(graph)
    handles = tuple(vault._keep(one, "rows") if isinstance(one, torch.Tensor) else one for one in inputs)
    if any(isinstance(one, PrivateRows) for one in handles):
        with pytest.raises(PrivateAccessError, match="without noise"):
            vault.release("stage", *handles)
    vault.release("stage", *inputs)
    assert run.plan.epsilon == 0.0
    assert run.ledger.history().of_run(run.identity, "charge") == []


# Refused


@pytest.mark.parametrize("cell", cells("refused"), ids=ids)
def test_what_has_no_proof_is_refused_by_name_when_it_is_planned(cell: Cell) -> None:
    with pytest.raises(UnprovenError) as caught:
        plan_for(cell, graph_for(cell.unit))
    assert cell.mechanism.name in str(caught.value)
    assert f"'{cell.unit.name}'" in str(caught.value)


def test_units_that_say_nothing_have_no_bound_anywhere() -> None:
    class Stranger(units.Unit):
        name = "stranger"

    found = {Cell(mechanism, Stranger()).status for mechanism in mechanisms()}
    assert found == {"refused"}


# Contract


def stage_for(cell: Cell, **changes: Any) -> Stage:
    stage = Stage("stage", cell.mechanism)
    return replace(stage if noisy(cell) else replace(stage, noise=None, scale=1.0), **changes)


def plan_for(cell: Cell, graph: CheckedGraph, **changes: Any) -> Plan:
    return Plan.make("toy", graph.metadata, cell.unit, BUDGET, [stage_for(cell, **changes)])


def open_vault(cell: Cell, graph: CheckedGraph, ledger: Ledger | None = None) -> tuple[Vault, Run]:
    plan = plan_for(cell, graph)
    run = open_run(ledger or Ledger(), plan, "toy", seeded=True)
    return Vault(graph, plan, run, NoiseSource.seeded(1)), run


@pytest.mark.parametrize("cell", cells("bounded"), ids=ids)
def test_the_charge_is_written_before_anything_is_computed(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_for(cell.unit)
    vault, run = open_vault(cell, graph)

    def crash(*_: Any, **__: Any) -> None:
        (charge,) = run.ledger.history().of_run(run.identity, "charge")
        assert events.from_json(charge.values["event"]) == run.plan["stage"].event(cell.unit)
        raise RuntimeError("the power went")

    monkeypatch.setattr(type(cell.mechanism), "release", crash)
    with pytest.raises(RuntimeError, match="power"):
        vault.release("stage", *cell.mechanism.example_inputs(graph))


@pytest.mark.parametrize("cell", cells("bounded"), ids=ids)
def test_a_second_release_and_one_over_the_limit_are_refused(cell: Cell) -> None:
    graph = graph_for(cell.unit)
    vault, _ = open_vault(cell, graph)
    value = vault.release("stage", *cell.mechanism.example_inputs(graph))
    assert isinstance(value, PrivateRows) == cell.mechanism.stays_private(cell.unit)
    with pytest.raises(BudgetError):
        vault.release("stage", *cell.mechanism.example_inputs(graph))
    ledger = Ledger()
    ledger.create("toy", cell.unit.as_dict())
    ledger.set_limit(0.1, 1e-3)
    with pytest.raises(BudgetError):
        open_vault(cell, graph, ledger)


@pytest.mark.parametrize("cell", cells("bounded"), ids=ids)
def test_a_plan_meets_its_budget_and_none_is_made_without_noise(cell: Cell) -> None:
    graph = graph_for(cell.unit)
    assert 0.0 < plan_for(cell, graph).epsilon <= BUDGET.epsilon
    with pytest.raises(CalibrationError, match="finite epsilon"):
        plan_for(cell, graph, noise=None, scale=0.0)


@pytest.mark.parametrize("mechanism", mechanisms(), ids=ids)
def test_a_part_that_is_not_declared_cannot_be_read(mechanism: Mechanism) -> None:
    """Each part that is declared is needed: without it the view refuses."""
    graph = GRAPHS[0]
    for part in mechanism.reads:
        view = View(graph, mechanism.reads - {part}, None, NoiseSource.seeded(0), "stage")
        with pytest.raises(PrivateAccessError, match=part):
            mechanism.query(view, *mechanism.example_inputs(graph))


@pytest.mark.parametrize("mechanism", mechanisms(), ids=ids)
def test_a_stage_reads_back_with_every_parameter(mechanism: Mechanism) -> None:
    stage = Stage("stage", mechanism, 3, 0.7, 2, 1.0 / 3.0)
    assert Stage.from_dict(json.loads(json.dumps(stage.as_dict()))) == stage


# The law


def residuals(mechanism: Mechanism, scale: float, wanted: int = 3_000) -> np.ndarray:
    """Releases less what they would be without noise, from streams of their own."""
    graph, found = GRAPHS[3], []
    inputs, count, seed = mechanism.example_inputs(graph), 0, 0
    while count < wanted:
        exact = mechanism.before_noise(view_of(graph, mechanism, None), NoiseSource.seeded(seed), *inputs)
        noise = NoiseSource.seeded(seed)
        found.append((mechanism.after_noise(view_of(graph, mechanism, None), scale, noise, *inputs) - exact).ravel())
        count, seed = count + found[-1].size, seed + 1
    return np.concatenate(found)


def law_of(mechanism: Mechanism, scale: float) -> Callable[[np.ndarray], np.ndarray]:
    """The distribution function of the noise; whole numbers are spread evenly over the unit around them."""
    if mechanism.law == "gaussian":
        return stats.norm(scale=scale).cdf
    k = np.arange(-60 * round(scale), 60 * round(scale) + 1)
    below = np.cumsum(np.tanh(0.5 / scale) * np.exp(-np.abs(k) / scale))
    return lambda x: np.interp(x, k + 0.5, below)


@pytest.mark.parametrize(
    "mechanism", [one for one in mechanisms() if one.law in ("gaussian", "discrete-laplace")], ids=ids
)
def test_the_noise_has_the_stated_law_and_not_another(mechanism: Mechanism) -> None:
    """Kolmogorov-Smirnov on 3,000 residuals or more, from fixed seeds; with others one in a million fails."""
    scale = 12.0
    found = residuals(mechanism, scale)
    if mechanism.law == "discrete-laplace":
        assert np.array_equal(found, np.round(found))
        found = found + np.random.default_rng(0).uniform(-0.5, 0.5, found.size)
    assert stats.kstest(found, law_of(mechanism, scale)).pvalue > 1e-6
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(found, law_of(mechanism, scale * wrong)).pvalue < 1e-12


# Reports of one person each


@pytest.mark.parametrize("cell", [cell for cell in cells("bounded") if not noisy(cell)], ids=ids)
def test_a_report_follows_from_its_own_person_alone_and_costs_its_epsilon(cell: Cell) -> None:
    mechanism = cell.mechanism
    assert isinstance(mechanism, LocalReport)
    assert mechanism.event(cell.unit, 1.0) == events.pure(mechanism.randomizer.epsilon)
    graph = graph_for(cell.unit)

    def reports(of: CheckedGraph) -> np.ndarray:
        value = mechanism.release(view_of(of, mechanism, cell.unit), 1.0, NoiseSource.seeded(5))
        parts = mechanism.to_tensors(value).values()
        return np.concatenate([part.reshape(len(of.labels), -1).double().numpy() for part in parts], axis=1)

    expected = reports(graph)
    for other in cell.unit.neighbors(Variations(graph), np.random.default_rng(0)):
        moved = (reports(other) != expected).any(axis=1)
        assert not (moved & ~own_rows(graph, other)).any()


@pytest.mark.parametrize("mechanism", [one for one in mechanisms() if isinstance(one, LocalReport)], ids=ids)
def test_no_report_is_more_than_e_to_the_epsilon_likelier_for_one_value_than_for_another(
    mechanism: LocalReport,
) -> None:
    randomizer = mechanism.randomizer.one_part
    laws = [np.asarray(randomizer.law(value)[1]) for value in randomizer.inputs()]
    ratios = [np.log(one / other).max() for one in laws for other in laws]
    assert max(ratios) == pytest.approx(randomizer.epsilon, rel=1e-9)
