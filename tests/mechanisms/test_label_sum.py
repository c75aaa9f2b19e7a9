from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.edges import InNeighbors
from hushgraph.graph.sums import sum_in_neighbors
from hushgraph.mechanisms.label_sum import (
    center_messages,
    known_labels,
    label_messages,
    noisy_label_sum,
    relative_noise,
)
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import units
from hushgraph.privacy.label_sum import LabelSumStage

CLASSES = 3
FRIENDS = LabelSumStage("s", 1, 1.0, quiet=0.5, labeled_noise=math.sqrt(1.75))
SHARED = LabelSumStage("s", 1, 1.0, shared=True)
CENTERED = LabelSumStage("s", 1, 1.0, quiet=0.5, labeled_noise=math.sqrt(1.75), centered=True)
SHARED_CENTERED = LabelSumStage("s", 1, 1.0, shared=True, centered=True)


def _world(seed: int, n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A symmetric edge set, label rows (guesses for the unlabeled), and the mask of labeled nodes."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, n, (2, 4 * n), generator=generator)
    edges = edges[:, edges[0] != edges[1]]
    edges = torch.unique(torch.cat([edges, edges.flip(0)], 1), dim=1)
    labeled = torch.rand(n, generator=generator) < 0.6
    guesses = torch.rand(n, CLASSES, generator=generator).softmax(1).sqrt()
    labels = torch.nn.functional.one_hot(torch.randint(0, CLASSES, (n,), generator=generator), CLASSES).float()
    return edges, torch.where(labeled.unsqueeze(1), labels, guesses), labeled


def _scaled(edges: torch.Tensor, rows: torch.Tensor, labeled: torch.Tensor, stage: LabelSumStage) -> torch.Tensor:
    """The exact sums, each row in multiples of its relative noise: what the Gaussian mechanism protects."""
    lists = InNeighbors.from_edge_index(edges, len(rows))
    sums = sum_in_neighbors(lists, label_messages(lists, rows, labeled, stage))
    return sums.double() / relative_noise(labeled, stage)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(4, 25), st.sampled_from([FRIENDS, CENTERED, LabelSumStage("s", 1, 1.0)]))
def test_one_edge_moves_the_release_by_at_most_the_declared_amount(seed: int, n: int, stage: LabelSumStage) -> None:
    edges, rows, labeled = _world(seed, n)
    if edges.shape[1] == 0:
        return
    a, b = edges[:, seed % edges.shape[1]].tolist()
    one_way = (edges[0] == a) & (edges[1] == b)
    both = one_way | ((edges[0] == b) & (edges[1] == a))
    before = _scaled(edges, rows, labeled, stage)
    for removed, unit in ((one_way, units.DirectedEdge()), (both, units.UndirectedEdge())):
        moved = float((before - _scaled(edges[:, ~removed], rows, labeled, stage)).norm())
        assert moved <= stage.sensitivity(unit) + 1e-5


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(4, 25), st.booleans(), st.sampled_from([SHARED, SHARED_CENTERED]))
def test_one_record_moves_a_shared_release_by_at_most_the_declared_amount(
    seed: int, n: int, hub: bool, stage: LabelSumStage
) -> None:
    edges, rows, labeled = _world(seed, n)
    victim, others = seed % n, torch.arange(n)[torch.arange(n) != seed % n]
    if hub:
        spokes = torch.stack([torch.full_like(others, victim), others])
        edges = torch.unique(torch.cat([edges, spokes], 1), dim=1)
    before = _scaled(edges, rows, labeled, stage)
    without = edges[:, edges[0] != victim]
    gone = _scaled(without, rows, labeled, stage)
    assert float((before - gone).norm()) <= stage.sensitivity(units.Node()) + 1e-5
    new_list = torch.stack([torch.full_like(others[:3], victim), others[:3]])
    new_rows = rows.clone()
    new_rows[victim] = rows[victim].roll(1)
    replaced = _scaled(torch.cat([without, new_list], 1), new_rows, labeled, stage)
    assert float((before - replaced).norm()) <= stage.sensitivity(units.NodeReplace()) + 1e-5


def test_the_bound_for_friendships_is_reached() -> None:
    rows = torch.tensor([[1.0, 0, 0], [0, 1.0, 0]])
    edges = torch.tensor([[0, 1], [1, 0]])
    none = torch.empty(2, 0, dtype=torch.int64)
    for labeled in ([True, True], [True, False]):
        mask = torch.tensor(labeled)
        moved = float((_scaled(edges, rows, mask, FRIENDS) - _scaled(none, rows, mask, FRIENDS)).norm())
        assert moved == pytest.approx(FRIENDS.sensitivity(units.UndirectedEdge()), rel=1e-4)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 12))
def test_centered_rows_are_no_longer_and_centered_labels_as_long(seed: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.rand(30, columns, generator=generator, dtype=torch.float64) ** 8
    assert bool((center_messages(rows).norm(dim=1) <= rows.norm(dim=1) * (1 + 1e-12)).all())
    corners = center_messages(torch.eye(columns, dtype=torch.float64))
    apart = float((corners[0] - corners[1]).norm())
    assert torch.allclose(corners.norm(dim=1), torch.ones(columns, dtype=torch.float64))
    assert apart == pytest.approx(math.sqrt(2 * columns / (columns - 1)))


def test_a_centered_record_that_is_replaced_costs_two_when_shared() -> None:
    """With two classes the centered labels are opposite: the bound is reached."""
    edges, labeled = torch.tensor([[0], [1]]), torch.ones(2, dtype=torch.bool)
    first, second = torch.tensor([[1.0, 0], [1.0, 0]]), torch.tensor([[0, 1.0], [1.0, 0]])
    moved = _scaled(edges, first, labeled, SHARED_CENTERED) - _scaled(edges, second, labeled, SHARED_CENTERED)
    assert float(moved.norm()) == pytest.approx(SHARED_CENTERED.sensitivity(units.NodeReplace()), rel=1e-4)


def test_the_price_by_unit() -> None:
    assert FRIENDS.sensitivity(units.UndirectedEdge()) == pytest.approx(math.sqrt(8 / 7))
    assert FRIENDS.sensitivity(units.DirectedEdge()) == 1.0
    assert LabelSumStage("s", 1, 1.0).sensitivity(units.UndirectedEdge()) == pytest.approx(math.sqrt(2))
    assert LabelSumStage("s", 1, 1.0).sensitivity(units.NodePromise(max_degree=9)) == pytest.approx(3.0)


@pytest.mark.parametrize("unit", [units.DirectedEdge(), units.UndirectedEdge(), units.NodePromise(), units.Record()])
def test_shared_messages_are_refused_where_a_neighbor_s_list_may_change(unit: units.Unit) -> None:
    with pytest.raises(UnprovenError, match=unit.name):
        SHARED.sensitivity(unit)


def test_known_labels_are_those_of_train_nodes_only() -> None:
    train = torch.tensor([0, 2])
    first = known_labels(torch.tensor([1, 2, 0, 1]), train, CLASSES)
    assert torch.equal(first, known_labels(torch.tensor([1, 0, 0, 2]), train, CLASSES))
    assert first.tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]]


def test_a_node_s_own_label_does_not_move_its_own_sum() -> None:
    edges, rows, labeled = _world(3, 20)
    node = int(labeled.nonzero()[0])
    other = rows.clone()
    other[node] = rows[node].roll(1)
    for stage in (FRIENDS, SHARED, CENTERED):
        before, after = (_scaled(edges, r, labeled, stage) for r in (rows, other))
        assert torch.equal(before[node], after[node])
        assert not torch.equal(before, after)


def test_bad_rows_and_zero_noise_are_refused() -> None:
    edges, rows, labeled = _world(1, 10)
    lists = InNeighbors.from_edge_index(edges, 10)
    for broken in (rows - 1.0, rows * math.nan):
        with pytest.raises(InputError, match="finite entries without a negative"):
            label_messages(lists, broken, labeled, SHARED)
    with pytest.raises(InputError):
        noisy_label_sum(lists, rows, labeled, LabelSumStage("s", 1, 0.0), NoiseSource.seeded(0))
    long = label_messages(lists, rows * 100, labeled, FRIENDS)
    assert float(long.norm(dim=1).max()) <= 1.0


@pytest.mark.parametrize("wrong", [1.0, 2 / 3, 3 / 2])
def test_the_noise_has_the_planned_size_for_both_kinds(wrong: float) -> None:
    """3,000 values per kind: a standard deviation is off by 1.3%; by 7% 1 time in 10^7."""
    n = 2000
    labeled = torch.arange(n) % 2 == 0
    lists = InNeighbors.from_edge_index(torch.empty(2, 0, dtype=torch.int64), n)
    stage = LabelSumStage("s", 1, 5.0, quiet=0.5, labeled_noise=1.3)
    out = noisy_label_sum(lists, torch.zeros(n, CLASSES), labeled, stage, NoiseSource.seeded(4))
    right = [abs(float(out[mask].std()) / (std * wrong) - 1) < 0.07 for mask, std in ((labeled, 6.5), (~labeled, 5.0))]
    assert right == [wrong == 1.0] * 2
