"""A graph of one's own in a folder: what `hushgraph import` writes and `--data my.graph` reads.

The folder holds `graph.json` (what is in it, and what was done to the data on the way in), `edges/` (see `DiskEdges`),
and flat files in the order of the nodes: `features.bin` (float32), `labels.bin` (int64, -1 for none), `parts.bin`
(int8: 1, 2, 3 for train, val, test) and `ids.bin` (the user's own ids). Nothing in it is ever unpickled.

It holds the private data as it is. Keep it where the raw data may be kept, and delete it with it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.datasets.splits import MASKS
from hushgraph.errors import InputError
from hushgraph.executors.base import Executor
from hushgraph.files.reading import damage_named, read_json
from hushgraph.files.remote import RemoteFile, is_url, local_path
from hushgraph.files.writing import told_if_unwritable, write_whole
from hushgraph.graph import disk_writing, room
from hushgraph.graph.disk import DiskEdges
from hushgraph.graph.external_sort import read_array
from hushgraph.graph.spread import SpreadEdges

FORMAT = "hushgraph graph 1"
HEADER = "graph.json"


@dataclass
class GraphFacts:
    """What is in a folder, but for the data itself. `id_type` is the numpy type of the ids."""

    name: str
    num_nodes: int
    directed: bool
    feature_names: list[str]
    id_type: str
    class_names: list[str] | None = None
    classes_declared: bool = False
    has_labels: bool = True
    has_split: bool = False
    target_range: list[float] | None = None
    rules: list[str] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)
    format: str = FORMAT


def is_stored(path: str | Path) -> bool:
    """Whether this is the folder of a graph."""
    return (
        (RemoteFile(str(path)) / HEADER).size() is not None if is_url(path) else (local_path(path) / HEADER).is_file()
    )


@contextmanager
def new_folder(target: Path, *, made_from: str | None = None) -> Iterator[Path]:
    """A temporary folder beside `target` that becomes `target` when all went well; see `disk_writing.new_folder`."""
    if target.exists():
        raise InputError(f"--out: expected a new folder; got '{target}', which exists; name another, or remove it")
    with told_if_unwritable(target), disk_writing.new_folder(target, made_from=made_from) as work:
        yield work


def write_arrays(folder: Path, facts: GraphFacts, arrays: dict[str, np.ndarray | None]) -> None:
    """The flat files that are not there yet, then the header."""
    for name, values in arrays.items():
        if values is not None:
            (folder / f"{name}.bin").write_bytes(np.ascontiguousarray(values).data)
    write_whole(folder / HEADER, json.dumps(asdict(facts), indent=2) + "\n")


def read_facts(folder: str | Path) -> GraphFacts:
    """What is in the folder of a graph."""
    if is_url(folder):
        with tempfile.TemporaryDirectory() as here:
            (RemoteFile(str(folder)) / HEADER).copy_to(Path(here) / HEADER)
            return read_facts(here)
    source = local_path(folder)
    values = read_json(source / HEADER, of="an imported graph")
    if values.get("format") != FORMAT:
        raise InputError(f"{source}: expected a graph of '{FORMAT}'; got {values.get('format')!r}; import it again")
    with damage_named(source / HEADER, do="Import the graph again"):
        return GraphFacts(**values)


def read_stored(folder: str | Path, memory: str | int | None = None, workers: Executor | None = None) -> Data:
    """The graph in a folder, as `fit` takes it; edges stay on the disk where `memory` is too little for them.

    Without `memory`, half of what is free is meant. Features and labels are read where they are used. With `workers`,
    edges stay where they are and the workers add them up. Of a folder behind a URL, all but the edges is copied to a
    temporary folder of this machine; edges are read where they lie, or loaded where `memory` suffices.

    `user_ids` are the ids that the data came with, in the order of the nodes.
    """
    budget, elsewhere = room.bytes_of(memory), None
    source = local_path(folder)
    if is_url(folder):
        remote, source = RemoteFile(str(folder)), Path(tempfile.mkdtemp(prefix="hushgraph-"))
        elsewhere = remote / "edges" / disk_writing.SOURCES
        weakref.finalize(elsewhere, shutil.rmtree, source, True)
        _copy_nodes(remote, source)
    facts = read_facts(source)
    with damage_named(source if elsewhere is None else folder, do="Import the graph again"):
        return _read_graph(source, facts, _edges_of(source, elsewhere, budget, workers), budget)


_NODE_FILES = (HEADER, "features.bin", "labels.bin", "targets.bin", "parts.bin", "ids.bin")


def _copy_nodes(remote: RemoteFile, source: Path) -> None:
    (source / "edges").mkdir()
    for name in (*_NODE_FILES, f"edges/{disk_writing.HEADER}", f"edges/{disk_writing.OFFSETS}"):
        (remote / name).copy_to(source / name)


def _edges_of(source: Path, elsewhere: RemoteFile | None, memory: int, workers: Executor | None) -> DiskEdges:
    folder, at_once = source / "edges", room.at_once(memory)
    if workers is None:
        return DiskEdges(folder, at_once, elsewhere=elsewhere)
    return SpreadEdges(folder, at_once, executor=workers, elsewhere=elsewhere)


def _read_graph(source: Path, facts: GraphFacts, edges: DiskEdges, memory: int) -> Data:
    count, width = facts.num_nodes, len(facts.feature_names)
    data = Data(
        x=torch.from_numpy(_mapped(source / "features.bin", "<f4", count * width).reshape(count, width)),
        y=torch.from_numpy(_mapped(source / "labels.bin", "<i8", count)),
        num_nodes=count,
        name=facts.name,
        user_ids=read_ids(source, facts),
        directed=facts.directed,
    )
    if not isinstance(edges, SpreadEdges) and room.fits(edges.num_edges, count, width, memory):
        data.edge_index = edges.edge_index()
    else:
        data.edges = edges
    if facts.class_names is not None:
        data.class_names, data.classes_declared = facts.class_names, facts.classes_declared
    if facts.target_range is not None:
        data.y = torch.from_numpy(_read(source / "targets.bin", "<f4", count))
        data.target_range, data.target_parts = tuple(facts.target_range), len(facts.class_names or ())
    return _with_parts(data, source) if facts.has_split else data


def read_ids(source: Path, facts: GraphFacts) -> np.ndarray:
    """The user's ids: whole numbers, or strings."""
    ids = _read(source / "ids.bin", facts.id_type, facts.num_nodes)
    return np.char.decode(ids, "utf-8") if ids.dtype.kind == "S" else ids


def write_stored(data: Data, folder: str | Path, facts: GraphFacts, edges: Iterable[Tensor] | Tensor) -> Path:
    """Write a graph that is in memory."""
    target = Path(folder)
    with new_folder(target) as work:
        DiskEdges.write(work / "edges", edges, facts.num_nodes)
        parts = sum((data[name].numpy().astype(np.int8) * (at + 1) for at, name in enumerate(MASKS) if name in data), 0)
        arrays = {
            "features": np.asarray(data.x.to_dense() if data.x.layout is not torch.strided else data.x, dtype="<f4"),
            "labels": np.asarray(data.y, dtype="<i8"),
            "parts": np.asarray(parts, dtype=np.int8) if facts.has_split else None,
            "ids": np.arange(facts.num_nodes, dtype="<i8"),
        }
        write_arrays(work, facts, arrays)
    return target


def _with_parts(data: Data, source: Path) -> Data:
    parts = torch.from_numpy(_read(source / "parts.bin", "|i1", int(data.num_nodes or 0)))
    for number, name in enumerate(MASKS):
        data[name] = parts == number + 1
    return data


def _mapped(path: Path, kind: str, count: int) -> np.ndarray:
    """A file as an array that is read where it is used; writing to the array does not change the file."""
    dtype = _checked(path, kind, count)
    return np.memmap(path, dtype=dtype, mode="c", shape=(count,)) if count else np.empty(0, dtype=dtype)


def _checked(path: Path, kind: str, count: int) -> np.dtype:
    dtype = np.dtype(kind)
    if not path.is_file() or os.path.getsize(path) != count * dtype.itemsize:
        raise InputError(f"{path}: expected a file of {count} values; got another size or none; import the graph again")
    return dtype


def _read(path: Path, kind: str, count: int) -> np.ndarray:
    dtype = _checked(path, kind, count)
    if dtype.kind == "S":
        return np.frombuffer(path.read_bytes(), dtype=dtype)
    return read_array(path, dtype, 0, count)
