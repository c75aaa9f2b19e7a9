"""Sums of labels over edges of several types: reference, neighbors, law of each block, audit, broken variants."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor
from torch_geometric.data import Data

import hushgraph as hg
from audit_plans import SIZES, plan_of
from hushgraph.audit.result import Verdict
from hushgraph.audit.run import audit_plan
from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.ledger.ledger import Ledger
from hushgraph.mechanisms import LabelSum
from hushgraph.mechanisms.view import View
from hushgraph.methods.chorus import Chorus
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import relations, units
from hushgraph.privacy.budget import Budget, as_budget
from hushgraph.privacy.plan import Stage
from small_graphs import random_graph

NODES, CLASSES, NAMES = 8, 3, ("follows", "pays", "blocks")
NOISE = NoiseSource.seeded(5)
FACTORS = (1.0, 2.0, 1.0)
EVEN = (1.0, 1.0, 1.0)
WHOLE, QUIET = LabelSum(noise_factors=FACTORS), LabelSum(0.5, math.sqrt(1.75), centered=True, noise_factors=FACTORS)
DIVIDED, CENTERED = (
    LabelSum(divided=True, noise_factors=EVEN),
    LabelSum(divided=True, centered=True, noise_factors=EVEN),
)
Typed = list[tuple[int, int, int]]


def drawn(seed: int, *, symmetric: bool, share: float = 0.25) -> Typed:
    """Edges (sender, receiver, type); a pair may be linked in several types."""
    rng = np.random.default_rng(seed)
    found = {(s, u, t) for s, u in itertools.permutations(range(NODES), 2) for t in range(3) if rng.random() < share}
    return sorted(found | {(u, s, t) for s, u, t in found} if symmetric else found)


def graph_of(edges: Typed, y: Tensor) -> CheckedGraph:
    """The first five nodes are labeled."""
    index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 3)
    data = Data(x=torch.zeros(NODES, 1), edge_index=index[:, :2].t(), y=y, train_mask=torch.arange(NODES) < 5)
    data.num_classes, data.edge_type, data.edge_type_names = CLASSES, index[:, 2], list(NAMES)
    return check_graph(data)


def labels(seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, CLASSES, NODES))


def guesses(seed: int) -> Tensor:
    """The first columns are roots of probabilities, as Chorus sends them; the last node's is the farthest corner."""
    found = torch.from_numpy(np.random.default_rng(seed).standard_normal((NODES, CLASSES))).float()
    return found.mul(4.0).softmax(dim=1).sqrt()


def sums(mechanism: LabelSum, edges: Typed, y: Tensor, sent: Tensor | None, unit: units.Unit) -> np.ndarray:
    """What the bound is about, cut to the unit's cap with the same key."""
    view = View(graph_of(edges, y), mechanism.reads, unit.cap, NOISE, "sums")
    return mechanism.before_noise(view, NOISE, sent)


def squared(before: np.ndarray, after: np.ndarray) -> float:
    return float(((before - after) ** 2).sum())


@pytest.mark.parametrize("mechanism", [WHOLE, QUIET, DIVIDED, CENTERED])
@pytest.mark.parametrize("sends_guesses", [False, True])
def test_each_type_is_summed_by_itself_and_a_list_is_that_of_all_types(
    mechanism: LabelSum, sends_guesses: bool
) -> None:
    edges, y, sent = drawn(1, symmetric=False), labels(1), guesses(1) if sends_guesses else None
    labeled = torch.arange(NODES) < 5
    rows = torch.where(labeled.unsqueeze(1), F.one_hot(y, CLASSES).float(), 0.0 if sent is None else sent)
    rows = mechanism.coded(rows) * torch.where(labeled, 1.0, mechanism.unlabeled_norm).unsqueeze(1)
    expected, length = np.zeros((NODES, 3, CLASSES)), np.bincount([s for s, _, _ in edges], minlength=NODES)
    for sender, receiver, kind in edges:
        expected[receiver, kind] += rows[sender].numpy() / (math.sqrt(length[sender]) if mechanism.divided else 1.0)
    view = View(graph_of(edges, y), mechanism.reads, None, NOISE, "sums")
    assert np.allclose(mechanism.query(view, sent).numpy(), expected.reshape(NODES, -1), atol=4e-3)
    some = torch.arange(NODES) % 2 == 0  # entries that name others are not used, and lists are then shorter
    short = [edge for edge in edges if edge[1] % 2 == 0]
    other = View(graph_of(short, y), mechanism.reads, None, NOISE, "sums")
    assert torch.equal(mechanism.query(view, sent, some), mechanism.query(other, sent))


@pytest.mark.parametrize("mechanism", [WHOLE, QUIET])
@pytest.mark.parametrize("seed", range(3))
def test_one_edge_of_one_type_moves_one_block(mechanism: LabelSum, seed: int) -> None:
    y, sent = labels(seed), guesses(seed)
    for unit in (units.DirectedEdge(), units.UndirectedEdge()):
        edges = drawn(seed, symmetric=unit.footprint.mirrored)
        whole, bound = sums(mechanism, edges, y, sent, unit), mechanism.sensitivity(unit) ** 2
        reached = 0.0
        for sender, receiver, kind in edges:
            gone = {(sender, receiver, kind), *([(receiver, sender, kind)] if unit.footprint.mirrored else [])}
            change = squared(whole, sums(mechanism, [edge for edge in edges if edge not in gone], y, sent, unit))
            assert change <= bound / FACTORS[kind] ** 2 * (1 + 1e-6)  # what an edge of this type costs
            reached = max(reached, change)
        assert reached > 0.9 * bound


@pytest.mark.parametrize("mechanism", [DIVIDED, CENTERED])
@pytest.mark.parametrize("seed", range(3))
def test_all_that_a_record_sends_over_all_types_has_norm_one(mechanism: LabelSum, seed: int) -> None:
    y, sent, edges = labels(seed), guesses(seed), drawn(seed, symmetric=False, share=0.4)
    rng = np.random.default_rng(seed)
    null, replaced = units.Node(max_degree=2), units.NodeReplace(max_degree=2)
    reached = 0.0
    for node in range(NODES):
        others = [edge for edge in edges if edge[0] != node]
        whole = sums(mechanism, edges, y, sent, null)
        reached = max(reached, change := squared(whole, sums(mechanism, others, y, sent, null)))
        assert change <= mechanism.sensitivity(null) ** 2 * (1 + 1e-6) == 1 + 1e-6
        another = [*others, *((node, u, k) for u in range(NODES) for k in range(3) if u != node and rng.random() < 0.5)]
        label, guess = y.clone(), sent.clone()
        label[node], guess[node] = (y[node] + 1) % CLASSES, sent[node].flip(0)
        change = squared(whole, sums(mechanism, another, label, guess, replaced))
        assert change <= mechanism.sensitivity(replaced) ** 2 * (1 + 1e-6)
    assert reached > 0.99


def test_dividing_by_the_list_of_each_type_would_break_the_bound() -> None:
    """Broken on purpose: messages of length one for every type have together the root of three."""
    everything, y = [(0, u, t) for u in range(1, NODES) for t in range(3)], labels(3)
    each = [sums(DIVIDED, [e for e in everything if e[2] == kind], y, None, units.Node()) for kind in range(3)]
    assert sum(squared(one, 0.0 * one) for one in each) > 2.9
    ours = sums(DIVIDED, everything, y, None, units.Node())
    assert 0.99 < squared(ours, 0.0 * ours) <= 1.0


def test_each_block_and_kind_of_node_has_its_own_noise() -> None:
    """Two-sided chi-square at 1e-6 for six parts; 2/3 and 3/2 of the noise are rejected."""
    nodes, mechanism = 400, QUIET
    data = Data(x=torch.zeros(nodes, 1), edge_index=torch.empty((2, 0), dtype=torch.int64), num_classes=CLASSES)
    data.y, data.train_mask = torch.zeros(nodes).long(), torch.arange(nodes) < 200
    data.edge_type, data.edge_type_names = torch.empty(0).long(), list(NAMES)
    view = View(check_graph(data), mechanism.reads, None, NOISE, "sums")
    found = mechanism.release(view, 3.0, NoiseSource.seeded(7)).double()
    for rows, multiple in ((slice(0, 200), mechanism.labeled_noise), (slice(200, 400), 1.0)):
        for block, factor in zip(found[rows].chunk(3, dim=1), FACTORS):
            for wrong, right in ((1.0, True), (2 / 3, False), (1.5, False)):
                total = float(block.square().sum() / (3.0 * factor * multiple * wrong) ** 2)
                law = stats.chi2(block.numel())
                assert bool(min(law.cdf(total), law.sf(total)) > 5e-7) is right


class LessNoise(LabelSum):
    """Broken on purpose: half of the noise."""

    def release(self, data, scale, noise, pseudo_labels=None, receivers=None):  # type: ignore[no-untyped-def]
        return super().release(data, 0.5 * scale, noise, pseudo_labels, receivers)


@pytest.mark.parametrize("unit", [units.UndirectedEdge(), units.Node()], ids=str)
def test_an_audit_stays_below_the_claim_and_catches_less_noise(unit: units.Unit) -> None:
    shape: dict[str, Any] = (
        {"divided": True, "noise_factors": (1.0, 1.0)} if unit.footprint.records else {"noise_factors": (2.0, 1.0)}
    )
    plans = [
        plan_of(unit, Stage("sums", kind(**shape), count=2, scale=2.0 * WHOLE.sensitivity(units.UndirectedEdge())))
        for kind in (LabelSum, LessNoise)
    ]
    right, broken = (audit_plan(plan, canaries=4000, seed=0) for plan in plans)
    assert right.verdict is Verdict.CONSISTENT
    assert right.lower_bound > 0.3 * plans[0].epsilon
    assert broken.verdict is Verdict.CONTRADICTED


# Chorus


def test_a_budget_for_each_type_is_kept_and_told() -> None:
    sizes, budget = replace(SIZES, edge_types=("follows", "pays")), as_budget(({"pays": 0.5, "follows": 1.0}, 1e-7))
    plan = Chorus().plan(sizes, units.UndirectedEdge(), budget)
    costs = relations.epsilons(plan)
    assert 0.999 < costs["follows"] <= 1.0
    assert 0.4999 < costs["pays"] <= 0.5
    assert plan.epsilon == pytest.approx(costs["follows"], abs=1e-9)
    assert Chorus().plan(sizes, units.Node(), Budget(8.0, 1e-7)).mechanism("label sums", LabelSum).noise_factors == (
        1.0,
        1.0,
    )
    with pytest.raises(InputError, match="expected one epsilon for the unit 'node'"):
        Chorus().plan(sizes, units.Node(), budget)


def typed(nodes: int = 300, seed: int = 0) -> Any:
    """Edges of the first type lead to nodes of the same class, those of the second anywhere."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, nodes)
    same = [(s, int(rng.choice(np.flatnonzero(y == y[s])))) for s in range(nodes) for _ in range(5)]
    other = [(int(a), int(b)) for a, b in rng.integers(0, nodes, (8 * nodes, 2))]
    index = torch.tensor([*same, *other]).t()
    kind = torch.cat([torch.zeros(len(same)), torch.ones(len(other))]).long()
    data = random_graph(0, nodes)
    data.x = torch.from_numpy(rng.standard_normal((nodes, 4))).float()
    data.edge_index, data.edge_type = torch.cat([index, index.flip(0)], dim=1), torch.cat([kind, kind])
    data.y, data.edge_type_names, data.class_names = torch.from_numpy(y), ["same", "other"], ["a", "b", "c"]
    return data


def test_chorus_tells_types_apart(tmp_path: Any) -> None:
    data, plain = typed(), typed()
    plain.edge_type = None
    budget = ({"same": 3.0, "other": 0.75}, 1e-4)
    found = Chorus(epochs=60).fit(data, "undirected-edge", budget, ledger=Ledger.in_memory(), seed=1)
    without = Chorus(epochs=60).fit(plain, "undirected-edge", (3.0, 1e-4), ledger=Ledger.in_memory(), seed=1)
    assert found.metrics["accuracy"]["test"] > without.metrics["accuracy"]["test"] + 5.0
    assert [note.values["epsilons"]["other"] <= 0.75 for note in found.plan.public if note.code == "relations"] == [
        True
    ]
    assert torch.equal(found.predict(data), hg.load(found.save(tmp_path / "model")).predict())


@pytest.mark.parametrize("unit", ["node", "node-replace", "bounded-degree-node"])
def test_chorus_takes_types_under_its_other_units(unit: str) -> None:
    kind: Any = {"bounded-degree-node": units.BoundedDegreeNode(max_degree=100)}.get(unit, unit)
    found = Chorus(epochs=1).fit(typed(), kind, (20.0, 1e-4), ledger=Ledger.in_memory(), seed=0)
    assert found.certificate.epsilon <= 20.0
    assert found.metrics["accuracy"]["test"] > 0


def test_auto_asks_chorus_where_edges_have_types_and_others_name_it() -> None:
    data = typed()
    found = hg.fit(data, "undirected-edge", ({"same": 8.0, "other": 4.0}, 1e-4), ledger=Ledger.in_memory(), seed=0)
    assert found.method.name == "chorus"
    assert found.certificate.epsilon <= 8.0
    told = hg.fit(data, "node", (8.0, 1e-4), ledger=Ledger.in_memory(), seed=0)
    assert told.certificate.epsilon <= 8.0
    with pytest.raises(InputError, match=r"tells types of edges apart \(auto, chorus, gap, progap\); got chorus-codes"):
        hg.ChorusCodes().fit(data, "undirected-edge", (8.0, 1e-4), ledger=Ledger.in_memory())
