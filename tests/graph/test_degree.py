"""The owned-list degree cap: bound, law, and what one record can change. A refilling cap fails the same test."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph import degree
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.quantized import BITS, quantize
from hushgraph.noise.source import NoiseSource
from small_graphs import capped_edges

Cap = Callable[[Tensor, int, int, NoiseSource], Tensor]


def lists_of(edges: Tensor, num_nodes: int) -> list[list[int]]:
    lists: list[list[int]] = [[] for _ in range(num_nodes)]
    for source, target in edges.T.tolist():
        lists[source].append(target)
    return [sorted(targets) for targets in lists]


def refilling_cap(edges: Tensor, num_nodes: int, max_degree: int, noise: NoiseSource) -> Tensor:
    """Broken on purpose: entries that point to null nodes are dropped first, so their places are filled again."""
    sends = torch.zeros(num_nodes, dtype=torch.bool)
    sends[edges[0]] = True
    return capped_edges(edges[:, sends[edges[1]]], num_nodes, max_degree, noise)


def without(edges: Tensor, node: int) -> Tensor:
    """The node's record becomes null: its own list is empty. Other lists are other people's records."""
    return edges[:, edges[0] != node]


def change(
    cap: Cap, before: Tensor, after: Tensor, num_nodes: int, max_degree: int, node: int, new_row: float = 0.0
) -> float:
    """Squared L2 change of the other nodes' aggregates, in squared row norms and in exact integers.

    The node's own row is part of its own record. It is multiplied by `new_row`: 0 for a null record, -1 for the
    farthest replacement.
    """
    rows = torch.nn.functional.one_hot(torch.arange(num_nodes) % 8, 8).to(torch.float32)
    rows[1::3] = torch.randn(len(rows[1::3]), 8, generator=torch.Generator().manual_seed(1))
    other_rows = rows.clone()
    other_rows[node] *= new_row
    sums = [
        MemoryEdges.from_edge_index(cap(e, num_nodes, max_degree, NoiseSource.seeded(5)), num_nodes).sum(quantize(x))
        for e, x in ((before, rows), (after, other_rows))
    ]
    moved = sums[0] - sums[1]
    moved[node] = 0
    return int(moved.square().sum()) / 4**BITS


def hub_graph(num_nodes: int = 800) -> Tensor:
    """Node 0 is linked both ways with everyone; the others have 30 more random targets each."""
    generator = torch.Generator().manual_seed(0)
    others = torch.arange(1, num_nodes)
    hub = torch.zeros_like(others)
    source = others.repeat_interleave(30)
    target = torch.randint(1, num_nodes, (len(source),), generator=generator)
    return torch.cat((torch.stack((hub, others)), torch.stack((others, hub)), torch.stack((source, target))), 1)


def test_deleting_a_hub_moves_at_most_sqrt_d_and_refill_moves_more() -> None:
    edges, max_degree = hub_graph(), 10
    args = (edges, without(edges, 0), 800, max_degree, 0)
    assert 0 < change(capped_edges, *args) <= max_degree
    assert change(refilling_cap, *args) > 4 * max_degree


def test_both_bounds_are_reached() -> None:
    edges, max_degree = hub_graph(), 9
    null = change(capped_edges, edges, without(edges, 0), 800, max_degree, 0)
    swap = change(capped_edges, edges, edges, 800, max_degree, 0, new_row=-1.0)
    assert null == max_degree
    assert swap == 4 * max_degree


@given(
    seed=st.integers(0, 10**6),
    num_nodes=st.integers(2, 25),
    density=st.floats(0, 1),
    max_degree=st.integers(0, 6),
    data=st.data(),
)
@settings(max_examples=80, deadline=None)
def test_one_record_changes_only_its_own_list(
    seed: int, num_nodes: int, density: float, max_degree: int, data: st.DataObject
) -> None:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.nonzero(torch.rand(num_nodes, num_nodes, generator=generator) < density).T.contiguous()
    node = data.draw(st.sampled_from([0, num_nodes // 2, num_nodes - 1]))
    new_list = data.draw(st.lists(st.integers(0, num_nodes - 1), unique=True))
    new = torch.tensor([[node] * len(new_list), new_list], dtype=torch.int64).reshape(2, -1)
    replaced = torch.cat((new, without(edges, node)), 1)
    kept = [
        lists_of(capped_edges(e, num_nodes, max_degree, NoiseSource.seeded(seed)), num_nodes)
        for e in (edges, without(edges, node), replaced)
    ]
    assert kept[1][node] == []
    assert len(kept[2][node]) == min(len(new_list), max_degree)
    for other in set(range(num_nodes)) - {node}:
        assert kept[0][other] == kept[1][other] == kept[2][other]
    null = change(capped_edges, edges, without(edges, node), num_nodes, max_degree, node)
    assert null <= max_degree
    swap = change(capped_edges, edges, replaced, num_nodes, max_degree, node, new_row=-1.0)
    assert swap <= 4 * max_degree


@given(seed=st.integers(0, 10**6), num_nodes=st.integers(1, 20), max_degree=st.integers(0, 5))
@settings(max_examples=80, deadline=None)
def test_lists_are_capped_subsets_and_short_ones_stay_whole(seed: int, num_nodes: int, max_degree: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, num_nodes, (2, 6 * num_nodes), generator=generator)
    kept = capped_edges(edges, num_nodes, max_degree, NoiseSource.seeded(seed))
    before, after = lists_of(edges, num_nodes), lists_of(kept, num_nodes)
    for old, new in zip(before, after):
        distinct = set(old)
        assert set(new) <= distinct
        assert len(set(new)) == len(new) == min(max_degree, len(distinct))
    assert kept.dtype == torch.int64


def test_order_and_repetition_of_the_input_do_not_matter() -> None:
    edges = hub_graph(50)
    shuffled = edges[:, torch.randperm(edges.shape[1], generator=torch.Generator().manual_seed(3))]
    expected = capped_edges(edges, 50, 4, NoiseSource.seeded(1))
    assert torch.equal(capped_edges(shuffled, 50, 4, NoiseSource.seeded(1)), expected)
    assert torch.equal(capped_edges(edges.repeat(1, 2), 50, 4, NoiseSource.seeded(1)), expected)
    assert not torch.equal(capped_edges(edges, 50, 4, NoiseSource.seeded(2)), expected)


def test_a_directed_star_is_capped_at_the_sender_not_at_the_receiver() -> None:
    everyone, last = torch.arange(99), torch.full((99,), 99)
    inward = capped_edges(torch.stack((everyone, last)), 100, 3, NoiseSource.seeded(1))
    outward = capped_edges(torch.stack((last, everyone)), 100, 3, NoiseSource.seeded(1))
    assert inward.shape[1] == 99
    assert outward.shape[1] == 3


def test_the_kept_subset_is_uniform() -> None:
    # 6,000 independent lists of 5 entries keep 2: ten subsets, chi-square at level 1e-4 (the flake rate of a fresh
    # seed). A choice that prefers the first entry 3/2 times as often is rejected.
    owners = torch.arange(6000)
    source = owners.repeat_interleave(5)
    target = 6000 + torch.arange(5).repeat(6000)
    kept = capped_edges(torch.stack((source, target)), 6005, 2, NoiseSource.seeded(9))
    pairs = (kept[1] - 6000).view(-1, 2).numpy()
    counts = np.bincount(pairs[:, 0] * 5 + pairs[:, 1], minlength=25)
    counts = counts[counts > 0]
    assert len(counts) == 10
    assert stats.chisquare(counts).pvalue > 1e-4
    first = np.array([(pairs == 0).any(axis=1).sum(), 6000 - (pairs == 0).any(axis=1).sum()])
    assert stats.chisquare(first, [6000 * 0.4, 6000 * 0.6]).pvalue > 1e-4
    assert stats.chisquare(first, [6000 * 0.6, 6000 * 0.4]).pvalue < 1e-12


@pytest.mark.parametrize("bits", [0, 1, 40])
def test_ties_between_keys_never_raise_the_number_kept(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    def coarse_keys(_self: object, _label: str, owners: np.ndarray, entries: np.ndarray) -> np.ndarray:
        return (owners * 7 + entries).astype(np.uint64) & np.uint64((1 << bits) - 1)

    monkeypatch.setattr(NoiseSource, "pair_keys", coarse_keys)
    kept = capped_edges(hub_graph(100), 100, 7, NoiseSource.seeded(1))
    assert torch.bincount(kept[0], minlength=100).tolist() == [7] * 100


def test_lists_are_handled_the_same_in_small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = hub_graph(120)
    expected = capped_edges(edges, 120, 6, NoiseSource.seeded(1))
    monkeypatch.setattr(degree, "_RUN", 100)
    assert torch.equal(capped_edges(edges, 120, 6, NoiseSource.seeded(1)), expected)


@pytest.mark.parametrize("wrong", [-1, 1.5, True, None])
def test_wrong_caps_are_refused(wrong: object) -> None:
    with pytest.raises(InputError, match="degree cap"):
        capped_edges(torch.tensor([[0], [1]]), 2, wrong, NoiseSource.seeded(0))  # type: ignore[arg-type]


def test_the_entries_kept_are_those_with_the_smallest_keys() -> None:
    """Against a loop over lists; the last node has none."""
    edges = torch.randint(0, 30, (2, 400), generator=torch.Generator().manual_seed(2))
    noise = NoiseSource.seeded(4)
    expected = []
    for owner, entries in enumerate(lists_of(torch.unique(edges, dim=1), 31)):
        keys = noise.pair_keys("degree cap", np.full(len(entries), owner), np.array(entries, dtype=np.int64))
        smallest = sorted(zip(keys.tolist(), entries))[:3]
        expected.append(sorted(entry for _, entry in smallest))
    assert lists_of(capped_edges(edges, 31, 3, noise), 31) == expected
