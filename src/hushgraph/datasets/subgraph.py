"""The subgraph on some of the nodes: everything stored per node or per edge follows along."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.datasets.sparse import choose_rows
from hushgraph.errors import InputError


def induced(data: Data, keep: Tensor) -> Data:
    """The subgraph induced by the nodes in the boolean mask `keep`, in ascending order; `data` is not changed.

    The result has `node_ids`: the ids of its nodes in the graph that `data` came from.
    """
    count = int(data.y.shape[0])
    if keep.dtype != torch.bool or tuple(keep.shape) != (count,):
        raise InputError(f"expected a boolean mask of shape ({count},); got {keep.dtype} of {tuple(keep.shape)}")
    nodes = torch.nonzero(keep).flatten()
    source, target = data.edge_index
    edges = keep[source] & keep[target]
    new_id = torch.cumsum(keep, 0) - 1
    result = Data()
    for key, value in data.to_dict().items():
        result[key] = _part(data, key, value, nodes, edges)
    # One end at a time: the edges are the largest thing here, and three copies of them would be the peak of memory.
    result.edge_index = torch.empty(2, int(edges.sum()), dtype=torch.int64)
    for end in (0, 1):
        torch.index_select(new_id, 0, data.edge_index[end][edges], out=result.edge_index[end])
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
    if key != "edge_index" and data.is_edge_attr(key):
        return value[edges]
    return value
