from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data

import hushgraph as hg
from hushgraph.errors import InputError
from hushgraph.graph.checks import check_graph
from hushgraph.graph.disk import DiskEdges
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.rows import SparseRows
from hushgraph.ledger.identity import (
    SKETCH_SIZE,
    DatasetIdentity,
    GraphArrays,
    SparseArrays,
    arrays_of,
    identify,
)
from hushgraph.ledger.ledger import Ledger
from small_graphs import random_graph

KEY = b"k" * 32


def edges(count: int, seed: int = 0, nodes: int = 100_000) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, nodes, (2, count))


def rows(count: int, seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal((count, 6)).astype(np.float32)
    values[:, 0] = 0.0
    return values


def of(**parts: np.ndarray | SparseArrays) -> DatasetIdentity:
    return identify(GraphArrays(**parts), KEY)  # type: ignore[arg-type]


def test_the_same_content_has_one_fingerprint_in_whatever_order_and_form() -> None:
    graph, x, y = edges(500), rows(200), np.arange(200) % 3
    first = of(edges=graph, features=x, labels=y)
    shuffled = graph[:, np.random.default_rng(1).permutation(500)]
    doubled = np.concatenate([shuffled, graph, [[7], [7]]], axis=1).astype(np.int32)  # repeats, a self loop, int32
    assert of(edges=doubled, features=x.astype(np.float64), labels=y.reshape(-1, 1)) == first
    matrix = scipy.sparse.csr_array(x)
    assert of(edges=graph, features=SparseArrays(matrix.indptr, matrix.indices, matrix.data), labels=y) == first


def test_stored_fingerprints_stay_valid() -> None:
    node = np.arange(40_000)  # more than one piece; with a loop, repeats and both orders
    graph = np.stack([np.concatenate([node, node[:9], [3]]), np.concatenate([node * 7 % 40_000, node[:9] * 7, [3]])])
    found = of(edges=graph, features=(node[:300].reshape(100, 3) % 4).astype(np.float32), labels=node[:100] % 3)
    assert found.fingerprint == "68f295366a561f43763307a4c57f4d3f87348757e721b7bad0f988994bfa3790"
    assert (found.edges.values[0], found.edges.size, found.records.size) == (130793935726475, 40166, 0)


@pytest.mark.parametrize("part", ["an edge", "its direction", "a feature", "its column", "a label", "two rows swapped"])
def test_any_change_changes_the_fingerprint(part: str) -> None:
    graph, x, y = edges(500), rows(200), np.arange(200) % 3
    first = of(edges=graph, features=x, labels=y)
    graph, x, y = graph.copy(), x.copy(), y.copy()
    if part == "an edge":
        graph[1, 0] += 1
    elif part == "its direction":
        graph[:, 0] = graph[::-1, 0]
    elif part == "a feature":
        x[3, 2] += 1e-3
    elif part == "its column":
        x[3] = np.roll(x[3], 1)
    elif part == "a label":
        y[0] = 2
    else:
        x[[0, 1]] = x[[1, 0]]
    assert of(edges=graph, features=x, labels=y).fingerprint != first.fingerprint


def test_numbers_to_predict_are_told_apart_in_full() -> None:
    graph, x, y = edges(500), rows(200), np.linspace(0.0, 0.9, 200, dtype=np.float32)
    first = of(edges=graph, features=x, labels=y)
    changed, missing = y.copy(), y.copy()
    changed[3] += 0.25
    missing[3] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [of(edges=graph, features=x, labels=labels).fingerprint for labels in (y.copy(), changed, missing)]
    assert found[0] == first.fingerprint
    assert len(set(found)) == 3
    data = random_graph(1)
    data.y, data.target_range = torch.rand(data.num_nodes), (0.0, 1.0)
    data.y[0] = torch.nan
    del data.class_names
    assert identify(arrays_of(check_graph(data)), KEY).fingerprint == identify(arrays_of(data), KEY).fingerprint
    whole = np.arange(200) % 3
    assert of(edges=graph, features=x, labels=whole) == of(edges=graph, features=x, labels=whole.astype(np.float32))


def test_another_key_gives_unrelated_values() -> None:
    arrays = GraphArrays(edges(5000), rows(2000))
    mine, other = identify(arrays, KEY), identify(arrays, b"o" * 32)
    assert mine.fingerprint != other.fingerprint
    assert not set(mine.edges.values) & set(other.edges.values)
    assert not mine.likeness(other).needs_decision


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.8, 0.95])
def test_the_share_of_common_edges_is_estimated(kept: float) -> None:
    """Seeded; the error of the estimate is at most 0.12, four standard deviations."""
    count = 20_000
    mine, other = edges(count, 1), edges(count, 2)
    mixed = np.concatenate([mine[:, : int(kept * count)], other[:, int(kept * count) :]], axis=1)
    exact = kept / (2 - kept)
    likeness = of(edges=mine).likeness(of(edges=mixed))
    assert likeness.edges == pytest.approx(exact, abs=0.12)
    assert likeness.needs_decision == (kept > 0.75)


def test_a_part_of_a_dataset_is_recognized_though_little_of_the_whole_is_shared() -> None:
    whole = edges(20_000, 3)
    part = of(edges=whole[:, :2_000]).likeness(of(edges=whole))
    assert part.edges < 0.2
    assert part.edges_contained > 0.8
    assert part.needs_decision


def test_both_directions_and_one_are_recognized_as_one_graph() -> None:
    graph = edges(5_000, 4)
    both = np.concatenate([graph, graph[::-1]], axis=1)
    assert of(edges=graph).fingerprint != of(edges=both).fingerprint
    assert of(edges=graph).likeness(of(edges=both)).edges == 1.0


def test_renumbered_nodes_are_recognized_by_their_features_where_these_are_distinctive() -> None:
    graph, x = edges(3_000, 5, nodes=1_000), rows(1_000, 5)
    order = np.random.default_rng(6).permutation(1_000)
    inverse = np.argsort(order)
    likeness = of(edges=graph, features=x).likeness(of(edges=inverse[graph], features=x[order]))
    assert likeness.edges < 0.05
    assert likeness.records == 1.0
    assert likeness.needs_decision


def test_features_that_many_share_recognize_nothing() -> None:
    few = np.eye(4, dtype=np.float32)[np.arange(1_000) % 4]
    one, two = of(edges=edges(3_000, 7), features=few), of(edges=edges(3_000, 8), features=few)
    assert one.records.size == 0
    assert not one.likeness(two).needs_decision


def test_a_sketch_has_a_fixed_size_and_reads_back() -> None:
    found = of(edges=edges(50_000), features=rows(5_000))
    assert len(found.edges.values) == len(found.records.values) == SKETCH_SIZE
    assert found.edges.size == pytest.approx(50_000, rel=0.3)
    assert DatasetIdentity.from_dict(found.as_dict()) == found
    empty = of()
    assert empty.likeness(found).largest == 0.0


def test_arrays_come_from_dense_and_sparse_graphs() -> None:
    graph = random_graph(1)
    dense = identify(arrays_of(graph), KEY)
    graph.x = graph.x.to_sparse_csr()
    assert identify(arrays_of(graph), KEY) == dense
    graph.x = graph.x.to_sparse_coo()
    assert identify(arrays_of(graph), KEY) == dense
    graph.x = SparseRows.from_tensor(graph.x)
    assert identify(arrays_of(graph), KEY) == dense
    graph.x = torch.zeros_like(random_graph(1).x)
    assert identify(arrays_of(graph), KEY) != dense


def test_a_graph_is_the_same_before_and_after_it_was_checked() -> None:
    graph = random_graph(1)
    before = identify(arrays_of(graph), KEY)
    assert identify(arrays_of(check_graph(graph)), KEY) == before
    graph.y = graph.train_mask = graph.val_mask = graph.test_mask = None
    unlabeled = identify(arrays_of(graph), KEY)
    assert unlabeled.fingerprint != before.fingerprint
    assert identify(arrays_of(check_graph(graph, known_classes=("a", "b", "c"))), KEY) == unlabeled


def test_impossible_arrays_are_named_together() -> None:
    with pytest.raises(InputError, match="2 problems"):
        of(edges=np.zeros((3, 4)), features=np.zeros(5))


@pytest.mark.parametrize("memory_limit", [1, 40_000, 1 << 28])
@pytest.mark.parametrize("symmetric", [False, True])
def test_edges_on_disk_have_the_identity_of_those_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory_limit: int, symmetric: bool
) -> None:
    """Repeats and self loops included; more edges than a sketch holds; never all of them in memory."""
    pairs = edges(3_000, 9, nodes=400)
    pairs = np.concatenate([pairs, pairs[::-1]], axis=1) if symmetric else pairs
    expected = of(edges=pairs, features=rows(400))
    assert expected.edges.size > SKETCH_SIZE
    index = torch.from_numpy(pairs.copy())
    stored = DiskEdges.write(tmp_path / "graph", index, 400, memory_limit=memory_limit)
    for name in ("load", "edge_index"):
        monkeypatch.delattr(DiskEdges, name)
    for _ in range(2):  # sorted by source first; a graph that is known to be symmetric is not sorted again
        assert identify(arrays_of(Data(x=torch.from_numpy(rows(400)), edges=stored)), KEY) == expected
        assert stored.is_symmetric() == symmetric
    kept = MemoryEdges.from_edge_index(index, 400)
    assert identify(arrays_of(Data(x=torch.from_numpy(rows(400)), edges=kept)), KEY) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph"]


def test_a_fit_from_disk_recognizes_the_dataset_without_loading_its_edges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, ledger = random_graph(1), Ledger(tmp_path / "book")
    unit, budget = hg.units.UndirectedEdge(), hg.Budget(epsilon=1.0, delta=1e-6)
    hg.GAP(hops=1, epochs=1).fit(graph, unit, budget, ledger=ledger)
    graph.edges = DiskEdges.write(tmp_path / "graph", graph.edge_index, graph.num_nodes, memory_limit=1_000)
    del graph.edge_index
    for name in ("load", "edge_index"):
        monkeypatch.delattr(DiskEdges, name)
    hg.GAP(hops=1, epochs=1).fit(graph, unit, budget, ledger=ledger)
    assert len(ledger.datasets()) == 1
