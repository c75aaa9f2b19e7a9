"""From tables of nodes and edges to the folder of a graph, without ever holding all edges in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from hushgraph.datasets.splits import random_split
from hushgraph.datasets.stored import EDGES, PUBLIC, TYPES, GraphFacts, new_folder, write_arrays, write_stored
from hushgraph.errors import InputError
from hushgraph.graph.checks import check_graph
from hushgraph.graph.disk import DiskEdges
from hushgraph.graph.disk_writing import Progress, nobody
from hushgraph.graph.packed import INT32_LIMIT
from hushgraph.graph.targets import NumberRange
from hushgraph.importing.edge_types import MailboxStream
from hushgraph.importing.edges import EdgeColumns, EdgeStream, open_edges
from hushgraph.importing.findings import Code, Finding, tallied
from hushgraph.importing.formats import ID, SOURCE, TARGET, TwoTables, is_whole_graph, read_whole_graph
from hushgraph.importing.ids import Ids
from hushgraph.importing.nodes import NodeColumns, Nodes, read_nodes
from hushgraph.importing.tables import Table, files_of_table, open_table

MEMORY = 1 << 28
"""Bytes that sorting the edges takes."""


@dataclass(frozen=True)
class Imported:
    """The folder that was written, what is in it, and what was done on the way."""

    folder: Path
    facts: GraphFacts
    findings: list[Finding]
    num_edges: int


Files = str | Path | Sequence[str | Path]
"""A table in one file, in a folder of files, or in several of both."""


def import_files(
    out: str | Path,
    edges: Files,
    nodes: str | Path | None,
    node_columns: NodeColumns | None,
    edge_columns: EdgeColumns,
    *,
    num_nodes: int | None = None,
    header: bool | None = None,
    public: str | Path | None = None,
    progress: Progress = nobody,
) -> Imported:
    """Import a table of edges and a table of nodes, or edges alone between nodes 0 to `num_nodes` - 1.

    A table of edges may be several files, or folders of files, with the same columns. `public` is a table of edges that
    are public knowledge, in the columns of the other one. An import that was stopped
    goes on where it was when it is made again with the same files and settings.
    """
    edge_columns.require_direction()
    table = None if nodes is None else open_table(nodes)
    made_from = _sources([_files(edges), _files(nodes), _files(public)], node_columns, edge_columns, num_nodes, header)
    return import_tables(
        out,
        edges,
        table,
        node_columns,
        edge_columns,
        num_nodes=num_nodes,
        header=header,
        public=public,
        made_from=made_from,
        progress=progress,
    )


def import_tables(
    out: str | Path,
    edges: Files | Table,
    nodes: Table | None,
    node_columns: NodeColumns | None,
    edge_columns: EdgeColumns,
    *,
    num_nodes: int | None = None,
    header: bool | None = None,
    public: str | Path | Table | None = None,
    made_from: str | None = None,
    progress: Progress = nobody,
) -> Imported:
    """The same for tables that are open already; `made_from` names all of their content."""
    target = Path(out).expanduser()
    with new_folder(target, made_from=made_from) as work:
        for rest in work.glob("*.bin"):
            rest.unlink()  # of an import that was stopped: nodes are read again
        found = _nodes(nodes, node_columns, num_nodes, work)
        streams, notes = [], []
        for one in (edges, public):
            if one is not None:
                table, said = (
                    (one, []) if isinstance(one, Table) else open_edges(_files(one), found.ids, edge_columns, header)
                )
                streams.append(EdgeStream(table, found.ids, edge_columns))
                notes += said
        stored, told = _write_edges(work, streams, made_from, progress)
        findings = [*notes, *told, *found.findings]
        facts = _facts(target, found, node_columns, nodes, edge_columns, findings)
        if not (work / "features.bin").exists():
            (work / "features.bin").write_bytes(np.ascontiguousarray(found.features, dtype="<f4").data)
        write_arrays(work, facts, _arrays(found))
    return Imported(target, facts, findings, stored.num_edges)


def _write_edges(
    work: Path, streams: list[EdgeStream], made_from: str | None, progress: Progress
) -> tuple[DiskEdges, list[Finding]]:
    """Put the edges in order, beside them those to the mailboxes of their types, or public ones; and what was found."""
    stream, *public = streams
    watched = progress if public else _with_total(progress, stream.entries)
    options: dict[str, Any] = {"memory_limit": MEMORY, "made_from": made_from, "progress": watched}
    columns, nodes = stream.columns, len(stream.ids)
    if public:
        return _write_with_public(work, stream, public[0], options)
    if columns.kind is None:
        stored = DiskEdges.write(work / EDGES, stream, nodes, both=stream.both, **options)
        return stored, [*stream.findings, *_edge_findings(stored, stored, columns)]
    typed = MailboxStream(stream, columns.kind, columns.kinds)
    mailboxes = DiskEdges.write(work / TYPES, typed, typed.num_mailboxes, **options)
    pairs = (torch.stack([block[0], block[1] % nodes]) for block in mailboxes.edge_blocks())
    stored = DiskEdges.write(work / EDGES, pairs, nodes, **options)
    return stored, [*typed.findings, *_edge_findings(stored, mailboxes, columns)]


def _with_total(progress: Progress, entries: int) -> Progress:
    """Says how many edges there are to be read, as far as their table does."""
    return lambda stage, done, total: progress(stage, done, total or entries)


def _write_with_public(
    work: Path, stream: EdgeStream, public: EdgeStream, options: dict[str, Any]
) -> tuple[DiskEdges, list[Finding]]:
    """Two folders: the public edges, and all edges. A public edge is there, whatever the private table says."""
    columns, nodes = stream.columns, len(stream.ids)
    if columns.kind is not None:
        raise InputError("--public-edges: expected edges without types (--edge-type); got both. Leave out one of them")
    known = DiskEdges.write(work / PUBLIC, public, nodes, both=public.both, **options)
    stored = DiskEdges.write(work / EDGES, chain(stream, public), nodes, both=stream.both, **options)
    pairs = known.num_edges // (1 if columns.directed else 2)
    told = Finding(Code.PUBLIC_EDGES, pairs, where=public.table.where)
    left_out = [one for one in public.findings if one.code in (Code.MISSING_ENDS, Code.UNKNOWN_ENDS)]
    return stored, [*tallied([*stream.findings, *left_out]), told, *_edge_findings(stored, stored, columns)]


def _files(given: Files | None) -> list[Path]:
    """The files that were named, and those of the folders that were."""
    many = [] if given is None else [given] if isinstance(given, str | Path) else given
    return [file for one in many for file in files_of_table(one)]


def _sources(tables: Sequence[Sequence[Path]], *settings: Any) -> str:
    """A name of the files of some tables as they are now, and of what is made of them."""
    states = [
        [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.exists()]
        for files in tables
    ]
    return repr((MEMORY, states, settings))


def _nodes(table: Table | None, columns: NodeColumns | None, num_nodes: int | None, work: Path) -> Nodes:
    if table is not None and columns is not None:
        if num_nodes is not None:
            raise InputError("--num-nodes: expected a list of nodes or their number; got both; remove --num-nodes")
        return read_nodes(table, columns, work)
    if num_nodes is None or num_nodes < 1:
        raise InputError(
            "nodes: expected --nodes FILE, the list of nodes with their labels, or --num-nodes N for nodes 0 to N - 1; "
            "got neither. The set of nodes is public and is never read off the edges, because one edge more or less "
            "would change it"
        )
    if num_nodes >= INT32_LIMIT:
        raise InputError(f"--num-nodes: expected fewer than {INT32_LIMIT:,} nodes; got {num_nodes:,}")
    nothing = np.full(num_nodes, -1, dtype=np.int64)
    ones = np.ones((num_nodes, 1), dtype=np.float32)
    findings = [Finding(Code.NO_FEATURES), Finding(Code.NO_SPLIT)]
    return Nodes(Ids.counted(num_nodes), ones, ["constant"], nothing, None, False, None, findings)


def _edge_findings(edges: DiskEdges, written: DiskEdges, columns: EdgeColumns) -> list[Finding]:
    """What sorting found; `written` are the edges as they came, in which those of two types are two."""
    times = 1 if columns.directed else 2  # an undirected edge was given to the sort in both of its directions
    linked = edges.in_degree() > 0
    if columns.directed:
        linked |= edges.out_degree() > 0
    return tallied(
        [
            Finding(Code.SELF_LOOPS, written.self_loops // times),
            Finding(Code.REPEATED_EDGES, written.repeated // times),
            Finding(Code.ISOLATED, int((~linked).sum())),
        ]
    )


def _facts(
    target: Path,
    nodes: Nodes,
    columns: NodeColumns | None,
    table: Table | None,
    edges: EdgeColumns,
    findings: list[Finding],
) -> GraphFacts:
    rules = [] if columns is None or table is None else columns.rules(table)
    return GraphFacts(
        name=target.stem,
        num_nodes=len(nodes.ids),
        directed=bool(edges.directed),
        feature_names=nodes.feature_names,
        id_type=nodes.ids.array().dtype.str,
        class_names=nodes.class_names,
        classes_declared=nodes.classes_declared,
        has_labels=bool((nodes.labels >= 0).any()),
        has_split=nodes.parts is not None,
        target_range=_ends(columns),
        edge_types=list(edges.kinds),
        public_edges=any(one.code is Code.PUBLIC_EDGES for one in findings),
        rules=[rule.as_words() for rule in rules],
        findings=[one.as_dict() for one in findings],
    )


def _arrays(nodes: Nodes) -> dict[str, np.ndarray | None]:
    labels = nodes.labels.astype("<i8", copy=False)
    targets = None if nodes.targets is None else nodes.targets.astype("<f4", copy=False)
    return {"labels": labels, "targets": targets, "parts": nodes.parts, "ids": nodes.ids.array()}


def _ends(columns: NodeColumns | None) -> list[float] | None:
    """The range of the numbers to predict, if labels are such."""
    numbers = None if columns is None else columns.classes
    return [numbers.low, numbers.high] if isinstance(numbers, NumberRange) else None


def import_whole(out: str | Path, source: str | Path, columns: NodeColumns) -> Imported:
    """Import a file or folder that holds a whole graph."""
    if not is_whole_graph(source):
        raise InputError(
            f"expected a whole graph (.graphml, node-link .json, PyG .pt, a folder of OGB); got {source}. A table of "
            "edges is given as --edges, one of nodes as --nodes"
        )
    found = read_whole_graph(source)
    if isinstance(found, TwoTables):
        ends = EdgeColumns(SOURCE, TARGET, found.directed)
        return import_tables(out, found.edges, found.nodes, replace(columns, id=ID), ends)
    return _import_data(Path(out).expanduser(), found, columns)


def _import_data(target: Path, data: Data, columns: NodeColumns) -> Imported:
    """A graph that came with tensors: they are used as they are, after the checks that `fit` makes."""
    if isinstance(columns.classes, NumberRange):
        raise InputError("--range: expected a table of nodes with the numbers (--nodes); got a whole graph of tensors")
    if columns.classes is not None:
        data.class_names = list(columns.classes)
    if data.x is None:
        data.x = torch.ones(int(data.num_nodes or 0), 1)
    unused = ("edge_attr", "edge_weight", "edge_type")
    weights = [Finding(Code.EXTRA_COLUMNS, what=name) for name in unused if data.get(name) is not None]
    data.edge_attr = data.edge_weight = data.edge_type = None
    data.x = data.x.detach()
    made = "train_mask" not in data
    checked = check_graph(random_split(data) if made and data.y is not None else data)
    edges = checked.edges
    linked = (edges.in_degree() > 0) | (edges.out_degree() > 0)
    findings = tallied(
        [*weights, Finding(Code.ISOLATED, int((~linked).sum())), *([Finding(Code.NO_SPLIT)] if made else [])]
    )
    data.y = checked.labels
    facts = GraphFacts(
        name=target.stem,
        num_nodes=checked.metadata.num_nodes,
        directed=not edges.is_symmetric(),
        feature_names=[f"x{number}" for number in range(int(checked.features.shape[1]))],
        id_type="<i8",
        class_names=list(checked.class_names),
        classes_declared=checked.classes_declared,
        has_labels=bool((checked.labels >= 0).any()),
        has_split=not made,
        findings=[one.as_dict() for one in findings],
    )
    write_stored(data, target, facts, edges.edge_index())
    return Imported(target, facts, findings, edges.num_edges)
