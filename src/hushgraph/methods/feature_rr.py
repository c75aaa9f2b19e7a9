"""FeatureRR: a graph network on binned features, the important ones with less noise (HeteroRR's feature level).

1. Public scores: theta from importance and sensitivity (Eqs 5-7), numbers that were fixed before any record was seen.
2. On the device: every feature is cut into bins and randomized at epsilon theta_i. One report, drawn once.
3. On the server: a graph network is trained on the middles of the reported bins over the public graph.

Step 3 is post-processing; the cost is epsilon, exactly (docs/proofs/local-features.md). Labels and edges are public.
`mechanism` puts another local randomizer in the same place, and `clip` keeps its estimates in the range: FeatureRR's
reports are bounded, so what is won over unbounded estimates may be won by that alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hushgraph import local
from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.rows import Rows
from hushgraph.local.feature_rr import MOST_BINS
from hushgraph.mechanisms.local_report import LocalReport
from hushgraph.methods.base import Output
from hushgraph.methods.local import LocalMethod, require_local, train_plainly, within
from hushgraph.nn.backbones import BACKBONES, backbone
from hushgraph.nn.propagation import Neighborhood, PropagatedRows
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Local, Unit
from hushgraph.settings import setting
from hushgraph.training.config import Training
from hushgraph.vault import Vault

MECHANISMS = (local.FeatureRR.name, *local.FEATURES)
Numbers = tuple[float, ...]


@dataclass(frozen=True)
class FeatureRR(LocalMethod):
    """Settings of FeatureRR. `importance` and `sensitivity` are public: one number per feature, or none (all alike).

    `hushgraph.feature_scores` makes them from public records or from a model of public records.
    """

    importance: Numbers | None = setting(None, help="of each feature for a public model; public")
    sensitivity: Numbers | None = setting(None, help="of each feature to what must not be known; public")
    gamma: float = setting(0.5, least=0, most=1, help="weight of importance against sensitivity")
    bins: int = setting(10, least=2, most=MOST_BINS, help="bins of the range of each feature")
    mechanism: str = setting("feature-rr", among=MECHANISMS, help="another local randomizer, as a control")
    clip: bool = setting(False, help="cut the estimates of another randomizer to the range, as a control")
    backbone: str = setting("gcn", among=BACKBONES)
    hidden_channels: int = setting(128, least=1, most=1 << 16)
    dropout: float = setting(0.5, least=0, below=1)
    lr: float = setting(0.001, above=0)
    weight_decay: float = setting(0.0, least=0)
    epochs: int = setting(500, least=1)
    patience: int = setting(50, least=1)

    name = "feature-rr"
    summary = "every feature as one of a few bins, the important ones with less noise; then a graph network"
    paper = "Tran et al., IEEE Big Data 2022"
    aliases = {"hidden": "hidden_channels"}
    takes_multilabel = True

    def __post_init__(self) -> None:
        for name in ("importance", "sensitivity"):
            value = getattr(self, name)
            if isinstance(value, list | tuple):
                object.__setattr__(self, name, tuple(float(item) for item in value))
        super().__post_init__()

    def default_unit(self, graph: CheckedGraph) -> Unit:
        """Labels are public."""
        return Local(private_labels=False)

    def stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """One report with every feature in it."""
        require_local(unit, self.name)
        if "labels" not in unit.public:
            raise InputError(
                f"{self.name} reads labels: expected the unit local with private_labels=false; or use lpgnn"
            )
        total = within(budget.epsilon) if budget.is_private else 1.0
        return [self.report("features", self.randomizer(total, metadata.features))]

    def randomizer(self, epsilon: float, columns: int) -> Any:
        """What runs on the device."""
        if self.mechanism != local.FeatureRR.name:
            return local.feature_randomizer(self.mechanism, epsilon, columns)
        return local.FeatureRR(epsilon, self.scores(columns), self.bins)

    def scores(self, columns: int) -> Numbers:
        """theta, one number per feature."""
        even = (1.0,) * columns
        given = [even if part is None else part for part in (self.importance, self.sensitivity)]
        InputError.collect(
            f"{name}: expected one number for each of the {columns} features; got {len(part)}"
            for name, part in zip(("importance", "sensitivity"), given)
            if len(part) != columns
        )
        return local.unified_scores(given[0], given[1], self.gamma)

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """Two layers."""
        metadata = plan.metadata
        return backbone(self.backbone, metadata.features, self.hidden_channels, metadata.classes, self.dropout)

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """Collect once, then train plainly."""
        graph = Neighborhood(vault.edges.load())
        rows = PropagatedRows(self.estimates(vault), graph.kprop, 0)
        settings = {}
        if train:
            training = Training(self.epochs, self.lr, weight_decay=self.weight_decay)
            settings["epochs"] = train_plainly(vault, network, lambda: network(rows, graph), training, self.patience)
        with torch.no_grad():
            scores: Tensor = network.eval()(rows, graph)
        return Output(scores=scores, settings=settings)

    def estimates(self, vault: Vault) -> Rows:
        """What the reports say about the features, with the range moved to [0, 1]."""
        value = vault.release("features")
        if vault.plan.runs_exactly("features"):
            return value
        randomizer = vault.plan.mechanism("features", LocalReport).randomizer
        found = torch.as_tensor(randomizer.estimate(value)).to(torch.float32)
        return found.clamp(0.0, 1.0) if self.clip else found
