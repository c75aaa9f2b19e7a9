"""Sums over in-neighbors: exact, against Python's integers and crafted rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgraph.errors import InputError
from hushgraph.graph import edges as edges_module
from hushgraph.graph import sums
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.quantized import QuantizedRows, quantize
from hushgraph.graph.sums import aligned_rows, check_rows, sum_bags, target_runs


def random_graph(seed: int, num_nodes: int, num_edges: int) -> tuple[MemoryEdges, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, num_nodes, (2, num_edges), generator=generator)
    return MemoryEdges.from_edge_index(edges, num_nodes), edges


# Exact sums


def in_integers(edges: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The sums in int64, edge by edge."""
    total = torch.zeros(values.shape, dtype=torch.int64)
    return total.index_add_(0, edges[1], values.to(torch.int64)[edges[0]])


@given(
    seed=st.integers(0, 1000),
    num_nodes=st.integers(1, 30),
    num_edges=st.integers(0, 300),
    columns=st.sampled_from([0, 1, 3, 16, 33]),
    bits=st.integers(1, 20),
)
@settings(max_examples=80, deadline=None)
def test_exact_sums_equal_integer_ones(seed: int, num_nodes: int, num_edges: int, columns: int, bits: int) -> None:
    graph, edges = random_graph(seed, num_nodes, num_edges)
    rows = quantize(torch.randn(num_nodes, columns, generator=torch.Generator().manual_seed(seed)), bits=bits)
    total = graph.sum(rows)
    assert total.dtype == torch.int64
    assert torch.equal(total, in_integers(edges, rows.values))


@pytest.mark.parametrize("bits", [5, 12, 16, 20])
@pytest.mark.parametrize("threads", [1, 3])
def test_long_lists_of_the_largest_entries_are_exact_in_any_order(bits: int, threads: int) -> None:
    # All rows are as long as they may be, in the same direction: no sum gets larger.
    rng = np.random.default_rng(bits)
    num_nodes, num_edges = 400, 250_000
    edges = torch.from_numpy(np.stack((rng.integers(0, num_nodes, num_edges), rng.geometric(0.2, num_edges) - 1)))
    rows = quantize(torch.tensor([[-1.0, 1e-6]]).repeat(num_nodes, 1), bits=bits, normalize=True)
    expected = in_integers(edges, rows.values)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        assert torch.equal(MemoryEdges.from_edge_index(edges, num_nodes).sum(rows), expected)
        shuffled = MemoryEdges.from_edge_index(edges, num_nodes)
        for node in range(30):
            begin, end = int(shuffled.offsets[node]), int(shuffled.offsets[node + 1])
            shuffled.sources[begin:end] = shuffled.sources[begin:end][torch.randperm(end - begin)]
        assert torch.equal(shuffled.sum(rows), expected)
    finally:
        torch.set_num_threads(before)


def test_blocks_of_targets_do_not_change_a_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, edges = random_graph(3, 300, 9000)
    rows = quantize(torch.randn(300, 7, generator=torch.Generator().manual_seed(3)), bits=20)
    expected = in_integers(edges, rows.values)
    for limits in ((1, 1), (100, 7), (10**6, 10**6)):
        monkeypatch.setattr(edges_module, "_BLOCK_EDGES", limits[0])
        monkeypatch.setattr(edges_module, "_BLOCK_TARGETS", limits[1])
        assert torch.equal(graph.sum(rows), expected)


@pytest.mark.parametrize(("length", "kind"), [((1 << 11) - 1, torch.int32), (1 << 11, torch.int64)])
@pytest.mark.parametrize("compiled", [False, True])
def test_narrow_sums_have_32_bits_while_every_list_is_short_enough(
    length: int, kind: torch.dtype, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums, "LEAST_COMPILED", 0 if compiled else 1 << 62)
    graph = MemoryEdges(torch.tensor([0, length, length]), torch.zeros(length, dtype=torch.int32))
    rows = quantize(torch.tensor([[-1.0, 0.0], [0.0, 0.0]]), bits=20)
    found = graph.sum(rows, narrow=True)
    assert found.dtype == kind
    assert found.tolist() == [[-length << 20, 0], [0, 0]] == graph.sum(rows).tolist()


def test_rows_of_another_graph_are_refused() -> None:
    graph, _ = random_graph(4, 10, 30)
    with pytest.raises(InputError, match="quantized rows of 10 nodes"):
        graph.sum(quantize(torch.ones(9, 2)))


# What one edge moves: an attack on float sums, and exact ones


def star(num_senders: int) -> torch.Tensor:
    """Everybody sends to the last node; the first sender is the edge in question."""
    return torch.stack((torch.arange(num_senders), torch.full((num_senders,), num_senders)))


def crafted_rows(num_senders: int, ones: int) -> torch.Tensor:
    """Rows that bring a running sum to a power of two, and then on each side of it to different roundings.

    With the first edge the sum is `ones`, a power of two: a bit more than half of its last place is rounded up when
    added, a bit less is rounded away when subtracted. Without that edge the sum is just below, where the places are
    half as wide, and both are rounded to the same number.
    """
    place = float(np.spacing(np.float32(ones))) / 2
    rows = torch.ones(num_senders + 1, 1)
    rows[ones:-1:2] = place * (1 + 2.0**-12)
    rows[ones + 1 : -1 : 2] = -place * (1 - 2.0**-12)
    rows[-1] = 0.0
    return rows


def moved_by_floats(rows: torch.Tensor) -> float:
    """How far the first edge moves a float32 running sum: the broken variant."""
    values = rows[:-1, 0].numpy()
    with_edge, without = np.float32(0), np.float32(0)
    for value in values:
        with_edge += value
    for value in values[1:]:
        without += value
    return abs(float(with_edge) - float(without))


def moved(edges: torch.Tensor, rows: torch.Tensor, **options: bool) -> int:
    """The squared change of the exact sums when the first edge goes, in Python's integers."""
    table = quantize(rows, **options)
    one, other = (MemoryEdges.from_edge_index(part, len(rows)).sum(table) for part in (edges, edges[:, 1:]))
    return squared_norm(one - other)


def squared_norm(change: torch.Tensor) -> int:
    return sum(value**2 for value in change[change != 0].tolist())


@pytest.mark.parametrize(("senders", "ones", "least"), [(98_194, 4096, 20.0), (20_481, 4096, 4.9)])
def test_a_float_running_sum_moves_far_beyond_its_bound_and_the_exact_sum_does_not(
    senders: int, ones: int, least: float
) -> None:
    rows, edges = crafted_rows(senders, ones), star(senders)
    assert float(rows.abs().max()) <= 1.0
    assert moved_by_floats(rows) > least
    graphs = [MemoryEdges.from_edge_index(part, len(rows)) for part in (edges, edges[:, 1:])]
    float_sums = [sum_bags(graph.sources, graph.offsets, rows) for graph in graphs]
    assert float((float_sums[0] - float_sums[1]).norm()) > least
    assert moved(edges, rows) == 4**12
    wide = torch.cat((rows, (1 - rows.square()).clamp(min=0).sqrt()), 1)
    assert moved(edges, wide, normalize=True) <= 4**12


ADVERSARIAL = st.sampled_from(["crafted", "binade", "denormal", "huge", "random", "equal"])


def adversarial_rows(kind: str, num_nodes: int, columns: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, (num_nodes, columns), generator=generator) * 2.0 - 1.0
    power = torch.randint(-12, 3, (num_nodes, columns), generator=generator)
    return {
        "crafted": lambda: crafted_rows(num_nodes - 1, 1 << (num_nodes.bit_length() // 2)).repeat(1, columns),
        "binade": lambda: signs * torch.ldexp(torch.full((num_nodes, columns), 1 - 2.0**-24), power),
        "denormal": lambda: signs * 2.0**-149,
        "huge": lambda: signs * 3.4e38,
        "random": lambda: torch.randn(num_nodes, columns, generator=generator),
        "equal": lambda: torch.full((num_nodes, columns), 1 / 3),
    }[kind]()


@given(
    kind=ADVERSARIAL,
    senders=st.integers(2, 2000) | st.just(100_000),
    columns=st.integers(1, 64),
    seed=st.integers(0, 100),
    normalize=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_one_edge_moves_the_exact_sums_by_at_most_one_row(
    kind: str, senders: int, columns: int, seed: int, normalize: bool
) -> None:
    columns = columns if senders < 10_000 else min(columns, 4)
    rows = adversarial_rows(kind, senders + 1, columns, seed)
    assert moved(star(senders), rows, normalize=normalize) <= 4**12


@given(kind=ADVERSARIAL, num_nodes=st.integers(3, 60), columns=st.integers(1, 64), data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_sender_with_a_shared_row_moves_all_sums_together_by_at_most_one_row(
    kind: str, num_nodes: int, columns: int, data: st.DataObject
) -> None:
    edges = torch.stack(
        (torch.arange(num_nodes).repeat_interleave(num_nodes), torch.arange(num_nodes).repeat(num_nodes))
    )
    edges = edges[
        :, torch.rand(edges.shape[1], generator=torch.Generator().manual_seed(1)) < data.draw(st.floats(0, 1))
    ]
    gone = data.draw(st.integers(0, num_nodes - 1))
    graph = MemoryEdges.from_edge_index(edges, num_nodes)
    rows = adversarial_rows(kind, num_nodes, columns, 0)
    table = quantize(rows, lengths=graph.out_degree())
    fewer = MemoryEdges.from_edge_index(edges[:, edges[0] != gone], num_nodes)
    change = graph.sum(table) - fewer.sum(table)
    assert squared_norm(change) <= 4**12


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("many", [False, True])
def test_entries_are_counted_by_sender_over_all_parts(
    compiled: bool, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums, "LEAST_COMPILED", 0 if compiled else 1 << 62)
    monkeypatch.setattr(sums, "INT32_LIMIT", 0 if many else 1 << 31)
    parts = torch.randint(0, 40, (1_000,), generator=torch.Generator().manual_seed(0)).to(torch.int32).split(300)
    found = sums.counted_by_source(parts, 50, 1_000)
    assert found.dtype == torch.int64
    assert found.tolist() == [int((torch.cat(parts) == node).sum()) for node in range(50)]


def test_direction_and_multiplicity() -> None:
    graph = MemoryEdges.from_edge_index(torch.tensor([[0, 0, 1], [2, 2, 2]]), num_nodes=4)
    rows = QuantizedRows(torch.tensor([[1.0], [10.0], [100.0], [1000.0]]), 12, 1.0)
    assert graph.sum(rows).view(-1).tolist() == [0, 0, 12, 0]


def test_wide_offsets_give_the_same_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, edges = random_graph(3, 100, 2000)
    rows = quantize(torch.randn(100, 16, generator=torch.Generator().manual_seed(4)))
    wide = MemoryEdges(graph.offsets.to(torch.int64), graph.sources)
    monkeypatch.setattr(edges_module, "_BLOCK_EDGES", 150)
    assert torch.equal(wide.sum(rows), in_integers(edges, rows.values))


# Parts


@given(lengths=st.lists(st.integers(0, 9), max_size=30), max_edges=st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_runs_cover_all_targets_within_the_limit(lengths: list[int], max_edges: int) -> None:
    offsets = torch.cumsum(torch.tensor([0, *lengths]), 0)
    runs = list(target_runs(offsets, max_edges))
    covered = [node for first, last in runs for node in range(first, last)]
    assert covered == list(range(len(lengths)))
    for first, last in runs:
        assert sum(lengths[first:last]) <= max_edges or last == first + 1


def test_rows_with_gradients_are_accepted_and_not_tracked() -> None:
    graph, _ = random_graph(5, 10, 30)
    rows = torch.randn(10, 3, requires_grad=True)
    assert not graph.sum(quantize(rows)).requires_grad


def test_alignment() -> None:
    for skip in range(4):
        rows = torch.arange(40.0)[skip : skip + 30].view(10, 3)
        aligned = aligned_rows(rows)
        assert aligned.data_ptr() % 64 == 0
        assert torch.equal(aligned, rows)
    already = aligned_rows(torch.zeros(8, 16))
    assert aligned_rows(already).data_ptr() == already.data_ptr()


def test_wrong_rows_are_refused() -> None:
    with pytest.raises(InputError, match=r"shape \[10, columns\]"):
        check_rows(torch.zeros(9, 3), 10)
    with pytest.raises(InputError, match="float32 or float64"):
        check_rows(torch.zeros(10, 3, dtype=torch.int64), 10)
    graph, _ = random_graph(6, 10, 30)
    with pytest.raises(InputError, match="quantized rows of 10 nodes"):
        graph.sum(quantize(torch.zeros(9, 3)))
