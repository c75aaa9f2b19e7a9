"""Lists in order by way of files: whole, ascending, and those of an ordinary sort, however little memory there is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hushgraph.graph import external_sort
from hushgraph.graph.buckets import Buckets, distinct_lists, in_order

kernels = pytest.importorskip("hushgraph.graph.kernels")


def some_pairs(seed: int, num_nodes: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    major, minor = (num_nodes ** rng.random((2, count))).astype(np.int32) - 1
    keep = major != minor
    return major[keep], minor[keep]


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
        assert found.get(node, []) == sorted(minor[major == node].tolist())


def test_what_was_dealt_out_can_be_taken_back(tmp_path: Path) -> None:
    buckets = Buckets(tmp_path, 300, 1_000, kernels)
    buckets.add(*some_pairs(1, 300, 200))
    buckets.flush()
    sizes = buckets.sizes.tolist()
    before = [one[3].tolist() for number in range(len(buckets)) for one in buckets.lists(number)]
    buckets.add(*some_pairs(2, 300, 200))
    buckets.flush()
    buckets.return_to(sizes, 0)
    assert [one[3].tolist() for number in range(len(buckets)) for one in buckets.lists(number)] == before


def test_edges_from_a_node_to_itself_are_counted(tmp_path: Path) -> None:
    buckets = Buckets(tmp_path, 9, 100, kernels)
    buckets.add(np.array([1, 2, 8, 3]), np.array([1, 5, 8, 0]))
    buckets.flush()
    assert (buckets.loops, int(buckets.sizes.sum())) == (2, 2)


@pytest.mark.parametrize("compiled", [True, False])
def test_repeats_go_within_lists_and_stay_between_them(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushgraph.graph.sums.LEAST_COMPILED", 0 if compiled else 1 << 60)
    offsets, minors = np.array([0, 3, 3, 5, 8]), np.array([4, 4, 7, 7, 9, 9, 9, 9], dtype=np.int32)
    first, last, kept, values = distinct_lists((10, 14, offsets, minors))
    assert (first, last, kept.tolist(), values.tolist()) == (10, 14, [0, 2, 2, 4, 5], [4, 7, 7, 9, 9])
