"""A graph of one's own in a folder: what `hushgraph import` writes and `--data my.graph` reads.

The folder holds `graph.json` (what is in it, and what was done to the data on the way in), `edges/` (see `DiskEdges`),
`types/` where edges have types (the same to the mailboxes of each type: see `hushgraph.graph.types`), `public/` with
the edges that were declared public knowledge, if any were, and flat files in the order of the nodes: `features.bin`
(float32), `labels.bin` (int64, -1 for none), `parts.bin` (int8: 1, 2, 3 for train, val, test) and `ids.bin` (the user's
own ids). Nothing in it is ever unpickled. `graph.json` holds the checksums of all files, its own included: a folder
that was damaged or changed is refused.

It holds the private data as it is. Keep it where the raw data may be kept, and delete it with it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.datasets.splits import MASKS
from hushgraph.errors import InputError
from hushgraph.executors.base import Executor
from hushgraph.files.reading import damage_named, is_of, read_json, sha256_of
from hushgraph.files.remote import RemoteFile, is_url, local_path
from hushgraph.files.writing import told_if_unwritable, write_whole
from hushgraph.graph import disk_writing, room
from hushgraph.graph.disk import DiskEdges
from hushgraph.graph.disk_reading import HEADER as EDGES_HEADER
from hushgraph.graph.disk_reading import OFFSETS, SOURCES
from hushgraph.graph.external_sort import read_array
from hushgraph.graph.spread import SpreadEdges
from hushgraph.graph.types import MOST_TYPES

FORMAT = "hushgraph graph 1"
HEADER = "graph.json"
EDGES, TYPES, PUBLIC = "edges", "types", "public"
FILES = ("features", "labels", "targets", "parts", "ids")


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
    edge_types: list[str] = field(default_factory=list)
    public_edges: bool = False
    rules: list[str] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)
    sha256: dict[str, str] | None = None
    format: str = FORMAT

    @property
    def digest(self) -> str:
        """The checksum of everything here but the checksums; without types and such, that of before there were any."""
        values = {**asdict(self), "sha256": None}
        for name in ("edge_types", "public_edges"):
            if not values[name]:
                del values[name]
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


_FORM: dict[str, Any] = {
    "name": str,
    "num_nodes": int,
    "directed": bool,
    "feature_names": list,
    "id_type": str,
    "class_names": (list, type(None)),
    "classes_declared": bool,
    "has_labels": bool,
    "has_split": bool,
    "target_range": (list, type(None)),
    "edge_types": list,
    "public_edges": bool,
    "rules": list,
    "findings": list,
    "sha256": (dict, type(None)),
}
_ID_TYPE = re.compile(r"<i8|\|S[1-9][0-9]{0,3}")


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
    stored = [f"{name}.bin" for name in FILES if (folder / f"{name}.bin").is_file()]
    headers = [f"{name}/{EDGES_HEADER}" for name in (EDGES, TYPES, PUBLIC) if (folder / name).is_dir()]
    sums = {name: sha256_of(folder / name) for name in (*stored, *headers)}
    facts = replace(facts, sha256={HEADER: facts.digest, **sums})
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
        facts = GraphFacts(**values)
        _require_sound(facts)
    return facts


def _require_sound(facts: GraphFacts) -> None:
    wrong = [name for name, kinds in _FORM.items() if not is_of(getattr(facts, name), kinds)]
    if wrong:
        raise ValueError(f"{', '.join(wrong)} of another type")
    if not _ID_TYPE.fullmatch(facts.id_type):
        raise ValueError(f"ids of type {facts.id_type[:20]!r}")
    if facts.num_nodes < 1:
        raise ValueError(f"{facts.num_nodes} nodes")
    words = [*facts.feature_names, *(facts.class_names or ()), *facts.edge_types, *facts.rules]
    if not all(isinstance(word, str) for word in words):
        raise ValueError("a name that is no word")
    if facts.target_range is not None and [type(end) for end in facts.target_range] != [float, float]:
        raise ValueError("a range that is not two numbers")
    if len(facts.edge_types) > MOST_TYPES or len(set(facts.edge_types)) < len(facts.edge_types):
        raise ValueError("types of edges that are too many or not distinct")
    if facts.sha256 is not None and facts.sha256.get(HEADER) != facts.digest:
        raise ValueError("its checksum is another one")


def _verify(source: Path, facts: GraphFacts) -> None:
    """Compare all files with their checksums; graphs that were imported before there were any have none."""
    for name, expected in (facts.sha256 or {}).items():
        if name != HEADER and not ((source / name).is_file() and sha256_of(source / name) == expected):
            raise InputError(f"{source / name}: was changed after the graph was imported; import the graph again")


def read_stored(
    folder: str | Path, memory: str | int | None = None, workers: Executor | None = None, *, as_lists: bool = False
) -> Data:
    """The graph in a folder, as `fit` takes it; edges stay on the disk where `memory` is too little for them.

    Without `memory`, half of what is free is meant. Features and labels are read where they are used. Edges in memory
    are an `edge_index` or, with `as_lists`, the sorted lists that are stored: nothing has to be sorted again. With
    `workers`, edges stay where they are and the workers add them up. Of a folder behind a URL, all but the edges is
    copied to a temporary folder of this machine; edges are read where they lie, or loaded where `memory` suffices.

    `user_ids` are the ids that the data came with, in the order of the nodes.
    """
    budget, elsewhere = room.bytes_of(memory), None
    source = local_path(folder)
    if is_url(folder):
        remote, source = RemoteFile(str(folder)), Path(tempfile.mkdtemp(prefix="hushgraph-"))
        elsewhere = remote / EDGES / SOURCES
        weakref.finalize(elsewhere, shutil.rmtree, source, True)
        _copy_nodes(remote, source)
    facts = read_facts(source)
    if facts.public_edges and elsewhere is not None:
        _copy(remote, source, PUBLIC, (EDGES_HEADER, OFFSETS, SOURCES))
    if facts.edge_types and (elsewhere is not None or workers is not None):
        raise InputError(
            f"{folder}: expected a graph whose edges have no types, for workers and behind a URL; got types "
            f"({', '.join(facts.edge_types)}). Copy the folder to this machine, and leave out --workers"
        )
    with damage_named(source if elsewhere is None else folder, do="Import the graph again"):
        _verify(source, facts)
        return _read_graph(source, facts, _edges_of(source, elsewhere, budget, workers), budget, as_lists)


_NODE_FILES = (HEADER, *(f"{name}.bin" for name in FILES))


def _copy_nodes(remote: RemoteFile, source: Path) -> None:
    for name in _NODE_FILES:
        (remote / name).copy_to(source / name)
    _copy(remote, source, EDGES, (EDGES_HEADER, OFFSETS))


def _copy(remote: RemoteFile, source: Path, folder: str, names: Iterable[str]) -> None:
    (source / folder).mkdir()
    for name in names:
        (remote / folder / name).copy_to(source / folder / name)


def _edges_of(source: Path, elsewhere: RemoteFile | None, memory: int, workers: Executor | None) -> DiskEdges:
    folder, at_once = source / EDGES, room.at_once(memory)
    if workers is None:
        return DiskEdges(folder, at_once, elsewhere=elsewhere)
    return SpreadEdges(folder, at_once, executor=workers, elsewhere=elsewhere)


def _read_graph(source: Path, facts: GraphFacts, edges: DiskEdges, memory: int, as_lists: bool) -> Data:
    count, width = facts.num_nodes, len(facts.feature_names)
    edges.verify()
    if edges.num_nodes != count:
        raise ValueError(f"edges between {edges.num_nodes} nodes")
    data = Data(
        x=torch.from_numpy(_mapped(source / "features.bin", "<f4", count * width).reshape(count, width)),
        y=torch.from_numpy(_mapped(source / "labels.bin", "<i8", count)),
        num_nodes=count,
        name=facts.name,
        user_ids=read_ids(source, facts),
        directed=facts.directed,
    )
    in_memory = not isinstance(edges, SpreadEdges) and room.fits(edges.num_edges, count, width, memory)
    if facts.edge_types:
        _add_typed(data, source, facts, edges, memory)
    elif in_memory and not as_lists:
        data.edge_index = edges.edge_index()
    else:
        data.edges = edges.load() if in_memory else edges
    if facts.public_edges:
        data.public_edge_index = _public_edges(source, count)
    if facts.class_names is not None:
        data.class_names, data.classes_declared = facts.class_names, facts.classes_declared
    if facts.target_range is not None:
        data.y = torch.from_numpy(_read(source / "targets.bin", "<f4", count))
        data.target_range, data.target_parts = tuple(facts.target_range), len(facts.class_names or ())
    return _with_parts(data, source) if facts.has_split else data


def _add_typed(data: Data, source: Path, facts: GraphFacts, edges: DiskEdges, memory: int) -> None:
    """The edges with their types, in memory where they fit."""
    typed, count = DiskEdges(source / TYPES, edges.memory_limit), facts.num_nodes
    typed.verify()
    if typed.num_nodes != count * len(facts.edge_types):
        raise ValueError(f"{typed.num_nodes} mailboxes of {count} nodes and {len(facts.edge_types)} types")
    data.edge_type_names = list(facts.edge_types)
    if room.fits(typed.num_edges, typed.num_nodes, len(facts.feature_names), memory):
        index = typed.edge_index()
        data.edge_type = index[1] // count
        data.edge_index = torch.stack([index[0], index[1] % count])
    else:
        data.edges, data.edge_mailboxes = edges, typed


def _public_edges(source: Path, nodes: int) -> Tensor:
    stored = DiskEdges(source / PUBLIC)
    stored.verify()
    if stored.num_nodes != nodes:
        raise ValueError(f"public edges between {stored.num_nodes} nodes")
    return stored.edge_index()


def read_ids(source: Path, facts: GraphFacts) -> np.ndarray:
    """The user's ids: whole numbers, or strings."""
    ids = _read(source / "ids.bin", facts.id_type, facts.num_nodes)
    return np.char.decode(ids, "utf-8") if ids.dtype.kind == "S" else ids


def write_stored(data: Data, folder: str | Path, facts: GraphFacts, edges: Iterable[Tensor] | Tensor) -> Path:
    """Write a graph that is in memory."""
    target = Path(folder)
    with new_folder(target) as work:
        DiskEdges.write(work / EDGES, edges, facts.num_nodes)
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
