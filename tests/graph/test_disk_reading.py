"""Folders of edges from elsewhere: checksums that fit do not make a list of one that is none."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import fsspec
import numpy as np
import pytest
import torch

from hushgraph.errors import InputError
from hushgraph.executors.processes import Processes
from hushgraph.files.remote import RemoteFile
from hushgraph.graph import disk_reading
from hushgraph.graph.disk import DiskEdges
from hushgraph.graph.quantized import quantize
from hushgraph.graph.spread import Sent, SpreadEdges, part_sums


@pytest.fixture(params=[3, 1 << 20], ids=["in parts", "at once"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(disk_reading, "_AT_ONCE", request.param)
    ends = torch.from_numpy(np.random.default_rng(0).integers(0, 20, (2, 90)))
    DiskEdges.write(tmp_path / "edges", ends[:, (ends[1] != 4) & (ends[1] != 19)], 20)  # some lists are empty
    return tmp_path / "edges"


def sealed(folder: Path, name: str, values: np.ndarray, **changed: object) -> None:
    """Other content, by somebody who writes its checksum too."""
    (folder / name).write_bytes(values.tobytes())
    header = json.loads((folder / "header.json").read_text())
    header["sha256"][name] = hashlib.sha256(values.tobytes()).hexdigest()
    (folder / "header.json").write_text(json.dumps(header | changed))


def test_what_was_written_is_accepted(folder: Path) -> None:
    assert DiskEdges.open(folder).num_nodes == 20
    DiskEdges.write(folder.parent / "none", torch.empty(2, 0, dtype=torch.int64), 5).verify()


@pytest.mark.parametrize("value", [-1, 20, 2**31 - 1, -(2**31)])
def test_a_node_that_is_not_there_is_refused(folder: Path, value: int) -> None:
    sources = np.fromfile(folder / "sources.bin", dtype="<i4")
    sources[len(sources) // 2] = value
    sealed(folder, "sources.bin", sources)
    with pytest.raises(InputError, match="expected senders among the 20 nodes"):
        DiskEdges.open(folder)


def test_an_edge_that_is_there_twice_and_a_self_loop_are_refused(folder: Path) -> None:
    offsets, sources = (
        np.fromfile(folder / name, dtype=kind) for name, kind in (("offsets.bin", "<i8"), ("sources.bin", "<i4"))
    )
    first = next(node for node in range(20) if offsets[node + 1] - offsets[node] > 2)
    for value in (sources[offsets[first]], first):
        changed = sources.copy()
        changed[offsets[first] : offsets[first] + 2] = np.sort([sources[offsets[first]], value])
        sealed(folder, "sources.bin", changed)
        with pytest.raises(InputError, match="names a node twice, or its own node"):
            DiskEdges.open(folder)


@pytest.mark.parametrize("change", ["before it begins", "past the end", "not at 0"])
def test_lists_that_do_not_follow_one_another_are_refused(folder: Path, change: str) -> None:
    offsets = np.fromfile(folder / "offsets.bin", dtype="<i8")
    at, value = {"before it begins": (7, -5), "past the end": (7, 2**40), "not at 0": (0, 1)}[change]
    offsets[at] = value
    sealed(folder, "offsets.bin", offsets)
    with pytest.raises(InputError, match="do not follow one another"):
        DiskEdges.open(folder)


@pytest.mark.parametrize("change", [{"num_nodes": -1}, {"num_edges": "many"}, {"sha256": None}, {"num_nodes": 10**17}])
def test_a_header_of_another_form_is_refused(folder: Path, change: dict[str, object]) -> None:
    header = json.loads((folder / "header.json").read_text())
    (folder / "header.json").write_text(json.dumps(header | change))
    with pytest.raises(InputError, match="expected"):
        DiskEdges.open(folder)


def test_changed_bytes_are_refused_by_their_checksum(folder: Path) -> None:
    offsets = np.fromfile(folder / "offsets.bin", dtype="<i8")
    node = next(node for node in range(1, 20) if offsets[node] > offsets[node - 1])
    sources = np.fromfile(folder / "sources.bin", dtype="<i4")
    listed = sources[offsets[node - 1] : offsets[node]]
    free = next(one for one in range(listed[-1] + 1, 21) if one not in (node - 1, *listed))
    if free < 20:
        sources[offsets[node] - 1] = free  # still a list in order
        (folder / "sources.bin").write_bytes(sources.tobytes())
        with pytest.raises(InputError, match="checksum of 'sources"):
            DiskEdges.open(folder)


def _twice(offsets: np.ndarray, sources: np.ndarray) -> np.ndarray:
    first = int(np.flatnonzero(np.diff(offsets) > 1)[0])
    changed = sources.copy()
    changed[offsets[first] + 1] = changed[offsets[first]]
    return changed


def _own(offsets: np.ndarray, sources: np.ndarray) -> np.ndarray:
    """A list of its own node alone, which would ascend."""
    first = int(np.flatnonzero(np.diff(offsets))[0])
    changed = sources.copy()
    changed[offsets[first]] = first
    changed[offsets[first] : offsets[first + 1]].sort()
    return changed


@pytest.mark.parametrize("change", [_twice, _own, lambda offsets, sources: np.full_like(sources, 20)])
def test_lists_elsewhere_are_judged_wherever_they_are_read(
    folder: Path, change: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> None:
    """Nobody reads a file behind a URL before it is used: what it holds is refused by each who does."""
    offsets, sources = (
        np.fromfile(folder / name, dtype=kind) for name, kind in (("offsets.bin", "<i8"), ("sources.bin", "<i4"))
    )
    store, url = fsspec.filesystem("memory"), "memory://judged/sources.bin"
    store.pipe("/judged/header.json", (folder / "header.json").read_bytes())
    rows = quantize(torch.eye(20))

    def readers() -> list[Callable[[], object]]:
        edges = DiskEdges(folder, elsewhere=RemoteFile(url))
        spread = SpreadEdges(folder, executor=Processes(1), elsewhere=RemoteFile(url))
        (part,) = spread._parts(20)
        whole = [edges.load, edges.mapped, edges.is_symmetric, lambda: list(edges.edge_blocks())]
        return [*whole, lambda: edges.sum(rows), lambda: part_sums(part, Sent.of(rows))]

    store.pipe("/judged/sources.bin", sources.tobytes())
    for read in readers():
        read()
    store.pipe("/judged/sources.bin", change(offsets, sources).tobytes())
    for read in readers():
        with pytest.raises(InputError, match="write the edges again"):
            read()
    store.rm("/judged", recursive=True)
