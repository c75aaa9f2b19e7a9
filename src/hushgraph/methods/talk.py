"""The rounds of Chorus with codes: who listens, what they heard, and what follows from it.

`EdgeTalk` are those where labels are public; where few nodes have one, `hushgraph.methods.few_labels` goes on from it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hushgraph.mechanisms.coded_sum import CodedAnswer, CodedSum
from hushgraph.nn import neighborhoods as nb
from hushgraph.nn.chorus_codes import SIZES, ChorusCodesNetwork
from hushgraph.nn.codes import best_codes
from hushgraph.training import neighborhoods as fit
from hushgraph.training.blend import best_blend, blended
from hushgraph.vault import Vault

ROUNDS = "coded sums"
LEAST_NOISE = 0.05  # without protection numbers have no noise; the model takes them to have this much
_MOST_READERS = 20_000


class Talk:
    """What both levels share."""

    def __init__(self, vault: Vault, network: ChorusCodesNetwork) -> None:
        self.vault, self.network, self.done = vault, network, 0
        self.classes, self.nodes = vault.metadata.classes, vault.metadata.num_nodes
        labeled = torch.zeros(self.nodes, dtype=torch.bool).index_fill_(0, vault.nodes("train"), True)
        self.listeners = (~labeled).nonzero().squeeze(1)
        self.ratio = len(self.listeners) / max(1, vault.nodes("train").numel())  # of guesses to labels
        self.model = network.recall()
        self.heard = nb.Heard(nb.Parts.of(self.model), len(self.listeners))

    @property
    def noise(self) -> float:
        """The deviation of a number's noise."""
        return max(self.vault.plan[ROUNDS].scale or 0.0, LEAST_NOISE)

    def joint(self, prior: Tensor) -> Tensor:
        """The probability of every class and size of neighborhood, for every listener."""
        return nb.joint_probabilities(nb.log_likelihoods(self.heard), self.model, prior)

    def mixing(self, q: Tensor, size: float) -> Tensor:
        """What a code is answered as: guesses of `size` add, for each neighbor's class, what such nodes guess."""
        return torch.eye(self.classes) + size * self.ratio * guessed_by_class(q)

    def guessed_noise(self, joint: Tensor, q: Tensor, codes: Tensor, size: float | Tensor) -> Tensor:
        """The deviation of each number: its noise, and that of how many neighbors guess, and what."""
        square = ((codes @ (q.t() @ q / max(1, len(q)))) * codes).sum(dim=1)
        guessing = self.ratio * self.model.grain * nb.expected_sizes(joint, self.model)
        return (self.noise**2 + size**2 * guessing * square).sqrt()

    def everyone(self, values: Tensor) -> Tensor:
        """The listeners' values among zeros for all others."""
        whole = torch.zeros((self.nodes, *values.shape[1:]), dtype=values.dtype)
        return whole.index_copy_(0, self.listeners, values)


def guessed_by_class(q: Tensor) -> Tensor:
    """What nodes of each class guess on average, if their guesses are as often right as they say."""
    return (q.t() @ q) / q.sum(dim=0).clamp(min=1e-9).unsqueeze(1)


class EdgeTalk(Talk):
    """Rounds where labels are public: neighborhoods are learned anew after each from all rows of training nodes.

    Without `learning`, what is known after each round is what was known in training.
    """

    def __init__(self, vault: Vault, network: ChorusCodesNetwork, prior: Tensor, *, learning: bool) -> None:
        super().__init__(vault, network)
        self.prior, self.learning = prior, learning
        train = vault.nodes("train")
        self.readers = train[:: max(1, -(-train.numel() // _MOST_READERS))]
        self.answers: list[CodedAnswer] = []
        if learning:
            known = vault.labels[train]
            self.members = torch.bincount(known[known >= 0], minlength=self.classes).float()
            network.remember(self._assumed())
        self._recall()

    def _assumed(self) -> nb.Neighborhoods:
        return fit.assumed(self.members, SIZES)

    def _recall(self) -> None:
        self.model = self.network.recall(self.done)
        self.heard = self.heard.under(nb.Parts.of(self.model))

    def round(self, *, guesses: bool) -> None:
        """Choose codes, ask, and learn neighborhoods from all that training nodes were told so far."""
        prior = self.prior[self.listeners]
        joint = self.joint(prior)
        q = nb.by_class(joint, self.classes)
        mixing = self.network.mixing[self.done]
        if self.learning:
            size = self.vault.plan.mechanism(ROUNDS, CodedSum).guess_norm if guesses else 0.0
            mixing.copy_(self.mixing(q, size))
        codes = best_codes(self.model, self.heard, joint, mixing, self.noise)
        sent = self.everyone(q) if guesses else None
        answer: CodedAnswer = self.vault.release(ROUNDS, self.everyone(codes), sent, self.readers)
        self.answers.append(answer)
        used, numbers = answer.codes[self.listeners].float(), answer.numbers[self.listeners]
        size = self.vault.plan.mechanism(ROUNDS, CodedSum).guess_norm if guesses else 0.0
        noise = self.guessed_noise(joint, q, used, size)
        self.heard.hear(used @ mixing.t(), numbers, noise)
        self.done += 1
        if self.learning:
            self.network.remember(self._learned(), self.done)
        self._recall()

    def _rows(self) -> tuple[Tensor, float]:
        """The mean of all rows of readers so far, and the deviation of its noise."""
        noise = self.noise * self.vault.plan.mechanism(ROUNDS, CodedSum).rows_noise
        return torch.stack([one.rows for one in self.answers]).mean(dim=0), noise / math.sqrt(self.done)

    def _counted(self) -> tuple[Tensor, float]:
        """What edges between training nodes say: the shares of classes around each, and how many neighbors train."""
        mechanism = self.vault.plan.mechanism(ROUNDS, CodedSum)
        pairs = torch.stack([one.pairs for one in self.answers]).mean(dim=0)
        return fit.mixed(pairs, self.noise * mechanism.pairs_noise / math.sqrt(self.done), self.members)

    def _learned(self) -> nb.Neighborhoods:
        mix, average = self._counted()
        (rows, noise), own = self._rows(), self.vault.labels[self.readers]
        return fit.fitted(mix, average, rows[own >= 0], own[own >= 0], noise, SIZES)

    def _of_rows(self) -> nb.Neighborhoods:
        """What the rows of training nodes look like."""
        return self.model

    def scores(self) -> Tensor:
        """What features and numbers say together; training nodes have their rows instead of numbers."""
        said = torch.zeros_like(self.prior)
        said[self.listeners] = nb.class_log_likelihoods(nb.log_likelihoods(self.heard), self.model)
        rows, noise = self._rows()
        if len(rows):
            model = self._of_rows()
            diagonals = model.own_variances() + noise**2
            density = nb.log_densities_of(rows, model.means(), diagonals, model.spread)
            said[self.readers] = nb.class_log_likelihoods(density, model)
        if self.learning:
            val = self.vault.labeled("val")
            self.network.blend.copy_(best_blend(self.prior[val], said[val], self.vault.labels[val]))
        return blended(self.prior, said, self.network.blend)
