"""LPGNN: locally private graph neural networks (Sajadmanesh and Gatica-Perez, CCS 2021).

1. On the device: the multi-bit encoder randomizes the features, randomized response the label. One report, drawn once.
2. On the server: the reports are rectified, denoised by KProp over the public graph, and a graph network is trained on
   them by a rule that knows how the labels were randomized (`training.noisy_labels`).

Step 2 is post-processing. The cost is epsilon_x + epsilon_y, exactly (docs/proofs/lpgnn.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.graph.rows import Rows, SparseRows
from hushgraph.local import MultiBit, RandomizedResponse, SampledReport
from hushgraph.mechanisms.local_report import LocalReport
from hushgraph.methods.base import Output
from hushgraph.methods.local import LocalMethod, require_local, within
from hushgraph.nn.backbones import BACKBONES, Backbone, backbone
from hushgraph.nn.propagation import Neighborhood, PropagatedRows
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.settings import setting
from hushgraph.training.noisy_labels import RULES, NoisyLabels, Schedule, Trainer
from hushgraph.vault import Vault

FEATURES = ("private", "codes", "ones", "degree", "random")
LABEL_STEPS = (2, 4, 8, 16)
_SPARSE_GRAPH = 10.0
_PROBE_SEED = 0  # lengths are measured with the same public probes whenever a model is used


@dataclass(frozen=True)
class LPGNN(LocalMethod):
    """Settings of LPGNN. The budget is the total; `label_epsilon` of it goes to the label.

    `features` other than `private` asks nobody anything: `codes` (a random sign in a random column for every node: a
    report that says nothing, but propagated it tells nodes apart by where they are), all ones, the degree, or random
    numbers.
    """

    label_epsilon: float | None = setting(None, above=0, help="epsilon of the label; by rule half of the budget")
    feature_steps: int | None = setting(None, least=0, most=1000, help="KProp steps of features; by rule 16, or 4")
    label_steps: int | None = setting(None, least=0, most=1000, help="KProp steps of labels; by rule chosen")
    rule: str = setting("votes", among=RULES, help="how noisy labels are learned from")
    features: str = setting("private", among=FEATURES)
    normalize: bool = setting(True, help="scale propagated rows to length 1; the paper does not")
    backbone: str = setting("sage", among=BACKBONES)
    hidden_channels: int = setting(16, least=1, most=1 << 16)
    dropout: float = setting(0.5, least=0, below=1)
    lr: float = setting(0.01, above=0)
    weight_decay: float = setting(0.001, least=0)
    epochs: int = setting(100, least=1)

    name = "lpgnn"
    summary = "randomized features and labels from every person, denoised over the public graph"
    one_class = "a person reports one class"
    paper = "Sajadmanesh and Gatica-Perez, CCS 2021"
    aliases = {"hidden": "hidden_channels", "normalise": "normalize"}

    @property
    def reads_features(self) -> bool:
        """Not with ad-hoc features."""
        return self.features == "private"

    def stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """One report about the features, and one about the label where it is private."""
        for_label, for_features = self._split(unit, _finite(budget.epsilon))
        stages = [self._feature_report(metadata, for_features)] if for_features else []
        if for_label:
            stages.append(self.report("labels", RandomizedResponse(for_label, metadata.classes), "labels"))
        return stages

    def inference_plan(self, metadata: Metadata, unit: Unit, budget: Budget, *, paper_mode: bool = False) -> Plan:
        """Predictions read features alone: nobody is asked about a label, and the features get the whole budget."""
        stages = [self._feature_report(metadata, within(_finite(budget.epsilon)))] if self.reads_features else []
        return self._planned(f"{self.name}-inference", metadata, unit, budget, lambda *_: stages, paper_mode)

    def _feature_report(self, metadata: Metadata, epsilon: float) -> Stage:
        return self.report("features", MultiBit(epsilon, metadata.features))

    def _split(self, unit: Unit, total: float) -> tuple[float, float]:
        """Epsilon of the label and of the features (0: not asked)."""
        require_local(unit, self.name)
        if "labels" in unit.public:
            if self.label_epsilon is not None:
                raise InputError("label_epsilon: expected none where labels are public (private_labels=false); got one")
            return 0.0, within(total) if self.reads_features else 0.0
        if not self.reads_features:
            return (total if self.label_epsilon is None else self.label_epsilon), 0.0
        for_label = total / 2 if self.label_epsilon is None else self.label_epsilon
        return for_label, within(total, taken=for_label)

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """A two-layer graph network."""
        metadata = plan.metadata
        return backbone(self.backbone, metadata.features, self.hidden_channels, metadata.classes, self.dropout)

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """Collect once, then train on what was collected."""
        graph = Neighborhood(vault.edges.load())
        features = self._features(vault)
        steps = self.feature_steps
        if steps is None:
            steps = 0 if not features.noisy else 16 if graph.mean_degree < _SPARSE_GRAPH else 4
        rows = PropagatedRows(features.reports, graph.kprop, steps, features.step, features.center)
        if self.normalize:
            rows = rows.normalized(torch.Generator().manual_seed(_PROBE_SEED))
        settings: dict[str, Any] = {}
        if train:
            settings = self._train(cast(Backbone, network), rows, graph, vault)
        with torch.no_grad():
            scores: Tensor = network.eval()(rows, graph)
        return Output(scores=scores, settings=settings)

    def _train(self, network: Backbone, rows: PropagatedRows, graph: Neighborhood, vault: Vault) -> dict[str, Any]:
        labels = self._labels(vault)
        steps = LABEL_STEPS if self.label_steps is None else (self.label_steps,)
        schedule = Schedule(self.epochs, self.lr, self.weight_decay, steps if math.isfinite(labels.epsilon) else (0,))
        report = lambda done, total: vault.report("training", done, total)  # noqa: E731
        trainer = Trainer(network, rows, graph, labels, schedule, report)
        rule = self.rule if math.isfinite(labels.epsilon) else "cross-entropy"
        chosen = trainer.fit(rule, int(torch.randint(2**62, (1,), generator=vault.generator("weights"))))
        loss = chosen.loss if math.isfinite(chosen.loss) else None
        steps_taken = {"feature_steps": rows.steps, "label_steps": chosen.steps}
        return {**steps_taken, "epochs": chosen.epochs, "noisy_validation_loss": loss}

    def _features(self, vault: Vault) -> FeatureReports:
        if not self.reads_features:
            return ad_hoc_features(self.features, vault)
        value = vault.release("features")
        if vault.plan.runs_exactly("features"):
            return FeatureReports(value)
        mechanism = vault.plan.mechanism("features", LocalReport)
        return FeatureReports.of(value, mechanism.randomizer)

    def _labels(self, vault: Vault) -> NoisyLabels:
        classes = vault.metadata.classes
        if vault.is_public("labels"):
            return NoisyLabels(vault.labels, vault.labeled("train"), vault.labeled("val"), torch.eye(classes))
        train, val = vault.nodes("train"), vault.nodes("val")
        mechanism = vault.plan.mechanism("labels", LocalReport)
        # A unary report that names one class has the same law as randomized response.
        response = RandomizedResponse(mechanism.epsilon, classes)
        transition = torch.from_numpy(response.transition).to(torch.float32)
        return NoisyLabels(vault.release("labels"), train, val, transition, mechanism.epsilon)


def _finite(epsilon: float) -> float:
    """The budget; without protection the randomizers are not used, whatever their epsilon."""
    return epsilon if math.isfinite(epsilon) else 2.0


@dataclass(frozen=True)
class FeatureReports:
    """What the server holds about features: `reports`, and how to read them (estimate = center + step * report)."""

    reports: Rows
    step: float = 1.0
    center: float = 0.0
    noisy: bool = False

    @classmethod
    def of(cls, report: Any, randomizer: Any) -> FeatureReports:
        """Reports as the randomizer drew them: sparse signs of a multi-bit collection, or one number per feature."""
        if isinstance(report, SampledReport):
            people, bits = report.index.shape
            signs = SparseRows(
                torch.arange(people + 1) * bits,
                torch.from_numpy(report.index.reshape(-1)),
                torch.from_numpy(report.value.reshape(-1)).to(torch.float32),
                (people, randomizer.dimensions),
            )
            return cls(signs, randomizer.step, randomizer.center, noisy=True)
        return cls(torch.as_tensor(randomizer.estimate(report)).to(torch.float32), noisy=True)


def ad_hoc_features(kind: str, vault: Vault) -> FeatureReports:
    """Features that ask nothing of anybody, as wide as the real ones: codes, ones, one-hot degrees, random numbers."""
    nodes, columns = vault.metadata.num_nodes, vault.metadata.features
    generator = torch.Generator().manual_seed(_PROBE_SEED)
    if kind == "codes":
        column = torch.randint(columns, (nodes,), generator=generator)
        sign = torch.randint(2, (nodes,), generator=generator).to(torch.float32) * 2.0 - 1.0
        return FeatureReports(SparseRows(torch.arange(nodes + 1), column, sign, (nodes, columns)), noisy=True)
    if kind == "ones":
        return FeatureReports(torch.ones(nodes, columns))
    if kind == "random":
        return FeatureReports(torch.rand(nodes, columns, generator=generator))
    degree = vault.edges.in_degree().clamp(max=columns - 1)
    return FeatureReports(SparseRows(torch.arange(nodes + 1), degree, None, (nodes, columns)))
