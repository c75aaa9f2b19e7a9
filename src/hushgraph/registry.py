"""The methods by name. Importing this file imports no method: that happens when one is asked for."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hushgraph.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from hushgraph.methods.base import Method, TrainedModel


@dataclass(frozen=True)
class Entry:
    """Where a method lives."""

    module: str
    method: str
    model: str


METHODS = {
    "auto": Entry("hushgraph.methods.auto", "Auto", "TrainedModel"),
    "gap": Entry("hushgraph.methods.gap", "GAP", "GapModel"),
    "progap": Entry("hushgraph.methods.progap", "ProGAP", "ProgapModel"),
    "chorus": Entry("hushgraph.methods.chorus", "Chorus", "ChorusModel"),
    "lpgnn": Entry("hushgraph.methods.lpgnn", "LPGNN", "LpgnnModel"),
    "pgc": Entry("hushgraph.methods.pgc", "PGC", "PgcModel"),
    "pgc-links": Entry("hushgraph.methods.pgc_links", "PGCLinks", "LinkModel"),
    "mlp": Entry("hushgraph.methods.mlp", "MLP", "FeatureModel"),
    "dp-mlp": Entry("hushgraph.methods.mlp", "DPMLP", "FeatureModel"),
    "dp-gnn": Entry("hushgraph.methods.dpgnn", "DPGNN", "DPGNNModel"),
    "sage": Entry("hushgraph.methods.plain_gnn", "GraphSAGE", "UnprotectedModel"),
    "gcn": Entry("hushgraph.methods.plain_gnn", "GCN", "UnprotectedModel"),
    "gin": Entry("hushgraph.methods.plain_gnn", "GIN", "UnprotectedModel"),
    "gat": Entry("hushgraph.methods.plain_gnn", "GAT", "UnprotectedModel"),
}


def method_class(name: str) -> type[Method]:
    """The class of the method called `name`."""
    found: type[Method] = getattr(importlib.import_module(_entry(name).module), _entry(name).method)
    return found


def model_class(name: str) -> type[TrainedModel]:
    """The class of what that method's `fit` returns."""
    found: type[TrainedModel] = getattr(importlib.import_module(_entry(name).module), _entry(name).model)
    return found


def _entry(name: str) -> Entry:
    if name not in METHODS:
        raise InputError(f"unknown method '{name}'; {did_you_mean(name, METHODS)}")
    return METHODS[name]
