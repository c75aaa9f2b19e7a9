"""LPGNN: locally private graph neural networks (Sajadmanesh and Gatica-Perez, CCS 2021).

1. On the device: the multi-bit encoder randomizes the features, randomized response the label. One report, drawn once.
2. On the server: the reports are rectified, denoised by KProp over the public graph, and a graph network is trained on
   them by a rule that knows how the labels were randomized (`training.noisy_labels`).

Step 2 is post-processing. The price is epsilon_x + epsilon_y, exactly (docs/proofs/lpgnn.md).
"""

from __future__ import annotations

import math
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
from hushgraph.local import MultiBit, RandomizedResponse, SampledReport
from hushgraph.methods.base import TrainedModel, checked_training_graph
from hushgraph.methods.local_base import LocalMethod, local_stage, within
from hushgraph.nn.backbones import BACKBONES, Backbone, backbone
from hushgraph.nn.kprop import PropagatedRows
from hushgraph.nn.propagation import Neighborhood
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.calibration import Accountant
from hushgraph.privacy.plan import LocalStage, Plan, Stage
from hushgraph.privacy.units import Local, Unit
from hushgraph.training.noisy_labels import RULES, Chosen, NoisyLabels, Schedule, Trainer
from hushgraph.vault import PrivateRows, Progress, Vault

FEATURES = ("private", "codes", "ones", "degree", "random")
LABEL_STEPS = (2, 4, 8, 16)
_SPARSE_GRAPH = 10.0


@dataclass(frozen=True)
class LPGNN(LocalMethod):
    """Choices of LPGNN. The budget is the total; `label_epsilon` of it goes to the label (None: half).

    `feature_steps` and `label_steps` are KProp's K; None means by rule (features: 16 on sparse graphs, 4 otherwise) and
    by validation on noisy labels (labels). `normalize` scales the propagated rows to length 1; the paper does not.
    `features` other than `private` asks nobody anything: `codes` (a random sign in a random column for every node: a
    report that says nothing, but propagated it tells nodes apart by where they are), all ones, the degree, or random
    numbers.
    """

    label_epsilon: float | None = None
    feature_steps: int | None = None
    label_steps: int | None = None
    rule: str = "votes"
    features: str = "private"
    normalize: bool = True
    backbone: str = "sage"
    hidden: int = 16
    dropout: float = 0.5
    lr: float = 0.01
    weight_decay: float = 0.001
    epochs: int = 100

    name = "lpgnn"
    summary = "randomized features and labels from every person, denoised over the public graph"

    def __post_init__(self) -> None:
        super().__post_init__()
        InputError.collect(
            [
                *parameters.at_least(0, feature_steps=self.feature_steps, label_steps=self.label_steps),
                *parameters.at_least(0, dropout=self.dropout, weight_decay=self.weight_decay),
                *parameters.at_least(1, hidden=self.hidden, epochs=self.epochs),
                *parameters.above(0, lr=self.lr, label_epsilon=self.label_epsilon),
                *parameters.one_of(RULES, rule=self.rule),
                *parameters.one_of(FEATURES, features=self.features),
                *parameters.one_of(BACKBONES, backbone=self.backbone),
            ]
        )

    @property
    def reads_features(self) -> bool:
        """Not with ad-hoc features."""
        return self.features == "private"

    def stages(self, facts: PublicFacts, unit: Unit, budget: Budget, accountant: Accountant) -> tuple[Stage, ...]:
        """One report about the features, and one about the label where it is private."""
        assert isinstance(unit, Local)
        if not unit.private_labels and self.label_epsilon is not None:
            raise InputError("label_epsilon: expected none, since the unit leaves labels public; leave it out")
        for_label, for_features = self._split(unit, budget.epsilon)
        stages = []
        if for_features:
            words = f"multi-bit features, epsilon {for_features:g} for the whole row"
            stages.append(LocalStage("features", 1, 0.0, for_features, words))
        if for_label:
            stages.append(LocalStage("labels", 1, 0.0, for_label, f"randomized response, epsilon {for_label:g}"))
        return tuple(stages)

    def _split(self, unit: Local, total: float) -> tuple[float, float]:
        """Epsilon of the label and of the features (0: not asked)."""
        if not unit.private_labels:
            return 0.0, within(total) if self.reads_features else 0.0
        if not self.reads_features:
            return (total if self.label_epsilon is None else self.label_epsilon), 0.0
        for_label = total / 2 if self.label_epsilon is None else self.label_epsilon
        return for_label, within(total, taken=for_label)

    def learn(self, vault: Vault, plan: Plan) -> TrainedModel:
        """Collect once, then train on what was collected."""
        edges = InNeighbors.from_edge_index(vault.edge_index, vault.facts.num_nodes)
        features = self._collect_features(vault, plan)
        labels = self._collect_labels(vault, plan)
        return self.train_on(features, labels, edges, vault.facts, plan.unit, vault.generator, vault.report)

    def train_on(
        self,
        features: FeatureReports,
        labels: NoisyLabels,
        edges: InNeighbors,
        facts: PublicFacts,
        unit: Unit,
        generator: Callable[[str], torch.Generator],
        report: Progress = lambda stage, done, total: None,
    ) -> LpgnnModel:
        """The server's part: a network from reports and public edges. No private value comes in, nothing is charged."""
        graph = Neighborhood(edges)
        rows = self._rows(features, graph, generator("probes"))
        network = self.rebuild(facts, {"columns": rows.shape[1]})
        schedule = Schedule(self.epochs, self.lr, self.weight_decay, self._label_steps(labels))
        trainer = Trainer(network, rows, graph, labels, schedule, lambda done, total: report("training", done, total))
        rule = self.rule if math.isfinite(labels.epsilon) else "cross-entropy"
        chosen = trainer.fit(rule, int(torch.randint(2**62, (1,), generator=generator("weights"))))
        with torch.no_grad():
            scores = network(rows, graph)
        return LpgnnModel(
            method=self,
            facts=facts,
            unit=unit,
            network=network,
            settings=_settings(features, rows, chosen),
            released={"scores": scores, **features.released, **_released_labels(labels)},
            scores=scores,
        )

    def _collect_features(self, vault: Vault, plan: Plan) -> FeatureReports:
        columns = vault.facts.num_features
        if columns is None:
            raise InputError("LPGNN needs the number of features")
        if not self.reads_features:
            return ad_hoc_features(self.features, vault.edge_index, vault.facts, vault.generator("ad-hoc features"))
        if vault.unprotected:
            raw = vault.features
            assert not isinstance(raw, PrivateRows)
            return FeatureReports(raw)
        stage = local_stage(plan, "features")
        mechanism = MultiBit(stage.epsilon, columns)
        report = vault.collect_features(mechanism, stage, *self.range_for(vault, plan))
        return FeatureReports.from_multi_bit(report, mechanism)

    def _collect_labels(self, vault: Vault, plan: Plan) -> NoisyLabels:
        train, val, classes = vault.nodes("train"), vault.nodes("val"), vault.facts.num_classes
        if classes is None:
            raise InputError("LPGNN needs the number of classes")
        if vault.is_public("labels"):
            return NoisyLabels(vault.labels, train, val, torch.eye(classes))
        stage = local_stage(plan, "labels")
        mechanism = RandomizedResponse(stage.epsilon, classes)
        reports = vault.collect_labels(mechanism, stage)
        return NoisyLabels(reports, train, val, transition_of(mechanism), stage.epsilon)

    def _rows(self, features: FeatureReports, graph: Neighborhood, generator: torch.Generator) -> PropagatedRows:
        rows = PropagatedRows(
            features.reports, graph.kprop, self._feature_steps(features, graph), features.step, features.center
        )
        return rows.normalized(generator) if self.normalize else rows

    def _feature_steps(self, features: FeatureReports, graph: Neighborhood) -> int:
        if self.feature_steps is not None:
            return self.feature_steps
        if not features.noisy:
            return 0
        return 16 if graph.mean_degree < _SPARSE_GRAPH else 4

    def _label_steps(self, labels: NoisyLabels) -> tuple[int, ...]:
        if not math.isfinite(labels.epsilon):
            return (0,)
        return LABEL_STEPS if self.label_steps is None else (self.label_steps,)

    def rebuild(self, facts: PublicFacts, settings: dict[str, Any]) -> Backbone:
        """The untrained network."""
        if facts.num_classes is None:
            raise InputError("LPGNN needs the number of classes")
        return backbone(self.backbone, settings["columns"], self.hidden, facts.num_classes, self.dropout)


@dataclass(frozen=True)
class FeatureReports:
    """What the server holds about features: `reports`, and how to read them (estimate = center + step * report)."""

    reports: Rows
    step: float = 1.0
    center: float = 0.0
    noisy: bool = False

    @classmethod
    def from_multi_bit(cls, report: SampledReport, mechanism: MultiBit) -> FeatureReports:
        """The sparse signs of a multi-bit collection; rows of people who sent nothing would be empty."""
        people, bits = report.index.shape
        reports = SparseRows(
            torch.arange(people + 1) * bits,
            torch.from_numpy(report.index.reshape(-1)),
            torch.from_numpy(report.value.reshape(-1)).to(torch.float32),
            (people, mechanism.dimensions),
        )
        return cls(reports, mechanism.step, mechanism.center, noisy=True)

    @property
    def released(self) -> dict[str, Tensor]:
        """The reports as plain tensors, for the model's folder; nothing where they were not randomized."""
        if not self.noisy or not isinstance(self.reports, SparseRows):
            return {}
        values = self.reports.values
        signs = torch.ones(self.reports.indices.numel()) if values is None else values
        return {
            "report_rows": self.reports.indptr,
            "report_columns": self.reports.indices.to(torch.int32),
            "report_signs": signs.to(torch.int8),
        }


def ad_hoc_features(kind: str, edge_index: Tensor, facts: PublicFacts, generator: torch.Generator) -> FeatureReports:
    """Features that ask nothing of anybody, as wide as the real ones: codes, ones, one-hot degrees, random numbers."""
    nodes, columns = facts.num_nodes, facts.num_features or 1
    if kind == "codes":
        column = torch.randint(columns, (nodes,), generator=generator)
        sign = torch.randint(2, (nodes,), generator=generator).to(torch.float32) * 2.0 - 1.0
        return FeatureReports(SparseRows(torch.arange(nodes + 1), column, sign, (nodes, columns)), noisy=True)
    if kind == "ones":
        return FeatureReports(torch.ones(nodes, columns))
    if kind == "random":
        return FeatureReports(torch.rand(nodes, columns, generator=generator))
    degree = torch.bincount(edge_index[1], minlength=nodes).clamp(max=columns - 1)
    return FeatureReports(SparseRows(torch.arange(nodes + 1), degree, None, (nodes, columns)))


def transition_of(mechanism: RandomizedResponse) -> Tensor:
    """P[report | label] as a tensor: the matrix of forward correction."""
    return torch.from_numpy(mechanism.transition).to(torch.float32)


def _settings(features: FeatureReports, rows: PropagatedRows, chosen: Chosen) -> dict[str, Any]:
    """What prediction needs and what was chosen, as plain JSON values."""
    return {
        "columns": rows.shape[1],
        "step": features.step,
        "center": features.center,
        "feature_steps": rows.steps,
        "label_steps": chosen.steps,
        "epochs": chosen.epochs,
        "noisy_validation_loss": chosen.loss if math.isfinite(chosen.loss) else None,
    }


def _released_labels(labels: NoisyLabels) -> dict[str, Tensor]:
    return {"report_labels": labels.reports} if math.isfinite(labels.epsilon) else {}


@dataclass
class LpgnnModel(TrainedModel):
    """LPGNN after training. Scores are post-processing of the reports, so they are stored with the model."""

    @torch.no_grad()
    def class_scores(self, graph: Any | None) -> Tensor:
        """The stored scores; with `graph`, computed again from the stored reports and the graph's public edges."""
        assert isinstance(self.method, LPGNN)
        assert isinstance(self.network, Backbone)
        if graph is None:
            return self.released["scores"]
        checked = checked_training_graph(self, graph)
        hood = Neighborhood(checked.edges)
        features = self._features(checked)
        rows = PropagatedRows(
            features.reports, hood.kprop, self.settings["feature_steps"], features.step, features.center
        )
        if self.method.normalize:
            rows = rows.normalized(torch.Generator().manual_seed(0))
        scores: Tensor = self.network.eval()(rows, hood)
        return scores

    def _features(self, checked: Any) -> FeatureReports:
        if "report_rows" in self.released:
            shape = (self.facts.num_nodes, self.settings["columns"])
            signs = self.released["report_signs"].to(torch.float32)
            reports = SparseRows(self.released["report_rows"], self.released["report_columns"], signs, shape)
            return FeatureReports(reports, self.settings["step"], self.settings["center"], noisy=True)
        assert isinstance(self.method, LPGNN)
        if self.method.reads_features:
            return FeatureReports(dense_rows(checked.features))
        if self.method.features == "random":
            raise InputError("predict: random features are not stored with the model; call predict without a graph")
        return ad_hoc_features(self.method.features, checked.edges.edge_index(), self.facts, torch.Generator())
