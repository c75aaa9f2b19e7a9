"""`hg.Graph`: a graph for `fit` from the objects of other libraries, in one call each.

It is a PyTorch Geometric `Data` with the attributes that `fit` reads. `graph.findings` says, a line each, what was done
to the data on the way in; those lines are about private data and are for whoever holds it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from hushgraph.datasets.loading import load
from hushgraph.datasets.splits import MASKS, has_split, random_split, to_torch_csr
from hushgraph.datasets.stored import is_stored
from hushgraph.errors import InputError
from hushgraph.executors.base import Executor
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.targets import NumberRange
from hushgraph.importing.edges import EdgeColumns, EdgeStream
from hushgraph.importing.findings import Code, Finding, tallied
from hushgraph.importing.formats import ID, TwoTables, is_whole_graph, read_whole_graph, tables_of_networkx
from hushgraph.importing.nodes import NodeColumns, Nodes, class_names_of, read_nodes
from hushgraph.importing.tables import table_of

Classes = Sequence[Any] | NumberRange
NumberedClasses = Classes | int
Relation = str | tuple[str, str, str]
Split = str | tuple[float, float, float] | None
SHARES = (0.75, 0.10, 0.15)


class Graph(Data):
    """A graph of one's own. Make it with one of the `from_...` methods.

    Everywhere, `split` names the column or attribute with train, val and test, or gives three shares of a random split
    (75/10/15 where nothing is given); `classes` are the names of the classes from public knowledge, or a `NumberRange`
    where labels are numbers to predict. `from_pyg`, `from_dgl` and `from_edges`, where labels are numbers already, take
    the number of classes too. Without them the labels that occur are the classes, which `fit` accepts only where labels
    are public.
    """

    @classmethod
    def from_frames(
        cls,
        nodes: Any,
        edges: Any,
        *,
        id: str = ID,
        label: str | None = "label",
        features: Mapping[str, Any] | Sequence[str] | None = None,
        classes: Classes | None = None,
        split: Split = None,
        seed: int = 0,
        ignore: Sequence[str] | str = (),
        source: str | None = None,
        target: str | None = None,
        directed: bool | None = None,
        drop_unknown: bool = False,
        public_edges: Any = None,
        name: str = "graph",
    ) -> Graph:
        """From a table of nodes and a table of edges: pandas, polars, pyarrow, DuckDB, or dicts of columns.

        features: column -> (low, high) for numbers in a declared range, a list of words for categories, a number of
            boxes for words that nobody can list, None for numbers that are used as they are. All by public rules:
            nothing is read off the column. A column without a use is refused; `ignore` names those to leave out.
        directed: False where a row is a friendship or another mutual relation, True where it has a direction.
        drop_unknown: leave out edges that name a node which is not in the table; otherwise they are refused.
        public_edges: another table of edges, which everybody knows: the unit `private-edge` protects all others. They
            are edges of the graph, whether `edges` has them or not.
        """
        column = split if isinstance(split, str) else None
        columns = NodeColumns(id, label, column, features, classes, [ignore] if isinstance(ignore, str) else ignore)
        ends = EdgeColumns(source, target, directed, drop_unknown)
        ends.require_direction()
        found = read_nodes(table_of(nodes, "nodes"), columns)
        stream = EdgeStream(table_of(edges, "edges"), found.ids, ends)
        known, told = torch.empty((2, 0), dtype=torch.int64), []
        if public_edges is not None:
            public = EdgeStream(table_of(public_edges, "public edges"), found.ids, ends)
            known, _ = _edge_index(public, len(found.ids))
            pairs = known.shape[1] // (2 if public.both else 1)
            told = [Finding(Code.PUBLIC_EDGES, pairs, where=public.table.where)]
        edge_index, findings = _edge_index(stream, len(found.ids), known)
        findings += told
        made = cls._made(found, edge_index, ends.require_direction(), findings, split, seed, name, _numbers(classes))
        if public_edges is not None:
            made.public_edge_index = known
        return made

    from_pandas = from_frames
    from_polars = from_frames

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        *,
        label: str | None = "label",
        features: Mapping[str, Any] | Sequence[str] | None = None,
        classes: Classes | None = None,
        split: Split = None,
        seed: int = 0,
        ignore: Sequence[str] | str = (),
        name: str = "graph",
    ) -> Graph:
        """From a NetworkX graph; attributes of its nodes are the columns, and it knows whether it is directed."""
        if not hasattr(graph, "is_directed") or not hasattr(graph, "nodes"):
            raise InputError(f"from_networkx: expected a NetworkX graph; got {type(graph).__name__}")
        tables = tables_of_networkx(graph, "graph")
        column = split if isinstance(split, str) else None
        columns = NodeColumns(ID, label, column, features, classes, [ignore] if isinstance(ignore, str) else ignore)
        return cls._of_tables(tables, columns, split, seed, name)

    @classmethod
    def read(cls, path: str | Path, columns: NodeColumns | None = None) -> Graph:
        """The graph in a GraphML, node-link JSON or `.pt` file, or in a folder of OGB, where nothing is left to say."""
        found = read_whole_graph(path)
        name = Path(path).stem
        if isinstance(found, TwoTables):
            usual = "label" if "label" in found.nodes.columns else None
            return cls._of_tables(found, columns or NodeColumns(ID, usual), None, 0, name)
        return cls.from_pyg(found, name=str(found.get("name") or name))

    @classmethod
    def from_pyg(
        cls,
        data: Any,
        *,
        relation: Relation | None = None,
        relations: Sequence[Relation] | None = None,
        classes: NumberedClasses | None = None,
        split: tuple[float, float, float] | None = None,
        seed: int = 0,
        name: str | None = None,
    ) -> Graph:
        """From a `Data`, or from one or several relations of a `HeteroData` between nodes of one kind.

        Several relations become types of edges; `fit` takes a budget for each: `{"follows": 1.0, "pays": 0.5}`. Edge
        attributes are left out, but for `edge_weight` with a declared `weight_bound`, and `edge_type` with declared
        `edge_type_names`. Edges are taken as they are: undirected if every edge has its reverse.
        """
        chosen = _of_relations(data, relation, relations) if hasattr(data, "edge_types") else data
        if getattr(chosen, "edge_index", None) is None:
            raise InputError(f"from_pyg: expected a Data with edge_index; got {type(data).__name__} without it")
        result = cls(**{key: chosen[key] for key in _KEPT if chosen.get(key) is not None})
        weighted = chosen.get("edge_weight") is not None and chosen.get("weight_bound") is not None
        if weighted:
            result.edge_weight, result.weight_bound = chosen.edge_weight, chosen.weight_bound
        typed = chosen.get("edge_type") is not None and chosen.get("edge_type_names") is not None
        if typed:
            result.edge_type, result.edge_type_names = chosen.edge_type, list(chosen.edge_type_names)
        kinds = {"edge_attr": True, "edge_weight": not weighted, "edge_type": not typed}
        dropped = [key for key, drops in kinds.items() if drops and chosen.get(key) is not None]
        result.findings = tuple(Finding(Code.EXTRA_COLUMNS, what=key) for key in dropped)
        result.name = name or str(chosen.get("name") or "graph")
        if (numbers := _numbers(classes)) is not None:
            result._predicts(numbers)
        elif classes is not None:
            result.class_names, result.classes_declared = class_names_of(classes), True
        if result.x is None:
            result.x = torch.ones(_stated_nodes(chosen), 1)
            result.findings += (Finding(Code.NO_FEATURES),)
        return result._split(split, seed)

    @classmethod
    def from_edges(
        cls,
        edges: Any,
        *,
        num_nodes: int,
        x: Any = None,
        y: Any = None,
        classes: NumberedClasses | None = None,
        directed: bool | None = None,
        split: tuple[float, float, float] | None = None,
        seed: int = 0,
        name: str = "graph",
    ) -> Graph:
        """From pairs of node numbers (a list of pairs, `[E, 2]` or `[2, E]`) among `num_nodes` nodes."""
        mutual = not EdgeColumns(directed=directed).require_direction()
        pairs = _pairs(edges)
        together = torch.cat([pairs, pairs.flip(0)], dim=1) if mutual else pairs
        result = cls(edge_index=together, name=name, num_nodes=num_nodes)
        result.findings = (Finding(Code.BOTH_DIRECTIONS),) if mutual else ()
        result.x = torch.ones(num_nodes, 1) if x is None else _rows(x)
        result["y"] = torch.full((num_nodes,), -1) if y is None else y if isinstance(y, Tensor) else np.asarray(y)
        if (numbers := _numbers(classes)) is not None:
            result._predicts(numbers)
        elif classes is not None:
            result.class_names = class_names_of(classes)
        return result._split(split, seed)

    @classmethod
    def from_scipy(cls, adjacency: Any, **given: Any) -> Graph:
        """From a sparse matrix of zeros and ones, row to column; other arguments as for `from_edges`."""
        matrix = adjacency.tocoo() if hasattr(adjacency, "tocoo") else None
        if matrix is None or matrix.shape[0] != matrix.shape[1]:
            shape = getattr(adjacency, "shape", "")
            raise InputError(
                f"from_scipy: expected a square sparse matrix; got {type(adjacency).__name__} {shape}"
                ". Of an array, scipy.sparse.csr_array(array)"
            )
        if not np.isin(matrix.data, (0, 1)).all():
            raise InputError(
                "from_scipy: expected entries 0 and 1; got others. Take (matrix != 0) if the weights do not matter; if "
                "they do, give a Data with edge_weight and weight_bound to from_pyg"
            )
        if unknown := given.keys() - inspect.signature(cls.from_edges).parameters:
            raise InputError(
                f"from_scipy: expected x, y, classes, directed, split, seed or name; got {', '.join(sorted(unknown))}. "
                "The names of classes are classes=[...]"
            )
        kept = matrix.data != 0
        symmetric = abs(adjacency - adjacency.T).nnz == 0
        if symmetric and not given.get("directed"):
            kept &= matrix.row <= matrix.col  # an edge stands there twice
        pairs = torch.from_numpy(np.stack([matrix.row[kept], matrix.col[kept]]).astype(np.int64))
        graph = cls.from_edges(pairs, num_nodes=matrix.shape[0], **{"directed": not symmetric, **given})
        return graph

    @classmethod
    def from_dgl(cls, graph: Any, **given: Any) -> Graph:
        """From a DGL graph with `feat`, `label` and masks in its node data; arguments as for `from_pyg`."""
        if not hasattr(graph, "canonical_etypes") or not hasattr(graph, "edges"):
            raise InputError(f"from_dgl: expected a DGL graph; got {type(graph).__name__}")
        if len(graph.ntypes) == 1 and len(graph.canonical_etypes) == 1:
            plain = Data(edge_index=_dgl_edges(graph, None), **_dgl_nodes(graph, graph.ntypes[0]))
            result = cls.from_pyg(plain, **given)
            result.findings += tuple(Finding(Code.EXTRA_COLUMNS, what=key) for key in graph.edata)
            return result
        every = HeteroData()
        for kind in graph.ntypes:
            every[kind].update(_dgl_nodes(graph, kind))
        for relation in graph.canonical_etypes:
            every[relation].edge_index = _dgl_edges(graph, relation)
        return cls.from_pyg(every, **given)

    # Shared

    @classmethod
    def _of_tables(cls, tables: TwoTables, columns: NodeColumns, split: Split, seed: int, name: str) -> Graph:
        found = read_nodes(tables.nodes, columns)
        stream = EdgeStream(tables.edges, found.ids, EdgeColumns("source", "target", tables.directed))
        edge_index, findings = _edge_index(stream, len(found.ids))
        numbers = _numbers(columns.classes)
        return cls._made(found, edge_index, tables.directed, findings, split, seed, name, numbers)

    @classmethod
    def _made(
        cls,
        nodes: Nodes,
        edge_index: Tensor,
        directed: bool,
        findings: list[Finding],
        split: Split,
        seed: int,
        name: str,
        numbers: NumberRange | None = None,
    ) -> Graph:
        result = cls(x=torch.from_numpy(np.array(nodes.features)), edge_index=edge_index, name=name)
        result.y = torch.from_numpy(nodes.labels)
        result.num_nodes, result.directed = len(nodes.ids), directed
        result.user_ids, result.feature_names = _plain_ids(nodes), nodes.feature_names
        result.findings = tuple(findings + nodes.findings)
        if nodes.targets is not None and numbers is not None:
            result.y = torch.from_numpy(nodes.targets)
            result._predicts(numbers)
        elif nodes.class_names is not None:
            result.class_names, result.classes_declared = nodes.class_names, nodes.classes_declared
        if nodes.parts is not None:
            for number, mask in enumerate(MASKS):
                result[mask] = torch.from_numpy(nodes.parts == number + 1)
        return result._split(split if isinstance(split, tuple) else None, seed)

    def _predicts(self, numbers: NumberRange) -> None:
        """Declare that labels are numbers within a range."""
        self.target_range, self.target_parts = (numbers.low, numbers.high), numbers.parts

    def _split(self, shares: tuple[float, float, float] | None, seed: int) -> Graph:
        """The graph with the shares that were asked for, or its own split, or the usual one."""
        if shares is None and (has_split(self) or isinstance(self.get("train_mask"), Tensor)):
            return self
        if "target_range" in self:
            self.y = torch.as_tensor(self.get("y"), dtype=torch.float32)
        elif not isinstance(self.get("y"), Tensor):
            self.y = _labels_as_tensor(self)
        return random_split(self, *(shares or SHARES), seed=seed)


_KEPT = (
    "x",
    "edge_index",
    "y",
    *MASKS,
    "public_mask",
    "public_edge_index",
    "class_names",
    "classes_declared",
    "num_classes",
    "target_range",
    "target_parts",
    "user_ids",
    "num_nodes",
)


def _numbers(classes: Any) -> NumberRange | None:
    return classes if isinstance(classes, NumberRange) else None


def _edge_index(stream: EdgeStream, num_nodes: int, known: Tensor | None = None) -> tuple[Tensor, list[Finding]]:
    """The edges of a table, together with those that are `known`, each kept once; and what was found."""
    blocks = list(stream)
    edges = torch.cat(blocks, dim=1) if blocks else torch.empty((2, 0), dtype=torch.int64)
    edges = torch.cat((edges, edges.flip(0)), dim=1) if stream.both else edges
    edges = edges if known is None else torch.cat((edges, known), dim=1)
    loops = edges[0] == edges[1]
    stored = MemoryEdges.from_edge_index(edges[:, ~loops], num_nodes)
    times = 1 if stream.columns.directed else 2
    linked = torch.zeros(num_nodes, dtype=torch.bool)
    linked[edges[:, ~loops].flatten()] = True
    findings = [
        *stream.findings,
        Finding(Code.SELF_LOOPS, int(loops.sum()) // times),
        Finding(Code.REPEATED_EDGES, stored.count_duplicates() // times),
        Finding(Code.ISOLATED, int((~linked).sum())),
    ]
    return stored.coalesce().edge_index(), tallied(findings)


def _plain_ids(nodes: Nodes) -> np.ndarray:
    ids = nodes.ids.array()
    return np.char.decode(ids, "utf-8") if ids.dtype.kind == "S" else ids


def _stated_nodes(data: Any) -> int:
    """The number of nodes as it was stated: the largest number in an edge is private."""
    if data.get("num_nodes") is None and data.get("y") is None:
        raise InputError("nodes: expected x, y or num_nodes to say how many there are; got edges alone, which may not")
    return int(data.get("num_nodes") or len(data.y))


def _of_relations(data: Any, relation: Relation | None, relations: Sequence[Relation] | None) -> Data:
    """The part of a HeteroData with one kind of edge, or several kinds as types, between nodes of one kind."""
    if relations is not None and (relation is not None or isinstance(relations, Mapping | str)):
        raise InputError(
            f"from_pyg: expected relations=['A', 'B', ...] or one relation='A'; got {relations!r}. A budget for each "
            "is for fit: fit(graph, unit, {'A': 1.0, 'B': 0.5})"
        )
    wanted = [relation] if relations is None else list(relations)
    kinds = [_kind_of(data, one) for one in wanted]
    if len({kind[0] for kind in kinds}) > 1 or len(set(kinds)) < len(kinds):
        raise InputError("from_pyg: expected distinct relations between nodes of one kind; got others")
    result = Data(**data[kinds[0][0]].to_dict())
    indices = [data[kind].edge_index for kind in kinds]
    result.edge_index, result.num_nodes = torch.cat(indices, dim=1), data[kinds[0][0]].num_nodes
    if relations is not None:
        counts = torch.tensor([index.shape[1] for index in indices])
        result.edge_type = torch.arange(len(kinds)).repeat_interleave(counts)
        result.edge_type_names = [kind[1] for kind in kinds]
    return result


def _kind_of(data: Any, relation: Relation | None) -> tuple[str, str, str]:
    """The one kind of edge between nodes of one kind that a word, or nothing, stands for."""
    fitting = [kind for kind in data.edge_types if kind[0] == kind[2]]
    named = [kind for kind in fitting if relation in (None, kind, kind[1])]
    if len(named) != 1:
        known = ", ".join("/".join(kind) for kind in fitting) or "none"
        raise InputError(
            f"expected to be told which kind of edge between nodes of one kind ({known}); got {relation!r}. Choose: "
            "hushgraph.Graph.from_pyg(data, relation='A'), or relations=['A', 'B'], which may have a budget each"
        )
    found: tuple[str, str, str] = named[0]
    return found


def _dgl_nodes(graph: Any, kind: str) -> dict[str, Any]:
    """What DGL holds of nodes, under the names of PyTorch Geometric; masks were numbers in some of its versions."""
    renamed = {"feat": "x", "features": "x", "label": "y", "labels": "y"}
    held = {renamed.get(key, key): value for key, value in graph.nodes[kind].data.items()}
    kept = {key: value.bool() if key in MASKS else value for key, value in held.items() if key in _KEPT}
    return {**kept, "num_nodes": int(graph.num_nodes(kind))}


def _dgl_edges(graph: Any, relation: tuple[str, str, str] | None) -> Tensor:
    return torch.stack(graph.edges() if relation is None else graph.edges(etype=relation)).long()


def _pairs(edges: Any) -> Tensor:
    """Pairs of whole numbers as `[2, E]`."""
    found = edges.numpy() if isinstance(edges, Tensor) else np.asarray(edges)
    if found.size == 0:
        return torch.empty((2, 0), dtype=torch.int64)
    if found.ndim != 2 or 2 not in found.shape or found.dtype.kind not in "iu":
        raise InputError(
            "from_edges: expected pairs of node numbers, [E, 2] or [2, E]; got "
            f"{found.dtype} of shape {list(found.shape)}. Words as ids: use from_pandas with a table of nodes"
        )
    pairs = found if found.shape[0] == 2 and found.shape[1] != 2 else found.T
    return torch.from_numpy(pairs.astype(np.int64))


def _rows(x: Any) -> Tensor:
    if isinstance(x, Tensor):
        return x
    return to_torch_csr(x) if hasattr(x, "tocsr") else torch.from_numpy(np.asarray(x, dtype=np.float32))


def _labels_as_tensor(graph: Graph) -> Tensor:
    """Labels that were given as lists or words, for what needs their number: see `hushgraph.graph.checks`."""
    from hushgraph.graph.checks import numbered_labels

    return numbered_labels(graph, int(graph.num_nodes or 0))


def as_graph(given: Any, memory: str | int | None = None, workers: Executor | None = None) -> Any:
    """What `fit` was given, as a graph where it is clear which; otherwise an error that says what to write.

    `memory` is what an imported graph may take before its edges stay on the disk; `workers` add up its edges.
    """
    if isinstance(given, Data) or hasattr(given, "edge_index"):
        return given
    kind = type(given).__name__
    if isinstance(given, str | Path):
        if is_stored(given):
            return load(given, memory=memory, workers=workers, as_lists=True)
        return Graph.read(given) if is_whole_graph(given) else load(given)
    if hasattr(given, "edge_types"):
        return Graph.from_pyg(given)
    if hasattr(given, "canonical_etypes"):
        return Graph.from_dgl(given)
    if hasattr(given, "is_directed") and hasattr(given, "nodes"):
        return Graph.from_networkx(given)
    if hasattr(given, "tocoo"):
        raise InputError(f"expected a graph; got {kind}. Do: hushgraph.Graph.from_scipy(matrix, x=..., y=...)")
    if hasattr(given, "columns") or isinstance(given, tuple | list | dict):
        raise InputError(
            f"expected a graph; got {kind}. Do: hushgraph.Graph.from_pandas(nodes, edges, id=..., label=..., "
            "features={...}, directed=False)"
        )
    raise InputError(
        f"expected a graph (torch_geometric Data or hushgraph.Graph); got {kind}. See hushgraph.Graph.from_..."
    )
