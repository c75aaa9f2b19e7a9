"""Who is trained on, who is validated on, who is tested on: random splits, splits from a file, and disjoint graphs.

Parts of a graph: rows of dense and sparse features, features reduced by a public projection (the same random directions
for everybody, drawn without the data), and the subgraph on some of the nodes.
"""

from __future__ import annotations

import copy
import math
import warnings
from pathlib import Path

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import index_to_mask, subgraph

from hushgraph.errors import InputError

MASKS = ("train_mask", "val_mask", "test_mask")

_DEVIATIONS = 3.0
"""One projected number of a row of length 1 has deviation 1 / sqrt(width); this many on each side fit in the range."""


def random_split(
    data: Data,
    train: float = 0.75,
    val: float = 0.10,
    test: float = 0.15,
    seed: int = 0,
    labeled: Tensor | None = None,
) -> Data:
    """A copy of `data` with a uniform random split of its nodes; `data` itself is not changed.

    The fractions may sum to less than one: the nodes left over are in no mask. The split is public, so it does not
    look at `y`: nodes without a label are in it. `labeled` is a boolean mask of the nodes that may be used, where it
    is public knowledge who has a label (`labeled=data.y >= 0` makes it public).
    """
    _check_fractions(train, val, test)
    ids = torch.nonzero(_usable(data, labeled)).flatten().numpy()
    if len(ids) == 0:
        raise InputError("expected at least one node to split; got none")
    shuffled = np.random.default_rng(seed).permutation(ids)
    first = round(train * len(ids))
    second = first + round(val * len(ids))
    # Rounding must not leave a node out when the fractions sum to one, nor run past the end.
    last = len(ids) if math.isclose(train + val + test, 1.0) else second + round(test * len(ids))
    parts = (shuffled[:first], shuffled[first:second], shuffled[second:last])
    masks = tuple(index_to_mask(torch.from_numpy(part), int(data.y.shape[0])) for part in parts)
    result = with_masks(data, *masks)
    result.split_seed = seed
    return result


def split_from(data: Data, file: str | Path) -> Data:
    """A copy of `data` with the split stored in an npz file (`train_mask`, `val_mask`, `test_mask`).

    If the file holds `node_ids`, they must be those of `data.node_ids`, in that order (a graph without `node_ids` has
    the ids 0 to n - 1). The masks are taken as they are, whoever has a label.
    """
    from hushgraph.datasets.archive import Archive

    with Archive(file) as archive:
        archive.require(MASKS, "a split file holds")
        count = int(data.y.shape[0])
        if "node_ids" in archive:
            _check_node_ids(data, archive.integers("node_ids", (None,)), archive.path)
        masks = [torch.from_numpy(archive.booleans(name, (count,))) for name in MASKS]
    check_masks(masks[0], masks[1], masks[2], str(archive.path))
    return with_masks(data, *masks)


def disjoint_graphs(data: Data, seed: int = 0) -> tuple[Data, Data]:
    """Cut `data` into a graph for training and validation and one for testing, for inductive evaluation.

    Nodes of the train and validation masks go to the first, nodes of the test mask to the second. Nodes in no mask
    (unlabeled, or left out of the split) are dealt out at random in the same proportion, with `seed`. Edges between
    the two graphs are dropped. Both keep `node_ids`, the ids of their nodes in `data`, which is not changed.
    """
    if not has_split(data):
        raise InputError(
            "expected data with train_mask, val_mask and test_mask; got data without a split; call random_split first"
        )
    in_test = _test_side(data, seed)
    if not bool(in_test.any()) or bool(in_test.all()):
        raise InputError("expected nodes on both sides; got a split whose train/val or test part is empty")
    return induced(data, ~in_test), induced(data, in_test)


def with_masks(data: Data, train_mask: Tensor, val_mask: Tensor, test_mask: Tensor) -> Data:
    """A shallow copy of `data` with these masks; the tensors of `data` are shared, never written to."""
    result = copy.copy(data)
    result.train_mask, result.val_mask, result.test_mask = train_mask, val_mask, test_mask
    return result


def has_split(data: Data) -> bool:
    """Whether all three masks are there."""
    return all(isinstance(data.get(name), Tensor) for name in MASKS)


def check_masks(train_mask: Tensor, val_mask: Tensor, test_mask: Tensor, where: str) -> None:
    """Refuse masks that share a node."""
    together = train_mask.int() + val_mask.int() + test_mask.int()
    shared = int((together > 1).sum())
    if shared:
        first = int(torch.nonzero(together > 1)[0])
        raise InputError(
            f"{where}: expected train, val and test masks without a common node; got {shared} nodes in more than "
            f"one (the first is node {first}); correct the masks"
        )


def _test_side(data: Data, seed: int) -> Tensor:
    learns = data.train_mask | data.val_mask
    tests = data.test_mask
    share = int(tests.sum()) / max(1, int(learns.sum()) + int(tests.sum()))
    coin = np.random.default_rng(seed).random(len(tests)) < share
    return tests | (~learns & ~tests & torch.from_numpy(coin))


def _check_fractions(train: float, val: float, test: float) -> None:
    problems = []
    for name, value in (("train", train), ("val", val), ("test", test)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
            problems.append(f"expected {name} to be a fraction between 0 and 1; got {value!r}")
    if not problems and train == 0:
        problems.append("expected a train fraction above 0; got 0")
    if not problems and train + val + test > 1.0 + 1e-9:
        total = train + val + test
        problems.append(f"expected fractions that sum to at most 1; got {train} + {val} + {test} = {total:.4g}")
    InputError.collect(problems)


def _usable(data: Data, labeled: Tensor | None) -> Tensor:
    if not isinstance(data.get("y"), Tensor):
        raise InputError("expected data.y, the class of each node; got data without y")
    count = int(data.y.shape[0])
    if labeled is None:
        return torch.ones(count, dtype=torch.bool)
    if labeled.dtype != torch.bool or labeled.shape != (count,):
        raise InputError(
            f"expected labeled to be a boolean mask of shape {(count,)}; "
            f"got {labeled.dtype} of shape {tuple(labeled.shape)}"
        )
    return labeled


def _check_node_ids(data: Data, stored: np.ndarray, path: Path) -> None:
    own = data.get("node_ids")
    ids = own.numpy() if isinstance(own, Tensor) else np.arange(int(data.y.shape[0]))
    if len(ids) != len(stored):
        raise InputError(
            f"{path}: expected a split of the {len(ids)} nodes of this graph; got node_ids of {len(stored)} nodes; "
            "was the split made for the task subgraph (task=True) or for another file?"
        )
    different = np.flatnonzero(ids != stored)
    if len(different):
        at = int(different[0])
        raise InputError(
            f"{path}: expected node_ids equal to the ids of the graph's nodes, ascending; they differ in "
            f"{len(different)} places (first at position {at}: graph {ids[at]}, file {stored[at]}); "
            "the split belongs to another graph"
        )


def to_torch_csr(matrix: sparse.spmatrix | sparse.sparray) -> Tensor:
    """A torch sparse CSR float32 tensor with the same entries, columns sorted within each row."""
    csr = sparse.csr_matrix(matrix, dtype=np.float32, copy=True)
    csr.sum_duplicates()
    with warnings.catch_warnings():
        # torch announces on every first use that the CSR layout is in beta; nothing here depends on what may change.
        warnings.filterwarnings("ignore", message=".*[Ss]parse CSR tensor support is in beta.*")
        return torch.sparse_csr_tensor(
            torch.from_numpy(csr.indptr.astype(np.int64)),
            torch.from_numpy(csr.indices.astype(np.int64)),
            torch.from_numpy(csr.data),
            size=csr.shape,
            check_invariants=True,
        )


def to_scipy(x: Tensor) -> sparse.csr_matrix:
    """The scipy CSR matrix of a torch sparse tensor (CSR or COO) or of a dense one."""
    if x.layout == torch.sparse_coo:
        x = x.coalesce().to_sparse_csr()
    if x.layout == torch.sparse_csr:
        parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
        return sparse.csr_matrix(parts, shape=tuple(x.shape))
    return sparse.csr_matrix(x.numpy())


def choose_rows(x: Tensor, rows: Tensor) -> Tensor:
    """The given rows (indices) of a dense or sparse CSR tensor, in that order and in the same layout."""
    if x.layout == torch.strided:
        return x[rows]
    return to_torch_csr(to_scipy(x)[rows.numpy()])


def induced(data: Data, keep: Tensor) -> Data:
    """The subgraph induced by the nodes in the boolean mask `keep`, in ascending order; `data` is not changed.

    Everything stored per node or per edge follows along. The result has `node_ids`: the ids of its nodes in the graph
    that `data` came from.
    """
    count = int(data.y.shape[0])
    if keep.dtype != torch.bool or tuple(keep.shape) != (count,):
        raise InputError(f"expected a boolean mask of shape ({count},); got {keep.dtype} of {tuple(keep.shape)}")
    nodes = keep.nonzero().squeeze(1)
    edge_index, _, edges = subgraph(keep, data.edge_index, relabel_nodes=True, num_nodes=count, return_edge_mask=True)
    relabeled = {"edge_index": edge_index}
    if (public := data.get("public_edge_index")) is not None:
        relabeled["public_edge_index"] = subgraph(keep, public, relabel_nodes=True, num_nodes=count)[0]
    result = Data()
    for key, value in data.to_dict().items():
        result[key] = relabeled[key] if key in relabeled else _part(data, key, value, nodes, edges)
    # An isolated last node is invisible in edge_index, and Data may have stored the old count.
    result.num_nodes = len(nodes)
    old_ids = data.get("node_ids")
    result.node_ids = nodes if old_ids is None else old_ids[nodes]
    return result


def _part(data: Data, key: str, value: object, nodes: Tensor, edges: Tensor) -> object:
    if isinstance(value, np.ndarray) and len(value) == len(data.y):
        return value[nodes.numpy()]
    if not isinstance(value, Tensor):
        return value
    if key in ("x", "y", "train_mask", "val_mask", "test_mask") or data.is_node_attr(key):
        return choose_rows(value, nodes)
    return value[edges] if data.is_edge_attr(key) else value


def project(data: Data, width: int, seed: int = 0) -> Data:
    """A copy of `data` with `width` features in [0, 1] in place of its own; 1/2 stands for nothing."""
    if isinstance(width, bool) or not isinstance(width, int) or width < 1:
        raise InputError(f"project: expected the number of features to keep; got {width!r}")
    result = copy.copy(data)
    result.x = projected(data.x, width, seed)
    return result


def projected(x: Tensor, width: int, seed: int = 0) -> Tensor:
    """The rows, dense or sparse, in the public coordinates."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(x.shape[1], width, generator=generator)
    dense = x if x.layout is torch.strided else x.to_dense()
    lengths = dense.norm(dim=1, keepdim=True)
    # directions have deviation 1, so what stands for 1 / sqrt(width) of a scaled row is 1 here.
    found = (dense @ directions) / torch.where(lengths > 0, lengths, torch.ones_like(lengths))
    return (0.5 + found / (2.0 * _DEVIATIONS)).clamp(0.0, 1.0)
