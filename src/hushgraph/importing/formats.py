"""Files that hold a whole graph: GraphML, node-link JSON, PyTorch Geometric `.pt`, and the folders of OGB.

GraphML and JSON become a table of nodes and a table of edges. A `.pt` file is read as weights alone: one that would run
code is refused. The folder of OGB is the one with `raw/` and `split/` in it; nothing is downloaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.datasets.archive import refuse_code_in_torch
from hushgraph.datasets.loading import plain_containers
from hushgraph.datasets.splits import MASKS
from hushgraph.errors import InputError
from hushgraph.importing.tables import Table, open_table, table_of

ID, SOURCE, TARGET = "id", "source", "target"


@dataclass(frozen=True)
class TwoTables:
    """A graph as a table of nodes (with the column `id`) and one of edges (`source`, `target`)."""

    nodes: Table
    edges: Table
    directed: bool


def is_whole_graph(path: str | Path) -> bool:
    """Whether a file or folder holds a graph with its nodes."""
    return Path(path).suffix.lower() in _READERS or is_ogb_folder(path)


def read_whole_graph(path: str | Path) -> TwoTables | Data:
    """The graph in a file or folder, by its name."""
    source = Path(path).expanduser()
    if not source.exists():
        raise InputError(f"expected a graph at {source}; there is no such file; check the path")
    if is_ogb_folder(source):
        return read_ogb(source)
    return _READERS[source.suffix.lower()](source)


def read_graphml(path: Path) -> TwoTables:
    """A GraphML file, by the reader of NetworkX."""
    import networkx

    try:
        graph = networkx.read_graphml(path)
    except Exception as error:
        raise InputError(
            f"{path}: expected GraphML; it cannot be read ({type(error).__name__}); write it again"
        ) from error
    return tables_of_networkx(graph, str(path))


def read_node_link(path: Path) -> TwoTables:
    """Node-link JSON: `nodes`, each with an `id`, and `links` or `edges`, each with a `source` and a `target`."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: expected JSON; it cannot be read ({error}); write it again") from error
    links = None if not isinstance(found, dict) else found.get("links", found.get("edges"))
    if not isinstance(found, dict) or not isinstance(found.get("nodes"), list) or not isinstance(links, list):
        raise InputError(
            f"{path}: expected node-link JSON, an object with lists 'nodes' and 'links' (or 'edges'); got something "
            "else; write it with networkx.node_link_data"
        )
    whole = all(isinstance(one, dict) and ID in one for one in found["nodes"])
    if not (whole and all(isinstance(one, dict) and {SOURCE, TARGET} <= one.keys() for one in links)):
        raise InputError(f"{path}: expected an 'id' in every node, a 'source' and a 'target' in every link; got others")
    nodes = table_of(columns_of(found["nodes"]), f"{path} (nodes)")
    edges = table_of(columns_of(links, (SOURCE, TARGET)), f"{path} (links)")
    return TwoTables(nodes, edges, bool(found.get("directed", False)))


def tables_of_networkx(graph: Any, where: str) -> TwoTables:
    """The nodes of a NetworkX graph with their attributes, and its edges."""
    taken = [name for _, values in graph.nodes(data=True) for name in values if name == ID]
    if taken:
        raise InputError(f"{where}: expected no attribute 'id' beside the names of the nodes; got one; rename it")
    nodes = [{ID: node, **values} for node, values in graph.nodes(data=True)]
    edges = [{SOURCE: one, TARGET: other, **values} for one, other, values in graph.edges(data=True)]
    tables = table_of(columns_of(nodes, (ID,)), where), table_of(columns_of(edges, (SOURCE, TARGET)), where)
    return TwoTables(*tables, graph.is_directed())


def columns_of(rows: Sequence[Mapping[str, Any]], first: Sequence[str] = ()) -> dict[str, Any]:
    """Columns of all keys that occur; values of several kinds become words."""
    from hushgraph.importing.tables import arrow

    pa = arrow()
    names = dict.fromkeys([*first, *(str(name) for row in rows for name in row)])
    columns: dict[str, Any] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(values) if values else pa.array([], pa.string())
        except (pa.ArrowException, OverflowError):
            columns[name] = pa.array([None if value is None else str(value) for value in values])
    return columns


def read_pt(path: Path) -> Data:
    """A `Data` or a dictionary of tensors that torch saved."""
    try:
        with torch.serialization.safe_globals(plain_containers()):
            refuse_code_in_torch(path, hint="save plain tensors: torch.save(data.to_dict(), path)")
            found = torch.load(path, weights_only=True)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{path}: expected tensors that torch saved; they cannot be read ({type(error).__name__})"
        ) from error
    if isinstance(found, tuple | list) and found:
        found = found[0]
    if isinstance(found, Data):
        return found
    if isinstance(found, dict) and isinstance(found.get("edge_index"), Tensor):
        return Data.from_dict(found)
    raise InputError(
        f"{path}: expected a Data or a dictionary with edge_index, x and y; got {type(found).__name__}; save "
        "data.to_dict()"
    )


def is_ogb_folder(path: str | Path) -> bool:
    """Whether this folder was made by OGB for node property prediction."""
    folder = Path(path).expanduser()
    return any((folder / "raw" / f"edge.csv{packed}").is_file() for packed in ("", ".gz"))


def read_ogb(folder: Path) -> Data:
    """The raw files of an OGB dataset: edges, features and labels in `raw/`, the split in `split/*/`."""
    edges = _numbers(folder / "raw" / "edge.csv").astype(np.int64).T
    features, labels = _numbers(folder / "raw" / "node-feat.csv"), _numbers(folder / "raw" / "node-label.csv")
    y = np.where(np.isnan(labels[:, 0]), -1, labels[:, 0]).astype(np.int64)
    data = Data(
        x=torch.from_numpy(features.astype(np.float32)),
        edge_index=torch.from_numpy(np.ascontiguousarray(edges)),
        y=torch.from_numpy(y),
        num_nodes=len(y),
        name=folder.name,
    )
    parts = sorted((folder / "split").glob("*/train.csv*"))
    for mask, part in zip(MASKS, ("train", "valid", "test")) if parts else ():
        data[mask] = torch.zeros(len(y), dtype=torch.bool)
        data[mask][torch.from_numpy(_numbers(parts[0].parent / f"{part}.csv")[:, 0].astype(np.int64))] = True
    return data


def _numbers(path: Path) -> np.ndarray:
    """A file of numbers without names, packed or not."""
    found = path if path.is_file() else path.with_name(path.name + ".gz")
    table = open_table(found, header=False)
    blocks = [_matrix(batch.columns, found) for batch in table.read(table.columns)]
    return np.concatenate(blocks) if blocks else np.empty((0, len(table.columns)))


def _matrix(columns: Iterable[Any], path: Path) -> np.ndarray:
    from hushgraph.importing.rules import numbers_of

    def numbers() -> Iterator[np.ndarray]:
        for place, column in enumerate(columns):
            yield numbers_of(column, str(place), str(path))

    return np.stack(list(numbers()), axis=1)


_READERS: dict[str, Callable[[Path], TwoTables | Data]] = {
    ".graphml": read_graphml,
    ".json": read_node_link,
    ".pt": read_pt,
}
