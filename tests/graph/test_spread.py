"""Sums by several workers: the same numbers however destinations are divided, here, sent, or from behind a URL."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch

import hushgraph as hg
from hushgraph.datasets.stored import GraphFacts, is_stored, read_facts, write_stored
from hushgraph.errors import HushgraphError, InputError
from hushgraph.executors.processes import Processes
from hushgraph.graph import spread
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.labels import quantize_labels
from hushgraph.graph.quantized import quantize
from hushgraph.graph.spread import SpreadEdges
from hushgraph.ledger.ledger import Ledger
from hushgraph.noise.source import NoiseSource
from hushgraph.training.learners import Ridge
from hushgraph.training.teachers import Ensemble
from small_graphs import random_graph
from test_matrix_disk import everything

NODES = 150


class Elsewhere(Processes):
    """Workers that do not see the files of this machine, as far as they know."""

    is_here = False  # type: ignore[assignment]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = random_graph(3, num_nodes=NODES)
    facts = GraphFacts("small", NODES, False, ["x"] * data.x.shape[1], "<i8", ["a", "b", "c"], True, has_split=True)
    return write_stored(data, tmp_path / "small.graph", facts, data.edge_index)


@pytest.fixture(params=[7, 64, 1 << 20])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(spread, "_LEAST_ENTRIES", request.param)
    monkeypatch.setattr(spread, "_MOST_ENTRIES", request.param)
    return int(request.param)


@pytest.mark.parametrize("sent", [False, True])
def test_the_sums_are_those_in_memory(folder: Path, parts: int, sent: bool) -> None:
    own = MemoryEdges.from_edge_index(random_graph(3, num_nodes=NODES).edge_index, NODES)
    edges = SpreadEdges(folder / "edges", executor=Processes(1), is_sent=sent)
    made = torch.Generator().manual_seed(0)
    classes = torch.randint(-1, 3, (NODES,), generator=made)
    for rows in (
        quantize(torch.randn(NODES, 5, generator=made)),
        quantize(torch.randn(NODES, 5, generator=made), bits=18),
        quantize_labels(classes, 3),
        quantize_labels(classes, 3, lengths=own.out_degree(), centered=True),
    ):
        assert torch.equal(edges.sum(rows), own.sum(rows))
        assert edges.sum(rows).dtype == torch.int64
    assert torch.equal(edges.out_degree(), own.out_degree())
    values = torch.randint(0, 1 << 19, (NODES,), generator=made)
    assert torch.equal(edges.out_sums(values), own.out_sums(values))
    assert (len(list(edges._parts(NODES))) == 1) is (parts > edges.num_edges)


@pytest.mark.parametrize("executor", [Processes(1), Elsewhere(1)])
def test_a_shortened_graph_is_sent_to_workers_elsewhere(folder: Path, executor: Any, parts: int) -> None:
    own = MemoryEdges.from_edge_index(random_graph(3, num_nodes=NODES).edge_index, NODES)
    cut = SpreadEdges(folder / "edges", executor=executor).cap(3, NoiseSource.seeded(1))
    assert isinstance(cut, SpreadEdges)
    assert cut.is_sent is not executor.is_here
    rows = quantize(torch.ones(NODES, 2))
    assert torch.equal(cut.sum(rows), own.cap(3, NoiseSource.seeded(1)).sum(rows))


def test_another_graph_in_the_same_place_is_refused(folder: Path, tmp_path: Path) -> None:
    edges = SpreadEdges(folder / "edges", executor=Processes(1))
    (part, *_) = edges._parts(NODES)
    other = random_graph(4, num_nodes=NODES)
    shutil.rmtree(folder)
    with pytest.raises(InputError, match="got none on one"):
        part.sources(0, 1)
    facts = GraphFacts("other", NODES, False, ["x"] * other.x.shape[1], "<i8", ["a", "b", "c"], True, has_split=True)
    write_stored(other, folder, facts, other.edge_index)
    with pytest.raises(InputError, match="got another on one"):
        part.sources(0, 1)


@pytest.mark.parametrize("unit", ["undirected-edge", "node"])
def test_a_fit_from_behind_a_url_gives_the_same_bytes(folder: Path, unit: str) -> None:
    store = fsspec.filesystem("memory")
    store.put(str(folder), "/graphs/small.graph", recursive=True)
    url = "memory://graphs/small.graph"
    assert is_stored(url)
    assert not is_stored("memory://graphs/another")
    assert read_facts(url) == read_facts(folder)

    def fitted(graph: str, **options: Any) -> dict[str, torch.Tensor]:
        return everything(hg.GAP().fit(graph, unit, (4.0, 1e-5), ledger=Ledger(), seed=5, **options))

    right = fitted(str(folder))
    for graph, options in (
        (url, {}),
        (url, {"memory": "1KiB"}),
        (url, {"workers": Processes(1)}),
        (f"file://{folder}", {"workers": Elsewhere(1)}),
    ):
        found = fitted(graph, **options)
        assert {key: value.numpy().tobytes() for key, value in found.items()} == {
            key: value.numpy().tobytes() for key, value in right.items()
        }
    edges = hg.datasets.load(url, memory="1KiB").edges
    edges.verify()
    assert np.array_equal(edges.mapped()[1], np.fromfile(folder / "edges" / "sources.bin", dtype="<i4"))
    store.rm("/graphs", recursive=True)


def test_workers_without_work_are_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="workers: expected a graph that is named by its folder"):
        hg.GAP().fit(random_graph(3), "undirected-edge", (4.0, 1e-5), ledger=Ledger(), workers=2)
    with pytest.raises(InputError, match="leave the folder out"):
        Ensemble(2, Ridge(), executor=Elsewhere(1), folder=folder)


class Strange(Processes):
    """Workers of somebody else, who answer what `change` makes of the answers."""

    change: Any = None

    def map(self, function: Any, tasks: Any, *shared: Any) -> Any:
        yield from self.change([function(task, *shared) for task in tasks])


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found[:-1],
        lambda found: [],
        lambda found: [*found, found[-1]],
        lambda found: [found[0][:-1], *found[1:]],
        lambda found: [found[0].astype(np.float64), *found[1:]],
        lambda found: [None, *found[1:]],
    ],
    ids=["one less", "none", "one more", "a row less", "not whole", "nothing"],
)
def test_answers_of_another_form_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    monkeypatch.setattr(spread, "_LEAST_ENTRIES", 64)
    monkeypatch.setattr(spread, "_MOST_ENTRIES", 64)
    strange = Strange(1)
    edges, rows = SpreadEdges(folder / "edges", executor=strange), quantize(torch.ones(NODES, 2))
    strange.change = lambda found: found
    edges.sum(rows), edges.out_degree()
    strange.change = change
    for ask in (lambda: edges.sum(rows), lambda: edges.sum(rows, narrow=True), edges.out_degree):
        with pytest.raises(HushgraphError, match=r"workers: expected .* got something else"):
            ask()
