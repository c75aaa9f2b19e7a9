"""Graph networks without privacy, PyG's models: the ceiling that private methods are compared with.

They read raw edges, so they run only with `Budget(epsilon=math.inf)`, and their certificate says: no guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hushgraph import settings as parameters
from hushgraph.data.metadata import PublicFacts
from hushgraph.data.rows import Rows
from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.edges import InNeighbors
from hushgraph.methods.base import Method, TrainedModel, checked_training_graph
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.calibration import Accountant
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import UNITS, Unit
from hushgraph.vault import Vault

if TYPE_CHECKING:  # PyG takes a second to import: only when a network is built
    from torch_geometric.nn.models.basic_gnn import BasicGNN

    from hushgraph.nn.pyg_models import PygNeighborhood


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
        from hushgraph.nn.pyg_models import PygNeighborhood, kept_features, scores_of

        network = self.rebuild(vault.facts, {})
        reset_with(network, vault.generator("weights"))
        features = kept_features(cast(Rows, vault.features))
        graph = PygNeighborhood(InNeighbors.from_edge_index(vault.edge_index, vault.facts.num_nodes))
        seed = int(torch.randint(2**62, (1,), generator=vault.generator("dropout")))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # PyG layers draw dropout from the global generator
            self._train(network, features, graph, vault)
        with torch.no_grad():
            scores = scores_of(network, features, graph)
        return UnprotectedModel(
            method=self, facts=vault.facts, unit=plan.unit, network=network, settings={}, released={}, scores=scores
        )

    def _train(self, network: BasicGNN, features: Rows, graph: PygNeighborhood, vault: Vault) -> None:
        """Every epoch's weights are judged at the start of the next one, where the first sums serve both."""
        labels, train = vault.labels, vault.nodes("train")
        optimizer = torch.optim.Adam(network.parameters(), lr=self.lr, weight_decay=self.weight_decay)
        best = _BestEpoch(network, features, graph, labels, vault.nodes("val"))
        for epoch in range(self.epochs):
            sums = best.judge() if epoch else best.first_sums()
            network.train()
            optimizer.zero_grad()
            scores = best.remaining(sums)
            F.cross_entropy(scores[train], labels[train]).backward()
            optimizer.step()
            vault.report("training", epoch + 1, self.epochs)
        best.judge()
        network.load_state_dict(best.kept)
        network.eval()

    def rebuild(self, facts: PublicFacts, settings: dict[str, Any]) -> BasicGNN:
        """The untrained network, of PyG's own model classes."""
        from torch_geometric.nn import models

        if facts.num_features is None or facts.num_classes is None:
            raise InputError(f"{self.name} needs the number of features and classes")
        make = getattr(models, self.layer)
        sizes = (facts.num_features, self.hidden, self.num_layers, facts.num_classes)
        with torch.random.fork_rng(devices=[]):  # PyG draws the first weights from the global generator
            network: BasicGNN = make(*sizes, dropout=self.dropout, norm="batch")
            return network


class _BestEpoch:
    """Judges weights by validation accuracy and keeps the best (the last, where there is no validation node)."""

    def __init__(self, network: BasicGNN, features: Rows, graph: PygNeighborhood, labels: Tensor, val: Tensor) -> None:
        from hushgraph.nn import pyg_models

        self._models = pyg_models
        self._network, self._features, self._graph = network, features, graph
        self._labels, self._val = labels, val
        self._best = -1.0
        self.kept: dict[str, Tensor] = {}

    def first_sums(self) -> Tensor:
        """What the first layer receives, as it is in training mode."""
        self._network.train()
        return self._models.first_sums(self._network, self._features, self._graph)

    def remaining(self, sums: Tensor) -> Tensor:
        """Class scores from the first sums."""
        return self._models.remaining_layers(self._network, sums, self._graph)

    def judge(self) -> Tensor:
        """Judge the present weights; the first sums that the next training step needs anyway."""
        sums = self.first_sums()
        self._network.eval()
        with torch.no_grad():
            if self._models.shares_first_sums(self._network):
                scores = self.remaining(sums.detach())
            else:
                scores = self._models.scores_of(self._network, self._features, self._graph)
        hits = scores[self._val].argmax(dim=1) == self._labels[self._val]
        accuracy = float(hits.float().mean()) if self._val.numel() else self._best + 1.0
        if accuracy > self._best:
            self._best = accuracy
            self.kept = {name: value.clone() for name, value in self._network.state_dict().items()}
        return sums


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
        from hushgraph.nn.pyg_models import PygNeighborhood, scores_of

        if graph is None:
            raise InputError("predict: a network without privacy reads the raw graph; pass it")
        checked = checked_training_graph(self, graph)
        network = cast("BasicGNN", self.network.eval())
        return scores_of(network, checked.features, PygNeighborhood(checked.edges))


def reset_with(network: nn.Module, generator: torch.Generator) -> None:
    """Draw the initial weights from `generator`; PyG's own reset uses the global one."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
        network.reset_parameters()  # type: ignore[operator]
