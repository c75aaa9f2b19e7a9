"""Graph networks without privacy, on PyG's layers: the ceiling that private methods are compared with.

They read raw edges, so they run only with `Budget(epsilon=math.inf)`, and their certificate says: no guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hushgraph.accounting.calibration import Accountant
from hushgraph.accounting.plan import Plan, Stage
from hushgraph.budget import Budget
from hushgraph.errors import InputError, UnprovenError
from hushgraph.facts import PublicFacts
from hushgraph.methods import parameters
from hushgraph.methods.base import Method, TrainedModel, checked_training_graph
from hushgraph.nn.sparse import dense_rows
from hushgraph.units import UNITS, Unit
from hushgraph.vault import Vault


@dataclass(frozen=True)
class _Unprotected(Method):
    num_layers: int = 2
    hidden: int = 64
    dropout: float = 0.0
    lr: float = 0.01
    weight_decay: float = 0.0
    epochs: int = 100

    units = frozenset(UNITS)
    layer: ClassVar[str]

    def __post_init__(self) -> None:
        InputError.collect(
            [
                *parameters.at_least(1, num_layers=self.num_layers, hidden=self.hidden, epochs=self.epochs),
                *parameters.at_least(0, dropout=self.dropout, weight_decay=self.weight_decay),
                *parameters.above(0, lr=self.lr),
            ]
        )

    def stages(self, facts: PublicFacts, unit: Unit, budget: Budget, accountant: Accountant) -> tuple[Stage, ...]:
        """None with a finite budget: there is no proof."""
        raise UnprovenError(
            f"{self.name} reads raw edges and has no privacy proof; it runs with epsilon=inf only. "
            "Private methods: gap, and dp-mlp for features alone"
        )

    def learn(self, vault: Vault, plan: Plan) -> TrainedModel:
        """Full-batch training with the best validation epoch kept."""
        network = self.rebuild(vault.facts, {})
        reset_with(network, vault.generator("weights"))
        features, edge_index = dense_rows(vault.features), vault.edge_index  # type: ignore[arg-type]
        seed = int(torch.randint(2**62, (1,), generator=vault.generator("dropout")))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # PyG layers draw dropout from the global generator
            self._train(network, features, edge_index, vault)
        with torch.no_grad():
            scores = network(features, edge_index)
        return UnprotectedModel(
            method=self, facts=vault.facts, unit=plan.unit, network=network, settings={}, released={}, scores=scores
        )

    def _train(self, network: nn.Module, features: Tensor, edge_index: Tensor, vault: Vault) -> None:
        labels, train, val = vault.labels, vault.nodes("train"), vault.nodes("val")
        optimizer = torch.optim.Adam(network.parameters(), lr=self.lr, weight_decay=self.weight_decay)
        best, kept = -1.0, {k: v.clone() for k, v in network.state_dict().items()}
        for epoch in range(self.epochs):
            network.train()
            optimizer.zero_grad()
            scores = network(features, edge_index)
            F.cross_entropy(scores[train], labels[train]).backward()
            optimizer.step()
            network.eval()
            with torch.no_grad():
                hits = network(features, edge_index)[val].argmax(dim=1) == labels[val]
            accuracy = float(hits.float().mean()) if val.numel() else float(epoch)
            if accuracy > best:
                best, kept = accuracy, {k: v.clone() for k, v in network.state_dict().items()}
            vault.report("training", epoch + 1, self.epochs)
        network.load_state_dict(kept)

    def rebuild(self, facts: PublicFacts, settings: dict[str, Any]) -> nn.Module:
        """The untrained network, of PyG's own model classes."""
        from torch_geometric.nn import models

        if facts.num_features is None or facts.num_classes is None:
            raise InputError(f"{self.name} needs the number of features and classes")
        make = getattr(models, self.layer)
        sizes = (facts.num_features, self.hidden, self.num_layers, facts.num_classes)
        with torch.random.fork_rng(devices=[]):  # PyG draws the first weights from the global generator
            return make(*sizes, dropout=self.dropout, norm="batch")


@dataclass(frozen=True)
class GraphSAGE(_Unprotected):
    """GraphSAGE (Hamilton, Ying, Leskovec 2017), mean aggregation, without privacy."""

    name = "sage"
    summary = "GraphSAGE without privacy (needs epsilon inf)"
    layer = "GraphSAGE"


@dataclass(frozen=True)
class GCN(_Unprotected):
    """GCN (Kipf and Welling 2017) without privacy."""

    name = "gcn"
    summary = "GCN without privacy (needs epsilon inf)"
    layer = "GCN"


@dataclass(frozen=True)
class GIN(_Unprotected):
    """GIN (Xu, Hu, Leskovec, Jegelka 2019) without privacy."""

    name = "gin"
    summary = "GIN without privacy (needs epsilon inf)"
    layer = "GIN"


@dataclass(frozen=True)
class GAT(_Unprotected):
    """GAT (Velickovic et al. 2018), one head, without privacy."""

    name = "gat"
    summary = "GAT without privacy (needs epsilon inf)"
    layer = "GAT"


@dataclass
class UnprotectedModel(TrainedModel):
    """A graph network that reads features and raw edges at inference."""

    @torch.no_grad()
    def class_scores(self, graph: Any | None) -> Tensor:
        """A forward pass on the raw graph."""
        if graph is None:
            raise InputError("predict: a network without privacy reads the raw graph; pass it")
        checked = checked_training_graph(self, graph)
        scores: Tensor = self.network.eval()(dense_rows(checked.features), checked.edges.edge_index())
        return scores


def reset_with(network: nn.Module, generator: torch.Generator) -> None:
    """Draw the initial weights from `generator`; PyG's own reset uses the global one."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
        network.reset_parameters()  # type: ignore[operator]
