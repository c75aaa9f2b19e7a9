"""Edges on disk: equal to those in memory for any memory limit, and whole or not there at all."""

from __future__ import annotations

import errno
import gc
import json
import os
import shutil
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph import disk, disk_writing, external_sort, sums
from hushgraph.graph.buckets import Buckets
from hushgraph.graph.disk import DiskEdges
from hushgraph.graph.edges import Edges, MemoryEdges
from hushgraph.graph.quantized import quantize
from hushgraph.noise import NoiseSource


@pytest.fixture(autouse=True, params=["compiled", "plain"])
def _tiny_runs(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(external_sort, "_SMALLEST_RUN", 1)
    if request.param == "compiled":
        pytest.importorskip("numba")
        monkeypatch.setattr(sums, "LEAST_COMPILED", 0)


def random_edges(seed: int, num_nodes: int, num_edges: int) -> Tensor:
    return torch.randint(0, num_nodes, (2, num_edges), generator=torch.Generator().manual_seed(seed))


def in_memory(edges: Tensor, num_nodes: int) -> MemoryEdges:
    return MemoryEdges.from_edge_index(edges[:, edges[0] != edges[1]], num_nodes).coalesce()


def assert_same(found: DiskEdges, expected: MemoryEdges) -> None:
    loaded = found.load()
    assert (found.num_nodes, found.num_edges) == (expected.num_nodes, expected.num_edges)
    assert torch.equal(loaded.offsets, expected.offsets)
    assert torch.equal(loaded.sources, expected.sources)
    assert loaded.sources.dtype == torch.int32
    assert torch.equal(found.in_degree(), expected.in_degree())
    assert torch.equal(found.out_degree(), expected.out_degree())
    assert torch.equal(found.edge_index(), expected.edge_index())
    blocks = [torch.empty(2, 0, dtype=torch.int64), *found.edge_blocks()]
    assert torch.equal(torch.cat(blocks, 1), expected.edge_index())


@given(
    seed=st.integers(0, 10**6),
    num_nodes=st.integers(1, 30),
    num_edges=st.integers(0, 200),
    memory_limit=st.integers(1, 10_000),
    max_degree=st.integers(0, 6),
    symmetric=st.booleans(),
    columns=st.integers(1, 5),
    bits=st.sampled_from([12, 20]),
)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_everything_equals_the_edges_in_memory(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    num_nodes: int,
    num_edges: int,
    memory_limit: int,
    max_degree: int,
    symmetric: bool,
    columns: int,
    bits: int,
) -> None:
    edges = random_edges(seed, num_nodes, num_edges)
    edges = torch.cat((edges, edges.flip(0)), 1) if symmetric else edges
    folder = tmp_path_factory.mktemp("edges") / "graph"
    stored = DiskEdges.write(folder, edges, num_nodes, memory_limit=memory_limit)
    expected = in_memory(edges, num_nodes)
    assert_same(stored, expected)
    assert stored.is_symmetric() == expected.is_symmetric()
    assert stored.self_loops == int((edges[0] == edges[1]).sum())
    assert stored.repeated == edges.shape[1] - stored.self_loops - expected.num_edges
    rows = quantize(torch.randn(num_nodes, columns, generator=torch.Generator().manual_seed(seed)), bits=bits)
    assert torch.equal(stored.sum(rows), expected.sum(rows))
    assert torch.equal(stored.sum(rows, narrow=True), expected.sum(rows, narrow=True))
    assert_same(stored.cap(max_degree, NoiseSource.seeded(seed)), expected.cap(max_degree, NoiseSource.seeded(seed)))
    stored.verify()
    assert sorted(path.name for path in folder.iterdir()) == ["header.json", "offsets.bin", "sources.bin"]


def noisy_sums(edges: Edges, noise: NoiseSource) -> Tensor:
    """A release as a mechanism makes it: capped, quantized, summed."""
    capped, own = edges.cap(3, noise.stream("cap")), noise.stream("hop 1")
    rows = quantize(torch.randn(edges.num_nodes, 4, generator=torch.Generator().manual_seed(1)), normalize=True)
    return capped.sum(rows) + own.integer_gaussian((edges.num_nodes, 4), 2.0**14)


@pytest.mark.parametrize("memory_limit", [1, 3000, 10**7])
def test_a_release_has_the_same_bytes_from_disk_and_from_memory(tmp_path: Path, memory_limit: int) -> None:
    edges = random_edges(5, 60, 700)
    stored = DiskEdges.write(tmp_path / "graph", edges, 60, memory_limit=memory_limit)
    released = noisy_sums(stored, NoiseSource.seeded(7))
    assert released.numpy().tobytes() == noisy_sums(in_memory(edges, 60), NoiseSource.seeded(7)).numpy().tobytes()


def test_from_blocks_and_opened_again(tmp_path: Path) -> None:
    edges = random_edges(1, 40, 500)
    stored = DiskEdges.write(tmp_path / "graph", iter(edges.to(torch.int32).split(70, dim=1)), 40, memory_limit=2000)
    assert_same(stored, in_memory(edges, 40))
    assert_same(DiskEdges.open(str(tmp_path / "graph"), memory_limit=100), in_memory(edges, 40))
    sizes = [(tmp_path / "graph" / name).stat().st_size for name in ("offsets.bin", "sources.bin")]
    assert sizes == [8 * 41, 4 * stored.num_edges]


def test_a_hub_longer_than_the_memory_limit(tmp_path: Path) -> None:
    others = torch.arange(1, 400)
    hub = torch.zeros_like(others)
    edges = torch.cat((torch.stack((hub, others)), torch.stack((others, hub))), 1)
    stored = DiskEdges.write(tmp_path / "graph", edges, 400, memory_limit=3000)
    assert_same(stored, in_memory(edges, 400))
    assert stored.is_symmetric()
    assert_same(stored.cap(5, NoiseSource.seeded(2)), in_memory(edges, 400).cap(5, NoiseSource.seeded(2)))


def test_almost_symmetric_edges_are_told_apart(tmp_path: Path) -> None:
    # Equal degrees everywhere, and yet a cycle is not symmetric.
    cycle = torch.stack((torch.arange(5), (torch.arange(5) + 1) % 5))
    assert not DiskEdges.write(tmp_path / "cycle", cycle, 5).is_symmetric()
    both = torch.cat((cycle, cycle.flip(0)), 1)
    assert DiskEdges.write(tmp_path / "both", both, 5).is_symmetric()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["both", "cycle"]


def test_capped_edges_vanish_with_their_object_but_not_in_a_child(tmp_path: Path) -> None:
    stored = DiskEdges.write(tmp_path / "graph", random_edges(1, 20, 100), 20)
    capped = stored.cap(2, NoiseSource.seeded(1))
    folder = capped.folder
    assert folder.parent.parent == tmp_path
    disk._remove(folder.parent, os.getpid() + 1)
    assert folder.exists()
    del capped
    gc.collect()
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


def test_a_cap_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    stored = DiskEdges.write(tmp_path / "graph", random_edges(1, 20, 100), 20)
    with pytest.raises(InputError, match="degree cap"):
        stored.cap(-1, NoiseSource.seeded(1))
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


def test_an_existing_folder_is_refused(tmp_path: Path) -> None:
    edges = random_edges(1, 5, 10)
    DiskEdges.write(tmp_path / "graph", edges, 5)
    with pytest.raises(InputError, match="which exists"):
        DiskEdges.write(tmp_path / "graph", edges, 5)


def test_wrong_edges_leave_nothing_behind(tmp_path: Path) -> None:
    chunks = [random_edges(1, 5, 10), torch.tensor([[0], [99]])]
    with pytest.raises(InputError, match="from 0 to 4"):
        DiskEdges.write(tmp_path / "graph", iter(chunks), 5, memory_limit=1000)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk_writing.HashedFile, "write", no_room)
    with pytest.raises(InputError, match="full disk"):
        DiskEdges.write(tmp_path / "graph", random_edges(1, 5, 10), 5)
    assert list(tmp_path.iterdir()) == []


def test_a_crash_before_the_last_step_leaves_no_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> NoReturn:
        raise Killed

    monkeypatch.setattr(Path, "rename", killed)
    monkeypatch.setattr(disk_writing.shutil, "rmtree", lambda *_, **__: None)  # a dead process cleans nothing
    with pytest.raises(Killed):
        DiskEdges.write(tmp_path / "graph", random_edges(1, 5, 10), 5)
    assert not (tmp_path / "graph").exists()
    assert all("partial" in path.name for path in tmp_path.iterdir())


def test_short_changed_and_foreign_folders_are_refused(tmp_path: Path) -> None:
    stored = DiskEdges.write(tmp_path / "graph", random_edges(1, 50, 300), 50)
    sources = tmp_path / "graph" / "sources.bin"
    content = bytearray(sources.read_bytes())
    content[8] ^= 1
    sources.write_bytes(content)
    with pytest.raises(InputError, match="checksum of 'sources"):
        stored.verify()
    sources.write_bytes(content[:-4])
    with pytest.raises(InputError, match="bytes in 'sources"):
        DiskEdges.open(tmp_path / "graph")
    header = tmp_path / "graph" / "header.json"
    header.write_text(json.dumps({"format": "another"}))
    with pytest.raises(InputError, match="format"):
        DiskEdges.open(tmp_path / "graph")
    header.write_text("{")
    with pytest.raises(InputError, match=r"header\.json: is damaged"):
        DiskEdges.open(tmp_path / "graph")
    with pytest.raises(InputError, match="folder of edges"):
        DiskEdges.open(tmp_path / "nothing")


def test_what_a_header_calls_symmetric_is_looked_at_before_it_is_in_memory(tmp_path: Path) -> None:
    edges = random_edges(4, 30, 200)
    both = DiskEdges.write(tmp_path / "both", edges, 30, both=True).load()
    assert vars(both)["_symmetric"]  # nobody sorts them to find out
    assert both.transpose() is both
    stored = DiskEdges.write(tmp_path / "some", edges, 30)
    assert not stored.load().is_symmetric()
    header = json.loads((stored.folder / "header.json").read_text())
    (stored.folder / "header.json").write_text(json.dumps({**header, "symmetric": True}))
    with pytest.raises(InputError, match="expected every edge in both directions, as its header says"):
        DiskEdges(stored.folder).load()


def test_both_directions_are_stored_and_known_to_be(tmp_path: Path) -> None:
    edges = random_edges(4, 30, 200)
    mirrored = in_memory(torch.cat((edges, edges.flip(0)), 1), 30)
    stored = DiskEdges.write(tmp_path / "graph", edges, 30, both=True, memory_limit=2000)
    assert_same(stored, mirrored)
    assert stored.is_symmetric()
    pairs = [
        part for edges in (stored, mirrored) for part in [torch.from_numpy(np.concatenate([*edges.pairs_by_source()]))]
    ]
    assert torch.equal(*pairs)


class Killed(BaseException):
    """The end of a process."""


@pytest.mark.parametrize("stopped", [1, 3, 6, 9, 14, 20, 33])
def test_work_that_was_stopped_anywhere_goes_on(tmp_path: Path, stopped: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(sums, "LEAST_COMPILED", 0)
    monkeypatch.setattr(disk_writing, "LEAST_COMPILED", 0)
    monkeypatch.setattr(disk_writing, "_EDGES_BETWEEN_STATES", 50)
    edges, calls = random_edges(3, 40, 500), []

    def watch(stage: str, done: int, total: int) -> None:
        calls.append((stage, done, total))
        if len(calls) == stopped:
            raise Killed

    def write(progress: disk_writing.Progress) -> DiskEdges:
        blocks = iter(edges.split(70, dim=1))
        return DiskEdges.write(
            tmp_path / "graph", blocks, 40, both=True, made_from="these", memory_limit=3000, progress=progress
        )

    with pytest.raises(Killed):
        write(watch)
    assert [path.name.startswith(".graph.partial-") for path in tmp_path.iterdir()] == [True]
    later: list[str] = []
    stored = write(lambda stage, done, total: later.append(stage))
    assert_same(stored, in_memory(torch.cat((edges, edges.flip(0)), 1), 40))
    stored.verify()
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]
    assert sorted(path.name for path in (tmp_path / "graph").iterdir()) == ["header.json", "offsets.bin", "sources.bin"]
    if any(stage == "edges put in order" for stage, _, _ in calls):
        assert "edges read" not in later  # what was dealt out is not dealt out again
    assert_same(write(lambda *_: None), stored.load())


def file_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def _states_often(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(sums, "LEAST_COMPILED", 0)
    monkeypatch.setattr(disk_writing, "LEAST_COMPILED", 0)
    monkeypatch.setattr(disk_writing, "_EDGES_BETWEEN_STATES", 50)


@pytest.mark.usefixtures("_states_often")
@pytest.mark.parametrize("num_nodes", [1, 40, 3_000])
def test_work_killed_after_each_write_goes_on_to_the_same_bytes(
    tmp_path: Path, num_nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever file was written last: pairs, where they begin, how far it is, offsets or senders."""
    edges = random_edges(3, num_nodes, 400)
    expected = file_bytes(DiskEdges.write(tmp_path / "whole", edges, num_nodes, memory_limit=3000).folder)

    def write() -> DiskEdges:
        blocks = iter(edges.split(70, dim=1))
        return DiskEdges.write(tmp_path / "graph", blocks, num_nodes, memory_limit=3000, made_from="these")

    for stopped in chain(range(40), range(40, 2_000, 197)):
        left = [stopped]

        def counted(do: Callable[..., Any], left: list[int] = left) -> Callable[..., Any]:
            def run(*values: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    raise Killed
                return do(*values)

            return run

        with monkeypatch.context() as patch:
            patch.setattr(disk_writing.HashedFile, "write", counted(disk_writing.HashedFile.write))
            patch.setattr(disk_writing, "write_whole", counted(disk_writing.write_whole))
            patch.setattr(Buckets, "store", counted(Buckets.store))
            try:
                write()
            except Killed:
                pass
            else:
                break
        stored = write()
        stored.verify()
        assert file_bytes(stored.folder) == expected
        shutil.rmtree(stored.folder)
    assert stopped > 5
    assert file_bytes(tmp_path / "graph") == expected


@pytest.mark.usefixtures("_states_often")
def test_few_edges_stay_in_memory_and_are_read_again_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_writing, "_EDGES_BETWEEN_STATES", 1 << 26)
    edges, stages = random_edges(3, 40, 500), list[str]()

    def write(progress: disk_writing.Progress) -> DiskEdges:
        return DiskEdges.write(tmp_path / "graph", edges, 40, made_from="these", progress=progress)

    def killed(stage: str, done: int, total: int) -> None:
        work = next(tmp_path.iterdir())
        assert all(path.stat().st_size == 0 for path in (work / "sort").iterdir())
        if stage == "edges put in order" and done > 20:
            raise Killed

    with pytest.raises(Killed):
        write(killed)
    assert_same(write(lambda stage, done, total: stages.append(stage)), in_memory(edges, 40))
    assert set(stages) == {"edges read", "edges put in order"}


@pytest.mark.usefixtures("_states_often")
@pytest.mark.parametrize("removed", [0, 1, 2])
def test_work_killed_while_it_is_tidied_up_goes_on(
    tmp_path: Path, removed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    edges, left, unlink = random_edges(3, 40, 500), [removed], os.unlink

    def write() -> DiskEdges:
        return DiskEdges.write(tmp_path / "graph", edges, 40, made_from="these", memory_limit=3000)

    def counted(*path: Any, **place: Any) -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1
        unlink(*path, **place)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", counted)
        with pytest.raises(Killed):
            write()
    assert_same(write(), in_memory(edges, 40))


@pytest.mark.usefixtures("_states_often")
@pytest.mark.parametrize("name", ["sort/pairs.tmp", "sort/places.tmp", "offsets.bin", "sources.bin"])
@pytest.mark.parametrize("kept", [0.5, None])
def test_work_of_which_a_file_has_lost_something_is_not_gone_on_with(
    tmp_path: Path, name: str, kept: float | None
) -> None:
    """A file that is cut, or gone: what is missing is no zeros."""
    edges, seen = random_edges(3, 3_000, 800), [0]

    def killed(stage: str, done: int, total: int) -> None:
        seen[0] += stage == "edges put in order"
        if seen[0] > 100:
            raise Killed

    def write(progress: disk_writing.Progress) -> DiskEdges:
        return DiskEdges.write(
            tmp_path / "graph", edges, 3_000, made_from="these", memory_limit=3000, progress=progress
        )

    with pytest.raises(Killed):
        write(killed)
    work = next(tmp_path.iterdir())
    assert json.loads((work / "state.json").read_text())["num_edges"]
    if kept is None:
        (work / name).unlink()
    else:
        os.truncate(work / name, int(kept * (work / name).stat().st_size))
    with pytest.raises(InputError, match=rf"bytes in '{Path(name).name}'; got \d+; start again"):
        write(disk_writing.nobody)
    assert_same(write(disk_writing.nobody), in_memory(edges, 3_000))  # nothing is left of it


@pytest.mark.usefixtures("_states_often")
@pytest.mark.parametrize("num_nodes", [3_000, (1 << 22) + 3])
def test_work_whose_pairs_were_changed_is_refused(tmp_path: Path, num_nodes: int) -> None:
    """The loops that put them in order would write beyond their arrays."""
    edges = random_edges(3, num_nodes, 800)

    def killed(stage: str, done: int, total: int) -> None:
        if stage == "edges put in order":
            raise Killed

    def write(progress: disk_writing.Progress) -> DiskEdges:
        blocks = iter(edges.split(70, dim=1))
        return DiskEdges.write(
            tmp_path / "graph", blocks, num_nodes, made_from="these", memory_limit=3000, progress=progress
        )

    with pytest.raises(Killed):
        write(killed)
    pairs = next(tmp_path.iterdir()) / "sort" / "pairs.tmp"
    pairs.write_bytes(bytes([255]) * pairs.stat().st_size)
    with pytest.raises(InputError, match=r"expected pairs of nodes in 'pairs.tmp'; got others; start again"):
        write(disk_writing.nobody)


@pytest.mark.usefixtures("_states_often")
def test_work_that_another_version_left_is_begun_anew(tmp_path: Path) -> None:
    edges = random_edges(3, 40, 500)

    def killed(stage: str, done: int, total: int) -> None:
        if stage == "edges put in order":
            raise Killed

    def write(progress: disk_writing.Progress) -> DiskEdges:
        return DiskEdges.write(tmp_path / "graph", edges, 40, made_from="these", memory_limit=3000, progress=progress)

    with pytest.raises(Killed):
        write(killed)
    state = next(tmp_path.iterdir()) / "state.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "sizes": [1, 2]}))
    assert_same(write(disk_writing.nobody), in_memory(edges, 40))


def test_empty_graphs_and_rows_of_another_graph(tmp_path: Path) -> None:
    empty = DiskEdges.write(tmp_path / "graph", torch.zeros((2, 0), dtype=torch.int64), 4)
    assert empty.sum(quantize(torch.ones(4, 2))).tolist() == [[0, 0]] * 4
    assert empty.sum(quantize(torch.ones(4, 0))).shape == (4, 0)
    assert empty.is_symmetric()
    assert_same(empty.cap(3, NoiseSource.seeded(0)), in_memory(torch.zeros((2, 0), dtype=torch.int64), 4))
    with pytest.raises(InputError, match="quantized rows of 4 nodes"):
        empty.sum(quantize(torch.ones(3, 2)))
