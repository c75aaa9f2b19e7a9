"""Sums over edges of several types: reference, every neighbor, the law of each block, an audit, broken variants."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch_geometric.data import Data

from audit_plans import SIZES, plan_of
from hushgraph.audit.result import Verdict
from hushgraph.audit.run import audit_plan
from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.graph.types import EdgeTypes
from hushgraph.mechanisms import NeighborSum
from hushgraph.mechanisms.view import View
from hushgraph.methods.auto import Auto
from hushgraph.methods.dpappr import DPAPPR
from hushgraph.methods.gap import GAP
from hushgraph.methods.mlp import DPMLP
from hushgraph.methods.select import selection_plan
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import relations, units
from hushgraph.privacy.budget import Budget, as_budget
from hushgraph.privacy.mechanism import mechanism_from_dict
from hushgraph.privacy.metadata import EXAMPLE
from hushgraph.privacy.plan import Plan, Stage

NODES, NAMES = 8, ("follows", "pays", "blocks")
SUM = NeighborSum(noise_factors=(1.0, 2.0, 1.0))
NOISE = NoiseSource.seeded(5)
Typed = list[tuple[int, int, int]]


def drawn(seed: int, *, symmetric: bool) -> Typed:
    """Edges (sender, receiver, type); a pair may be linked in several types."""
    rng = np.random.default_rng(seed)
    found = {(s, u, t) for s, u in itertools.permutations(range(NODES), 2) for t in range(3) if rng.random() < 0.2}
    return sorted(found | {(u, s, t) for s, u, t in found} if symmetric else found)


def graph_of(edges: Typed, x: Tensor) -> CheckedGraph:
    index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 3)
    data = Data(x=x, edge_index=index[:, :2].t(), y=torch.zeros(NODES).long(), train_mask=torch.ones(NODES).bool())
    data.num_classes, data.edge_type, data.edge_type_names = 2, index[:, 2], list(NAMES)
    return check_graph(data)


def sums(edges: Typed, x: Tensor, unit: units.Unit) -> np.ndarray:
    """What the bound is about, cut to the unit's cap with the same key."""
    view = View(graph_of(edges, x), SUM.reads, unit.cap, NOISE, "sums")
    return SUM.before_noise(view, NOISE, x)


def squared(before: np.ndarray, after: np.ndarray) -> float:
    return float(((before - after) ** 2).sum())


def rows(seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((NODES, 3))).float()


def test_each_type_is_summed_by_itself() -> None:
    edges, x = drawn(1, symmetric=False), rows(1)
    sent = SUM.bounded(x).numpy()
    expected = np.zeros((NODES, 3, 3))
    for sender, receiver, kind in edges:
        expected[receiver, kind] += sent[sender]
    view = View(graph_of(edges, x), SUM.reads, None, NOISE, "sums")
    assert np.allclose(SUM.query(view, x).numpy(), expected.reshape(NODES, 9), atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_one_edge_of_one_type_moves_one_block(seed: int) -> None:
    x = rows(seed)
    directed, mutual = drawn(seed, symmetric=False), drawn(seed, symmetric=True)
    for edges, unit in ((directed, units.DirectedEdge()), (mutual, units.UndirectedEdge())):
        whole, bound = sums(edges, x, unit), SUM.sensitivity(unit) ** 2
        reached = 0.0
        for sender, receiver, kind in edges:
            gone = {(sender, receiver, kind), *([(receiver, sender, kind)] if unit.footprint.mirrored else [])}
            change = squared(whole, sums([edge for edge in edges if edge not in gone], x, unit))
            assert change <= bound * (1 + 1e-9)
            assert change <= bound / SUM.noise_factors[kind] ** 2 * (1 + 1e-9)  # what an edge of this type costs
            reached = max(reached, change)
        assert reached > 0.99 * bound


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cap", [2, 4])
def test_a_record_moves_as_many_mailboxes_as_its_list_of_all_types_is_long(seed: int, cap: int) -> None:
    x, edges = rows(seed), drawn(seed, symmetric=False)
    rng = np.random.default_rng(seed)
    for node in range(NODES):
        others = [edge for edge in edges if edge[0] != node]
        empty, opposite, other = x.clone(), x.clone(), x.clone()
        empty[node], opposite[node] = 0.0, -x[node]
        other[node] = torch.from_numpy(rng.standard_normal(3))
        another = [
            *others,
            *((node, u, int(rng.integers(3))) for u in range(NODES) if u != node and rng.random() < 0.7),
        ]
        null, replaced = units.Node(max_degree=cap), units.NodeReplace(max_degree=cap)
        whole = sums(edges, x, null)
        assert squared(whole, sums(others, empty, null)) <= SUM.sensitivity(null) ** 2 * (1 + 1e-9)
        for changed, record in ((edges, opposite), (another, other)):
            assert squared(whole, sums(changed, record, replaced)) <= SUM.sensitivity(replaced) ** 2 * (1 + 1e-9)


def test_a_cap_for_each_type_would_break_the_bound() -> None:
    """Broken on purpose: lists cut type by type hold as many entries as there are types, times the cap."""
    everything = [(0, u, t) for u in range(1, NODES) for t in range(3)]
    x, unit = rows(3), units.Node(max_degree=2)
    each = [edge for kind in range(3) for edge in [e for e in everything if e[2] == kind][:2]]
    uncut = units.Node(max_degree=100)
    assert squared(sums(each, x, uncut), 0 * sums(each, x, uncut)) > SUM.sensitivity(unit) ** 2
    ours = sums(everything, x, unit)
    assert 0.9 * SUM.sensitivity(unit) ** 2 / 4 < squared(ours, 0 * ours) <= SUM.sensitivity(unit) ** 2


def test_a_promised_degree_counts_edges_of_all_types() -> None:
    graph = graph_of([(0, 1, 0), (1, 0, 0), (0, 1, 1), (1, 0, 1)], rows(0))
    units.BoundedDegreeNode(max_degree=2).check(graph)
    with pytest.raises(InputError, match="no node with more than 1 neighbors"):
        units.BoundedDegreeNode(max_degree=1).check(graph)


def test_an_undirected_edge_has_its_reverse_of_the_same_type() -> None:
    other_type = graph_of([(0, 1, 0), (1, 0, 1)], rows(0))
    assert not other_type.is_symmetric()
    assert other_type.edges.is_symmetric()
    units.DirectedEdge().check(other_type)
    with pytest.raises(InputError, match="expected a symmetric graph"):
        units.UndirectedEdge().check(other_type)


def test_each_block_has_its_own_noise_and_not_another() -> None:
    """Two-sided chi-square at 1e-6 for each block; 2/3 and 3/2 of the noise are rejected."""
    view = View(graph_of([], torch.zeros(NODES, 40)), SUM.reads, None, NOISE, "sums")
    found = SUM.release(view, 3.0, NoiseSource.seeded(7), torch.zeros(NODES, 40)).double()
    for block, factor in zip(found.chunk(3, dim=1), SUM.noise_factors):
        for scale, right in ((factor, True), (2 / 3 * factor, False), (1.5 * factor, False)):
            total = float(block.square().sum() / (3.0 * scale) ** 2)
            law = stats.chi2(block.numel())
            assert bool(min(law.cdf(total), law.sf(total)) > 5e-7) is right


class LessNoise(NeighborSum):
    """Broken on purpose: the block with the least noise has half of it."""

    def release(self, data, scale, noise, rows):  # type: ignore[no-untyped-def]
        return super().release(data, 0.5 * scale, noise, rows)


def test_an_audit_stays_below_the_claim_and_catches_less_noise() -> None:
    plans = [
        plan_of(units.DirectedEdge(), Stage("sums", kind(noise_factors=(2.0, 1.0)), count=2, scale=2.0))
        for kind in (NeighborSum, LessNoise)
    ]
    right, broken = (audit_plan(plan, canaries=4000, seed=0) for plan in plans)
    assert right.verdict is Verdict.CONSISTENT
    assert right.lower_bound > 0.5 * plans[0].epsilon
    assert broken.verdict is Verdict.CONTRADICTED


def test_a_budget_for_each_type_is_kept_and_told() -> None:
    sizes, budget = replace(SIZES, edge_types=("follows", "pays")), as_budget(({"pays": 0.5, "follows": 1.0}, 1e-7))
    assert budget == Budget(1.0, 1e-7, (("pays", 0.5), ("follows", 1.0)))
    plan = GAP(hops=3).plan(sizes, units.UndirectedEdge(), budget)
    costs = relations.epsilons(plan)
    assert 0.999 < costs["follows"] <= 1.0
    assert 0.4999 < costs["pays"] <= 0.5
    assert plan.epsilon == pytest.approx(costs["follows"], abs=1e-9)
    (told,) = [note for note in plan.public if note.code == "relations"]
    assert told.values["epsilons"] == costs
    assert Plan.from_dict(plan.as_dict()) == plan
    assert mechanism_from_dict(SUM.as_dict()) == SUM
    assert "noise_factors" not in NeighborSum().as_dict()


def test_budgets_that_mean_nothing_are_refused() -> None:
    sizes, budget = replace(SIZES, edge_types=("follows", "pays")), as_budget({"follows": 1.0, "pays": 0.5})
    for unit, given, words in (
        (units.Node(), budget, "expected one epsilon for the unit 'node'"),
        (units.UndirectedEdge(), as_budget({"follows": 1.0}), r"an epsilon for each type of edge \(follows, pays\)"),
    ):
        with pytest.raises(InputError, match=words):
            GAP().plan(sizes, unit, given)
    with pytest.raises(InputError, match=r"types of edges apart|each type of edge"):
        GAP().plan(SIZES, units.UndirectedEdge(), budget)
    with pytest.raises(InputError, match="budget: expected a Budget"):
        as_budget({"follows": "much"})


@pytest.mark.parametrize(
    "plan",
    [
        lambda sizes, budget: Auto().plan(sizes, units.Node(), budget),
        lambda sizes, budget: selection_plan([DPMLP()], sizes, units.Node(), budget),
        lambda sizes, budget: DPAPPR().plan(sizes, units.Node(), budget, paper_mode=True),
        lambda sizes, budget: DPMLP().plan(sizes, units.Node(), budget),
    ],
    ids=["auto", "selection", "dp-appr in paper mode", "dp-mlp"],
)
def test_no_plan_takes_a_budget_for_each_type_and_keeps_to_the_largest_only(plan: Any) -> None:
    sizes = replace(EXAMPLE, num_nodes=20_000, num_train=3_000, num_val=1_000)
    assert plan(sizes, Budget(8.0, 1e-6)).budget.epsilon == 8.0
    with pytest.raises(InputError, match="got one for each type of edge"):
        plan(sizes, as_budget(({"follows": 8.0, "pays": 1.0}, 1e-6)))


def test_a_plan_that_was_read_back_keeps_to_its_budgets() -> None:
    sizes, budget = replace(SIZES, edge_types=("follows", "pays")), as_budget(({"pays": 0.5, "follows": 1.0}, 1e-7))
    saved = GAP(hops=3).plan(sizes, units.UndirectedEdge(), budget).as_dict()
    for stage in saved["stages"]:
        if stage["mechanism"].get("noise_factors"):
            stage["mechanism"] = {**stage["mechanism"], "noise_factors": [1.0, 1.0]}
    with pytest.raises(InputError, match="got one for each type of edge"):
        Plan.from_dict(saved)


def test_paper_mode_of_dp_appr_refuses_types_and_weights() -> None:
    sizes = replace(EXAMPLE, num_nodes=20_000, num_train=3_000)
    for changed, words in (({"edge_types": ("a", "b")}, "types of edges apart"), ({"weighted": True}, "reads weights")):
        with pytest.raises(InputError, match=words):
            DPAPPR().plan(replace(sizes, **changed), units.Node(), Budget(8.0, 1e-6), paper_mode=True)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-5), (8.0, 1e-12), (50.0, 1e-3)])
def test_mu_is_the_largest_within_a_budget(epsilon: float, delta: float) -> None:
    mu = relations.gaussian_mu(epsilon, delta)
    plan = plan_of(units.DirectedEdge(), Stage("sums", NeighborSum(), scale=1.0 / mu))
    assert plan.loss.epsilon(delta) == pytest.approx(epsilon, rel=1e-7)


def test_types_may_be_given_by_name() -> None:
    data = Data(x=rows(0), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.zeros(NODES).long(), num_classes=2)
    data.train_mask, data.edge_type, data.edge_type_names = torch.ones(NODES).bool(), ["pays", "follows"], list(NAMES)
    types = check_graph(data).edge_types
    assert types is not None
    assert types.entries.edge_index().tolist() == [[1, 0], [2, NODES + 1]]


def test_self_loops_and_repeated_edges_of_a_type_count_once() -> None:
    index = torch.tensor([[0, 0, 0, 1], [1, 1, 1, 1]])
    types = EdgeTypes.of(index, torch.tensor([0, 0, 1, 0]), ("a", "b"), 3)
    assert types.entries.num_edges == 2
    assert types.largest_degree() == 2


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"edge_type_names": None}, "distinct names of 1 to 64 types"),
        ({"edge_type": torch.tensor([0, 3])}, "numbers from 0 to 2"),
        ({"edge_type": torch.tensor([0.0, 1.0])}, "one whole number per edge"),
        ({"edge_type": torch.tensor([0])}, "one whole number per edge"),
        ({"edge_type": ["follows", "likes"]}, "or the names; got others"),
        ({"edge_weight": torch.ones(2), "weight_bound": 1.0}, "without edge_weight"),
    ],
)
def test_odd_types_are_refused(changed: dict[str, object], words: str) -> None:
    given = {"edge_type": torch.tensor([0, 1]), "edge_type_names": list(NAMES), **changed}
    data = Data(
        x=rows(0), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.zeros(NODES).long(), num_classes=2, **given
    )
    data.train_mask = torch.ones(NODES).bool()
    with pytest.raises(InputError, match=words):
        check_graph(data)
