"""Chorus: labels as messages.

A training node sends its label to its neighbors: one number out of C, of norm one, where other methods send a learned
row. Nodes without a label send nothing at first, and the roots of their predicted class probabilities (pseudo-labels)
once there is a model to predict with. Each hop sums these messages over in-neighbors with noise (released once and
cached) and trains a classifier on features and all sums so far. Sums over each type of edge stand side by side.

Five things keep the noise low for the same epsilon (proofs: docs/proofs/chorus.md; measured: docs/results-chorus.md):
* labels are sent centered, as corners of a regular simplex: as long as one-hot rows, but further apart;
* undirected edges: pseudo-labels are sent at half the norm and sums of training nodes, which only serve to train, get
  more noise, so that the sums of the nodes to predict need 1.07 instead of 1.41 times one directed edge's noise;
* node level: a node divides its message by the root of the length of its own list. All it sends has norm one, no list
  is cut, and the noise does not grow with a degree cap;
* node level: only a part of the training nodes receive sums and learn to read them (all of them send), so lists get
  shorter and messages louder. The others train a model of features, at no further cost: a record is an example of one
  of the two models only;
* node level: the classifier is linear, from zero, on rows of norm one: few numbers to learn.

A node's own label never enters its own first sum. Later it can come back only through the pseudo-label of an unlabeled
neighbor, as one of that neighbor's many contributions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.mechanisms.gradient import Gradient
from hushgraph.mechanisms.label_sum import LabelSum
from hushgraph.methods.base import Method, Output
from hushgraph.nn.chorus import ChorusNetwork, FloorScale, UnitRows, without_mean
from hushgraph.nn.own import own_module
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code, Note, note
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.settings import setting
from hushgraph.training.config import Training
from hushgraph.training.optimizers import OPTIMIZERS, OptimizerName
from hushgraph.vault import Held, Vault

SUMS = "label sums"
PLAIN_EPOCHS, PLAIN_PATIENCE, PRIVATE_EPOCHS = 150, 20, 10
PLAIN_LR, PRIVATE_LR, FEW_COLUMNS_LR = 0.03, 0.04, 0.06
_TRAIN_FRACTION, _FEWEST_READERS, _MANY_READERS = 0.25, 500, 10_000


@dataclass(frozen=True)
class Chorus(Method):
    """Settings of Chorus. None: 3 hops, 150 epochs, lr 0.03 where training is plain; 1, 10, 0.06 by DP-SGD.

    In Python, `module` is one of your own from features to class scores (docs/modules.md).
    """

    hops: int | None = setting(None, least=1, most=1000, help="noisy sums of labels")
    unlabeled_norm: float = setting(0.5, least=0, help="norm of a pseudo-label over that of a label (undirected edges)")
    hidden_channels: int = setting(32, least=1, most=1 << 16, help="width of the hidden layer (plain training)")
    dropout: float = setting(0.3, least=0, below=1)
    ensemble_size: int = setting(1, least=1, most=100_000, help="networks averaged after the last sum (plain training)")
    lr: float | None = setting(None, above=0, help="learning rate")
    epochs: int | None = setting(None, least=1)
    batch_size: int | None = setting(None, least=1, help="expected batch of DP-SGD; by rule 256 or more")
    train_fraction: float | None = setting(None, above=0, help="training nodes that read sums; by rule 1/4, >= 500")
    max_grad_norm: float = setting(1.0, above=0, help="clip norm of one example's gradient")
    aggregation_noise: float = setting(0.4, above=0, help="noise multiplier of sums over that of gradients")
    centered: bool = setting(True, help="send labels without their mean")
    divide_by_degree: bool = setting(True, help="divide messages by the root of the list's length (node level)")
    noise_floor: float = setting(3.0, least=0, help="sums below this many lengths of their noise are kept short")
    zero_init: bool = setting(True, help="start the linear classifier from zero")
    optimizer: OptimizerName = setting("adam", among=OPTIMIZERS)
    normalize: bool = setting(False, help="lengthen short gradients to the clip norm")
    average_last: float = setting(0.0, least=0, help="share of the last steps whose weights are averaged")
    module: nn.Module | None = setting(None, in_python=True, help="in place of the model of features")

    name = "chorus"
    summary = "noisy sums of neighbors' labels, then a classifier on features and sums"
    one_class = "a node sends one class, and whoever reads sums is taught to tell one"
    paper = "hushgraph"
    aliases = {
        "num_stages": "hops",
        "quiet": "unlabeled_norm",
        "hidden": "hidden_channels",
        "members": "ensemble_size",
        "learners": "train_fraction",
        "shared": "divide_by_degree",
        "floor": "noise_floor",
        "zero_start": "zero_init",
    }

    # What is released

    def stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """The sums, and the training after each; plain training also starts with a model of features alone."""
        plain = self._trains_plainly(unit, budget)
        hops = self.hops or (3 if plain else 1)
        readers = self._num_readers(metadata, unit, budget)
        batch = self.batch_size or _batch(readers, metadata)
        sums = self._label_sum(unit).for_types(metadata, unit, budget)
        training = Gradient.of(readers, batch, self.epochs or PRIVATE_EPOCHS, self.max_grad_norm)
        parts = 1 if readers == metadata.num_train else 2
        return [
            Stage(SUMS, sums, hops, noise=self.aggregation_noise),
            *[Stage(f"stage_{k}", training, parallel=parts) for k in range(0 if plain else 1, hops + 1)],
        ]

    def _label_sum(self, unit: Unit) -> LabelSum:
        """The sums in the form that costs least under the unit."""
        f = unit.footprint
        divided = self.divide_by_degree and f.owned
        centered = self.centered and not f.replaced  # two centered messages can be opposite: nothing would be gained
        if not f.mirrored:
            return LabelSum(divided=divided, centered=centered)
        # Edges between two training nodes and between one and another node then cost the same.
        labeled_noise = math.sqrt(2.0 - self.unlabeled_norm**2)
        return LabelSum(self.unlabeled_norm, labeled_noise, divided, centered)

    def _num_readers(self, metadata: Metadata, unit: Unit, budget: Budget) -> int:
        """How many training nodes a private classifier of sums is trained on, by rule from public sizes."""
        if not unit.footprint.owned or not budget.is_private:
            return metadata.num_train
        share = self.train_fraction or max(_TRAIN_FRACTION, _FEWEST_READERS / metadata.num_train)
        return max(1, round(min(1.0, share) * metadata.num_train))

    def _trains_plainly(self, unit: Unit, budget: Budget) -> bool:
        return not budget.is_private or "labels" in unit.public

    def public_notes(self, metadata: Metadata, unit: Unit) -> Sequence[Note]:
        """Those of every method; where messages are divided, lists are not cut."""
        usual = super().public_notes(metadata, unit)
        if not (self.divide_by_degree and unit.footprint.owned):
            return usual
        return [*(one for one in usual if one.code is not Code.DEGREE_CAP), note(Code.NO_CAP)]

    # The algorithm

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """One classifier per stage, and a model of features where some training nodes do not read sums."""
        readers = self._num_readers(plan.metadata, plan.unit, plan.budget)
        plain, sizes, own = plan.runs_exactly("stage_1"), plan.metadata, None
        sums, std = plan.mechanism(SUMS, LabelSum), plan[SUMS].scale or 0.0
        columns = sizes.types * (sizes.classes - (1 if sums.centered else 0))
        floor = self.noise_floor * math.sqrt(columns) * std
        if self.module is not None:
            if not plain and readers == sizes.num_train:
                raise InputError("module: expected a model of features; got none: all training nodes read sums")
            own = own_module(self.module, "module", sizes.features, generator, plain=plain, out=sizes.classes)
        return ChorusNetwork(
            sizes.features,
            sizes.classes,
            sizes.types,
            hops=plan[SUMS].count,
            plain=plain,
            feature_model=readers < sizes.num_train,
            hidden=self.hidden_channels,
            ensemble_size=self.ensemble_size,
            dropout=self.dropout,
            generator=generator,
            zero_init=self.zero_init,
            scale=None if plain else FloorScale(floor, sums.centered, sizes.types),
            own=own,
        )

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """Per stage: send labels and pseudo-labels, sum them, train on features and sums."""
        assert isinstance(network, ChorusNetwork)
        training = self._training(network)
        readers = receivers = None
        rows: list[Held] = [vault.features if network.plain else vault.apply(UnitRows(), vault.features)]
        if network.feature_model is not None:
            if train:
                count = self._num_readers(vault.metadata, vault.unit, vault.plan.budget)
                order = vault.in_random_order("train", "learners")
                readers, others = order[:count], order[count:].sort().values
                receivers = torch.ones(vault.metadata.num_nodes, dtype=torch.bool).index_fill_(0, others, False)
                alone = self._training(network, lr=PRIVATE_LR)
                vault.release("stage_1", network.feature_model.classifier, vault.join(rows), alone, nodes=others)
            rows = [vault.apply(network.feature_model.eval(), rows[0])]
        hops = vault.plan[SUMS].count
        for k in range(hops + 1):
            if k > 0:
                sums = vault.release(SUMS, _pseudo_labels(vault, network, k, rows), receivers=receivers)
                rows.append(_in_noises(vault, sums) if network.scale is None else vault.apply(network.scale, sums))
            if train and k in network.classifiers:
                vault.release(f"stage_{k}", network.classifiers[k], vault.join(rows), training, nodes=readers)
        return Output(scores=vault.scores(network.classifiers[hops], vault.join(rows)))

    def _training(self, network: ChorusNetwork, lr: float | None = None) -> Training:
        if network.plain:
            return Training(self.epochs or PLAIN_EPOCHS, self.lr or PLAIN_LR, patience=PLAIN_PATIENCE)
        usual = lr or (FEW_COLUMNS_LR if network.feature_model is not None else PRIVATE_LR)
        return Training(
            self.epochs or PRIVATE_EPOCHS,
            self.lr or usual,
            self.optimizer,
            normalize=self.normalize,
            average_last=self.average_last,
        )


def _batch(readers: int, metadata: Metadata) -> int:
    """By rule 256, 512 where all training nodes read; where many do, steps grow with their root (docs/scale.md)."""
    if readers >= _MANY_READERS:
        return round(4.0 * math.sqrt(readers))
    return 512 if readers == metadata.num_train else 256


def _pseudo_labels(vault: Vault, network: ChorusNetwork, k: int, rows: list[Held]) -> Held | None:
    """What the classifier before hop k says of every node, as messages; None where there is no such classifier."""
    guess = network.classifiers.get(k - 1)
    return None if guess is None else vault.apply(guess.guess, vault.join(rows))


def _in_noises(vault: Vault, released: Tensor) -> Tensor:
    """Sums as public rows, in multiples of their noise."""
    sums, std = vault.plan.mechanism(SUMS, LabelSum), vault.plan[SUMS].scale or 0.0
    released = without_mean(released, vault.metadata.types) if sums.centered else released
    labeled = torch.zeros(len(released), dtype=torch.bool).index_fill_(0, vault.nodes("train"), True)
    return sums.in_multiples(released, labeled, std) if std else released
