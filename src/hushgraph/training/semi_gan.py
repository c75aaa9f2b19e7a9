"""Students that also learn from public records without votes: a GAN with one discriminator, or with two that teach
each other.

`gan`: semi-supervised learning with feature matching (Salimans et al. 2016). `co-teaching`: two discriminators; each
learns from the labels whose loss is small for the other (Han et al. 2018). `pate+`: after a few epochs, only from
labels on which the two disagree. `pate++`: the labels that stay in dispute longest are taken away, and both are trained
again without them. All students keep the mean of their weights over the last steps: learning from a few disputed
labels moves the weights to and fro.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from hushgraph.nn.gan import NOISE_COLUMNS, Discriminator, Generator, Panel, convolutions, layers
from hushgraph.nn.hog import HOG, image_shape
from hushgraph.training.lesson import Lesson, Report, Student

_RAMP = 15
"""Epochs until as many labels are left out as are expected to be wrong."""

Watch = Callable[[int, list[Tensor]], None]
"""Called after every epoch with its number and the classes that each discriminator gave the labeled records."""


@dataclass(frozen=True)
class GanStudent(Student):
    """Semi-supervised learning with one discriminator."""

    width: int = 16
    epochs: int = 30
    batch_size: int = 100
    lr: float = 0.002
    average_last: float = 0.5
    look: str = "hog"
    image_height: int | None = None

    members: ClassVar[int] = 1

    def network(self, columns: int, classes: int, most: int) -> nn.Module:
        """The discriminators."""
        if self.look == "hog":
            hog = HOG(columns, self.image_height)
            bodies = [layers(hog.width_out, self.width) for _ in range(self.members)]
            return Panel(hog, [Discriminator(body, self.width, classes) for body in bodies])
        shape = image_shape(columns, self.image_height)
        bodies = [convolutions(shape, self.width) for _ in range(self.members)]
        return Panel(nn.Identity(), [Discriminator(body, self.width, classes) for body in bodies])

    def learn(self, network: nn.Module, lesson: Lesson, generator: torch.Generator, report: Report) -> dict[str, float]:
        """Train on all labels."""
        self.train(cast(Panel, network), lesson, lesson.labeled, lesson.labels, generator, report)
        return {"labeled": float(lesson.labeled.numel())}

    def train(
        self,
        panel: Panel,
        lesson: Lesson,
        labeled: Tensor,
        labels: Tensor,
        generator: torch.Generator,
        report: Report,
        watch: Watch | None = None,
    ) -> Tensor:
        """Train in place; how often every label was in dispute, later epochs weighing more.

        In dispute: the discriminators disagree, and neither says what the label says.
        """
        public: Tensor = panel.look(lesson.public.x)
        x = public[labeled]
        others = torch.ones(len(public), dtype=torch.bool).index_fill_(0, labeled, False).nonzero().squeeze(1)
        unlabeled = public[others] if others.numel() else public
        dispute = torch.zeros(len(labels))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
            game = Game(panel, public.shape[1], self.width, self.lr)
            tail = _MeanWeights(panel)
            panel.train()
            for epoch in range(self.epochs):
                disputed = torch.zeros_like(dispute)
                for batch, other in _batches(len(x), len(unlabeled), self.batch_size):
                    chosen, in_dispute = self._choose(panel, x[batch], labels[batch], epoch)
                    disputed[batch[in_dispute]] = 1.0
                    game.step([(x[batch[one]], labels[batch[one]]) for one in chosen], unlabeled[other])
                    if epoch >= round((1.0 - self.average_last) * self.epochs):
                        tail.add()
                dispute = self.weight * (dispute + disputed)
                report(epoch + 1, self.epochs)
                if watch is not None:
                    watch(epoch, said(panel, x))
                    panel.train()
        tail.use()
        panel.eval()
        return dispute

    @property
    def weight(self) -> float:
        """Of earlier epochs in the counts of disputes."""
        return 1.0

    def kept(self, epoch: int) -> float:
        """The share of labels that are learned from."""
        return 1.0

    def by_disagreement(self, epoch: int) -> bool:
        """Whether only labels on which the two discriminators disagree are learned from."""
        return False

    @torch.no_grad()
    def _choose(self, panel: Panel, x: Tensor, labels: Tensor, epoch: int) -> tuple[list[Tensor], Tensor]:
        """Which records of a batch each discriminator learns from, and which are in dispute."""
        everything = torch.arange(len(x))
        if self.members == 1:
            return [everything], everything[:0]
        panel.eval()
        logits = [member(x) for member in panel.members]
        panel.train()
        first, second = (one.argmax(dim=1) for one in logits)
        apart = first != second
        disputed = (apart & (first != labels) & (second != labels)).nonzero().squeeze(1)
        candidates = apart.nonzero().squeeze(1) if self.by_disagreement(epoch) else everything
        count = math.ceil(self.kept(epoch) * candidates.numel())
        small = []
        for one in logits:
            loss = functional.cross_entropy(one[candidates], labels[candidates], reduction="none")
            small.append(candidates[loss.argsort()[:count]])
        return small[::-1], disputed


@dataclass(frozen=True)
class CoTeaching(GanStudent):
    """Two discriminators, each taught by the other's small losses."""

    noise_rate: float = 0.2

    members = 2

    def kept(self, epoch: int) -> float:
        """R(e) = 1 - beta min(e / 15, 1)."""
        return 1.0 - self.noise_rate * min(epoch / _RAMP, 1.0)


@dataclass(frozen=True)
class PatePlus(CoTeaching):
    """Co-teaching on the labels on which the two disagree (Algorithm 1), after a few epochs on all.

    From random weights, disagreement alone can lose a class for good: where both take its records for another class
    they agree, so neither ever learns from them.
    """

    warm_up: int = 3

    def by_disagreement(self, epoch: int) -> bool:
        """After the first epochs."""
        return epoch >= self.warm_up


@dataclass(frozen=True)
class PatePlusPlus(PatePlus):
    """PATE+ twice: first to find labels that are probably wrong, then without them (Algorithm 3)."""

    removed: float = 0.318
    decay: float = 0.9

    @property
    def weight(self) -> float:
        """T <- alpha (T + c), as the text of the algorithm says."""
        return self.decay

    def learn(self, network: nn.Module, lesson: Lesson, generator: torch.Generator, report: Report) -> dict[str, float]:
        """Find, take away, train again from the first weights."""
        panel = cast(Panel, network)
        first = copy.deepcopy(panel.state_dict())
        dispute = self.train(panel, lesson, lesson.labeled, lesson.labels, generator, report)
        kept = self.cleansed(dispute)
        panel.load_state_dict(first)
        self.train(panel, lesson, lesson.labeled[kept], lesson.labels[kept], generator, report)
        return {"labeled": float(lesson.labeled.numel()), "removed": float(lesson.labeled.numel() - kept.numel())}

    def cleansed(self, dispute: Tensor) -> Tensor:
        """The numbers of the labels that stay; the others join the records without a label."""
        order = dispute.argsort(descending=True, stable=True)
        return order[int(self.removed * len(dispute)) :].sort().values


class _MeanWeights:
    """The mean of a network's weights over the steps at which it was asked to add them."""

    def __init__(self, network: nn.Module) -> None:
        self.weights, self.count = list(network.parameters()), 0
        self.mean = torch.zeros(sum(one.numel() for one in self.weights))

    @torch.no_grad()
    def add(self) -> None:
        self.count += 1
        self.mean += (nn.utils.parameters_to_vector(self.weights) - self.mean) / self.count

    def use(self) -> None:
        """Put the mean into the network, where there is one."""
        if self.count:
            nn.utils.vector_to_parameters(self.mean, self.weights)


class Game:
    """Discriminators against a generator: one optimizer each."""

    def __init__(self, panel: Panel, columns: int, width: int, lr: float) -> None:
        self.members = [cast(Discriminator, member) for member in panel.members]
        self.generator = Generator(columns, width)
        self.judges = [torch.optim.Adam(member.parameters(), lr, betas=(0.5, 0.999)) for member in self.members]
        self.maker = torch.optim.Adam(self.generator.parameters(), lr, betas=(0.5, 0.999))

    def step(self, labeled: list[tuple[Tensor, Tensor]], real: Tensor) -> None:
        """One step of every player: supervised and unsupervised loss, then feature matching."""
        with torch.no_grad():
            made = self.generator(torch.rand(len(real), NOISE_COLUMNS))
        for member, optimizer, (x, labels) in zip(self.members, self.judges, labeled):
            optimizer.zero_grad()
            loss = unsupervised_loss(member(real), member(made))
            if len(x):
                loss = loss + functional.cross_entropy(member(x), labels)
            loss.backward()
            optimizer.step()
        self.maker.zero_grad()
        made = self.generator(torch.rand(len(real), NOISE_COLUMNS))
        losses = [_apart(member, real, made) for member in self.members]
        (sum(losses[1:], losses[0]) / len(losses)).backward()
        self.maker.step()


def unsupervised_loss(real: Tensor, made: Tensor) -> Tensor:
    """-ln P[not made] of real records, and -ln P[made] of made ones, from the logits of the classes."""
    of_real, of_made = real.logsumexp(dim=1), made.logsumexp(dim=1)
    return (functional.softplus(of_real) - of_real).mean() + functional.softplus(of_made).mean()


def said(panel: Panel, x: Tensor) -> list[Tensor]:
    """The class that each discriminator gives every record."""
    panel.eval()
    with torch.no_grad():
        return [torch.cat([member(rows).argmax(dim=1) for rows in x.split(1_000)]) for member in panel.members]


def _apart(member: Discriminator, real: Tensor, made: Tensor) -> Tensor:
    """How far the mean features of real and of made records are apart."""
    with torch.no_grad():
        aim = member.features(real).mean(dim=0)
    return (aim - member.features(made).mean(dim=0)).square().sum()


def _batches(labeled: int, unlabeled: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Both kinds in shuffled batches; the smaller kind is gone through several times."""
    longest = max(labeled, unlabeled)
    return zip(_repeated(labeled, longest).split(size), _repeated(unlabeled, longest).split(size), strict=True)


def _repeated(count: int, length: int) -> Tensor:
    return torch.cat([torch.randperm(count) for _ in range(-(-length // count))])[:length]
