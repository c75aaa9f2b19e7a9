"""Quorum: neighbors' labels as votes, for nodes that are protected with all their edges.

Training nodes send their labels to the nodes that are to be predicted, along weights that give way to hubs so that no
node, however many edges it has, can move what others receive by much (docs/proofs/balance.md): no list is cut and no
degree is promised. Three things keep what has to be learned, and so the noise, small:

* a node either sends (training nodes) or receives (all others); what a node receives is part of its own record;
* a linear model of features is trained by DP-SGD on all training nodes, from zero, on rows of length one;
* how to read the votes is not learned: Bayes' rule weighs them against the features by the noise they carry. It takes
  for granted that neighbors agree more often than not; where they do not, accuracy is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from hushgraph.mechanisms.balanced_sum import BalancedSum
from hushgraph.mechanisms.gradient import Gradient
from hushgraph.methods.base import Method, Output
from hushgraph.nn.chorus import LinearNetwork, UnitRows, VoteReader
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code, Note, note
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.settings import setting
from hushgraph.training.config import Training
from hushgraph.vault import Vault

VOTES, CLASSIFIER = "votes", "classifier"
PLAIN_EPOCHS, PRIVATE_EPOCHS = 100, 10


@dataclass(frozen=True)
class Quorum(Method):
    """Settings of Quorum."""

    capacity: float = setting(16.0, least=1, help="what the weights of one sender add up to at most")
    vote_noise: float = setting(0.8, above=0, help="noise multiplier of the votes over that of gradients")
    strength: float = setting(6.0, least=0, help="votes that a node's own class is expected to be ahead by; 0: unheard")
    lr: float = setting(0.1, above=0, help="learning rate")
    epochs: int | None = setting(None, least=1, help="passes over the training nodes; by rule 100, or 10 by DP-SGD")
    batch_size: int = setting(512, least=1, help="expected batch of DP-SGD")
    max_grad_norm: float = setting(1.0, above=0, help="clip norm of one example's gradient")

    name = "quorum"
    summary = "balanced sums of neighbors' labels as votes beside a linear model of features; no degree is cut"
    one_class = "a node has one vote"
    paper = "hushgraph"

    def stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """One sum of votes, and the training on features."""
        training = Gradient.of(metadata.num_train, self.batch_size, self.epochs or PRIVATE_EPOCHS, self.max_grad_norm)
        return [Stage(VOTES, BalancedSum(self.capacity), noise=self.vote_noise), Stage(CLASSIFIER, training)]

    def public_notes(self, metadata: Metadata, unit: Unit) -> Sequence[Note]:
        """Those of every method; no list is cut."""
        usual = [one for one in super().public_notes(metadata, unit) if one.code is not Code.DEGREE_CAP]
        return [*usual, note(Code.BALANCED, capacity=self.capacity)]

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """A linear map of the features."""
        return LinearNetwork([plan.metadata.features], plan.metadata.classes)

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """Train on features; then add the votes."""
        rows = vault.join([vault.apply(UnitRows(), vault.features)])
        if train:
            exact = vault.plan.runs_exactly(CLASSIFIER)
            epochs = self.epochs or (PLAIN_EPOCHS if exact else PRIVATE_EPOCHS)
            vault.release(CLASSIFIER, network, rows, Training(epochs, self.lr))
        votes = vault.release(VOTES)
        reader = VoteReader(vault.plan[VOTES].scale or 0.0, self.strength)
        return Output(scores=vault.scores(reader, vault.join([vault.apply(network.eval(), rows), votes])))
