"""Parts of a graph: rows of dense and sparse features, and the subgraph on some of the nodes."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from hushgraph.errors import InputError


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
    if not isinstance(value, Tensor):
        return value
    if key in ("x", "y", "train_mask", "val_mask", "test_mask") or data.is_node_attr(key):
        return choose_rows(value, nodes)
    return value[edges] if data.is_edge_attr(key) else value
