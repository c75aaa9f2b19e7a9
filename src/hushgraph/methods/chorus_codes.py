"""Chorus with codes: ask each node the question that settles its class.

In Chorus every node gets C noisy numbers per hop, one for each class. Here a node gets one number per round, in a code
of its own: the sum over its neighbors of +1 or -1, as the code says for the class of each. The code is chosen from
public data and from what was released before, for the classes that are still open for this node, so the noise is spent
where the doubt is. What the numbers say is worked out with a model of neighborhoods (`hushgraph.nn.neighborhoods`), and
joined with what a model of features says. Nodes without a label send what they are taken to be.

Edge level: edges between training nodes pay for learning the neighborhoods, all others for the numbers of the nodes to
predict; a round costs one unit in all. Where few nodes have a label, validation nodes teach instead
(`hushgraph.methods.few_labels`). Node level: a first round tells every receiver about all classes. A part of the
training nodes, the learners, receive it too and teach in one lesson what neighborhoods look like; the other ones
train the model of features at no further cost, because a record is in one of the two lessons only. The later rounds
speak louder to nodes in doubt. Codes and weights follow from releases alone there, never from a receiver's own record.

Proofs: docs/proofs/chorus-codes.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hushgraph.mechanisms.coded_sum import CodedSum
from hushgraph.mechanisms.divided_coded_sum import MOST_WEIGHT, DividedAnswer, DividedCodedSum
from hushgraph.mechanisms.gradient import Gradient
from hushgraph.mechanisms.label_sum import LabelSum
from hushgraph.methods.base import Method, Output
from hushgraph.methods.few_labels import FewLabelsTalk
from hushgraph.methods.talk import LEAST_NOISE, ROUNDS, EdgeTalk, Talk
from hushgraph.nn import neighborhoods as nb
from hushgraph.nn.chorus import UnitRows
from hushgraph.nn.chorus_codes import SIZES, ChorusCodesNetwork
from hushgraph.nn.codes import best_codes
from hushgraph.nn.layers import log_probabilities
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code, Note, note
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit
from hushgraph.settings import setting
from hushgraph.training import neighborhoods as fit
from hushgraph.training.config import Training
from hushgraph.vault import Held, Vault

FIRST, FEATURES, LESSONS = "first sums", "features", "lessons"
_FEWEST_LEARNERS, _FEWEST_TEACHERS = 500, 50
_PRIVATE_EPOCHS, _LEAST_BATCH, _BATCHES = 12, 768, 6
_SUREST = math.log(1e-6)  # of what features say against a class
_LEAST_DOUBT = 0.02


@dataclass(frozen=True)
class ChorusCodes(Method):
    """Settings of Chorus with codes. None: 150 epochs, lr 0.03 where training is plain; 12, 0.12 by DP-SGD."""

    rounds: int = setting(6, least=2, help="noisy sums, one number per node each")
    hidden_channels: int = setting(32, least=1, help="width of the model of features (plain training)")
    dropout: float = setting(0.3, least=0, below=1)
    ensemble_size: int = setting(4, least=1, help="networks averaged in the model of features (plain training)")
    lr: float | None = setting(None, above=0, help="learning rate of the model of features")
    epochs: int | None = setting(None, least=1)
    batch_size: int | None = setting(None, least=1, help="expected batch of DP-SGD; by rule a sixth, at least 768")
    pairs_share: float = setting(0.05, above=0, below=1, help="of an edge between training nodes, spent on counts")
    few_labels: float = setting(
        0.075,
        least=0,
        most=1,
        help="share of training nodes below which validation nodes teach, if 50 or more (edge level)",
    )
    learner_fraction: float = setting(
        0.1, above=0, below=1, help="training nodes that teach, at least 500 (node level)"
    )
    aggregation_noise: float | None = setting(
        None, above=0, help="noise multiplier of all sums over that of gradients; by rule 0.4, less for large batches"
    )
    first_share: float = setting(0.3, above=0, below=1, help="of the sums' budget, spent on the first (node level)")
    mean_share: float = setting(0.05, above=0, below=1, help="of a first message, spent on the number of neighbors")
    guesses: bool = setting(True, help="nodes without a label send what they are taken to be")
    louder: bool = setting(True, help="speak louder to nodes in doubt (node level)")

    name = "chorus-codes"
    summary = "one noisy number per node and round, in the code that settles its class"
    one_class = "a node sends the code of one class"
    paper = "hushgraph"

    # What is released

    def stages(self, metadata: Metadata, unit: Unit, budget: Budget) -> Sequence[Stage]:
        """The model of features and the rounds; at node level a first sum, and two lessons at the cost of one."""
        if not budget.is_private or "labels" in unit.public:
            coded = CodedSum.balanced(unit, self.pairs_share)
            return [Stage(FEATURES, Gradient()), Stage(ROUNDS, coded, self.rounds)]
        others = metadata.num_train - self.num_learners(metadata)
        batch = self.batch_size or max(_LEAST_BATCH, math.ceil(others / _BATCHES))
        lesson = Gradient.of(others, batch, self.epochs or _PRIVATE_EPOCHS, max_grad_norm=1.0)
        # Gradients of larger batches bear more noise: the root keeps the sums' part of the budget what it is. Few
        # training nodes teach little about features by DP-SGD: sums get more there.
        noise = self.aggregation_noise or min(0.4, 0.5 * math.sqrt(_LEAST_BATCH / batch))
        later = (1.0 - self.first_share) / (self.rounds - 1)
        return [
            Stage(FIRST, self._first_sum(metadata, unit), noise=noise / math.sqrt(self.first_share)),
            Stage(ROUNDS, DividedCodedSum(), self.rounds - 1, noise=noise / math.sqrt(later)),
            Stage(LESSONS, lesson, parallel=2),
        ]

    def _first_sum(self, metadata: Metadata, unit: Unit) -> LabelSum:
        if unit.footprint.replaced:  # two centered messages can be opposite: nothing would be gained
            return LabelSum(divided=True)
        share = min(self.mean_share, 1.0 / (metadata.num_classes or 2))
        return LabelSum(divided=True, centered=True, mean_share=share)

    def num_learners(self, metadata: Metadata) -> int:
        """How many training nodes teach what neighborhoods look like, by rule from public sizes."""
        wanted = max(round(self.learner_fraction * metadata.num_train), _FEWEST_LEARNERS)
        return min(wanted, metadata.num_train // 2)

    def has_few_labels(self, metadata: Metadata) -> bool:
        """Whether validation nodes teach at edge level: few nodes train, and there are enough that validate."""
        few = metadata.num_train < self.few_labels * metadata.num_nodes
        return few and metadata.num_val >= _FEWEST_TEACHERS

    def public_notes(self, metadata: Metadata, unit: Unit) -> Sequence[Note]:
        """Those of every method; where messages are divided, lists are not cut."""
        usual = super().public_notes(metadata, unit)
        if not unit.footprint.owned:
            return usual
        return [*(one for one in usual if one.code is not Code.DEGREE_CAP), note(Code.NO_CAP)]

    # The algorithm

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        """The model of features, and room for what is learned about neighborhoods."""
        return ChorusCodesNetwork(
            plan.metadata.features,
            plan.metadata.classes,
            plain=LESSONS not in plan,
            few_labels=self.has_few_labels(plan.metadata),
            rounds=self.rounds,
            hidden=self.hidden_channels,
            members=self.ensemble_size,
            dropout=self.dropout,
            generator=generator,
        )

    def run(self, vault: Vault, network: nn.Module, *, train: bool) -> Output:
        """Features first; then, round after round, choose codes, listen, and think again."""
        assert isinstance(network, ChorusCodesNetwork)
        return self._over_edges(vault, network, train) if network.plain else self._over_records(vault, network, train)

    def _over_edges(self, vault: Vault, network: ChorusCodesNetwork, train: bool) -> Output:
        """Features and labels are public, edges are not."""
        rows = vault.join([vault.features])
        if train:
            training = Training(self.epochs or 150, self.lr or 0.03, patience=20)
            vault.release(FEATURES, network.features, rows, training)
        said = vault.apply(network.features, rows)
        assert isinstance(said, Tensor)
        kind = FewLabelsTalk if network.few_labels else EdgeTalk
        talk = kind(vault, network, log_probabilities(said).clamp(min=_SUREST), learning=train)
        for _ in range(self.rounds):
            talk.round(guesses=self.guesses)
        return Output(scores=talk.scores())

    def _over_records(self, vault: Vault, network: ChorusCodesNetwork, train: bool) -> Output:
        """Features, labels and lists are private."""
        features = vault.apply(UnitRows(), vault.features)
        learners, others = self._lessons(vault) if train else (None, vault.nodes("train"))
        receivers = torch.ones(vault.metadata.num_nodes, dtype=torch.bool).index_fill_(0, others, False)
        if train:
            training = Training(self.epochs or _PRIVATE_EPOCHS, self.lr or 0.12)
            vault.release(LESSONS, network.features, vault.join([features]), training, nodes=others)
        talk = _RecordTalk(vault, network, vault.release(FIRST, None, receivers=receivers))
        if learners is not None:
            talk.learn(learners, receivers)
        said = vault.apply(network.features, vault.join([features]))
        for _ in range(self.rounds - 1):
            heard = vault.join([said, talk.likelihoods()])
            talk.round(vault.apply(network.guess, heard) if self.guesses else None, louder=self.louder)
        return Output(scores=vault.scores(network, vault.join([features, talk.likelihoods()])))

    def _lessons(self, vault: Vault) -> tuple[Tensor, Tensor]:
        """The learners, drawn at random, and the other training nodes."""
        count, order = self.num_learners(vault.metadata), vault.in_random_order("train", "learners")
        return order[:count], order[count:]


class _RecordTalk(Talk):
    """Rounds where records are private: neighborhoods are learned once, from first sums and the learners' lesson."""

    def __init__(self, vault: Vault, network: ChorusCodesNetwork, first: Tensor) -> None:
        super().__init__(vault, network)
        self.first = first
        sums, scale = vault.plan.mechanism(FIRST, LabelSum), max(vault.plan[FIRST].scale or 0.0, LEAST_NOISE)
        self.decode = torch.linalg.inv(sums.coded(torch.eye(self.classes)))
        self.first_noise = scale**2 * self.decode @ self.decode.t()
        self._start(self.model)

    def _start(self, model: nb.Neighborhoods) -> None:
        """What listeners make of their first row, given what neighborhoods look like."""
        rows = self.first[self.listeners] @ self.decode
        self.model, self.heard = model, self.heard.under(nb.Parts.after_rows(model, rows, self.first_noise))

    def learn(self, learners: Tensor, receivers: Tensor) -> None:
        """Sums of first rows by class, from the learners' labels; then sizes and spread from everyone's rows."""
        gradient = self.vault.plan.mechanism(LESSONS, Gradient)
        lesson, released = fit.QuietLesson(self.classes, gradient.steps), self.first[receivers]
        limit = float(released.norm(dim=1).median().clamp(min=1e-6))
        rows = lesson.rows(self.first, limit)
        self.vault.release(LESSONS, self.network.lesson, rows, lesson.training, nodes=learners)
        sums, counts = lesson.sums(self.network.lesson.weight.detach(), rows[learners])
        deviation = lesson.deviation(self.vault.plan[LESSONS].scale or 0.0, gradient.sample_rate)
        model, shares = fit.from_lesson(sums, counts, deviation, released, limit, self.decode, self.first_noise, SIZES)
        self.network.remember(model)
        self.network.shares.copy_(shares)
        self._start(self.network.recall())  # as it was rounded to be kept

    def round(self, guesses: Held | None, *, louder: bool) -> None:
        """Choose codes and weights from releases, ask, and find out how loud the answers are."""
        joint = self.joint(self.network.shares.log())
        q = nb.by_class(joint, self.classes)
        mixing = self.mixing(q, 0.0 if guesses is None else 1.0)
        codes = best_codes(self.model, self.heard, joint, mixing, 0.5 * self.noise)
        weights = torch.full((len(q),), MOST_WEIGHT)
        if louder:
            doubt = (1.0 - q.amax(dim=1)).clamp(min=_LEAST_DOUBT).sqrt()
            weights = (doubt * MOST_WEIGHT).round().long().clamp(1, MOST_WEIGHT)
        answer: DividedAnswer = self.vault.release(ROUNDS, self.everyone(codes), self.everyone(weights), guesses)
        asked = answer.codes[self.listeners].float() @ mixing.t()
        loudness = answer.weights[self.listeners].float() / MOST_WEIGHT
        numbers = answer.numbers[self.listeners]
        expected = loudness * nb.expected_numbers(self.heard, joint, asked)
        volume = max(float((numbers * expected).sum() / expected.square().sum().clamp(min=1e-9)), 0.1)
        used, size = answer.codes[self.listeners].float(), volume * loudness * (0.0 if guesses is None else 1.0)
        noise = self.guessed_noise(joint, q, used, size)
        self.heard.hear(volume * loudness.unsqueeze(1) * asked, numbers, noise)

    def likelihoods(self) -> Tensor:
        """What first rows and numbers say about every class; nothing for training nodes."""
        return self.everyone(nb.class_log_likelihoods(nb.log_likelihoods(self.heard), self.model))
