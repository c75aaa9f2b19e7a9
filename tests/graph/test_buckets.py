"""Lists in order by way of files: whole, ascending, and those of an ordinary sort, however little memory there is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from hushgraph.errors import InputError
from hushgraph.graph import external_sort
from hushgraph.graph.buckets import Buckets, distinct_lists, in_order

kernels = pytest.importorskip("hushgraph.graph.kernels")
bucket_kernels = pytest.importorskip("hushgraph.graph.bucket_kernels")


def some_pairs(seed: int, num_nodes: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    major, minor = (num_nodes ** rng.random((2, count))).astype(np.int32) - 1
    keep = major != minor
    return major[keep], minor[keep]


def lists_of(buckets: Buckets, numbers: Iterable[int]) -> list[tuple[int, list[int]]]:
    """Every node of some ranges that has a list, in order."""
    found = []
    for number in numbers:
        for first, _, offsets, minors in buckets.lists(number):
            for place in np.flatnonzero(np.diff(offsets)).tolist():
                found.append((first + place, minors[offsets[place] : offsets[place + 1]].tolist()))
    return found


def sorted_lists(major: np.ndarray, minor: np.ndarray) -> list[tuple[int, list[int]]]:
    """The same by an ordinary sort."""
    keep = major != minor
    pairs = np.unique(np.stack((major[keep], minor[keep])).astype(np.int64), axis=1)
    return [(int(node), pairs[1, pairs[0] == node].tolist()) for node in np.unique(pairs[0])]


@pytest.mark.parametrize("entries", [1, 40, 10_000])
@pytest.mark.parametrize("compiled", [True, False])
def test_lists_are_those_of_an_ordinary_sort(
    tmp_path: Path, entries: int, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_sort, "_SMALLEST_RUN", 1)
    major, minor = some_pairs(1, 700, 2_000)
    parts = [(major[k : k + 90], minor[k : k + 90]) for k in range(0, len(major), 90)]
    found: dict[int, list[int]] = {}
    before = 0
    for first, last, offsets, minors in in_order(parts, tmp_path, 700, entries, kernels if compiled else None):
        assert first >= before
        before = last
        for node in range(first, last):
            found[node] = minors[offsets[node - first] : offsets[node - first + 1]].tolist()
    assert list(tmp_path.iterdir()) == []
    for node in range(700):
        assert found.get(node, []) == sorted(set(minor[major == node].tolist()))


@pytest.mark.parametrize(
    ("num_nodes", "bytes_each", "ranges"),
    [
        (1, 4, 1),
        (2, 4, 2),
        (256, 4, 256),
        (257, 4, 129),  # 512 numbers in ranges of two
        (1 << 20, 4, 1 << 8),
        ((1 << 20) + 1, 4, (1 << 9) + 1),  # 21 bits and 11 within a range
        (1 << 22, 4, 1 << 12),
        ((1 << 22) + 1, 8, (1 << 9) + 1),
        ((1 << 31) - 1, 8, 1 << 10),
    ],
)
@pytest.mark.parametrize("entries", [50, 10_000])
def test_pairs_take_four_bytes_where_they_fit(
    tmp_path: Path, num_nodes: int, bytes_each: int, ranges: int, entries: int
) -> None:
    """At both ends of the numbers and of ranges, in memory and by way of files."""
    rng = np.random.default_rng(num_nodes)
    with Buckets(tmp_path, num_nodes, entries, kernels) as buckets:
        assert (len(buckets), buckets.nodes(0)[0], buckets.nodes(len(buckets) - 1)[1]) == (ranges, 0, num_nodes)
        ends = {0, 1, num_nodes // 2, num_nodes - 2, num_nodes - 1, *buckets.nodes(ranges // 3)}
        nodes = np.array(sorted(node for node in ends if 0 <= node < num_nodes))
        major, minor = np.concatenate((rng.choice(nodes, (2, 330)), rng.integers(0, num_nodes, (2, 20))), axis=1)
        for part in range(0, 350, 30):
            buckets.add(major[part : part + 30], minor[part : part + 30])
        buckets.flush()
        loops = int((major == minor).sum())
        assert (buckets.size, buckets.loops) == (350 - loops, loops)
        assert buckets.is_stored == (buckets.size * bytes_each > 8 * entries)
        if buckets.is_stored:
            buckets.store()
            assert (tmp_path / "pairs.tmp").stat().st_size == bytes_each * buckets.size
        numbers = [
            one for one in range(ranges) if ((buckets.nodes(one)[0] <= major) & (major < buckets.nodes(one)[1])).any()
        ]
        assert lists_of(buckets, numbers) == sorted_lists(major, minor)
        empty = next((one for one in range(ranges) if one not in numbers), None)
        assert empty is None or lists_of(buckets, [empty]) == []


@pytest.mark.parametrize("num_nodes", [300, (1 << 22) + 1])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_all_edges_in_one_range(tmp_path: Path, num_nodes: int, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than are sorted in memory at a time: in the buffer, and in a file."""
    monkeypatch.setattr(external_sort, "_SMALLEST_RUN", 1)
    rng = np.random.default_rng(0)
    major, minor = np.full(300, num_nodes - 1, dtype=kind), rng.integers(0, num_nodes, 300).astype(kind)
    for entries, is_stored in ((1_000, False), (270, num_nodes > 300), (20, True)):
        with Buckets(tmp_path, num_nodes, entries, kernels) as buckets:
            for part in range(0, 300, 9):
                buckets.add(major[part : part + 9], minor[part : part + 9])
            buckets.flush()
            assert buckets.is_stored == is_stored
            assert lists_of(buckets, [len(buckets) - 1]) == sorted_lists(major, minor)
            buckets.remove()
            assert list(tmp_path.iterdir()) == []


def test_more_edges_at_once_than_the_buffer_holds(tmp_path: Path) -> None:
    major, minor = some_pairs(1, 300, 500)
    with Buckets(tmp_path, 300, 20, kernels) as buckets:
        for part in (slice(0, 10), slice(10, 200), slice(200, 210), slice(210, 500)):
            buckets.add(major[part], minor[part])
        buckets.flush()
        assert lists_of(buckets, range(len(buckets))) == sorted_lists(major, minor)


@pytest.mark.parametrize("entries", [90, 1_000])
def test_what_was_dealt_out_can_be_taken_back(tmp_path: Path, entries: int) -> None:
    major, minor = some_pairs(1, 300, 400)
    with Buckets(tmp_path, 300, entries, kernels) as buckets:
        buckets.add(major[:200], minor[:200])
        buckets.flush()
        buckets.store()
        times, loops = buckets.times, buckets.loops
        buckets.add(major[200:], minor[200:])
        buckets.flush()
        buckets.store()
    with Buckets(tmp_path, 300, entries, kernels) as buckets:
        buckets.return_to(times, loops)
        assert lists_of(buckets, range(len(buckets))) == sorted_lists(major[:200], minor[:200])
        buckets.add(major[200:], minor[200:])
        buckets.flush()
        assert lists_of(buckets, range(len(buckets))) == sorted_lists(major, minor)


@pytest.mark.parametrize("name", ["pairs.tmp", "places.tmp"])
def test_files_that_lost_their_end_are_refused(tmp_path: Path, name: str) -> None:
    with Buckets(tmp_path, 300, 90, kernels) as buckets:
        buckets.add(*some_pairs(1, 300, 400))
        buckets.flush()
        buckets.store()
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[:-8])
        with pytest.raises(InputError, match=name):
            buckets.return_to(buckets.times, 0)


def test_edges_from_a_node_to_itself_are_counted(tmp_path: Path) -> None:
    with Buckets(tmp_path, 9, 100, kernels) as buckets:
        buckets.add(np.array([1, 2, 8, 3]), np.array([1, 5, 8, 0]))
        buckets.flush()
        assert (buckets.loops, buckets.size) == (2, 2)


def test_a_range_has_the_bytes_of_an_ordinary_sort_whatever_its_digits() -> None:
    rng = np.random.default_rng(0)
    for bits, minor_bits in ((1, 1), (8, 8), (11, 9), (12, 9), (22, 12), (23, 21), (32, 22), (32, 20)):
        for count in (0, 1, 5, 3_000):
            pairs = rng.integers(0, 1 << bits, count).astype(np.uint32)
            pairs[: count // 3] = pairs[count // 3 : 2 * (count // 3)]
            expected = np.unique(pairs)
            offsets, minors = np.empty((1 << (bits - minor_bits)) + 1, dtype=np.int64), np.empty(count, dtype=np.int32)
            assert bucket_kernels.distinct_by_major(pairs, bits, minor_bits, offsets, minors) == len(expected)
            assert np.array_equal(minors[: len(expected)], expected & ((1 << minor_bits) - 1))
            assert np.array_equal(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), expected >> minor_bits)


@pytest.mark.parametrize("compiled", [True, False])
def test_repeats_go_within_lists_and_stay_between_them(compiled: bool) -> None:
    offsets, minors = np.array([0, 3, 3, 5, 8]), np.array([4, 4, 7, 7, 9, 9, 9, 9], dtype=np.int32)
    first, last, kept, values = distinct_lists((10, 14, offsets, minors), bucket_kernels if compiled else None)
    assert (first, last, kept.tolist(), values.tolist()) == (10, 14, [0, 2, 2, 4, 5], [4, 7, 7, 9, 9])
