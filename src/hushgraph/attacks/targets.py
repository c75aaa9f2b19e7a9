"""Trained models as attackers meet them, and trainers for attackers who build models of the same kind.

How GAP answers: predictions about the training graph read rows that were released once and cached, so sending other
features changes nothing about anybody else. Predictions on a graph with other features are a new private release
(`predict_on`), with fresh noise and a charge. `target_of` gives an attacker the stronger of the two: every query is
answered by a new release at the full budget, as if the data's owner never added up. `notes` says what that would cost.
"""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_torch_csr_tensor

from hushgraph.attacks.base import Predictor, Query, Target, Trainer, dense_features
from hushgraph.errors import InputError
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.base import Method, TrainedModel
from hushgraph.methods.plain_gnn import UnprotectedModel
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.units import Unit


def target_of(model: TrainedModel, data: Data, *, fresh_noise: bool = True, trainer: Trainer | None = None) -> Target:
    """The target that `model` is on its training graph `data`.

    With `fresh_noise=False` a private model answers queries from its cache only.
    """
    name = model.method.name
    if isinstance(model, UnprotectedModel):
        posteriors = predict_unprotected(model, data)
        return Target(name, posteriors, _hidden_rows(model, data), _direct_query(model, data), trainer)
    certificate = model.certificate
    name = f"{name}, {model.unit.name} epsilon {_short(certificate.epsilon)}"
    posteriors = model.predict_proba(data if model.scores is None else None)
    embeddings = _released_rows(model)
    notes: dict[str, Any] = {"epsilon": certificate.epsilon if math.isfinite(certificate.epsilon) else "inf"}
    if not fresh_noise or not hasattr(model, "predict_on"):
        return Target(f"{name}, cached", posteriors, embeddings, lambda _: posteriors, trainer, notes)
    return Target(name, posteriors, embeddings, _releasing_query(model, data, notes), trainer, notes)


def method_trainer(method: Method, unit: Unit, budget: Budget, *, seeded: bool = True) -> Trainer:
    """Trains `method` like the target: on one graph, to predict on another (privately, where the method is private)."""

    def train(data: Data, seed: int) -> Predictor:
        model = method.fit(data, unit, budget, seed=seed if seeded else None)
        if isinstance(model, UnprotectedModel):
            return lambda other: predict_unprotected(model, other)
        if hasattr(model, "predict_on"):
            found = model.predict_on
            return lambda other: found(other, budget, seed=seed + 1 if seeded else None).predict_proba()
        return lambda other: _row_wise(model, other)

    return train


@torch.no_grad()
def predict_unprotected(model: UnprotectedModel, data: Data) -> Tensor:
    """Posteriors of a network without privacy on any graph."""
    found: Tensor = model.network.eval()(dense_features(data), _matrix(data)).softmax(dim=1)
    return found


def _direct_query(model: UnprotectedModel, data: Data) -> Query:
    """One forward pass on the server's graph."""
    network, matrix = copy.deepcopy(model.network).eval(), _matrix(data)
    for layer in network.modules():
        if getattr(layer, "cached", None) is False:
            setattr(layer, "cached", True)  # noqa: B010 (the edges stay: normalize them once)

    @torch.no_grad()
    def query(features: Tensor) -> Tensor:
        found: Tensor = network(features, matrix).softmax(dim=1)
        return found

    return query


def _matrix(data: Data) -> Tensor:
    """The transposed adjacency matrix as CSR: several times faster in PyG's layers than an edge list."""
    size = (int(data.num_nodes or 0),) * 2
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
        warnings.filterwarnings("ignore", message="Sparse invariant checks")
        matrix: Tensor = to_torch_csr_tensor(data.edge_index.flip(0), size=size)
    return matrix


def _releasing_query(model: Any, data: Data, notes: dict[str, Any]) -> Any:
    """Every query is one more private inference; a ledger in memory adds up what they would cost together."""
    ledger = Ledger.in_memory(warn=False)
    certificate = model.certificate
    budget = Budget(certificate.epsilon, certificate.delta)

    def query(features: Tensor) -> Tensor:
        changed = data.clone()
        changed.x = features
        answer = model.predict_on(changed, budget, ledger=ledger)
        total = answer.certificate.dataset_epsilon
        notes["epsilon of all queries together"] = total if math.isfinite(total) else "inf"
        posteriors: Tensor = answer.predict_proba()
        return posteriors

    return query


@torch.no_grad()
def _row_wise(model: TrainedModel, data: Data) -> Tensor:
    scores: Tensor = model.network.eval()(dense_features(data))
    return scores.softmax(dim=1)


@torch.no_grad()
def _hidden_rows(model: UnprotectedModel, data: Data) -> Tensor:
    """The output before the last layer of a PyG network."""
    network: Any = model.network.eval()
    kept: list[Tensor] = []
    handle = network.convs[-1].register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0]))
    try:
        network(dense_features(data), _matrix(data))
    finally:
        handle.remove()
    return kept[0]


def _released_rows(model: TrainedModel) -> Tensor | None:
    rows = [value for key, value in sorted(model.released.items()) if value.dim() == 2]
    return torch.cat(rows, dim=1) if rows else None


def _short(epsilon: float) -> str:
    if math.isnan(epsilon):
        raise InputError("target: expected a certificate with an epsilon; got NaN")
    return "inf" if math.isinf(epsilon) else f"{epsilon:.3g}"
