from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.checks import check_graph
from hushgraph.graph.edges import MemoryEdges
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.run import open_run
from hushgraph.mechanisms import LabelSum
from hushgraph.mechanisms.label_sum import known_classes
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.vault import Vault
from small_graphs import random_graph

CLASSES = 3
FRIENDS = LabelSum(0.5, math.sqrt(1.75))
DIVIDED = LabelSum(divided=True)
CENTERED = LabelSum(0.5, math.sqrt(1.75), centered=True)
DIVIDED_CENTERED = LabelSum(divided=True, centered=True)
DOUBLE = 1.0 + 1e-14  # sums are exact; roots, norms and quotients are rounded in double precision


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


def _view(labels: torch.Tensor, train: torch.Tensor) -> SimpleNamespace:
    """As much of a view as the mechanism reads, without any edge."""
    nodes = len(labels)
    lists = MemoryEdges.from_edge_index(torch.empty(2, 0, dtype=torch.int64), nodes)
    mask = torch.zeros(nodes, dtype=torch.bool).index_fill_(0, train, True)
    metadata = Metadata(nodes, len(train), num_classes=CLASSES)
    return SimpleNamespace(
        labels=labels, train=train, trains_on=mask, metadata=metadata, edges=lists, whole_lists=lists, edge_weights=None
    )


def _scaled(edges: torch.Tensor, rows: torch.Tensor, labeled: torch.Tensor, mechanism: LabelSum) -> torch.Tensor:
    """The exact sums, each row in multiples of its relative noise: what the Gaussian mechanism protects."""
    lists = MemoryEdges.from_edge_index(edges, len(rows))
    sent = mechanism.messages(lists, rows, labeled)
    return lists.sum(sent).double() * sent.step / mechanism.noise_multiples(labeled)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(4, 25), st.sampled_from([FRIENDS, CENTERED, LabelSum()]))
def test_one_edge_moves_the_release_by_at_most_the_declared_amount(seed: int, n: int, mechanism: LabelSum) -> None:
    edges, rows, labeled = _world(seed, n)
    if edges.shape[1] == 0:
        return
    a, b = edges[:, seed % edges.shape[1]].tolist()
    one_way = (edges[0] == a) & (edges[1] == b)
    both = one_way | ((edges[0] == b) & (edges[1] == a))
    before = _scaled(edges, rows, labeled, mechanism)
    for removed, unit in ((one_way, units.DirectedEdge()), (both, units.UndirectedEdge())):
        moved = float((before - _scaled(edges[:, ~removed], rows, labeled, mechanism)).norm())
        assert moved <= mechanism.sensitivity(unit) * DOUBLE


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(4, 25), st.booleans(), st.sampled_from([DIVIDED, DIVIDED_CENTERED]))
def test_one_record_moves_a_divided_release_by_at_most_the_declared_amount(
    seed: int, n: int, hub: bool, mechanism: LabelSum
) -> None:
    edges, rows, labeled = _world(seed, n)
    victim, others = seed % n, torch.arange(n)[torch.arange(n) != seed % n]
    if hub:
        spokes = torch.stack([torch.full_like(others, victim), others])
        edges = torch.unique(torch.cat([edges, spokes], 1), dim=1)
    before = _scaled(edges, rows, labeled, mechanism)
    without = edges[:, edges[0] != victim]
    gone = _scaled(without, rows, labeled, mechanism)
    assert float((before - gone).norm()) <= mechanism.sensitivity(units.Node()) * DOUBLE
    new_list = torch.stack([torch.full_like(others[:3], victim), others[:3]])
    new_rows = rows.clone()
    new_rows[victim] = rows[victim].roll(1)
    replaced = _scaled(torch.cat([without, new_list], 1), new_rows, labeled, mechanism)
    assert float((before - replaced).norm()) <= mechanism.sensitivity(units.NodeReplace()) * DOUBLE


def test_an_edge_between_unlabeled_nodes_counts_with_their_noise() -> None:
    """Full rows from both ends arrive where the noise is the least."""
    loud = LabelSum(unlabeled_norm=1.0, labeled_noise=2.0)
    assert loud.sensitivity(units.UndirectedEdge()) == pytest.approx(math.sqrt(2.0))
    rows, none = torch.tensor([[1.0, 0, 0], [0, 1.0, 0]]), torch.empty(2, 0, dtype=torch.int64)
    mask, edges = torch.tensor([False, False]), torch.tensor([[0, 1], [1, 0]])
    moved = float((_scaled(edges, rows, mask, loud) - _scaled(none, rows, mask, loud)).norm())
    assert moved == pytest.approx(math.sqrt(2.0), rel=1e-14)


def test_the_bound_for_friendships_is_reached() -> None:
    rows = torch.tensor([[1.0, 0, 0], [0, 1.0, 0]])
    edges = torch.tensor([[0, 1], [1, 0]])
    none = torch.empty(2, 0, dtype=torch.int64)
    for labeled in ([True, True], [True, False]):
        mask = torch.tensor(labeled)
        moved = float((_scaled(edges, rows, mask, FRIENDS) - _scaled(none, rows, mask, FRIENDS)).norm())
        assert moved == pytest.approx(FRIENDS.sensitivity(units.UndirectedEdge()), rel=1e-14)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 12))
def test_centered_rows_are_no_longer_and_centered_labels_as_long(seed: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.rand(30, columns, generator=generator, dtype=torch.float64) ** 8
    assert bool((CENTERED.coded(rows).norm(dim=1) <= rows.norm(dim=1) * (1 + 1e-12)).all())
    corners = CENTERED.coded(torch.eye(columns, dtype=torch.float64))
    apart = float((corners[0] - corners[1]).norm())
    assert torch.allclose(corners.norm(dim=1), torch.ones(columns, dtype=torch.float64))
    assert apart == pytest.approx(math.sqrt(2 * columns / (columns - 1)))


def test_a_centered_record_that_is_replaced_costs_two_when_divided() -> None:
    """With two classes the centered labels are opposite: the bound is reached."""
    edges, labeled = torch.tensor([[0], [1]]), torch.ones(2, dtype=torch.bool)
    first, second = torch.tensor([[1.0, 0], [1.0, 0]]), torch.tensor([[0, 1.0], [1.0, 0]])
    moved = _scaled(edges, first, labeled, DIVIDED_CENTERED) - _scaled(edges, second, labeled, DIVIDED_CENTERED)
    bound = DIVIDED_CENTERED.sensitivity(units.NodeReplace())
    assert bound * (1.0 - 2.0**-13) < float(moved.norm()) <= bound  # entries are cut to whole steps


def test_the_price_by_unit() -> None:
    assert FRIENDS.sensitivity(units.UndirectedEdge()) == pytest.approx(math.sqrt(8 / 7))
    assert FRIENDS.sensitivity(units.DirectedEdge()) == 1.0
    assert LabelSum().sensitivity(units.UndirectedEdge()) == pytest.approx(math.sqrt(2))
    assert LabelSum().sensitivity(units.BoundedDegreeNode(max_degree=9)) == pytest.approx(3.0)


@pytest.mark.parametrize(
    "unit", [units.DirectedEdge(), units.UndirectedEdge(), units.BoundedDegreeNode(), units.Record()]
)
def test_divided_messages_are_refused_where_a_neighbor_s_list_may_change(unit: units.Unit) -> None:
    with pytest.raises(UnprovenError, match=unit.name):
        DIVIDED.event(unit, 1.0)


def test_known_labels_are_those_of_train_nodes_only() -> None:
    train = torch.tensor([0, 2])
    guesses = torch.full((4, CLASSES), 0.5)
    one, other = (_view(torch.tensor(labels), train) for labels in ([1, 2, 0, 1], [1, 0, 0, 2]))
    assert known_classes(one).tolist() == known_classes(other).tolist() == [1, -1, 0, -1]
    first = LabelSum().rows(one, guesses)
    assert torch.equal(first, LabelSum().rows(other, guesses))
    assert first.tolist() == [[0, 1, 0], [0.5] * 3, [1, 0, 0], [0.5] * 3]
    unknown = _view(torch.tensor([-1, 2, 0, 1]), train)
    assert LabelSum().rows(unknown, guesses)[0].tolist() == [0, 0, 0]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(4, 25), st.sampled_from(LabelSum.variants()))
def test_labels_alone_are_summed_like_the_same_rows(seed: int, n: int, mechanism: LabelSum) -> None:
    """Up to one step per message: the scale of a row is rounded in another place."""
    edges, _, labeled = _world(seed, n)
    labeled[0] = True  # the grid follows the largest bound, that of a label: without one there is nothing to compare
    lists, generator = MemoryEdges.from_edge_index(edges, n), torch.Generator().manual_seed(seed)
    classes = torch.where(labeled, torch.randint(0, CLASSES, (n,), generator=generator), -1)
    rows = torch.nn.functional.one_hot(classes + 1, CLASSES + 1)[:, 1:].float()
    sent, written_out = mechanism.label_messages(lists, classes, CLASSES), mechanism.messages(lists, rows, labeled)
    assert sent.step == written_out.step
    assert int((sent.dense().values.long() - written_out.values.long()).abs().max()) <= 1
    assert torch.equal(lists.sum(sent), lists.sum(sent.dense()))


def test_a_node_s_own_label_does_not_move_its_own_sum() -> None:
    edges, rows, labeled = _world(3, 20)
    node = int(labeled.nonzero()[0])
    other = rows.clone()
    other[node] = rows[node].roll(1)
    for mechanism in (FRIENDS, DIVIDED, CENTERED):
        before, after = (_scaled(edges, r, labeled, mechanism) for r in (rows, other))
        assert torch.equal(before[node], after[node])
        assert not torch.equal(before, after)


def test_bad_rows_and_zero_noise_are_refused() -> None:
    edges, rows, labeled = _world(1, 10)
    lists = MemoryEdges.from_edge_index(edges, 10)
    with pytest.raises(InputError, match="without a negative entry"):
        DIVIDED.messages(lists, rows - 1.0, labeled)
    assert float(DIVIDED.messages(lists, rows * math.nan, labeled).values.abs().max()) == 0.0
    view = _view(torch.zeros(10, dtype=torch.int64), torch.arange(3))
    for scale in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="noise"):
            LabelSum().release(view, scale, NoiseSource.seeded(0))


def test_pseudo_labels_that_are_no_matrix_are_refused_before_the_charge() -> None:
    checked = check_graph(random_graph(0))
    stage = Stage("sums", FRIENDS)
    plan = Plan.make("toy", checked.metadata, units.UndirectedEdge(), Budget(1.0, 1e-3), [stage])
    run = open_run(Ledger.in_memory(warn=False), plan, "toy", seeded=True)
    vault = Vault(checked, plan, run, NoiseSource.seeded(1))
    with pytest.raises(InputError, match="matrix of pseudo-labels"):
        vault.release("sums", torch.ones(checked.metadata.num_nodes))
    assert not run.ledger.history().of_kind("charge")
    vault.release("sums", torch.ones(checked.metadata.num_nodes, checked.metadata.classes))
    assert len(run.ledger.history().of_kind("charge")) == 1


@pytest.mark.parametrize("mechanism", [FRIENDS, CENTERED, DIVIDED, DIVIDED_CENTERED])
def test_messages_are_within_their_bound_in_whole_numbers(mechanism: LabelSum) -> None:
    edges, rows, labeled = _world(1, 10)
    lists = MemoryEdges.from_edge_index(edges, 10)
    sent = mechanism.messages(lists, rows * 100, labeled)
    squared = sent.values.to(torch.int64).square().sum(dim=1)
    if mechanism.divided:
        squared *= lists.out_degree().clamp(min=1)
    most = torch.where(labeled, 4**sent.bits, round(mechanism.unlabeled_norm**2 * 4**sent.bits))
    assert bool((squared <= most).all())
    assert bool((squared > 0.99 * most).any())
    assert sent.step * 2**sent.bits == 1.0


@pytest.mark.parametrize("wrong", [1.0, 2 / 3, 3 / 2])
def test_the_noise_has_the_planned_size_for_both_kinds(wrong: float) -> None:
    """3,000 values per kind: a standard deviation is off by 1.3%; by 7% 1 time in 10^7."""
    n = 2000
    labeled = torch.arange(n) % 2 == 0
    view = _view(torch.zeros(n, dtype=torch.int64), labeled.nonzero().squeeze(1))
    out = LabelSum(0.5, 1.3).release(view, 5.0, NoiseSource.seeded(4))
    right = [abs(float(out[mask].std()) / (std * wrong) - 1) < 0.07 for mask, std in ((labeled, 6.5), (~labeled, 5.0))]
    assert right == [wrong == 1.0] * 2


def test_only_receivers_get_sums_and_noise_and_lists_are_counted_without_the_others() -> None:
    """Divided messages are louder where fewer entries are used: a list of two, of which one receives, sends 1."""
    edges = torch.tensor([[0, 0], [1, 2]])
    view = _view(torch.zeros(3, dtype=torch.int64), torch.tensor([0]))
    view.whole_lists = MemoryEdges.from_edge_index(edges, 3)
    receivers = torch.tensor([False, True, False])
    assert float(DIVIDED.query(view)[1, 0]) * 2**14 == math.isqrt(4**14 // 2)
    assert float(DIVIDED.query(view, None, receivers)[1, 0]) == 1.0
    released = DIVIDED.release(view, 3.0, NoiseSource.seeded(0), None, receivers)
    assert not released[~receivers].any()
    assert released[1].all()


def test_the_bound_of_an_edge_grows_with_the_receivers_and_is_not_used_for_records() -> None:
    """A unit of several undirected edges at once, and one that changes a record too, get no bound for one edge."""

    class Two(units.UndirectedEdge):
        footprint = units.Footprint(receivers=4, own_list=2, other_entries=2, records=0, mirrored=True)

    class WithRecord(units.UndirectedEdge):
        footprint = units.Footprint(receivers=2, own_list=1, other_entries=1, records=1, mirrored=True)

    assert FRIENDS.sensitivity(Two()) == pytest.approx(math.sqrt(2.0) * FRIENDS.sensitivity(units.UndirectedEdge()))
    assert FRIENDS.sensitivity(WithRecord()) == pytest.approx(math.sqrt(2.0))


@pytest.mark.parametrize("bad", [{"unlabeled_norm": 1.5}, {"unlabeled_norm": -0.1}, {"labeled_noise": 0.5}])
def test_norms_and_noise_outside_the_proof_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        LabelSum(**bad)
