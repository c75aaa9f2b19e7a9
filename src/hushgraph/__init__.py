"""hushgraph: graph neural networks with differential privacy, audited and reported.

Names are loaded when they are first used, so that `import hushgraph` and `hushgraph --help` stay fast.
"""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from typing import Any as _Any

    from hushgraph import datasets, local, mechanisms, testing
    from hushgraph.executors.ray import Ray
    from hushgraph.graph.disk import DiskEdges
    from hushgraph.graph.targets import NumberRange
    from hushgraph.importing.graph import Graph
    from hushgraph.ledger.certificate import Certificate
    from hushgraph.ledger.ledger import Ledger
    from hushgraph.ledger.project import default_ledger
    from hushgraph.methods.auto import Auto, fit
    from hushgraph.methods.base import Method, Output
    from hushgraph.methods.chorus import Chorus
    from hushgraph.methods.chorus_codes import ChorusCodes
    from hushgraph.methods.class_dp import ClassDP
    from hushgraph.methods.dpappr import DPAPPR
    from hushgraph.methods.dpgnn import DPGNN
    from hushgraph.methods.edge_rr import EdgeRR, PrivHRG
    from hushgraph.methods.feature_rr import FeatureRR
    from hushgraph.methods.gap import GAP
    from hushgraph.methods.hetero_rr import HeteroRR
    from hushgraph.methods.lpgnet import LPGNet
    from hushgraph.methods.lpgnn import LPGNN
    from hushgraph.methods.mlp import DPMLP, MLP
    from hushgraph.methods.model import Model, load
    from hushgraph.methods.noisy_moments import NoisyMoments
    from hushgraph.methods.pate import PATE
    from hushgraph.methods.perturbed import ARR, EdgeRand, LapGraph, SageEDP
    from hushgraph.methods.pgc import PGC, PGCLinks
    from hushgraph.methods.plain_gnn import GAT, GCN, GIN, GraphSAGE
    from hushgraph.methods.progap import ProGAP
    from hushgraph.methods.quorum import Quorum
    from hushgraph.methods.released import ReleasedGraph, release_graph
    from hushgraph.methods.select import fit_best
    from hushgraph.nn.feature_scores import FeatureScores, feature_scores
    from hushgraph.privacy import units
    from hushgraph.privacy.budget import Budget
    from hushgraph.privacy.mechanism import Mechanism
    from hushgraph.privacy.plan import Plan, Stage
    from hushgraph.privacy.units import Unit
    from hushgraph.registry import register
    from hushgraph.study.run import study
    from hushgraph.tracking.base import track
    from hushgraph.training.ranks import Ranks

__version__ = "0.2.0"

_PLACES = {
    "ARR": "methods.perturbed",
    "Auto": "methods.auto",
    "Budget": "privacy.budget",
    "Certificate": "ledger.certificate",
    "Chorus": "methods.chorus",
    "ChorusCodes": "methods.chorus_codes",
    "DPAPPR": "methods.dpappr",
    "PATE": "methods.pate",
    "ClassDP": "methods.class_dp",
    "NoisyMoments": "methods.noisy_moments",
    "DPGNN": "methods.dpgnn",
    "DiskEdges": "graph.disk",
    "DPMLP": "methods.mlp",
    "EdgeRR": "methods.edge_rr",
    "EdgeRand": "methods.perturbed",
    "FeatureRR": "methods.feature_rr",
    "FeatureScores": "nn.feature_scores",
    "GAP": "methods.gap",
    "GAT": "methods.plain_gnn",
    "GCN": "methods.plain_gnn",
    "GIN": "methods.plain_gnn",
    "Graph": "importing.graph",
    "GraphSAGE": "methods.plain_gnn",
    "HeteroRR": "methods.hetero_rr",
    "LPGNN": "methods.lpgnn",
    "LPGNet": "methods.lpgnet",
    "LapGraph": "methods.perturbed",
    "Ledger": "ledger.ledger",
    "MLP": "methods.mlp",
    "Mechanism": "privacy.mechanism",
    "Method": "methods.base",
    "Model": "methods.model",
    "NumberRange": "graph.targets",
    "Output": "methods.base",
    "PGC": "methods.pgc",
    "PGCLinks": "methods.pgc",
    "Plan": "privacy.plan",
    "PrivHRG": "methods.edge_rr",
    "ProGAP": "methods.progap",
    "Quorum": "methods.quorum",
    "Ranks": "training.ranks",
    "Ray": "executors.ray",
    "ReleasedGraph": "methods.released",
    "SageEDP": "methods.perturbed",
    "Stage": "privacy.plan",
    "Unit": "privacy.units",
    "default_ledger": "ledger.project",
    "feature_scores": "nn.feature_scores",
    "fit": "methods.auto",
    "fit_best": "methods.select",
    "load": "methods.model",
    "register": "registry",
    "release_graph": "methods.released",
    "track": "tracking.base",
}
_MODULES = {name: name for name in ("datasets", "local", "mechanisms", "study", "testing")} | {"units": "privacy.units"}

__all__ = [
    "ARR",
    "DPAPPR",
    "DPGNN",
    "DPMLP",
    "GAP",
    "GAT",
    "GCN",
    "GIN",
    "LPGNN",
    "MLP",
    "PATE",
    "PGC",
    "Auto",
    "Budget",
    "Certificate",
    "Chorus",
    "ChorusCodes",
    "ClassDP",
    "DiskEdges",
    "EdgeRR",
    "EdgeRand",
    "FeatureRR",
    "FeatureScores",
    "Graph",
    "GraphSAGE",
    "HeteroRR",
    "LPGNet",
    "LapGraph",
    "Ledger",
    "Mechanism",
    "Method",
    "Model",
    "NoisyMoments",
    "NumberRange",
    "Output",
    "PGCLinks",
    "Plan",
    "PrivHRG",
    "ProGAP",
    "Quorum",
    "Ranks",
    "Ray",
    "ReleasedGraph",
    "SageEDP",
    "Stage",
    "Unit",
    "__version__",
    "datasets",
    "default_ledger",
    "feature_scores",
    "fit",
    "fit_best",
    "load",
    "local",
    "mechanisms",
    "register",
    "release_graph",
    "study",
    "testing",
    "track",
    "units",
]


def __getattr__(name: str) -> _Any:
    if name in _PLACES:
        return getattr(_importlib.import_module(f"hushgraph.{_PLACES[name]}"), name)
    if name in _MODULES:
        return _importlib.import_module(f"hushgraph.{_MODULES[name]}")
    raise AttributeError(f"module 'hushgraph' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
