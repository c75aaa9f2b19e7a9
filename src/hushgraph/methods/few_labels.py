"""Rounds of Chorus with codes where few nodes have a label: nearly all that is heard are guesses.

Two things change. A neighborhood is all neighbors, not those that train: so many guesses vary as single neighbors do,
and not as the few labels among them. And what edges between training nodes would teach is learned from what validation
nodes hear, whose labels are public: how many neighbors there are, how much they agree, and, after every round, how far
features and numbers can be believed. Guesses that are as sure as they are right matter most here, because
guesses are made from guesses.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from hushgraph.methods.talk import EdgeTalk, guessed_by_class
from hushgraph.nn import neighborhoods as nb
from hushgraph.nn.chorus_codes import SIZES, ChorusCodesNetwork
from hushgraph.training.agreement import Agreement, best_power, likeliest
from hushgraph.training.blend import best_blend, blended
from hushgraph.vault import Vault

_MOST_ASKED = 2_000  # validation nodes that teach what neighborhoods look like


class FewLabelsTalk(EdgeTalk):
    """Neighborhoods are learned anew after each round from the numbers of nodes with public labels."""

    def __init__(self, vault: Vault, network: ChorusCodesNetwork, prior: Tensor, *, learning: bool) -> None:
        val = vault.labeled("val")
        if learning:
            network.power.fill_(best_power(prior[val], vault.labels[val]))
        super().__init__(vault, network, (network.power * prior).log_softmax(dim=1), learning=learning)
        self.labeled_share = 1.0 / (1.0 + self.ratio)
        place = torch.full((self.nodes,), -1).index_copy_(0, self.listeners, torch.arange(len(self.listeners)))
        self.val = place[val]

    @property
    def _shares(self) -> Tensor:
        return (self.members + 1.0) / (self.members + 1.0).sum()

    def _assumed(self) -> nb.Neighborhoods:
        return Agreement().neighborhoods(self._shares, SIZES)

    def joint(self, prior: Tensor) -> Tensor:
        """Classes as likely as validation nodes say, given features and numbers; sizes as the numbers say."""
        density = nb.log_likelihoods(self.heard)
        joint = nb.joint_probabilities(density, self.model, prior)
        if not self.done:
            return joint
        said = nb.class_log_likelihoods(density, self.model)
        belief = self.network.beliefs[self.done - 1]
        if self.learning:
            labels = self.vault.labels[self.vault.labeled("val")]
            belief.copy_(best_blend(prior[self.val], said[self.val], labels))
        more = blended(prior, said, belief) - nb.by_class(joint, self.classes).clamp(min=1e-30).log()
        return (joint.unflatten(1, (self.classes, -1)) * more.exp().unsqueeze(2)).flatten(1)

    def mixing(self, q: Tensor, size: float) -> Tensor:
        """What a code is answered as: each neighbor's label, if it trains, or what nodes of its class guess."""
        guessing = size * (1.0 - self.labeled_share)
        return self.labeled_share * torch.eye(self.classes) + guessing * guessed_by_class(q)

    def guessed_noise(self, joint: Tensor, q: Tensor, codes: Tensor, size: float | Tensor) -> Tensor:
        """The deviation of each number: its noise, and that of what neighbors of one class guess."""
        square = ((codes @ (q.t() @ q / max(1, len(q)))) * codes).sum(dim=1)
        mean = (codes @ guessed_by_class(q).t()).square() @ q.mean(dim=0)
        guessing = (1.0 - self.labeled_share) * nb.expected_sizes(joint, self.model)
        return (self.noise**2 + size**2 * guessing * (square - mean).clamp(min=0.0)).sqrt()

    def _learned(self) -> nb.Neighborhoods:
        """From what validation nodes heard."""
        asked = self.val[:: max(1, -(-len(self.val) // _MOST_ASKED))]
        if not len(asked):  # none of them has a label
            return self._assumed()
        own = torch.nn.functional.one_hot(self.vault.labels[self.listeners[asked]], self.classes)
        counted, _ = self._counted()
        found = likeliest(self.heard.of_nodes(asked), own.float().log(), self._shares, SIZES, counted)
        return found.neighborhoods(self._shares, SIZES, counted)

    def _of_rows(self) -> nb.Neighborhoods:
        """Only neighbors that train are seen in rows."""
        return replace(self.model, sizes=self.labeled_share * self.model.sizes)
