"""PGC: private graph convolution (Sajadmanesh and Gatica-Perez 2020), for node classification.

Every person sends one random bit about each feature. The first GCN layer adds up unbiased estimates over the
neighborhood, which is where the noise averages out; the rest of the network is ordinary. Labels and edges are public.

A person who sends d bits at epsilon each spends d times epsilon. Publications quote the per-feature epsilon; the
certificate gives the total. Laplace and Piecewise take the place of the bit on request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hushgraph import settings as parameters
from hushgraph.data.metadata import PublicFacts
from hushgraph.data.rows import Rows, SparseRows, dense_rows
from hushgraph.errors import InputError
from hushgraph.graph.edges import InNeighbors
from hushgraph.local import Laplace, OneBit, PerFeature, Piecewise, ScalarMechanism
from hushgraph.local.base import LARGEST_EPSILON
from hushgraph.methods.base import TrainedModel
from hushgraph.methods.local_base import LocalMethod, local_stage, within
from hushgraph.nn.backbones import Gcn
from hushgraph.nn.kprop import PropagatedRows
from hushgraph.nn.propagation import Neighborhood, Propagation
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.calibration import Accountant
from hushgraph.privacy.plan import LocalStage, Plan, Stage
from hushgraph.privacy.units import Local, Unit
from hushgraph.training.early_stopping import Patience, train_watched
from hushgraph.vault import PrivateRows, Vault

MECHANISMS: dict[str, Callable[[float], ScalarMechanism]] = {
    "one-bit": OneBit,
    "laplace": Laplace,
    "piecewise": Piecewise,
}
_FEW_ONES = 0.1


@dataclass(frozen=True)
class PerFeatureMethod(LocalMethod):
    """Collecting every feature at `feature_epsilon` each (None: the budget divided by the number of features)."""

    feature_epsilon: float | None = None
    mechanism: str = "one-bit"

    def __post_init__(self) -> None:
        super().__post_init__()
        InputError.collect(
            [
                *parameters.above(0, feature_epsilon=self.feature_epsilon),
                *parameters.one_of(MECHANISMS, mechanism=self.mechanism),
            ]
        )

    def default_unit(self) -> Local:
        """Labels are public."""
        return Local(private_labels=False)

    def stages(self, facts: PublicFacts, unit: Unit, budget: Budget, accountant: Accountant) -> tuple[Stage, ...]:
        """One report with every feature in it."""
        assert isinstance(unit, Local)
        if unit.private_labels:
            raise InputError(
                f"{self.name} reads labels: expected the unit local with private_labels=false; or use lpgnn"
            )
        columns = _columns(facts)
        each = within(budget.epsilon, columns) if self.feature_epsilon is None else self.feature_epsilon
        if columns * each > budget.epsilon:
            raise InputError(
                f"epsilon: {columns} features at {each:g} each spend {columns * each:g}; got a budget of "
                f"{budget.epsilon:g}. Ask for that much, or leave feature_epsilon out"
            )
        if each > LARGEST_EPSILON:
            raise InputError(f"feature_epsilon: expected at most {LARGEST_EPSILON:g}; got {each:g}")
        words = f"{self.mechanism} on each of {columns} features at epsilon {each:g}, {columns * each:g} together"
        return (LocalStage("features", 1, 0.0, columns * each, words),)

    def collect(self, vault: Vault, plan: Plan) -> Estimates:
        """Unbiased estimates of the features (in [0, 1] units), from reports drawn once."""
        if vault.unprotected:
            raw = vault.features
            assert not isinstance(raw, PrivateRows)
            return Estimates(raw)
        stage = local_stage(plan, "features")
        columns = _columns(vault.facts)
        each = within(stage.epsilon, columns) if self.feature_epsilon is None else self.feature_epsilon
        randomizer = PerFeature(MECHANISMS[self.mechanism](each), columns)
        report = vault.collect_features(randomizer, stage, *self.range_for(vault, plan))
        if self.mechanism == "one-bit":
            return Estimates.from_bits(torch.from_numpy(report), each)
        return Estimates(torch.from_numpy(randomizer.estimate(report)).to(torch.float32))


@dataclass(frozen=True)
class Estimates:
    """The estimates `center + step * reports`, not written out: bits that are almost all 0 are kept as a sparse matrix.

    At epsilon 9 per feature one bit in 8,000 is a false 1, so a first layer on sparse bits is much cheaper.
    """

    reports: Rows
    step: float = 1.0
    center: float = 0.0

    @classmethod
    def from_bits(cls, bits: Tensor, epsilon: float) -> Estimates:
        """The estimates of the one-bit mechanism in [0, 1]."""
        zero, one = (float(OneBit(epsilon).estimate(bit)) for bit in (0, 1))
        rows = bits.to(torch.float32)
        few = float(rows.mean()) < _FEW_ONES if rows.numel() else False
        return cls(SparseRows.from_tensor(rows) if few else rows, one - zero, zero)

    def propagated(self, propagation: Propagation, steps: int) -> PropagatedRows:
        """The estimates after `steps` propagations."""
        return PropagatedRows(self.reports, propagation, steps, self.step, self.center)

    def to_dense(self) -> Tensor:
        """The estimates written out."""
        return self.center + self.step * dense_rows(self.reports)


@dataclass(frozen=True)
class PGC(PerFeatureMethod):
    """Choices of PGC for node classification: a two-layer GCN on the estimated first convolution.

    `feature_steps` propagations come before the first layer: 0, as published, or a few where epsilon is small. Training
    stops when the validation loss has not fallen for `patience` epochs.
    """

    feature_steps: int = 0
    hidden: int = 32
    dropout: float = 0.5
    lr: float = 0.01
    weight_decay: float = 0.01
    epochs: int = 500
    patience: int = 20

    name = "pgc"
    summary = "one random bit per feature from every person; the first graph convolution averages the noise"

    def __post_init__(self) -> None:
        super().__post_init__()
        InputError.collect(
            [
                *parameters.at_least(0, feature_steps=self.feature_steps),
                *parameters.at_least(0, dropout=self.dropout, weight_decay=self.weight_decay),
                *parameters.at_least(1, hidden=self.hidden, epochs=self.epochs, patience=self.patience),
                *parameters.above(0, lr=self.lr),
            ]
        )

    def learn(self, vault: Vault, plan: Plan) -> TrainedModel:
        """Collect once, then train plainly."""
        estimates = self.collect(vault, plan)
        graph = Neighborhood(InNeighbors.from_edge_index(vault.edge_index, vault.facts.num_nodes))
        network = self.rebuild(vault.facts, {})
        rows = estimates.propagated(graph.kprop, self.feature_steps)
        labels, train = vault.labels, vault.nodes("train")
        val = vault.nodes("val") if vault.nodes("val").numel() else train

        def loss(nodes: Tensor) -> Tensor:
            scores = network(rows, graph)
            return torch.nn.functional.cross_entropy(scores[nodes], labels[nodes])

        seed = int(torch.randint(2**62, (1,), generator=vault.generator("weights")))
        patience = Patience(self.patience, least=10)
        train_watched(
            network,
            lambda: loss(train),
            lambda: float(loss(val)),
            torch.optim.Adam(network.parameters(), lr=self.lr, weight_decay=self.weight_decay),
            epochs=self.epochs,
            patience=patience,
            seed=seed,
            report=lambda done: vault.report("training", done, self.epochs),
        )
        with torch.no_grad():
            scores: Tensor = network(rows, graph)
        return PgcModel(
            method=self,
            facts=vault.facts,
            unit=plan.unit,
            network=network,
            settings={"epochs": patience.best_epoch},
            released={"scores": scores},
            scores=scores,
        )

    def rebuild(self, facts: PublicFacts, settings: dict[str, Any]) -> Gcn:
        """The untrained network."""
        if facts.num_features is None or facts.num_classes is None:
            raise InputError("PGC needs the number of features and classes")
        return Gcn(facts.num_features, self.hidden, facts.num_classes, self.dropout, activation="relu")


@dataclass
class PgcModel(TrainedModel):
    """PGC after training. Scores are post-processing of the reports, so they are stored with the model."""

    def class_scores(self, graph: Any | None) -> Tensor:
        """The stored scores, whatever the graph: raw features of `graph` are never read."""
        return self.released["scores"]


def _columns(facts: PublicFacts) -> int:
    if facts.num_features is None:
        raise InputError("PGC needs the number of features: it decides the total epsilon")
    return facts.num_features
