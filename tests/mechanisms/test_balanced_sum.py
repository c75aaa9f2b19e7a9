from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.balance import Balance
from hushgraph.graph.edges import MemoryEdges
from hushgraph.mechanisms import BalancedSum
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import units
from hushgraph.privacy.metadata import Metadata

WHOLE = units.NodeWithEdges()


def view(there: np.ndarray, labels: np.ndarray, train: np.ndarray, classes: int = 2) -> SimpleNamespace:
    """As much of a view as the mechanism reads."""
    nodes = len(labels)
    return SimpleNamespace(
        whole_lists=MemoryEdges.from_edge_index(torch.from_numpy(np.stack(there.nonzero())), nodes),
        labels=torch.from_numpy(labels),
        train=torch.from_numpy(train.nonzero()[0]),
        trains_on=torch.from_numpy(train),
        metadata=Metadata(nodes, int(train.sum()), num_classes=classes),
    )


def moved(mechanism: BalancedSum, there: np.ndarray, labels: np.ndarray, train: np.ndarray, victim: int) -> float:
    """How far the rows of the others move when `victim` goes with all its edges."""
    without, unlabeled = there.copy(), labels.copy()
    without[victim], without[:, victim], unlabeled[victim] = False, False, -1
    change = mechanism.query(view(there, labels, train)) - mechanism.query(view(without, unlabeled, train))
    change[victim] = 0.0
    return float(change.to(torch.float64).norm())


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(4, 40),
    st.sampled_from([0.03, 0.2, 0.6, 1.0]),
    st.sampled_from([1.0, 2.0, 8.0]),
    st.booleans(),
    st.booleans(),
)
def test_no_node_moves_the_others_by_more_than_the_bound(
    seed: int, nodes: int, density: float, capacity: float, symmetric: bool, centered: bool
) -> None:
    made = np.random.default_rng(seed)
    there = made.random((nodes, nodes)) < density
    hubs = made.random(nodes) < 0.1
    there |= hubs[:, None] | hubs
    if symmetric:
        there |= there.T
    np.fill_diagonal(there, False)
    labels, train = made.integers(0, 2, nodes), made.random(nodes) < 0.6
    mechanism = BalancedSum(capacity, centered)
    victim = int(made.integers(nodes))
    assert moved(mechanism, there, labels, train, victim) <= mechanism.sensitivity(WHOLE)


def star_of_stars(capacity: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Node 0 sends to 3/2 capacity receivers; each hears the opposite from senders of its own until r is 2/3."""
    heard = math.ceil(math.sqrt(5.0) * capacity / 3.0 / (2.0 / 3.0) * (1.0 + 2.0 / 3.0 / capacity) - 0.5)
    receivers = capacity * 3 // 2
    nodes = 1 + receivers * (1 + heard)
    there, train = np.zeros((nodes, nodes), dtype=bool), np.ones(nodes, dtype=bool)
    train[1 : 1 + receivers] = False
    there[0, 1 : 1 + receivers] = True
    others = np.arange(1 + receivers, nodes)
    there[others, 1 + (others - 1 - receivers) // heard] = True
    labels = np.ones(nodes, dtype=np.int64)
    labels[0] = 0
    return there, labels, train


def test_the_bound_is_nearly_reached() -> None:
    mechanism = BalancedSum(16.0)
    share = moved(mechanism, *star_of_stars(16), victim=0) / mechanism.sensitivity(WHOLE)
    assert 0.9 < share <= 1.0


def test_weights_by_the_length_of_a_list_have_no_such_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody sends to the node that goes and to one other: divided by their lists, that one's row moves with n."""

    def divided(self: Balance, rows: np.ndarray) -> np.ndarray:
        lengths = np.asarray(self.entries.sum(axis=0)).ravel()
        return self.entries @ (rows / np.sqrt(np.maximum(lengths, 1.0))[:, None])

    nodes = 300
    there, train = np.zeros((nodes, nodes), dtype=bool), np.ones(nodes, dtype=bool)
    train[:2] = False
    there[2:, :2] = True
    labels = np.zeros(nodes, dtype=np.int64)
    mechanism = BalancedSum(1.0)
    assert moved(mechanism, there, labels, train, victim=0) <= mechanism.sensitivity(WHOLE)
    monkeypatch.setattr(Balance, "sums", divided)
    assert moved(mechanism, there, labels, train, victim=0) > 50.0 * mechanism.sensitivity(WHOLE)


def test_the_price_by_unit() -> None:
    mechanism = BalancedSum(16.0)
    exact = math.sqrt(5.0) / 4.0 * math.sqrt(16.0) * 32.0 * (math.exp(1.0 / 32.0) - 1.0)
    assert mechanism.sensitivity(WHOLE) == pytest.approx(1.02 * exact)
    for unit in (units.Node(), units.BoundedDegreeNode()):
        assert mechanism.sensitivity(unit) == mechanism.sensitivity(WHOLE)
    assert mechanism.sensitivity(units.NodeReplace()) == 2.0 * mechanism.sensitivity(WHOLE)


@pytest.mark.parametrize("unit", [units.DirectedEdge(), units.UndirectedEdge(), units.Record(), units.Local()], ids=str)
def test_other_units_are_refused(unit: units.Unit) -> None:
    with pytest.raises(UnprovenError, match=unit.name):
        BalancedSum().event(unit, 1.0)


def test_receivers_do_not_send_and_others_get_nothing() -> None:
    there, train = np.ones((6, 6), dtype=bool), np.array([True] * 4 + [False] * 2)
    labels = np.array([0, 1, 1, 0, 1, 0])
    receivers = torch.tensor([True, False, False, False, True, False])
    first = BalancedSum(2.0).release(view(there, labels, train), 1.0, NoiseSource.seeded(0), receivers=receivers)
    unread = labels.copy()
    unread[[0, 4, 5]] = 1 - unread[[0, 4, 5]]
    second = BalancedSum(2.0).release(view(there, unread, train), 1.0, NoiseSource.seeded(0), receivers=receivers)
    assert torch.equal(first, second)
    assert first[~receivers].abs().sum() == 0.0
    assert first[receivers].abs().min() > 0.0


def test_a_record_of_others_is_kept_where_their_lists_change() -> None:
    assert BalancedSum().stays_private(WHOLE)
    assert not BalancedSum().stays_private(units.Node())


def test_pseudo_labels_and_impossible_capacities_are_refused() -> None:
    there, train = np.zeros((2, 2), dtype=bool), np.array([True, False])
    with pytest.raises(InputError, match="labels alone"):
        BalancedSum().query(view(there, np.zeros(2, dtype=np.int64), train), torch.ones(2, 2))
    for capacity in (0.5, math.inf, math.nan):
        with pytest.raises(InputError, match="capacity"):
            BalancedSum(capacity)
