"""Trained models as attackers meet them, and trainers for attackers who build models of the same kind.

How GAP answers: predictions about the training graph read rows that were released once and cached, so sending other
features changes nothing about anybody else. Predictions on a graph with other features are a new private release
(`predict_on`), with fresh noise and a charge. `target_of` gives an attacker the stronger of the two: every query is
answered by a new release at the full budget, as if the data's owner never added up. `notes` says what that would cost.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.attacks.base import Predictor, Query, Target, Trainer, dense_features
from hushgraph.errors import InputError
from hushgraph.files.writing import plain
from hushgraph.graph.checks import check_graph
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.base import Method
from hushgraph.methods.model import Model
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.units import Unit
from hushgraph.vault import Replay


def target_of(model: Model, data: Data, *, fresh_noise: bool = True, trainer: Trainer | None = None) -> Target:
    """The target that `model` is on its training graph `data`.

    With `fresh_noise=False` a private model answers queries from its cache only.
    """
    name, posteriors = _name(model), model.predict_proba(data if model.scores is None else None)
    if all(model.plan.runs_exactly(stage.name) for stage in model.plan):
        return Target(name, posteriors, _stored_rows(model, data), _direct_query(model, data), trainer)
    notes: dict[str, Any] = {"epsilon": plain(model.certificate.epsilon)}
    rows = _stored_rows(model, data)
    if not fresh_noise:
        return Target(f"{name}, cached", posteriors, rows, lambda _: posteriors, trainer, notes)
    return Target(name, posteriors, rows, _releasing_query(model, data, notes), trainer, notes)


def _name(model: Model) -> str:
    epsilon = model.certificate.epsilon
    if math.isnan(epsilon):
        raise InputError("target: expected a certificate with an epsilon; got NaN")
    return model.method.name if math.isinf(epsilon) else f"{model.method.name}, {model.unit} epsilon {epsilon:.3g}"


def method_trainer(method: Method, unit: Unit, budget: Budget, *, seeded: bool = True) -> Trainer:
    """Trains `method` like the target: on one graph, to predict on another (privately, where the method is private)."""

    def train(data: Data, seed: int) -> Predictor:
        model = method.fit(data, unit, budget, seed=seed if seeded else None)
        return lambda other: model.predict_on(other, budget, seed=seed + 1 if seeded else None).predict_proba()

    return train


def _direct_query(model: Model, data: Data) -> Query:
    """Predictions without any noise, on the server's graph with other features."""
    graph = check_graph(data, known_classes=model.class_names)
    return lambda features: model.predict_proba(replace(graph, features=features))


def _releasing_query(model: Model, data: Data, notes: dict[str, Any]) -> Query:
    """Every query is one more private inference; a ledger in memory adds up what they would cost together."""
    ledger, graph = Ledger.in_memory(warn=False), check_graph(data, known_classes=model.class_names)

    def query(features: Tensor) -> Tensor:
        answer = model.predict_on(replace(graph, features=features), model.plan.budget, ledger=ledger)
        notes["epsilon of all queries together"] = plain(answer.certificate.total.epsilon)
        return answer.predict_proba()

    return query


def _stored_rows(model: Model, data: Data) -> Tensor | None:
    """What an attacker with the model's files has about each node: released rows, or the rows before the last layer."""
    rows = [F.normalize(value, dim=1) for value in released_tensors(model)]
    if rows and "features" in model.unit.public:
        rows = [*_first_sent(model, data), *rows]
    if rows:
        return torch.cat(rows, dim=1)
    return None if model.plan.budget.is_private else _hidden_rows(model, data)


def released_tensors(model: Model) -> list[Tensor]:
    """The released matrices, in the order of the stages."""
    values = [value for stage in model.plan for value in model.released.get(stage.name, ())]
    return [value for value in values if isinstance(value, Tensor) and value.dim() == 2]


def _first_sent(model: Model, data: Data) -> list[Tensor]:
    """The rows that went into the first release, which follow from public features and the weights."""
    watched = _Watched(model, data)
    model.method.run(watched, model.network.eval(), train=False)
    return watched.sent[:1]


class _Watched(Replay):
    """A replay that remembers the rows that were handed to its releases."""

    def __init__(self, model: Model, data: Data) -> None:
        graph = check_graph(data, known_classes=model.class_names)
        super().__init__(model.plan, model.released, graph, model.nodes)
        self.sent: list[Tensor] = []

    def release(self, name: str, *inputs: Any, nodes: Tensor | None = None, **options: Any) -> Any:
        """As in a replay."""
        self.sent += [rows for rows in inputs if isinstance(rows, Tensor)]
        return super().release(name, *inputs, nodes=nodes, **options)


@torch.no_grad()
def _hidden_rows(model: Model, data: Data) -> Tensor | None:
    """The rows before the last layer of a network of PyG."""
    network: Any = model.network.eval()
    if not hasattr(network, "convs"):
        return None
    kept: list[Tensor] = []
    handle = network.convs[-1].register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0]))
    try:
        network(dense_features(data), data.edge_index)
    finally:
        handle.remove()
    return kept[0]
