"""Release a graph and nothing else: the edges that a method releases, beside features and labels that are public.

The folder holds `graph.npz`, which `hushgraph.datasets.load` and `--data` take, the certificate, the plan, and a
manifest that binds them to the ledger. Whatever is computed from it costs nothing more. Where features were randomized
as well (`hetero_rr`), they have a certificate of their own.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from scipy import sparse

from hushgraph.datasets.npz import write_npz
from hushgraph.datasets.splits import to_torch_csr
from hushgraph.errors import InputError
from hushgraph.files.writing import nothing_half_written, write_json
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.rows import Rows, SparseRows
from hushgraph.ledger.certificate import Certificate
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.manifest import CERTIFICATE, CONFIG, FEATURES_CERTIFICATE, GRAPH, write_manifest
from hushgraph.methods.base import Method
from hushgraph.methods.perturbed import GraphRelease
from hushgraph.methods.running import open_vault
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.plan import Plan
from hushgraph.privacy.units import Unit
from hushgraph.vault import Progress

if TYPE_CHECKING:
    from torch_geometric.data import Data


@dataclass(frozen=True)
class FeaturePromise:
    """The promise about the features of a released graph, where they were randomized too."""

    method: Method
    plan: Plan
    certificate: Certificate


@dataclass
class ReleasedGraph:
    """A graph that may leave, as PyG `data`, with its promise about edges, and one about `features` or none."""

    data: Data
    method: Method
    plan: Plan
    certificate: Certificate
    seconds: float
    ledger: Ledger | None = None
    features: FeaturePromise | None = None

    @property
    def num_edges(self) -> int:
        """How many directed edges were released."""
        return int(self.data.edge_index.shape[1])

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the folder (created if needed) and return it."""
        target = Path(folder)
        config = {"format": 2, "released": "graph", "run_plan": None, **_written(self.method, self.plan)}
        with nothing_half_written(target):
            write_npz(self.data, target / GRAPH)
            if self.features is not None:
                config["features"] = _written(self.features.method, self.features.plan)
                write_json(target / FEATURES_CERTIFICATE, self.features.certificate.as_dict())
            write_json(target / CONFIG, config)
            write_json(target / CERTIFICATE, self.certificate.as_dict())
            if self.ledger is not None:
                write_manifest(target, self.ledger, self.certificate.run)
        return target


def _written(method: Method, plan: Plan) -> dict[str, Any]:
    return {"method": method.name, "parameters": method.as_dict(), "plan": plan.as_dict()}


def release_graph(
    method: Method,
    graph: Any,
    unit: Unit | None = None,
    budget: Budget | None = None,
    *,
    ledger: Ledger | None = None,
    num_edges: int | None = None,
    paper_mode: bool = False,
    seed: int | None = None,
    progress: Progress | None = None,
) -> ReleasedGraph:
    """Carry out what `method` releases of the edges, without training; arguments are those of `Method.fit`."""
    method, budget = require_release(method, budget)
    checked = graph if isinstance(graph, CheckedGraph) else check_graph(graph, num_edges=num_edges)
    unit = unit if unit is not None else method.default_unit(checked)
    unit.check(checked, paper_mode=paper_mode)
    plan = method.plan(checked.metadata, unit, budget, paper_mode=paper_mode)
    vault, run = open_vault(checked, plan, ledger, seed, progress)
    edges = method.released_graph(vault)
    run.close()
    data = graph_of(checked, edges, checked.features)
    return ReleasedGraph(data, method, plan, run.certificate(), sum(vault.seconds.values()), run.ledger)


def require_release(method: Method, budget: Budget | None) -> tuple[GraphRelease, Budget]:
    """Refuse a method that releases no graph, and a budget without an end."""
    if not isinstance(method, GraphRelease):
        raise InputError(f"release: expected a method that releases a graph; {method.name} does not")
    if budget is None or not budget.is_private:
        raise InputError("release: expected a finite epsilon; without one this would be the graph itself")
    return method, budget


def graph_of(graph: CheckedGraph, edges: MemoryEdges, features: Rows) -> Data:
    """Edges and features that may leave, with what is public: labels, split and class names."""
    from torch_geometric.data import Data

    masks = {}
    for name in ("train", "val", "test"):
        mask = torch.zeros(graph.metadata.num_nodes, dtype=torch.bool)
        masks[f"{name}_mask"] = mask.index_fill_(0, graph.split(name), True)
    names, title = list(graph.class_names), f"{graph.metadata.name}, released"
    said = {"class_names": names, "name": title, "directed": not edges.is_symmetric()}
    return Data(x=_tensor(features), edge_index=edges.edge_index(), y=graph.labels, **masks, **said)


def _tensor(rows: Rows) -> torch.Tensor:
    """Features as a tensor, sparse ones as CSR."""
    if not isinstance(rows, SparseRows):
        return rows
    values = torch.ones(len(rows.indices)) if rows.values is None else rows.values
    matrix = sparse.csr_matrix((values.numpy(), rows.indices.numpy(), rows.indptr.numpy()), shape=rows.shape)
    return to_torch_csr(matrix)
