from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from torch import Tensor

from audit_plans import SIZES, observed, plan_of, sums_plan
from hushgraph.audit import audit_plan
from hushgraph.audit.bounds import gaussian_bound
from hushgraph.audit.result import Verdict
from hushgraph.errors import InputError
from hushgraph.graph.edges import Edges
from hushgraph.graph.quantized import QuantizedRows
from hushgraph.mechanisms import LabelSum
from hushgraph.methods.chorus import Chorus
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.units import BoundedDegreeNode, DirectedEdge, Node, NodeReplace, UndirectedEdge, Unit

LOUD_LABELS = LabelSum(0.5, math.sqrt(1.75))
DIVIDED = LabelSum(divided=True)


@pytest.mark.parametrize(
    ("unit", "count", "mechanism"),
    [
        (UndirectedEdge(), 1, LOUD_LABELS),
        (UndirectedEdge(), 3, LOUD_LABELS),
        (UndirectedEdge(), 2, LabelSum(0.9, 2.0)),
        (UndirectedEdge(), 2, LabelSum(1.0, 3.0)),
        (UndirectedEdge(), 2, replace(LOUD_LABELS, centered=True)),
        (DirectedEdge(), 2, LabelSum()),
        (DirectedEdge(), 1, LabelSum(0.5, 1.5)),
        (Node(max_degree=5), 2, DIVIDED),
        (Node(max_degree=5), 2, replace(DIVIDED, centered=True)),
        (Node(max_degree=5), 1, LabelSum()),
        (NodeReplace(max_degree=5), 2, DIVIDED),
        (NodeReplace(max_degree=5), 2, replace(DIVIDED, centered=True)),
        (BoundedDegreeNode(max_degree=5), 2, LabelSum()),
    ],
)
def test_canaries_reach_the_separation_that_the_accounting_allows(unit: Unit, count: int, mechanism: LabelSum) -> None:
    coins, evidence = observed(sums_plan(unit, mechanism, count, 2.0), 4000, seed=0)
    scores = evidence.normal
    assert scores is not None
    # Means of 2,000 unit normals: 5 standard errors, off once in a million.
    assert scores[coins].mean() == pytest.approx(0.5 * math.sqrt(count), abs=0.12)
    assert scores[~coins].mean() == pytest.approx(0.0, abs=0.12)
    assert scores[~coins].std() == pytest.approx(1.0, abs=0.08)


def test_edges_are_planted_between_the_kinds_of_node_that_cost_most() -> None:
    def kinds(unit: Unit, mechanism: LabelSum) -> set[tuple[bool, bool]]:
        return set(mechanism.costliest_kinds(unit))

    one_labeled = {(True, False), (False, True)}
    assert kinds(UndirectedEdge(), LOUD_LABELS) == {(True, True), *one_labeled}
    assert kinds(UndirectedEdge(), LabelSum(0.5, 2.0)) == one_labeled
    assert kinds(UndirectedEdge(), LabelSum(0.5)) == {(True, True)}
    assert kinds(UndirectedEdge(), LabelSum(1.0, 3.0)) == {(False, False)}
    assert len(kinds(UndirectedEdge(), LabelSum())) == len(kinds(DirectedEdge(), LabelSum())) == 4
    assert kinds(DirectedEdge(), LOUD_LABELS) == {(True, False)}


@pytest.mark.parametrize(("epsilon", "least"), [(1.0, 0.7), (4.0, 3.6), (8.0, 7.5)])
@pytest.mark.parametrize("hops", [1, 2])
def test_ten_thousand_friendships_come_close_to_the_truth(epsilon: float, least: float, hops: int) -> None:
    # The smallest of 40 measured bounds were 0.74, 3.69 and 7.60, the medians 0.88, 3.84 and 7.77.
    made = Chorus(hops=hops).plan(SIZES, UndirectedEdge(), Budget(epsilon, 1e-7))
    plan = plan_of(made.unit, made["label sums"], delta=1e-7)
    bounds = []
    for seed in range(6):
        coins, evidence = observed(plan, 10_000, seed)
        assert evidence.normal is not None
        bounds.append(gaussian_bound(evidence.normal, coins, 1e-7))
    assert min(bounds) >= least
    assert sum(bound > epsilon for bound in bounds) <= 3  # seeded; Binomial(6, 0.05) exceeds 3 once in 10,000


@pytest.mark.parametrize(
    ("unit", "mechanism"), [(UndirectedEdge(), LabelSum()), (Node(), DIVIDED), (NodeReplace(), DIVIDED)]
)
def test_half_the_noise_is_caught(unit: Unit, mechanism: LabelSum, half_noise: Callable[[int], NoiseSource]) -> None:
    plan = sums_plan(unit, mechanism, 2, 4.0)
    assert audit_plan(plan, canaries=4000, seed=0).verdict is Verdict.CONSISTENT
    found = audit_plan(plan, canaries=4000, seed=0, noise=half_noise(0))
    assert found.verdict is Verdict.CONTRADICTED
    assert found.lower_bound > 1.4 * found.claimed


def test_directed_accounting_on_a_symmetric_graph_is_caught() -> None:
    plan = Chorus().plan(SIZES, DirectedEdge(), Budget(1.0, 1e-7), paper_mode=True)
    found = audit_plan(plan, canaries=10_000, seed=0)
    assert found.verdict is Verdict.CONTRADICTED
    assert (found.unit, found.planted_unit) == ("directed-edge", "undirected-edge")
    assert 1.0 < found.lower_bound <= plan.epsilon * 1.1


def test_equal_noise_for_labeled_nodes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Chorus().plan(SIZES, UndirectedEdge(), Budget(4.0, 1e-7))
    right: Callable[..., Tensor] = LabelSum.release

    def equal(self: LabelSum, *given: object) -> Tensor:
        return right(replace(self, labeled_noise=1.0), *given)

    assert audit_plan(plan, seed=0).verdict is Verdict.CONSISTENT
    monkeypatch.setattr(LabelSum, "release", equal)
    assert audit_plan(plan, seed=0).verdict is Verdict.CONTRADICTED


@pytest.mark.parametrize(
    ("unit", "mechanism", "forgotten"),
    [(UndirectedEdge(), LOUD_LABELS, {"unlabeled_norm": 1.0}), (Node(), DIVIDED, {"divided": False})],
    ids=["loud pseudo-labels", "messages that are not divided"],
)
def test_messages_louder_than_planned_are_caught(
    monkeypatch: pytest.MonkeyPatch, unit: Unit, mechanism: LabelSum, forgotten: dict[str, object]
) -> None:
    right: Callable[..., QuantizedRows] = LabelSum.messages

    def louder(self: LabelSum, edges: Edges, rows: Tensor, labeled: Tensor) -> QuantizedRows:
        return right(replace(self, **forgotten), edges, rows, labeled)  # type: ignore[arg-type]

    plan = sums_plan(unit, mechanism, 2, 1.0)
    assert audit_plan(plan, seed=0).verdict is Verdict.CONSISTENT
    monkeypatch.setattr(LabelSum, "messages", louder)
    assert audit_plan(plan, seed=0).verdict is Verdict.CONTRADICTED


def test_too_few_canaries_are_refused() -> None:
    with pytest.raises(InputError, match="at least 4"):
        observed(sums_plan(UndirectedEdge(), LabelSum(), 1, 2.0), 3, seed=0)


def test_a_node_is_planted_with_a_short_list_where_its_message_is_divided() -> None:
    unit = Node(max_degree=50)
    short, whole = (sums_plan(unit, mechanism, 1, 2.0).stages[0] for mechanism in (DIVIDED, LabelSum()))
    assert short.mechanism.most_canaries(short, unit) > whole.mechanism.most_canaries(whole, unit)
