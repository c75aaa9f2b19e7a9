from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import hushgraph
from hushgraph.errors import InputError
from hushgraph.graph.checks import check_graph
from hushgraph.graph.disk import DiskEdges
from hushgraph.graph.edges import MemoryEdges
from hushgraph.methods.gap import GAP
from hushgraph.privacy import units
from small_graphs import random_graph


def test_public_sizes_are_read_and_isolated_last_nodes_stay(graph: Data) -> None:
    checked = check_graph(graph)
    assert checked.metadata.num_nodes == 40
    assert checked.edges.num_nodes == 40
    assert checked.metadata.num_classes == 3
    assert int(checked.edges.in_degree()[-1]) == 0


def test_sparse_features_stay_sparse(graph: Data) -> None:
    graph.x = (graph.x > 1).float().to_sparse_csr()
    features = check_graph(graph).features
    assert not isinstance(features, torch.Tensor)
    assert torch.equal(features.to_dense(), graph.x.to_dense())


def _broken(**changes: object) -> Data:
    graph = random_graph(0)
    for name, value in changes.items():
        graph[name] = value
    return graph


nan_features = random_graph(0).x.clone()
nan_features[3, 2] = float("nan")


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (_broken(x=nan_features), "NaN"),
        (_broken(y=torch.full((40,), 7)), "labels: expected classes 0 to 2"),
        (_broken(y=torch.zeros(39, dtype=torch.long)), "one per node"),
        (_broken(y=torch.zeros(40)), "expected integers"),
        (_broken(edge_index=torch.tensor([[0], [40]])), "from 0 to 39; got 0 to 40"),
        (_broken(edge_index=torch.tensor([[-1], [3]])), "got -1 to 3"),
        (_broken(edge_index=torch.zeros(3, 4, dtype=torch.long)), r"shape \[2, E\]"),
        (_broken(train_mask=torch.zeros(40, dtype=torch.bool)), "at least one train node"),
        (_broken(train_mask=None), "train_mask"),
        (_broken(val_mask=torch.ones(40, dtype=torch.bool)), "disjoint"),
        (_broken(edge_weight=torch.ones(3)), "unweighted"),
        (HeteroData(), "HeteroData"),
        (Data(x=torch.ones(3, 1)), "edge_index"),
    ],
)
def test_bad_graphs_are_refused_with_the_reason(graph: Data, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_graph(graph)


def test_an_unlabeled_node_of_any_split_is_an_empty_record(graph: Data) -> None:
    graph.y[:] = -1
    checked = check_graph(graph)
    assert checked.metadata.num_train == 20
    assert checked.labeled("val").numel() == 0
    with pytest.raises(InputError, match="a train node with a label"):
        checked.labeled("train")


def test_a_refusal_of_features_counts_nothing() -> None:
    both = nan_features.clone()
    both[7, 1] = float("inf")
    said = []
    for x in (nan_features, both):
        with pytest.raises(InputError) as caught:
            check_graph(_broken(x=x))
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(InputError) as caught:
        check_graph(_broken(x=nan_features, y=torch.full((40,), 7), edge_index=torch.tensor([[0], [99]])))
    assert len(caught.value.problems) == 3


def test_repeated_edges_and_self_loops_are_coalesced_and_written_down(graph: Data) -> None:
    clean = check_graph(graph)
    extra = torch.cat([graph.edge_index, graph.edge_index[:, :4], torch.tensor([[5], [5]])], dim=1)
    graph.edge_index = extra
    checked = check_graph(graph)
    assert torch.equal(checked.edges.sources, clean.edges.sources)
    assert any("4 repeated" in note for note in checked.changes)
    assert any("1 self loops" in note for note in checked.changes)


def test_an_inference_graph_needs_no_labels_and_no_split(graph: Data) -> None:
    bare = Data(x=graph.x, edge_index=graph.edge_index)
    checked = check_graph(bare, known_classes=("a", "b"))
    assert checked.class_names == ("a", "b")
    assert (checked.labels == -1).all()
    assert checked.train.numel() == 0


def test_a_table_of_records_needs_no_edges(graph: Data) -> None:
    graph.edge_index = None
    with pytest.raises(InputError, match="edge_index"):
        check_graph(graph)
    assert check_graph(graph, needs_edges=False).edges.num_edges == 0


def test_classes_are_declared_or_marked_as_read_off_the_labels(graph: Data) -> None:
    assert check_graph(graph).classes_declared
    del graph.class_names
    found = check_graph(graph)
    assert not found.classes_declared
    assert found.class_names == ("0", "1", "2")
    graph.num_classes = 5
    declared = check_graph(graph)
    assert declared.classes_declared
    assert len(declared.class_names) == 5


def test_the_default_unit_fits_the_kind_of_graph() -> None:
    symmetric, directed = check_graph(random_graph(1)), check_graph(random_graph(1, symmetric=False))
    assert GAP().default_unit(symmetric) == units.UndirectedEdge()
    assert GAP().default_unit(directed) == units.DirectedEdge()


def test_words_are_looked_up_among_the_declared_class_names() -> None:
    graph = random_graph(1)
    numbers, graph.class_names = graph.y.clone(), None
    graph.y = np.array(["red", "green", "blue"])[numbers.numpy()]
    with pytest.raises(InputError, match=r"got words. Declare data.class_names"):
        check_graph(graph)
    graph.class_names = ["red", "green", "blue"]
    assert torch.equal(check_graph(graph).labels, numbers)
    graph.y = ["", *graph.y[1:]]
    assert int(check_graph(graph).labels[0]) == -1
    graph.class_names = ["red", "green"]
    with pytest.raises(InputError, match="got others"):
        check_graph(graph)


def test_what_a_mask_is_instead_is_said_and_the_advice_works() -> None:
    graph = random_graph(1)
    graph.train_mask = graph.train_mask.long()
    with pytest.raises(InputError, match=r"boolean train_mask of shape \[40\]; got int64 of shape \[40\]"):
        check_graph(graph)
    del graph.train_mask, graph.val_mask, graph.test_mask
    with pytest.raises(InputError, match=r"hushgraph\.datasets\.random_split\(data\)"):
        check_graph(graph)
    assert check_graph(hushgraph.datasets.random_split(graph)).train.numel() == 30


_OFFSETS, _SOURCES = [0, 2, 3, 3], [1, 2, 0]


@pytest.mark.parametrize(
    ("offsets", "sources"),
    [
        (_OFFSETS, [1, 1, 0]),
        (_OFFSETS, [2, 1, 0]),
        (_OFFSETS, [0, 2, 0]),
        (_OFFSETS, [1, 3, 0]),
        (_OFFSETS, [-1, 2, 0]),
        ([0, 3, 2, 3], _SOURCES),
        ([0, 2, 2, 2], _SOURCES),
        ([1, 2, 3, 3], _SOURCES),
        ([0, 2, 3, 4], _SOURCES),
    ],
)
def test_lists_that_are_given_hold_distinct_neighbors(offsets: list[int], sources: list[int]) -> None:
    """They are added up as they are: an edge that is there twice would move a sum by two rows."""
    data = random_graph(0, num_nodes=3)
    data.edge_index = None

    def given(begins: list[int], senders: list[int], kind: torch.dtype = torch.int32) -> Data:
        data.edges = MemoryEdges(torch.tensor(begins), torch.tensor(senders, dtype=kind))
        return data

    assert check_graph(given(_OFFSETS, _SOURCES)).edges.num_edges == 3
    for broken in (given(offsets, sources), given(_OFFSETS, _SOURCES, torch.int64)):
        with pytest.raises(InputError, match="expected lists of distinct neighbors in increasing order"):
            check_graph(broken)


def test_lists_with_gaps_between_their_numbers_are_refused(graph: Data) -> None:
    lists = MemoryEdges.from_edge_index(graph.edge_index, int(graph.num_nodes)).coalesce()
    graph.edge_index = None
    graph.edges = MemoryEdges(lists.offsets, lists.sources.repeat_interleave(2)[::2])
    with pytest.raises(InputError, match="expected lists of distinct neighbors in increasing order"):
        check_graph(graph)


def test_a_folder_that_nobody_looked_at_is_looked_at_once(
    graph: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, looks = int(graph.num_nodes), list[str]()
    written = DiskEdges.write(tmp_path / "edges", graph.edge_index, number)
    verify = DiskEdges.verify
    monkeypatch.setattr(DiskEdges, "verify", lambda edges: (looks.append("look"), verify(edges))[1])
    graph.edge_index, graph.edges = None, written
    check_graph(graph)
    assert looks == []  # it was just written
    graph.edges = DiskEdges(tmp_path / "edges")
    check_graph(graph)
    check_graph(graph)
    assert looks == ["look"]
    changed = bytearray((tmp_path / "edges" / "sources.bin").read_bytes())
    changed[0] ^= 1
    (tmp_path / "edges" / "sources.bin").write_bytes(changed)
    graph.edges = DiskEdges(tmp_path / "edges")
    with pytest.raises(InputError):
        check_graph(graph)
