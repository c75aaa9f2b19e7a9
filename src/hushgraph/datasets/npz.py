"""Graphs in npz files: the format of the benchmark files, and the way to bring your own graph.

A file holds `edge_index` [2, E] with both directions of every edge, `y` (the class of each node, -1 for none), and the
features, either dense as `x` or in CSR form as `x_data`, `x_indices`, `x_indptr`, `x_shape`. Optional are
`train_mask`, `val_mask`, `test_mask` (or several splits at once, `train_masks` and so on, [splits, n]), the declared
classes (`class_names`, `class_years`, or their number `num_classes`), `keep_mask`, the nodes of the classification
task, `public_edge_index`, edges that are public knowledge, and `directed`, true where an edge may be stored in one
direction only. Nothing in a file is ever unpickled.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.datasets.archive import Archive
from hushgraph.datasets.splits import (
    MASKS,
    check_masks,
    has_split,
    induced,
    split_from,
    to_scipy,
    to_torch_csr,
    with_masks,
)
from hushgraph.errors import InputError
from hushgraph.files.writing import written_whole
from hushgraph.privacy.metadata import MOST_CLASSES, MOST_FEATURES

CSR_PARTS = ("x_data", "x_indices", "x_indptr", "x_shape")


def read_npz(
    path: str | Path,
    split: int | str | Path | None = None,
    *,
    task: bool = True,
    num_classes: int | None = None,
    features: str = "required",
    directed: bool = False,
    keep: Sequence[str] = (),
) -> Data:
    """Read a graph file.

    split: the path of a separate split file, or the number of a split when the file holds several (0 if not given).
    task: when the file has a `keep_mask`, return the subgraph induced by it, with the ids of its nodes in `node_ids`;
        `False` returns all nodes.
    num_classes: the number of classes, a public fact. It is needed only if the file names no classes; without it
        the graph declares none, and is refused under units that keep labels private.
    features: "required" refuses a file without features; "constant" gives such a graph one column of ones.
    directed: accept a graph in which an edge is stored in one direction only; a file that says so itself needs no word.
    keep: other arrays of whole numbers with a row for each node, to be kept beside the rest.

    Nodes without a class (`y = -1`) stay in the graph, and in the masks that name them: a split is public, and who has
    a class may not be. Without a split there are no masks.
    """
    with Archive(path) as archive:
        archive.require(["edge_index", "y"], "a graph file holds")
        y = _read_labels(archive)
        directed = directed or ("directed" in archive and bool(archive.booleans("directed", ())))
        data = Data(
            x=_read_features(archive, len(y), features),
            edge_index=_read_edges(archive, len(y), directed),
            y=torch.from_numpy(y),
            num_nodes=len(y),
            name=archive.path.stem,
        )
        names = _read_class_names(archive, y, num_classes)
        if names is not None:
            data.class_names = names
        if "public_edge_index" in archive:
            data.public_edge_index = _read_edges(archive, len(y), directed, "public_edge_index")
        for name in keep:
            archive.require([name], "these arrays were asked for")
            data[name] = torch.from_numpy(archive.integers(name, (len(y), None)))
        data = _with_stored_split(archive, data, split)
        if task and "keep_mask" in archive:
            data = induced(data, torch.from_numpy(archive.booleans("keep_mask", (len(y),))))
    return data if split is None or _is_number(split) else split_from(data, str(split))


def write_npz(data: Data, path: str | Path) -> Path:
    """Write a graph in the format of `read_npz` and return the path (`.npz` is added if it is missing).

    Written are the edges, features, labels, masks and declared classes, and that edges are `directed` where `data` has
    that attribute; other attributes of `data` are not.
    """
    arrays = {
        "edge_index": _sorted_edges(data.edge_index, len(data.y)),
        "y": data.y.numpy().astype(np.int64),
        **_feature_arrays(data),
    }
    if data.get("public_edge_index") is not None:
        arrays["public_edge_index"] = _sorted_edges(data.public_edge_index, len(data.y))
    if data.get("directed"):
        arrays["directed"] = np.array(True)
    if has_split(data):
        arrays.update({name: data[name].numpy() for name in MASKS})
    if data.get("class_names") is not None and data.get("classes_declared", True):
        arrays["class_names"] = np.array(list(data.class_names), dtype=np.str_)
    elif data.to_dict().get("num_classes") is not None:
        arrays["num_classes"] = np.array(int(data.num_classes), dtype=np.int64)
    target = Path(path)
    target = target if target.suffix == ".npz" else target.with_name(target.name + ".npz")
    with written_whole(target) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    return target


def _read_labels(archive: Archive) -> NDArray[np.int64]:
    """One class number a node, or a matrix of 0 and 1 with a column for each class."""
    y = archive.integers("y", (None, None) if archive.columns("y") > 1 else (None,))
    if len(y) == 0:
        raise InputError(f"{archive.path}: expected at least one node; y is empty")
    if int(y.min()) < -1:
        raise InputError(f"{archive.path}: expected classes from 0 in y, or -1 for none; got {int(y.min())}")
    return y


def _read_edges(archive: Archive, count: int, directed: bool, name: str = "edge_index") -> Tensor:
    edges = archive.integers(name, (2, None))
    where = f"{archive.path}: expected {name}"
    if edges.size and not 0 <= int(edges.min()) <= int(edges.max()) < count:
        raise InputError(
            f"{where} to hold node numbers from 0 to {count - 1} (y has {count} nodes); "
            f"got values from {int(edges.min())} to {int(edges.max())}"
        )
    loops = int((edges[0] == edges[1]).sum())
    if loops:
        raise InputError(f"{where} without self loops; got {loops}; use torch_geometric.utils.remove_self_loops")
    forward = _sorted_keys(edges[0], edges[1], count)
    repeated = int((forward[1:] == forward[:-1]).sum())
    if repeated:
        raise InputError(f"{where} without duplicates; got {repeated}; use torch_geometric.utils.coalesce")
    if not directed and not np.array_equal(forward, _sorted_keys(edges[1], edges[0], count)):
        raise InputError(
            f"{where} to hold both directions of every edge; some are stored in one direction only; "
            "use torch_geometric.utils.to_undirected, or say that it is directed (directed=True, --directed)"
        )
    return torch.from_numpy(edges)


def _sorted_keys(first: NDArray[np.int64], second: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """One number per pair, ascending; made in place, because a large graph has many pairs."""
    keys = first * count
    keys += second
    keys.sort()
    return keys


def _read_features(archive: Archive, count: int, features: str) -> Tensor:
    if features not in ("required", "constant"):
        raise InputError(f"expected features to be 'required' or 'constant'; got {features!r}")
    if "x" in archive:
        return torch.from_numpy(archive.numbers("x", (count, None)))
    if any(part in archive for part in CSR_PARTS):
        return _read_sparse_features(archive, count)
    if features == "constant":
        return torch.ones(count, 1)
    raise InputError(
        f"{archive.path}: expected features, either x or {', '.join(CSR_PARTS)}; found neither; "
        "pass features='constant' to give every node the same single feature"
    )


def _read_sparse_features(archive: Archive, count: int) -> Tensor:
    archive.require(CSR_PARTS, "sparse features consist of")
    rows, columns = (int(length) for length in archive.integers("x_shape", (2,)))
    if rows != count or not 0 <= columns <= MOST_FEATURES:
        raise InputError(
            f"{archive.path}: expected x_shape with {count} rows, as many as y has, and at most {MOST_FEATURES:,} "
            f"columns; got {rows} and {columns}"
        )
    indptr = archive.integers("x_indptr", (rows + 1,))
    indices = archive.integers("x_indices", (None,))
    values = archive.numbers("x_data", (len(indices),))
    if indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        raise InputError(
            f"{archive.path}: expected x_indptr to rise from 0 to {len(indices)}, the number of stored values"
        )
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < columns:
        raise InputError(
            f"{archive.path}: expected x_indices from 0 to {columns - 1}; "
            f"got values from {int(indices.min())} to {int(indices.max())}"
        )
    return to_torch_csr(sparse.csr_matrix((values, indices, indptr), shape=(rows, columns)))


def _read_class_names(archive: Archive, y: NDArray[np.int64], num_classes: int | None) -> list[str] | None:
    """The declared classes; none where neither the file nor the caller declares them."""
    stored = next((name for name in ("class_names", "class_years") if name in archive), None)
    highest = int(y.max()) if y.ndim == 1 else y.shape[1] - 1
    if stored is None and num_classes is None and "num_classes" in archive:
        num_classes = int(archive.integers("num_classes", ()))
    if max(highest + 1, num_classes or 0) > MOST_CLASSES:
        given = max(highest + 1, num_classes or 0)
        raise InputError(
            f"{archive.path}: expected at most {MOST_CLASSES:,} classes; got {given:,}; number them from 0"
        )
    if stored is not None:
        names = archive.words(stored)
        if num_classes is not None and num_classes != len(names):
            raise InputError(f"{archive.path}: expected {num_classes} classes; got {len(names)} in {stored}")
    elif num_classes is not None:
        names = [str(number) for number in range(num_classes)]
    else:
        return None
    if highest >= len(names):
        raise InputError(f"{archive.path}: expected classes from 0 to {len(names) - 1} in y; got {highest}")
    return names


def _with_stored_split(archive: Archive, data: Data, split: int | str | Path | None) -> Data:
    """The split in the graph file itself. A separate split file takes its place later."""
    several = "train_masks" in archive
    if split is not None and not _is_number(split):
        return data
    if split is not None and not several:
        raise InputError(f"{archive.path}: expected several splits to choose number {split} from; found no train_masks")
    if not several and not any(name in archive for name in MASKS):
        return data
    count = int(data.y.shape[0])
    if several:
        masks = _numbered_masks(archive, count, split if isinstance(split, int) else 0)
    else:
        archive.require(MASKS, "a split consists of")
        masks = [torch.from_numpy(archive.booleans(name, (count,))) for name in MASKS]
    check_masks(masks[0], masks[1], masks[2], str(archive.path))
    return with_masks(data, *masks)


def _numbered_masks(archive: Archive, count: int, number: int) -> list[Tensor]:
    names = [f"{name}s" for name in MASKS]
    archive.require(names, "several splits consist of")
    stacks = [archive.booleans(name, (None, count)) for name in names]
    splits = min(len(stack) for stack in stacks)
    if not 0 <= number < splits:
        raise InputError(f"{archive.path}: expected a split from 0 to {splits - 1}; got {number}")
    return [torch.from_numpy(stack[number].copy()) for stack in stacks]


def _is_number(split: object) -> bool:
    return isinstance(split, int) and not isinstance(split, bool)


def _sorted_edges(edge_index: Tensor, count: int) -> NDArray:
    edges = edge_index.numpy()
    edges = edges[:, np.lexsort((edges[1], edges[0]))]
    fits = count <= np.iinfo(np.int32).max
    return edges.astype(np.int32 if fits else np.int64)


def _feature_arrays(data: Data) -> dict[str, NDArray]:
    if data.get("x") is None:
        return {}
    if data.x.layout == torch.strided:
        return {"x": data.x.numpy().astype(np.float32)}
    csr = to_scipy(data.x)
    values = csr.data
    small = bool(((values >= 0) & (values <= 255) & (values == np.floor(values))).all())
    return {
        "x_data": values.astype(np.uint8 if small else np.float32),
        "x_indices": csr.indices.astype(np.int32),
        "x_indptr": csr.indptr.astype(np.int64),
        "x_shape": np.array(csr.shape, dtype=np.int64),
    }
