"""Chorus: labels as messages.

A train node sends its label to its neighbors: one number out of C, of norm one, where other methods send a learned
row. Nodes without a label send nothing at first, and the roots of their guessed class probabilities once there is a
model to guess with. Each stage sums these messages over in-neighbors with noise (released once and cached) and trains
a classifier on features and all sums so far.

Five things keep the noise low for the same epsilon (proofs: docs/proofs/chorus.md; measured: docs/results.md):
* labels are sent centered, as corners of a regular simplex: as long as one-hot rows, but further apart;
* edge level, a friendship counted whole: guesses are sent at half volume and sums of train nodes, which only serve to
  train, get more noise, so that the sums of the nodes to predict need 1.07 instead of 1.41 times one edge's noise;
* node level: a node divides its message by the root of the length of its own list. All it sends has norm one, no list
  is cut, and the noise does not grow with a degree cap;
* node level: only a part of the train nodes receive sums and learn to read them (all of them send), so
  lists get shorter and messages louder. The other train nodes teach a model of features, at no further cost: a record
  is an example of one of the two models only;
* node level: the classifier is linear, from zero, on rows of norm one: few numbers to learn.

A node's own label never enters its own sum of the first stage. Later it can come back only through the guess of an
unlabeled neighbor, as one of that neighbor's many contributions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hushgraph import settings as parameters
from hushgraph.data.joined import JoinedRows
from hushgraph.data.metadata import PublicFacts
from hushgraph.data.rows import Rows, SparseRows
from hushgraph.errors import InputError
from hushgraph.mechanisms.label_sum import relative_noise
from hushgraph.methods.base import Method, TrainedModel, checked_training_graph
from hushgraph.methods.inductive import InductiveModel
from hushgraph.nn.chorus import (
    Ensemble,
    FloorScale,
    LinearNetwork,
    Opinion,
    UnitRows,
    without_mean,
)
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.calibration import Accountant
from hushgraph.privacy.label_sum import LabelSumStage
from hushgraph.privacy.plan import GradientStage, Plan, Stage, calibrated
from hushgraph.privacy.units import Node, NodeReplace, UndirectedEdge, Unit
from hushgraph.training.optimizers import OPTIMIZERS, OptimizerName
from hushgraph.vault import PrivateRows, Recipe, Vault

Part = Rows | PrivateRows
PLAIN_EPOCHS, PLAIN_PATIENCE, PRIVATE_EPOCHS = 150, 20, 10
PLAIN_LR, PRIVATE_LR, FEW_COLUMNS_LR = 0.03, 0.04, 0.06
_LEARNERS, _LEAST_LEARNERS = 0.25, 500


@dataclass(frozen=True)
class Chorus(Method):
    """Choices of Chorus. None means: 3 stages, 150 epochs, lr 0.03 where training is plain; 1, 10, 0.06 where private.

    Sums: `centered` messages; `quiet` is the norm of a guess relative to a label (friendships only); `shared` divides a
    message by the root of its sender's list's length instead of cutting lists at the unit's cap (node level).

    Plain training: `members` networks of `hidden` units are averaged in the last stage, with `dropout`. It stops after
    20 epochs without a better validation accuracy (public there).

    Private training: `aggregation_noise` is the noise multiplier of the sums relative to that of the gradients.
    `learners` is the share of train nodes that the classifier of sums is trained on (None: 0.25, and at least 500
    nodes where there are as many; where all learn, batches are of 512 and lr is 0.04). Sums shorter than `floor`
    lengths of their noise are kept short. `zero_start`, `optimizer`, `normalize` and `average_last` are switches that
    were compared (docs/results.md); see `train_privately`.
    """

    num_stages: int | None = None
    quiet: float = 0.5
    hidden: int = 32
    dropout: float = 0.3
    members: int = 1
    lr: float | None = None
    epochs: int | None = None
    batch_size: int | None = None
    learners: float | None = None
    max_grad_norm: float = 1.0
    aggregation_noise: float = 0.4
    centered: bool = True
    shared: bool = True
    floor: float = 3.0
    zero_start: bool = True
    optimizer: OptimizerName = "adam"
    normalize: bool = False
    average_last: float = 0.0

    name = "chorus"
    summary = "noisy sums of neighbors' labels, then of labels and guesses"
    units = frozenset({"directed-edge", "undirected-edge", "node", "node-replace", "node-promise"})

    def __post_init__(self) -> None:
        InputError.collect(
            [
                *parameters.at_least(1, num_stages=self.num_stages, hidden=self.hidden, members=self.members),
                *parameters.at_least(1, epochs=self.epochs, batch_size=self.batch_size),
                *parameters.at_least(0, dropout=self.dropout, quiet=self.quiet),
                *parameters.above(0, learners=self.learners, lr=self.lr, max_grad_norm=self.max_grad_norm),
                *parameters.above(0, aggregation_noise=self.aggregation_noise),
                *parameters.at_least(0, floor=self.floor, average_last=self.average_last),
                *parameters.one_of(OPTIMIZERS, optimizer=self.optimizer),
            ]
        )

    def stages(self, facts: PublicFacts, unit: Unit, budget: Budget, accountant: Accountant) -> tuple[Stage, ...]:
        """The sums; at node level also the gradient steps of every stage."""
        return calibrated(lambda scale: self._stages_at(scale, facts, unit), unit, budget, accountant)

    def _stages_at(self, scale: float, facts: PublicFacts, unit: Unit) -> tuple[Stage, ...]:
        private = "labels" not in unit.public
        sums = self._label_sums(unit, scale * (self.aggregation_noise if private else 1.0))
        if not private:
            return (sums,)
        learners = self.num_learners(facts, unit)
        batch = self.batch_size or (512 if learners == facts.num_train else 256)
        rate = min(1.0, batch / learners)
        steps = (self.epochs or PRIVATE_EPOCHS) * math.ceil(1.0 / rate)
        gradients = [
            GradientStage(f"stage_{k}", steps, scale * self.max_grad_norm, self.max_grad_norm, rate)
            for k in range(1, sums.count + 1)
        ]
        return (sums, *gradients)

    def num_learners(self, facts: PublicFacts, unit: Unit) -> int:
        """How many train nodes a private classifier is trained on, by rule from public sizes."""
        if type(unit) not in (Node, NodeReplace):
            return facts.num_train
        share = self.learners
        if share is None:
            share = max(_LEARNERS, _LEAST_LEARNERS / facts.num_train)
        return max(1, round(min(1.0, share) * facts.num_train))

    def assumptions(self, facts: PublicFacts, unit: Unit) -> tuple[str, ...]:
        """Those of every method, without the cap, which is not used."""
        usual = super().assumptions(facts, unit)
        if not self._shares(unit):
            return usual
        kept = tuple(line for line in usual if not line.startswith("the cap on a node's own list"))
        return (*kept, "no cap on lists: a node divides its message by the root of its own list's length")

    def _shares(self, unit: Unit) -> bool:
        """Whether a node divides its message by the root of its list's length."""
        return self.shared and type(unit) in (Node, NodeReplace)

    def _label_sums(self, unit: Unit, multiplier: float) -> LabelSumStage:
        """The sums with this noise multiplier, in the form that costs least under the unit."""
        count = self.num_stages or (3 if "labels" in unit.public else 1)
        # Where a record is replaced, two centered messages can be opposite: as much is lost as was gained.
        shape: dict[str, Any] = {
            "shared": self._shares(unit),
            "centered": self.centered and type(unit) is not NodeReplace,
        }
        if type(unit) is UndirectedEdge:
            # Friendships between two train nodes and between one and another node then cost the same.
            shape |= {"quiet": self.quiet, "labeled_noise": math.sqrt(2.0 - self.quiet**2)}
        unscaled = LabelSumStage("label sums", count, 0.0, **shape)
        return LabelSumStage("label sums", count, multiplier * unscaled.sensitivity(unit), **shape)

    def learn(self, vault: Vault, plan: Plan) -> TrainedModel:
        """Per stage: send labels and guesses, sum them, train on features and sums."""
        plain = vault.is_public("labels")
        sums = self._planned_sums(plan)
        generator = vault.generator("weights")
        learners, receivers = self._learners(vault, plan.unit)
        parts: list[Part] = [vault.features if plain else vault.apply(UnitRows(), vault.features)]
        networks: list[nn.Module] = []
        opinion = None if learners is None else self._opinion(vault, plan, parts[0], learners)
        if opinion is not None:
            parts[0] = vault.apply(opinion, parts[0])

        for k in range(sums.count + 1):
            if k > 0:
                guesses = vault.apply(networks[-1].guess, vault.join(parts)) if networks else None  # type: ignore[arg-type]
                released = vault.aggregate_labels(vault.label_rows(guesses), sums, receivers)
                parts.append(self._prepared(vault, released, sums, plain))
            elif not plain:
                continue  # a model of features alone would cost gradient steps
            width = int(parts[0].shape[1])
            network = self._network(k, width, vault.facts, plain, generator, last=k == sums.count)
            name, recipe = f"stage_{k}", self._recipe(plain, opinion)
            vault.train(network, vault.join(parts), recipe, plan.gradient(name), name, learners)
            networks.append(network.eval())

        network = nn.ModuleDict({"stages": nn.ModuleList(networks)})
        if opinion is not None:
            network["opinion"] = opinion
        return ChorusModel(
            method=self,
            facts=vault.facts,
            unit=plan.unit,
            network=network,
            settings={"plain": plain, "sums": sums.count, "opinion": opinion is not None},
            released={f"sum_{k}": part for k, part in enumerate(parts) if k > 0 and isinstance(part, Tensor)},
            scores=vault.predictions(networks[-1], vault.join(parts)),
        )

    def _opinion(self, vault: Vault, plan: Plan, features: Part, learners: Tensor) -> Opinion:
        """A model of features, taught by the train nodes that do not learn to read sums (charged with stage 1)."""
        train = vault.nodes("train")
        others = train[~torch.isin(train, learners)]
        opinion = self._opinion_network(vault.facts, vault.generator("opinion"))
        recipe, stage = self._recipe(plain=False), plan.gradient("stage_1")
        vault.train(opinion.classifier, vault.join([features]), recipe, stage, "features", others)
        return opinion.eval()

    def _opinion_network(self, facts: PublicFacts, generator: torch.Generator) -> Opinion:
        features, classes = _sizes(facts)
        return Opinion(self._linear([features], classes, generator), classes)

    def _linear(self, widths: list[int], classes: int, generator: torch.Generator) -> LinearNetwork:
        return LinearNetwork(widths, classes, generator=None if self.zero_start else generator)

    def _learners(self, vault: Vault, unit: Unit) -> tuple[Tensor | None, Tensor | None]:
        """The train nodes that learn, drawn at random, and the mask of nodes that receive (None: all)."""
        train = vault.nodes("train")
        count = self.num_learners(vault.facts, unit)
        if vault.unprotected or count == train.numel():
            return None, None
        order = train[torch.randperm(train.numel(), generator=vault.generator("learners"))]
        receivers = torch.ones(vault.facts.num_nodes, dtype=torch.bool).index_fill_(0, order[count:], False)
        return order[:count], receivers

    def _planned_sums(self, plan: Plan) -> LabelSumStage:
        found = [stage for stage in plan.stages if isinstance(stage, LabelSumStage)]
        return found[0] if found else self._label_sums(plan.unit, 0.0)

    def _prepared(self, vault: Vault, released: Tensor | PrivateRows, sums: LabelSumStage, plain: bool) -> Part:
        """The sums on a scale that fits the classifier: in multiples of their noise, or of length at most one."""
        columns = (vault.facts.num_classes or 1) - (1 if sums.centered else 0)
        if not plain:
            return vault.apply(FloorScale(self.floor * math.sqrt(columns) * sums.std, sums.centered), released)
        assert isinstance(released, Tensor)
        if sums.centered:
            released = without_mean(released)
        if sums.std == 0.0:
            return released
        labeled = torch.zeros(len(released), dtype=torch.bool).index_fill_(0, vault.nodes("train"), True)
        return released / (sums.std * relative_noise(labeled, sums))

    def _recipe(self, plain: bool, opinion: Opinion | None = None) -> Recipe:
        if plain:
            epochs, lr = self.epochs or PLAIN_EPOCHS, self.lr or PLAIN_LR
            return Recipe(epochs, lr, select_best=True, patience=PLAIN_PATIENCE)
        return Recipe(
            self.epochs or PRIVATE_EPOCHS,
            self.lr or (FEW_COLUMNS_LR if opinion else PRIVATE_LR),
            self.optimizer,
            normalize=self.normalize,
            average_last=self.average_last,
        )

    def _network(
        self, stage: int, width: int, facts: PublicFacts, plain: bool, generator: torch.Generator, *, last: bool
    ) -> nn.Module:
        """The classifier of one stage, on `width` columns about the node itself and one sum per stage."""
        classes = _sizes(facts)[1]
        widths = [width, *[classes] * stage]
        if not plain:
            return self._linear(widths, classes, generator)
        members = self.members if last else 1
        return Ensemble(widths, self.hidden, classes, members=members, dropout=self.dropout, generator=generator)

    def rebuild(self, facts: PublicFacts, settings: dict[str, Any]) -> nn.Module:
        """The untrained networks that saved weights are loaded into."""
        plain, count = settings["plain"], settings["sums"]
        features, classes = _sizes(facts)
        width = classes if settings["opinion"] else features
        stages = [
            self._network(k, width, facts, plain, torch.Generator(), last=k == count)
            for k in range(0 if plain else 1, count + 1)
        ]
        network = nn.ModuleDict({"stages": nn.ModuleList(stages)})
        if settings["opinion"]:
            network["opinion"] = self._opinion_network(facts, torch.Generator())
        return network


def _sizes(facts: PublicFacts) -> tuple[int, int]:
    """The number of features and of classes."""
    if facts.num_features is None or facts.num_classes is None:
        raise InputError("Chorus needs the number of features and classes to build its networks")
    return facts.num_features, facts.num_classes


@dataclass
class ChorusModel(InductiveModel):
    """Chorus after training. Predictions about the training graph read its features and the cached sums."""

    @torch.no_grad()
    def class_scores(self, graph: Any | None) -> Tensor:
        """From the cached sums and the features of `graph`; without it a node's own features are left out (null)."""
        features = self._no_features() if graph is None else checked_training_graph(self, graph).features
        if not self.settings["plain"]:
            features = UnitRows()(features)
        if self.settings["opinion"]:
            features = self.network["opinion"](features)  # type: ignore[index]
        sums = [self.released.get(f"sum_{k}") for k in range(1, self.settings["sums"] + 1)]
        known = [part for part in sums if part is not None]
        if len(known) < len(sums):
            raise InputError(
                f"under the unit '{self.unit}' aggregated rows are part of each node's own record and are not stored "
                "with the model; use predict_on with the graph and a budget"
            )
        scores: Tensor = self.network["stages"][-1].eval()(JoinedRows([features, *known]))  # type: ignore[index]
        return scores

    def _no_features(self) -> SparseRows:
        nothing = torch.empty(0, dtype=torch.int64)
        offsets = torch.zeros(self.facts.num_nodes + 1, dtype=torch.int64)
        return SparseRows(offsets, nothing, None, (self.facts.num_nodes, self.facts.num_features or 0))

    def inference(self) -> Method:
        """The sums alone, of the labels of the other graph's own train nodes."""
        return _Inference(**self.method.as_dict())

    def check_sizes(self, facts: PublicFacts) -> None:
        """Features and classes must be those of training."""
        sizes = (facts.num_features, facts.num_classes)
        if sizes != (self.facts.num_features, self.facts.num_classes):
            raise InputError(
                f"predict_on: expected {self.facts.num_features} features and {self.facts.num_classes} classes; "
                f"got {sizes[0]} and {sizes[1]}"
            )

    def release(self, vault: Vault, plan: Plan) -> tuple[dict[str, Tensor], Tensor | None]:
        """Sum labels, and later what the trained stages guess where there is none."""
        assert isinstance(self.method, Chorus)
        plain, sums, networks = self.settings["plain"], self.method._planned_sums(plan), list(self.network["stages"])  # type: ignore[index]
        parts: list[Part] = [vault.features if plain else vault.apply(UnitRows(), vault.features)]
        if self.settings["opinion"]:
            parts[0] = vault.apply(self.network["opinion"], parts[0])  # type: ignore[index]
        for k in range(1, sums.count + 1):
            at = k - 1 if plain else k - 2
            guesses = vault.apply(networks[at].guess, vault.join(parts)) if at >= 0 else None
            released = vault.aggregate_labels(vault.label_rows(guesses), sums)
            parts.append(self.method._prepared(vault, released, sums, plain))
        kept = {f"sum_{k}": part for k, part in enumerate(parts) if k > 0 and isinstance(part, Tensor)}
        return kept, vault.predictions(networks[-1], vault.join(parts))


@dataclass(frozen=True)
class _Inference(Chorus):
    """The sums without any training."""

    name = "chorus-inference"
    trains = False

    def _stages_at(self, scale: float, facts: PublicFacts, unit: Unit) -> tuple[Stage, ...]:
        return (self._label_sums(unit, scale),)
