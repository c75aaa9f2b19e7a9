"""A graph on disk: equal to the one in memory for any memory limit, and whole or not there at all."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from hushgraph.errors import HushgraphError, InputError
from hushgraph.graph import external_sort, store
from hushgraph.graph.degree import cap_owned_lists
from hushgraph.graph.edges import InNeighbors
from hushgraph.graph.store import BlockedGraph, ingest
from hushgraph.noise.source import NoiseSource


@pytest.fixture(autouse=True)
def _tiny_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_sort, "_SMALLEST_RUN", 1)


def random_edges(seed: int, num_nodes: int, num_edges: int) -> Tensor:
    return torch.randint(0, num_nodes, (2, num_edges), generator=torch.Generator().manual_seed(seed))


def assert_same(graph: BlockedGraph, expected: InNeighbors) -> None:
    loaded = graph.load()
    assert (graph.num_nodes, graph.num_edges) == (expected.num_nodes, expected.num_edges)
    assert torch.equal(loaded.offsets, expected.offsets)
    assert torch.equal(loaded.sources, expected.sources)
    assert loaded.sources.dtype == torch.int32


@given(
    seed=st.integers(0, 10**6),
    num_nodes=st.integers(1, 30),
    num_edges=st.integers(0, 200),
    memory_limit=st.integers(1, 10_000),
    max_degree=st.none() | st.integers(0, 6),
)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_equals_the_graph_in_memory(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    num_nodes: int,
    num_edges: int,
    memory_limit: int,
    max_degree: int | None,
) -> None:
    edges = random_edges(seed, num_nodes, num_edges)
    noise = NoiseSource.seeded(seed)
    folder = tmp_path_factory.mktemp("store") / "graph"
    graph = ingest(edges, folder, num_nodes=num_nodes, memory_limit=memory_limit, max_degree=max_degree, noise=noise)
    kept = edges if max_degree is None else cap_owned_lists(edges, num_nodes, max_degree, NoiseSource.seeded(seed))
    assert_same(graph, InNeighbors.from_edge_index(kept, num_nodes).coalesce())
    assert graph.max_degree == max_degree
    graph.verify()
    assert sorted(path.name for path in folder.iterdir()) == ["header.json", "offsets.bin", "sources.bin"]
    assert [path.name for path in folder.parent.iterdir()] == ["graph"]


def test_from_a_file(tmp_path: Path) -> None:
    edges = random_edges(1, 40, 500)
    np.savez_compressed(tmp_path / "edges.npz", edge_index=edges.numpy().astype(np.int32))
    graph = ingest(tmp_path / "edges.npz", tmp_path / "graph", num_nodes=40, memory_limit=2000)
    assert_same(graph, InNeighbors.from_edge_index(edges, 40).coalesce())
    assert_same(BlockedGraph(str(tmp_path / "graph")), graph.load())
    assert graph.num_bytes == 8 * 41 + 4 * graph.num_edges


def test_a_hub_longer_than_the_memory_limit(tmp_path: Path) -> None:
    others = torch.arange(1, 400)
    hub = torch.zeros_like(others)
    edges = torch.cat((torch.stack((hub, others)), torch.stack((others, hub))), 1)
    graph = ingest(edges, tmp_path / "a", num_nodes=400, memory_limit=3000)
    assert_same(graph, InNeighbors.from_edge_index(edges, 400))
    noise = NoiseSource.seeded(2)
    capped = ingest(edges, tmp_path / "b", num_nodes=400, memory_limit=3000, max_degree=5, noise=noise)
    kept = cap_owned_lists(edges, 400, 5, NoiseSource.seeded(2))
    assert_same(capped, InNeighbors.from_edge_index(kept, 400))


def test_an_existing_folder_and_a_cap_without_noise_are_refused(tmp_path: Path) -> None:
    edges = random_edges(1, 5, 10)
    ingest(edges, tmp_path / "graph", num_nodes=5, memory_limit=1000)
    with pytest.raises(InputError, match="which exists"):
        ingest(edges, tmp_path / "graph", num_nodes=5, memory_limit=1000)
    with pytest.raises(InputError, match="noise source"):
        ingest(edges, tmp_path / "other", num_nodes=5, memory_limit=1000, max_degree=2)


def test_wrong_edges_leave_nothing_behind(tmp_path: Path) -> None:
    chunks = [random_edges(1, 5, 10), torch.tensor([[0], [99]])]
    with pytest.raises(InputError, match="from 0 to 4"):
        ingest(iter(chunks), tmp_path / "graph", num_nodes=5, memory_limit=1000)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store._HashedFile, "write", no_room)
    with pytest.raises(HushgraphError, match="full disk"):
        ingest(random_edges(1, 5, 10), tmp_path / "graph", num_nodes=5, memory_limit=1000)
    assert list(tmp_path.iterdir()) == []


def test_a_crash_before_the_last_step_leaves_no_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> NoReturn:
        raise Killed

    monkeypatch.setattr(Path, "rename", killed)
    monkeypatch.setattr(store.shutil, "rmtree", lambda *_, **__: None)  # a dead process cleans nothing
    with pytest.raises(Killed):
        ingest(random_edges(1, 5, 10), tmp_path / "graph", num_nodes=5, memory_limit=1000)
    assert not (tmp_path / "graph").exists()
    assert all("partial" in path.name for path in tmp_path.iterdir())


def test_short_changed_and_foreign_folders_are_refused(tmp_path: Path) -> None:
    graph = ingest(random_edges(1, 50, 300), tmp_path / "graph", num_nodes=50, memory_limit=1000)
    sources = tmp_path / "graph" / "sources.bin"
    content = bytearray(sources.read_bytes())
    content[8] ^= 1
    sources.write_bytes(content)
    with pytest.raises(InputError, match="checksum of 'sources"):
        graph.verify()
    sources.write_bytes(content[:-4])
    with pytest.raises(InputError, match="bytes in 'sources"):
        BlockedGraph(tmp_path / "graph")
    header = tmp_path / "graph" / "header.json"
    header.write_text(json.dumps({"format": "another"}))
    with pytest.raises(InputError, match="format"):
        BlockedGraph(tmp_path / "graph")
    header.write_text("{")
    with pytest.raises(InputError, match="graph folder"):
        BlockedGraph(tmp_path / "graph")
    with pytest.raises(InputError, match="graph folder"):
        BlockedGraph(tmp_path / "nowhere")
