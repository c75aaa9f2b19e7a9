"""Everything that has a name: methods, units, mechanisms, attacks, experiments, executors, trackers, views of a model.

A name leads to "module:Class"; the module is imported when the name is asked for, so listing names imports nothing.
Other packages add theirs with `register`, or by an entry point in the group "hushgraph.<kind>" (for example
`[project.entry-points."hushgraph.methods"] mine = "my_package.mine:Mine"`).
"""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from typing import Any, Literal, cast

from hushgraph.errors import InputError, did_you_mean

Kind = Literal["methods", "units", "mechanisms", "attacks", "experiments", "executors", "trackers", "views"]

_METHODS = "hushgraph.methods."
_MECHANISMS = "hushgraph.mechanisms."
_UNITS = "hushgraph.privacy.units."
_ATTACKS = "hushgraph.attacks."
_EXPERIMENTS = "hushgraph.study.experiments."

_KNOWN: dict[str, dict[str, str | type]] = {
    "methods": {
        "auto": _METHODS + "auto:Auto",
        "chorus": _METHODS + "chorus:Chorus",
        "chorus-codes": _METHODS + "chorus_codes:ChorusCodes",
        "quorum": _METHODS + "quorum:Quorum",
        "gap": _METHODS + "gap:GAP",
        "progap": _METHODS + "progap:ProGAP",
        "dp-gnn": _METHODS + "dpgnn:DPGNN",
        "edge-rand": _METHODS + "perturbed:EdgeRand",
        "lap-graph": _METHODS + "perturbed:LapGraph",
        "arr": _METHODS + "perturbed:ARR",
        "edge-rr": _METHODS + "edge_rr:EdgeRR",
        "priv-hrg": _METHODS + "edge_rr:PrivHRG",
        "sage-edp": _METHODS + "perturbed:SageEDP",
        "lpgnet": _METHODS + "lpgnet:LPGNet",
        "dp-appr": _METHODS + "dpappr:DPAPPR",
        "mlp": _METHODS + "mlp:MLP",
        "dp-mlp": _METHODS + "mlp:DPMLP",
        "pate": _METHODS + "pate:PATE",
        "class-dp": _METHODS + "class_dp:ClassDP",
        "noisy-moments": _METHODS + "noisy_moments:NoisyMoments",
        "lpgnn": _METHODS + "lpgnn:LPGNN",
        "feature-rr": _METHODS + "feature_rr:FeatureRR",
        "pgc": _METHODS + "pgc:PGC",
        "pgc-links": _METHODS + "pgc:PGCLinks",
        "sage": _METHODS + "plain_gnn:GraphSAGE",
        "gcn": _METHODS + "plain_gnn:GCN",
        "gin": _METHODS + "plain_gnn:GIN",
        "gat": _METHODS + "plain_gnn:GAT",
    },
    "mechanisms": {
        "neighbor-sum": _MECHANISMS + "neighbor_sum:NeighborSum",
        "label-sum": _MECHANISMS + "label_sum:LabelSum",
        "coded-sum": _MECHANISMS + "coded_sum:CodedSum",
        "divided-coded-sum": _MECHANISMS + "divided_coded_sum:DividedCodedSum",
        "balanced-sum": _MECHANISMS + "balanced_sum:BalancedSum",
        "gradient": _MECHANISMS + "gradient:Gradient",
        "class-sums": _MECHANISMS + "class_sums:ClassSums",
        "group-gradient": _MECHANISMS + "group_gradient:GroupGradient",
        "rooted-gradient": _MECHANISMS + "rooted_gradient:RootedGradient",
        "edge-count": _MECHANISMS + "edge_count:EdgeCount",
        "pair-count": _MECHANISMS + "pair_count:PairCount",
        "edge-flip": _MECHANISMS + "edge_flip:EdgeFlip",
        "noisy-edges": _MECHANISMS + "noisy_edges:NoisyEdges",
        "dendrogram-chain": _MECHANISMS + "dendrogram:DendrogramChain",
        "dendrogram-choice": _MECHANISMS + "dendrogram_choice:DendrogramChoice",
        "dendrogram-edges": _MECHANISMS + "dendrogram_edges:DendrogramEdges",
        "cluster-degrees": _MECHANISMS + "cluster_degrees:ClusterDegrees",
        "pagerank-rows": _MECHANISMS + "pagerank_rows:PageRankRows",
        "pagerank-top": _MECHANISMS + "pagerank_top:PageRankTop",
        "pagerank-values": _MECHANISMS + "pagerank_values:PageRankValues",
        "pagerank-laplace": _MECHANISMS + "pagerank_laplace:PageRankLaplace",
        "weighted-gradient": _MECHANISMS + "weighted_gradient:WeightedGradient",
        "pagerank-gradient": _MECHANISMS + "pagerank_gradient:PageRankGradient",
        "local-report": _MECHANISMS + "local_report:LocalReport",
        "votes": _MECHANISMS + "votes:Votes",
        "confident-votes": _MECHANISMS + "confident_votes:ConfidentVotes",
        "label-votes": _MECHANISMS + "label_votes:LabelVotes",
        "laplace-votes": _MECHANISMS + "laplace_votes:LaplaceVotes",
        "hit-count": _MECHANISMS + "hit_count:HitCount",
        "best-of": _MECHANISMS + "best_of:BestOf",
        "raw": _MECHANISMS + "raw:Raw",
    },
    "units": {
        "undirected-edge": _UNITS + "edge:UndirectedEdge",
        "private-edge": _UNITS + "edge:PrivateEdge",
        "directed-edge": _UNITS + "edge:DirectedEdge",
        "node": _UNITS + "node:Node",
        "node-replace": _UNITS + "node:NodeReplace",
        "bounded-degree-node": _UNITS + "node:BoundedDegreeNode",
        "node-with-edges": _UNITS + "node:NodeWithEdges",
        "record": _UNITS + "record:Record",
        "class": _UNITS + "record:Class",
        "subclass": _UNITS + "record:Subclass",
        "local": _UNITS + "local:Local",
    },
    "attacks": {
        "linkteller": _ATTACKS + "links:LinkTeller",
        "similarity": _ATTACKS + "links:PosteriorSimilarity",
        "released-rows": _ATTACKS + "links:ReleasedRows",
        "membership": _ATTACKS + "membership:ShadowMembership",
        "lira": _ATTACKS + "membership:Lira",
        "degree": _ATTACKS + "regression:DegreeInference",
        "features": _ATTACKS + "regression:FeatureReconstruction",
        "attribute": _ATTACKS + "regression:AttributeInference",
        "reconstruction": _ATTACKS + "reconstruction:ImageReconstruction",
        "inversion": _ATTACKS + "inversion:EnhancedInversion",
    },
    "experiments": {
        "fit": _EXPERIMENTS + "fit:fit",
        "select": _EXPERIMENTS + "select:select",
    },
    "executors": {
        "processes": "hushgraph.executors.processes:Processes",
        "ray": "hushgraph.executors.ray:Ray",
    },
    "trackers": {
        "tensorboard": "hushgraph.tracking.tensorboard:TensorBoard",
        "mlflow": "hushgraph.tracking.mlflow:MLflow",
    },
    "views": {
        "words": "hushgraph.report.words:explain",
        "audit": "hushgraph.audit.run:audit_run",
        "report": "hushgraph.report.page:write_report",
    },
}
"""Views are functions of a model, or of its certificate, that a model is asked for and that are built on top of it."""

_ALIASES = {"units": {"node-promise": "bounded-degree-node", "edge": "undirected-edge"}}
"""Names that older files and habits use."""

_external: set[str] = set()


def names(kind: Kind) -> list[str]:
    """The known names of a kind, in the order in which they are best read."""
    _read_entry_points(kind)
    return list(_KNOWN[kind])


def knows(kind: Kind, name: str) -> bool:
    """Whether `name` leads somewhere."""
    return _ALIASES.get(kind, {}).get(name, name) in names(kind)


def load(kind: Kind, name: str) -> Any:
    """What `name` stands for."""
    _read_entry_points(kind)
    name = _ALIASES.get(kind, {}).get(name, name)
    found = _KNOWN[kind].get(name)
    if found is None:
        raise InputError(f"unknown {kind.removesuffix('s')} '{name}'; {did_you_mean(name, _KNOWN[kind])}")
    if isinstance(found, str):
        module, attribute = found.split(":")
        found = getattr(importlib.import_module(module), attribute)
        _KNOWN[kind][name] = found
    return found


def register(found: Any, kind: Kind | None = None, name: str | None = None) -> Any:
    """Make a class known by its `name`; also a decorator: `@hushgraph.register`. A taken name is refused.

    Methods, mechanisms, units, attacks and trackers know their own kind.
    """
    kind = kind or cast(Kind, getattr(found, "kind", "methods"))
    own = name or getattr(found, "name", None)
    if not isinstance(own, str) or not own:
        raise InputError(f"register: expected a class with a `name`; got {found!r}")
    known = _KNOWN[kind].get(own)
    if known is not None and known is not found and not _same_place(known, found):
        raise InputError(f"register: the {kind.removesuffix('s')} '{own}' exists already; choose another name")
    _KNOWN[kind][own] = found
    return found


def _same_place(known: str | type, found: Any) -> bool:
    """Whether a module was run again (a notebook cell, a reload): the newer class takes the older one's place."""
    place = known if isinstance(known, str) else f"{known.__module__}:{known.__qualname__}"
    return bool(place == f"{found.__module__}:{found.__qualname__}")


def _read_entry_points(kind: str) -> None:
    if kind in _external:
        return
    _external.add(kind)
    for point in entry_points(group=f"hushgraph.{kind}"):
        _KNOWN[kind].setdefault(point.name, point.value)
