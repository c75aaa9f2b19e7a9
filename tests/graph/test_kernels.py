"""Compiled loops: the same numbers as without them, at every width, type and thread, and at the edge of 32 bits."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgraph.graph import sums
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.labels import quantize_labels
from hushgraph.graph.quantized import QuantizedRows, quantize

kernels = pytest.importorskip("hushgraph.graph.kernels")
label_kernels = pytest.importorskip("hushgraph.graph.label_kernels")
row_loop = pytest.importorskip("hushgraph.graph.row_loop")


@pytest.fixture(autouse=True)
def _always_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "LEAST_COMPILED", 0)


def lists_of(rng: np.random.Generator, num_nodes: int, num_edges: int) -> MemoryEdges:
    """Lists in any order, some of them empty, some long."""
    target = np.sort((num_nodes ** rng.random(num_edges)).astype(np.int64) - 1)
    offsets = np.searchsorted(target, np.arange(num_nodes + 1)).astype(np.int32)
    sources = rng.integers(0, num_nodes, num_edges, dtype=np.int32)
    return MemoryEdges(torch.from_numpy(offsets), torch.from_numpy(sources))


def in_integers(graph: MemoryEdges, values: torch.Tensor) -> torch.Tensor:
    """The sums in int64, edge by edge."""
    total = torch.zeros(values.shape, dtype=torch.int64)
    return total.index_add_(0, graph.targets().long(), values.to(torch.int64)[graph.sources.long()])


def test_large_graphs_use_them() -> None:
    assert sums.kernels_for(1 << 19) is kernels


def test_small_graphs_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert sums.kernels_for(1 << 10) is None


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 8, 16, 31, 33, 48, 64, 65, 130])
def test_rows_of_every_width(columns: int) -> None:
    rng = np.random.default_rng(columns)
    graph = lists_of(rng, 300, 5_000)
    values = torch.from_numpy(rng.integers(-(2**14), 2**14 + 1, (300, columns)).astype(np.int16))
    rows = QuantizedRows(values, 14, 1.0)
    assert torch.equal(graph.sum(rows), in_integers(graph, values))
    assert graph.sum(rows, narrow=True).dtype == torch.int32
    assert torch.equal(graph.sum(rows, narrow=True).to(torch.int64), in_integers(graph, values))


@pytest.mark.parametrize("columns", [3, 16])
@pytest.mark.parametrize("bytes_in_cache", [0, 1 << 24])
def test_rows_that_are_fetched_ahead(columns: int, bytes_in_cache: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_CACHED_ROWS", bytes_in_cache)
    graph = lists_of(np.random.default_rng(1), 200, 3_000)
    rows = quantize(torch.randn(200, columns, generator=torch.Generator().manual_seed(1)), bits=14)
    assert torch.equal(graph.sum(rows), in_integers(graph, rows.values))


@pytest.mark.parametrize("classes", [8, 40])
@pytest.mark.parametrize("divided", [False, True])
def test_labels_that_are_fetched_ahead(divided: bool, classes: int) -> None:
    """So many nodes that what they send does not stay near; lists end before, at and behind what is fetched."""
    rng, nodes = np.random.default_rng(2), kernels.CACHED_CODES + 1_000
    lengths = np.array([0, 1, 127, 128, 129, 3, int(label_kernels._AT_ONCE), 40_000, 2, 9_000])
    offsets = np.concatenate(([0], np.cumsum(lengths), np.full(nodes - len(lengths), lengths.sum())))
    sources = rng.integers(0, nodes, lengths.sum(), dtype=np.int32)
    graph = MemoryEdges(torch.from_numpy(offsets), torch.from_numpy(sources))
    own = torch.from_numpy(rng.integers(-1, classes, nodes))
    copies = torch.from_numpy(rng.integers(1, 9_000, nodes)) if divided else None
    labels = quantize_labels(own, classes, bits=14, lengths=copies, centered=True)
    rows = labels.dense().values.numpy().astype(np.int64)
    wanted = np.stack([rows[part].sum(0) for part in np.split(sources, offsets[1 : len(lengths)])])
    found = graph.sum(labels)
    assert np.array_equal(found[: len(lengths)].numpy(), wanted)
    assert not found[len(lengths) :].any()


@pytest.mark.parametrize("length", [kernels.FLUSH - 1, kernels.FLUSH, kernels.FLUSH + 1, 3 * kernels.FLUSH + 7])
@pytest.mark.parametrize("entry", [-(2**15), 2**15 - 1])
@pytest.mark.parametrize("columns", [3, 4])
def test_long_lists_of_the_largest_16_bit_numbers(length: int, entry: int, columns: int) -> None:
    """Beyond what `quantize` makes: no bound on rows is needed for the partial sums to stay within 32 bits."""
    values = torch.full((2, columns), entry, dtype=torch.int16)
    graph = MemoryEdges(torch.tensor([0, length, length + 2]), torch.zeros(length + 2, dtype=torch.int32))
    assert graph.sum(QuantizedRows(values, 14, 1.0)).tolist() == [[length * entry] * columns, [2 * entry] * columns]


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("classes", [1, 2, 5, 7, 8, 15, 16, 17, 32, 33, 40, 255, 256, 300])
def test_labels_equal_the_same_rows_written_out(wide: bool, divided: bool, centered: bool, classes: int) -> None:
    rng = np.random.default_rng(classes)
    graph = lists_of(rng, 500, 6_000)
    graph = MemoryEdges(graph.offsets.to(torch.int64), graph.sources) if wide else graph
    labels = torch.from_numpy(rng.integers(-1, classes, 500))
    lengths = graph.out_degree() if divided else None
    rows = quantize_labels(labels, classes, bits=14, lengths=lengths, centered=centered)
    expected = in_integers(graph, rows.dense().values)
    assert torch.equal(graph.sum(rows), expected)
    narrow = graph.sum(rows, narrow=True)
    assert narrow.dtype == torch.int32
    assert torch.equal(narrow.to(torch.int64), expected)


@pytest.mark.parametrize("classes", [7, 16, 32, 40])
@pytest.mark.parametrize("length", [251, 252, 253, *range(1006, 1025), *range(65_534, 65_538), 140_000])
def test_lists_of_one_class_around_what_a_small_counter_holds(classes: int, length: int) -> None:
    """Rows in 32 bits, and bytes: four counters in turn are full after four times their largest number."""
    for sender in (0, classes - 1, -1):
        labels = torch.full((2,), sender)
        graph = MemoryEdges(torch.tensor([0, length, 2 * length]), torch.zeros(2 * length, dtype=torch.int32))
        rows = quantize_labels(labels, classes, centered=True)
        assert torch.equal(graph.sum(rows), length * rows.dense().values.to(torch.int64))


@pytest.mark.parametrize("long", [False, True])
def test_own_labels_of_32_and_of_64_bits(long: bool) -> None:
    rng, classes = np.random.default_rng(3), 1000 if long else 8
    graph = lists_of(rng, 500, 6_000)
    labels, hot = rng.integers(0, classes + 1, 500), rng.integers(0, 2**15, 500)
    cold = -rng.integers(0, 2**15 if long else 2**12, 500)
    hot[:2], cold[0], labels[:2] = 7, cold[1] - 1, 0  # which is not what the length of a list decides
    own = label_kernels.OwnLabels(labels, classes, hot, cold)
    assert own.table.dtype == (np.uint64 if long else np.uint32)
    found = np.empty((500, classes), dtype=np.int64)
    own.sums(graph.sources.numpy().view(np.uint32), graph.offsets.numpy(), found)
    hot[labels == classes] = cold[labels == classes] = 0
    dense = np.repeat(cold[:, None], classes + 1, axis=1)
    dense[np.arange(500), labels] = hot
    assert np.array_equal(found, in_integers(graph, torch.from_numpy(dense[:, :classes])).numpy())


@pytest.mark.parametrize("most_rows", [3, 1 << 14])
@pytest.mark.parametrize("list_length", [1, 7, 5_000])
def test_own_labels_where_lists_end_anywhere_in_what_is_fetched(
    list_length: int, most_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_kernels, "_MOST_ROWS", most_rows)  # too many for rows, or few enough
    rng, entries = np.random.default_rng(4), 4 * int(label_kernels._AT_ONCE) + 3
    offsets = np.append(np.arange(0, entries, list_length), entries)
    graph = MemoryEdges(torch.from_numpy(offsets), torch.from_numpy(rng.integers(0, 90, entries, dtype=np.int32)))
    labels = torch.from_numpy(rng.integers(-1, 5, 90))
    rows = quantize_labels(labels, 5, bits=14, lengths=torch.from_numpy(rng.integers(0, 50, 90)), centered=True)
    own, found = label_kernels.OwnLabels, np.empty((len(offsets) - 1, 5), dtype=np.int64)
    sent = (torch.where(rows.classes < 5, part, 0).numpy() for part in (rows.hot, rows.cold))
    own(rows.classes.numpy(), 5, *sent).sums(graph.sources.numpy().view(np.uint32), offsets, found)
    dense = rows.dense().values.to(torch.int64)[graph.sources.to(torch.int64)].numpy()
    assert np.array_equal(found, np.add.reduceat(dense, offsets[:-1]))


@pytest.mark.parametrize("kinds", [1, 4, 5])
def test_entries_are_rows_up_to_so_many(kinds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four kinds of entry for each of three classes, and one row of zeros; what nobody sends does not count."""
    monkeypatch.setattr(label_kernels, "_MOST_ROWS", 3 * 4 + 1)
    labels, hot = np.array([0, 1, 2, 3, 0, 1, 2]), np.array([10, 11, 12, 9, 13, 14, 10])
    hot[hot - 10 >= kinds] = 10
    own = label_kernels.OwnLabels(labels, 3, hot, -(hot // 2))
    assert (own.rows is None) == (kinds == 5)
    found = np.full((3, 3), -1)
    own.sums(np.array([3, 0, 3, 2, 6], dtype=np.uint32), np.array([0, 1, 1, 5]), found)
    last = -(hot[[0, 2, 6]] // 2)
    expected = [hot[0] + last[1] + last[2], last.sum(), hot[2] + hot[6] + last[0]]
    assert found.tolist() == [[0, 0, 0], [0, 0, 0], expected]


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize("classes", [3, 20, 40])
def test_where_nobody_has_a_class_sums_are_zero(classes: int, divided: bool) -> None:
    graph = lists_of(np.random.default_rng(7), 60, 900)
    lengths = graph.out_degree() if divided else None
    assert not graph.sum(quantize_labels(torch.full((60,), -1), classes, lengths=lengths, centered=True)).any()


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("classes", [1, 3, 15, 16, 17, 32])
def test_sums_stay_within_their_rows(classes: int, dtype: type) -> None:
    """Rows are wider than results: the last nodes must not write behind what they were given."""
    around = np.full((9, classes), 77, dtype=dtype)
    own = label_kernels.EqualLabels(np.zeros(1, dtype=np.int64), classes, 5, -1)
    own.sums(np.zeros(14, dtype=np.uint32), np.array([0, 3, 3, 14, 14]), around[2:6])
    assert (around[:2] == 77).all()
    assert (around[6:] == 77).all()
    others = [-1] * (classes - 1)
    assert around[2:6].tolist() == [[n * one for one in (5, *others)] for n in (3, 0, 11, 0)]


@pytest.mark.parametrize("columns", [65, 67])
def test_parts_of_rows_stay_within_their_columns(columns: int) -> None:
    values = torch.arange(4 * columns, dtype=torch.int16).reshape(4, columns)
    graph = MemoryEdges(torch.tensor([0, 2, 2, 5, 6]), torch.tensor([0, 3, 1, 1, 2, 3], dtype=torch.int32))
    assert torch.equal(graph.sum(QuantizedRows(values, 14, 1.0)), in_integers(graph, values))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_share_the_targets(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "_LEAST_PER_THREAD", 10)
    rng = np.random.default_rng(5)
    graph = lists_of(rng, 400, 9_000)
    rows = quantize(torch.randn(400, 5, generator=torch.Generator().manual_seed(5)))
    labels = [
        quantize_labels(torch.from_numpy(rng.integers(-1, classes, 400)), classes, bits=14, lengths=lengths)
        for classes in (4, 20, 40)
        for lengths in (None, graph.out_degree())
    ]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        assert torch.equal(graph.sum(rows), in_integers(graph, rows.values))
        for one in labels:
            assert torch.equal(graph.sum(one), in_integers(graph, one.dense().values))
        everything_in_one = MemoryEdges.from_edge_index(torch.zeros(2, 100, dtype=torch.int64), 3)
        assert everything_in_one.sum(quantize(torch.ones(3, 1))).tolist() == [[409_600], [0], [0]]
        none = MemoryEdges.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), 400)
        assert not none.sum(rows).any()
    finally:
        torch.set_num_threads(before)


@given(
    seed=st.integers(0, 10**6),
    num_nodes=st.sampled_from([1, 2, 3, 511, 512, 513, 5_000, 2**21, 2**21 + 5, 2**22 + 5]),
    num_edges=st.integers(0, 3_000),
    dtype=st.sampled_from([np.int32, np.int64]),
    skewed=st.booleans(),
    in_range_bits=st.sampled_from([2, 6, 15]),
    least_long=st.sampled_from([0, 1 << 32]),
    least_in_lines=st.sampled_from([0, 1 << 25]),
)
@settings(max_examples=80, deadline=None)
def test_edges_are_ordered_like_sorted_pairs(
    seed: int,
    num_nodes: int,
    num_edges: int,
    dtype: type,
    skewed: bool,
    in_range_bits: int,
    least_long: int,
    least_in_lines: int,
) -> None:
    rng = np.random.default_rng(seed)
    source, target = rng.integers(0, num_nodes, (2, num_edges)).astype(dtype)
    target = (num_nodes ** rng.random(num_edges)).astype(dtype) - 1 if skewed else target
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_IN_RANGE_BITS", in_range_bits)  # many ranges, some, or one
        patch.setattr(kernels, "_LEAST_LONG", least_long)
        patch.setattr(kernels, "_LEAST_IN_LINES", least_in_lines)
        found = MemoryEdges.from_pairs(source, target, num_nodes)
    pairs = np.sort(target.astype(np.int64) << 32 | source)
    expected = MemoryEdges.from_packed(pairs, num_nodes)
    assert found.sources.dtype == expected.sources.dtype == torch.int32
    assert found.offsets.dtype == expected.offsets.dtype
    assert torch.equal(found.sources, expected.sources)
    assert torch.equal(found.offsets, expected.offsets)


@pytest.mark.parametrize("skip", range(17))
@pytest.mark.parametrize("num_nodes", [3, 700, 2**22 + 5])
def test_whole_lines_stay_within_an_array_that_begins_anywhere(
    skip: int, num_nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "_LEAST_IN_LINES", 0)
    source, target = np.random.default_rng(skip).integers(0, num_nodes, (2, 1_000))
    room, offsets = np.full(1_040, -7, dtype=np.int32), np.empty(num_nodes + 1, dtype=np.int32)
    kernels.by_target(source, target, offsets, room[skip : skip + 1_000], num_nodes)
    expected = MemoryEdges.from_packed(np.sort(target << 32 | source), num_nodes)
    assert np.array_equal(room[skip : skip + 1_000], expected.sources.numpy())
    assert np.array_equal(offsets, expected.offsets.numpy())
    assert (room[:skip] == -7).all()
    assert (room[skip + 1_000 :] == -7).all()


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 33])
def test_counts_of_sources(length: int) -> None:
    nodes = torch.from_numpy(np.random.default_rng(6).integers(0, 5, length).astype(np.int32))
    graph = MemoryEdges(torch.tensor([0, 0, 0, 0, 0, length]), nodes)
    assert torch.equal(graph.out_degree(), torch.bincount(nodes, minlength=5))


def test_edges_in_any_layout() -> None:
    pairs = torch.randint(0, 50, (1_000, 2), generator=torch.Generator().manual_seed(2))
    one, other = (MemoryEdges.from_edge_index(edges, 50) for edges in (pairs.t(), pairs.t().contiguous()))
    assert torch.equal(one.sources, other.sources)
    assert torch.equal(one.transpose().edge_index().flip(0).sort().values, one.edge_index().sort().values)


@pytest.mark.parametrize("module", [kernels, label_kernels])
def test_what_was_compiled_from_another_row_loop_is_not_used(module: ModuleType) -> None:
    """Of a loop that is kept, numba looks at the file it stands in, and not at what that file imports."""
    source = Path(row_loop.__file__).read_bytes()
    assert hashlib.sha256(source).hexdigest().startswith(module.ROW_LOOP), "row_loop.py changed: write its hash there"


_IN_ANOTHER_PROCESS = """
import numpy as np
from hushgraph.graph import kernels
kernels.count(np.zeros(3, np.uint32), np.zeros(1, np.uint32))
table, offsets, out = np.ones((1, 4), np.int16), np.array([0, 3]), np.empty((1, 4), np.int64)
kernels.row_sums(kernels.tables(table), np.zeros(3, np.uint32), offsets, out)
loops = (kernels.count, kernels._row_sums(4, 0, 64))
print(*(sum(loop.stats.cache_hits.values()) for loop in loops))
"""


def test_what_was_compiled_is_kept_for_the_next_process(tmp_path: Path) -> None:
    """The loop that is written out in instructions of the processor, and makes one function for each width, too."""
    place = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    said = [
        subprocess.run([sys.executable, "-c", _IN_ANOTHER_PROCESS], env=place, check=True, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    assert [one.stdout.split() for one in said] == [[b"0", b"0"], [b"1", b"1"]]
