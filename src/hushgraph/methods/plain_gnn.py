"""Graph networks without privacy, PyG's models: the ceiling that private methods are compared with.

They read raw edges, so they run only with `Budget(epsilon=math.inf)`, and their certificate says: no guarantee.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

import torch
from torch import Tensor, nn

from hushgraph.graph.rows import Rows
from hushgraph.mechanisms.raw import Raw
from hushgraph.methods.base import Method, Output
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.settings import setting
from hushgraph.training.losses import mean_loss, share_right
from hushgraph.vault import Vault

if TYPE_CHECKING:  # PyG takes a second to import: only when a network is built
    from torch_geometric.nn.models.basic_gnn import BasicGNN

    from hushgraph.nn.pyg_models import PygNeighborhood


@dataclass(frozen=True)
class _PlainGNN(Method):
    num_layers: int = setting(2, least=1, most=1000, help="message-passing layers")
    hidden_channels: int = setting(64, least=1, most=1 << 16)
    dropout: float = setting(0.0, least=0, below=1)
    lr: float = setting(0.01, above=0, help="learning rate")
    weight_decay: float = setting(0.0, least=0)
    epochs: int = setting(100, least=1)

    paper = "baseline"
    aliases = {"hidden": "hidden_channels"}
    takes_multilabel = True
    layer: ClassVar[str]

    def stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """Everything as it is: refused with a finite budget."""
        return [Stage(part, Raw(part)) for part in ("edges", "features", "labels")]

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """The network of PyG's own model classes."""
        from torch_geometric.nn import models

        sizes = (plan.metadata.features, self.hidden_channels, self.num_layers, plan.metadata.classes)
        with torch.random.fork_rng(devices=[]):  # PyG draws the first weights from the global generator
            network: BasicGNN = getattr(models, self.layer)(*sizes, dropout=self.dropout, norm="batch")
            torch.manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
            network.reset_parameters()
            return network

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """Full-batch training with the best validation epoch kept, then a forward pass on the raw graph."""
        from hushgraph.nn.pyg_models import PygNeighborhood, kept_features, scores_of

        gnn = cast("BasicGNN", network)
        features = vault.release("features")
        graph = PygNeighborhood(vault.release("edges"))
        if train:
            features = kept_features(features)
            seed = int(torch.randint(2**62, (1,), generator=vault.generator("dropout")))
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)  # PyG layers draw dropout from the global generator
                self._train(gnn, features, graph, vault)
        with torch.no_grad():
            return Output(scores=scores_of(gnn, features, graph))

    def _train(self, network: BasicGNN, features: Rows, graph: PygNeighborhood, vault: Vault) -> None:
        """Every epoch's weights are judged at the start of the next one, where the first sums serve both."""
        labels, train = vault.release("labels"), vault.labeled("train")
        optimizer = torch.optim.Adam(network.parameters(), lr=self.lr, weight_decay=self.weight_decay)
        best = _BestEpoch(network, features, graph, labels, vault.labeled("val"))
        for epoch in range(self.epochs):
            sums = best.judge() if epoch else best.first_sums()
            network.train()
            optimizer.zero_grad()
            scores = best.remaining(sums)
            mean_loss(scores[train], labels[train]).backward()
            optimizer.step()
            vault.report("training", epoch + 1, self.epochs)
        best.judge()
        network.load_state_dict(best.kept)
        network.eval()


class _BestEpoch:
    """Judges weights by what they get right on validation nodes and keeps the best (the last, where there are none)."""

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
        right = self._best + 1.0
        if self._val.numel():
            right = share_right(scores[self._val], self._labels[self._val])
        if right > self._best:
            self._best = right
            self.kept = {name: value.clone() for name, value in self._network.state_dict().items()}
        return sums


@dataclass(frozen=True)
class GraphSAGE(_PlainGNN):
    """GraphSAGE (Hamilton, Ying, Leskovec 2017), mean aggregation, without privacy."""

    name = "sage"
    summary = "GraphSAGE without privacy (needs epsilon inf)"
    layer = "GraphSAGE"


@dataclass(frozen=True)
class GCN(_PlainGNN):
    """GCN (Kipf and Welling 2017) without privacy."""

    name = "gcn"
    summary = "GCN without privacy (needs epsilon inf)"
    layer = "GCN"


@dataclass(frozen=True)
class GIN(_PlainGNN):
    """GIN (Xu, Hu, Leskovec, Jegelka 2019) without privacy."""

    name = "gin"
    summary = "GIN without privacy (needs epsilon inf)"
    layer = "GIN"


@dataclass(frozen=True)
class GAT(_PlainGNN):
    """GAT (Velickovic et al. 2018), one head, without privacy."""

    name = "gat"
    summary = "GAT without privacy (needs epsilon inf)"
    layer = "GAT"
