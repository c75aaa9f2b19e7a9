"""Graphs to work on: generated, read from files, or public; and the ways to split them.

`load(name_or_path)` gets any of them and `available()` lists what there is. Names are imported on first use, so that
importing this package does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgraph.datasets.catalog import DatasetRecord, available
    from hushgraph.datasets.loading import load, load_public
    from hushgraph.datasets.npz import read_npz, write_npz
    from hushgraph.datasets.public_edges import split_edges
    from hushgraph.datasets.splits import disjoint_graphs, project, random_split, split_from

__all__ = [
    "DatasetRecord",
    "available",
    "disjoint_graphs",
    "load",
    "load_public",
    "project",
    "random_split",
    "read_npz",
    "split_edges",
    "split_from",
    "write_npz",
]

_HOME = {
    "DatasetRecord": "catalog",
    "available": "catalog",
    "disjoint_graphs": "splits",
    "load": "loading",
    "load_public": "loading",
    "project": "splits",
    "random_split": "splits",
    "read_npz": "npz",
    "split_edges": "public_edges",
    "split_from": "splits",
    "write_npz": "npz",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
