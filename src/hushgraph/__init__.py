"""hushgraph: graph neural networks with differential privacy, audited and reported.

Names are loaded when they are first used, so that `import hushgraph` and `hushgraph --help` stay fast.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_EXPORTS = {
    "Budget": "hushgraph.privacy.budget",
    "Certificate": "hushgraph.ledger.certificate",
    "GAP": "hushgraph.methods.gap",
    "ProGAP": "hushgraph.methods.progap",
    "DPGNN": "hushgraph.methods.dpgnn",
    "fit": "hushgraph.methods.auto",
    "Auto": "hushgraph.methods.auto",
    "Chorus": "hushgraph.methods.chorus",
    "DPMLP": "hushgraph.methods.mlp",
    "MLP": "hushgraph.methods.mlp",
    "GCN": "hushgraph.methods.plain_gnn",
    "GIN": "hushgraph.methods.plain_gnn",
    "GAT": "hushgraph.methods.plain_gnn",
    "GraphSAGE": "hushgraph.methods.plain_gnn",
    "LPGNN": "hushgraph.methods.lpgnn",
    "PGC": "hushgraph.methods.pgc",
    "PGCLinks": "hushgraph.methods.pgc_links",
    "Ledger": "hushgraph.ledger.ledger",
    "default_ledger": "hushgraph.ledger.project",
    "load_model": "hushgraph.methods.saving",
}
_MODULES = ("datasets", "errors", "ledger", "local", "methods", "privacy")

__all__ = [*_EXPORTS, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    if name == "units":
        return importlib.import_module("hushgraph.privacy.units")
    if name in _MODULES:
        return importlib.import_module(f"hushgraph.{name}")
    raise AttributeError(f"module 'hushgraph' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS, *_MODULES})
