"""Training on randomized labels, without a single clean one.

Labels arrive through randomized response: y' is the true class y with a known probability (`transition`). A network
that fits y' learns the noise. The rules here use the known noise and the public graph:

* `cross-entropy`: fit y' as if it were y (a baseline);
* `forward`: fit p(y'|x) = p(y|x) T to y' (Patrini et al. 2017; a baseline);
* `drop`: LPGNN's rule. The labels are smoothed by KProp, and so are the predicted p(y'|x); the two are compared;
* `votes`: ours. The smoothed labels are read as votes: with n effective votes, of which a share f names class c, the
  posterior of c is proportional to exp(epsilon n f), which is what randomized response says. The network learns that
  posterior. Validation labels are held out to choose the number of steps and of epochs, then join the training.

All of it is post-processing of the reports: it costs no privacy and may be repeated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from hushgraph.nn.backbones import Backbone, Multiplied
from hushgraph.nn.propagation import Neighborhood, kprop
from hushgraph.training.loop import BestEpoch, Observer, train_epochs

RULES = ("votes", "drop", "forward", "cross-entropy")
_TINY = 1e-20
_PROBES = 64
_SMOOTHED = 5
_PATIENCE = 30
_SLACK = 1.05
Loss = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class NoisyLabels:
    """What the server knows of the labels: reports (-1: none), who may train and validate, and the noise.

    `epsilon` infinite means that the labels are public and clean.
    """

    reports: Tensor
    train: Tensor
    val: Tensor
    transition: Tensor
    epsilon: float = math.inf

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return self.transition.shape[0]

    @property
    def best_accuracy(self) -> float:
        """How often a perfect classifier agrees with the reports: the probability of a true report."""
        return float(self.transition[0, 0])

    def one_hot(self, nodes: Tensor) -> Tensor:
        """The reports of `nodes` as rows with a single one; rows of zeros for everybody else."""
        rows = torch.zeros(self.reports.shape[0], self.classes)
        rows[nodes] = F.one_hot(self.reports[nodes], self.classes).to(rows.dtype)
        return rows


@dataclass(frozen=True)
class Schedule:
    """How long and how fast: full-batch Adam. `steps` lists the numbers of label propagations to choose from."""

    epochs: int
    lr: float
    weight_decay: float
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Chosen:
    """What was chosen from noisy validation labels: label propagations, epochs, and the loss there."""

    steps: int
    epochs: int
    loss: float


@dataclass(frozen=True)
class Judged:
    """An epoch as the noisy labels see it: the loss, and how often the network agrees with the reports.

    Train nodes are judged in the pass with dropout that training makes anyway: the whole network agrees with the noise
    far more often, and would be refused almost from the start.
    """

    loss: float
    on_train: float
    on_val: float

    def fits_the_truth(self, best_accuracy: float) -> bool:
        """False when the reports were met more often than a perfect classifier would (5% allowed on train nodes)."""
        return self.on_train <= _SLACK * best_accuracy and self.on_val <= best_accuracy

    def improves_on(self, kept: Judged, best_accuracy: float) -> bool:
        """A lower loss; with noisy labels also more agreement on both parts, but not more than the truth would have.

        The paper's text names the loss and the bound; public copies of its authors' code ask for all of it. Under heavy
        noise the loss alone is least for a network that says little, which is one that has hardly begun to learn.
        """
        if best_accuracy >= 1.0:
            return self.loss < kept.loss
        agrees_more = self.on_train > kept.on_train and self.on_val > kept.on_val
        return self.loss < kept.loss and agrees_more and self.fits_the_truth(best_accuracy)


class Trainer:
    """Trains one network on one set of reports. `report(done, total)` is called after every epoch."""

    def __init__(
        self,
        network: Backbone,
        rows: Multiplied,
        graph: Neighborhood,
        labels: NoisyLabels,
        schedule: Schedule,
        report: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self.network, self.rows, self.graph = network, rows, graph
        self.labels, self.schedule, self.report = labels, schedule, report

    def fit(self, rule: str, seed: int) -> Chosen:
        """Train by `rule`; weights and dropout are drawn from `seed`, torch's global state is left alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            chosen = self._fit_votes() if rule == "votes" else self._fit_watched(rule)
        self.network.eval()
        return chosen

    # The published rules: one run per candidate. Every epoch is judged by `Judged.improves_on`.

    def _fit_watched(self, rule: str) -> Chosen:
        found, kept = Chosen(0, 0, math.inf), None
        for steps in self.schedule.steps if rule == "drop" else (0,):
            chosen, best = self._watched(self._loss(rule, steps), steps, corrected=rule != "cross-entropy")
            if kept is None or chosen.loss < found.loss:
                found, kept = chosen, best
        assert kept is not None
        kept.restore()
        return found

    def _watched(self, loss: Loss, steps: int, *, corrected: bool) -> tuple[Chosen, BestEpoch[Judged]]:
        passes = _Passes(self.network, self.rows, self.graph, self.schedule)
        truth = self.labels.best_accuracy
        best = BestEpoch(
            self.network,
            lambda: self.judged(passes.probabilities(), passes.in_training, corrected=corrected),
            lambda new, kept: new.improves_on(kept, truth),
        )
        self._run(passes, loss, self.schedule.epochs, best)
        assert best.verdict is not None
        fits = best.verdict.fits_the_truth(truth)
        return Chosen(steps, best.epoch, best.verdict.loss if fits else math.inf), best

    def _loss(self, rule: str, steps: int) -> Loss:
        labels, train = self.labels, self.labels.train
        if rule == "cross-entropy":
            return lambda p: _cross_entropy(p[train], labels.reports[train])
        if rule == "forward" or steps == 0:
            return lambda p: _cross_entropy((p @ labels.transition)[train], labels.reports[train])
        smoothed = kprop(self.graph.kprop, labels.one_hot(torch.cat([train, labels.val])), steps)
        # A node that no labeled node reaches keeps its own report.
        target = torch.where(smoothed.sum(dim=1) > 0, smoothed.argmax(dim=1), labels.reports)[train]

        def drop(p: Tensor) -> Tensor:
            spread = kprop(self.graph.kprop, p @ labels.transition, steps).softmax(dim=1)
            return _cross_entropy(spread[train], target)

        return drop

    # Our rule

    def _fit_votes(self) -> Chosen:
        chosen = min((self._try_votes(steps) for steps in self.schedule.steps), key=lambda found: found.loss)
        everybody = torch.cat([self.labels.train, self.labels.val])
        loss = self._vote_loss(everybody, chosen.steps)
        self._run(_Passes(self.network, self.rows, self.graph, self.schedule), loss, chosen.epochs, None)
        return chosen

    def _try_votes(self, steps: int) -> Chosen:
        loss = self._vote_loss(self.labels.train, steps)
        passes = _Passes(self.network, self.rows, self.graph, self.schedule)
        falling = _Falling(lambda: self.validation_loss(passes.probabilities(), corrected=True))
        self._run(passes, loss, self.schedule.epochs, falling)
        epoch, least = least_smoothed(falling.losses)
        return Chosen(steps, epoch, least)

    def _vote_loss(self, voters: Tensor, steps: int) -> Loss:
        target = vote_posterior(self.graph, self.labels.one_hot(voters), steps, self.labels.epsilon)
        return lambda p: -(target * (p + _TINY).log()).sum(dim=1).mean()

    # What they share

    def validation_loss(self, probabilities: Tensor, *, corrected: bool) -> float:
        """The loss of p(y'|x) (`corrected`) or p(y|x) on the reports of validation nodes; never on clean labels."""
        nodes = self._held_out
        shown = probabilities[nodes]
        shown = shown @ self.labels.transition if corrected else shown
        return float(_cross_entropy(shown, self.labels.reports[nodes]))

    def judged(self, probabilities: Tensor, in_training: Tensor, *, corrected: bool) -> Judged:
        """What the noisy labels say about an epoch; `in_training` is the pass with dropout that led to it."""
        return Judged(
            self.validation_loss(probabilities, corrected=corrected),
            on_train=self.agreement(in_training, self.labels.train),
            on_val=self.agreement(probabilities, self._held_out),
        )

    @property
    def _held_out(self) -> Tensor:
        """The validation nodes; the train nodes where there are none."""
        return self.labels.val if self.labels.val.numel() else self.labels.train

    def agreement(self, probabilities: Tensor, nodes: Tensor) -> float:
        """How often the likeliest class is the reported one."""
        return float((probabilities[nodes].argmax(dim=1) == self.labels.reports[nodes]).float().mean())

    def _run(self, passes: _Passes, loss: Loss, epochs: int, best: Observer | None) -> None:
        train_epochs(lambda: passes.epoch(loss), epochs, best=best, on_epoch=self.report)


class _Passes:
    """Steps from fresh weights. The first sums of a pass do not depend on dropout: they serve judging and training."""

    def __init__(self, network: Backbone, rows: Multiplied, graph: Neighborhood, schedule: Schedule) -> None:
        self.network, self.rows, self.graph = network, rows, graph
        network.reset_parameters()
        self.optimizer = torch.optim.Adam(network.parameters(), lr=schedule.lr, weight_decay=schedule.weight_decay)
        self._hidden: Tensor | None = None
        self.in_training = torch.empty(0)

    def hidden(self) -> Tensor:
        """What both kinds of passes begin with, for the present weights."""
        if self._hidden is None:
            self._hidden = self.network.hidden(self.rows, self.graph)
        return self._hidden

    def probabilities(self) -> Tensor:
        """Class probabilities as at inference."""
        hidden = self.hidden()
        self.network.eval()
        with torch.no_grad():
            return self.network.scores(hidden, self.graph).softmax(dim=1)

    def epoch(self, loss: Loss) -> None:
        """One step on all train nodes; `in_training` keeps the pass with dropout."""
        hidden, self._hidden = self.hidden(), None
        self.network.train()
        self.optimizer.zero_grad()
        passed = self.network.scores(hidden, self.graph).softmax(dim=1)
        loss(passed).backward()
        self.optimizer.step()
        self.in_training = passed.detach()


class _Falling:
    """Stops once the smoothed loss has not fallen for a while; keeps the losses, from before the first epoch on."""

    def __init__(self, loss: Callable[[], float]) -> None:
        self.loss, self.losses = loss, list[float]()

    def look(self, epoch: int) -> bool:
        self.losses.append(self.loss())
        return epoch - least_smoothed(self.losses)[0] >= _PATIENCE

    def restore(self) -> None:
        """Nothing: the number of epochs is what is wanted."""


def vote_posterior(graph: Neighborhood, one_hot: Tensor, steps: int, epsilon: float) -> Tensor:
    """For every node, the posterior over classes after the votes that `steps` propagations bring it.

    A node that receives votes with weights w has n = (sum w)^2 / sum w^2 effective votes. A report multiplies the odds
    of the class it names by e^epsilon. sum w^2 is measured with random signs: E (sum w s)^2 = sum w^2.
    """
    voted = one_hot.sum(dim=1, keepdim=True)
    weight = kprop(graph.kprop, voted, steps)
    shares = kprop(graph.kprop, one_hot, steps) / weight.clamp(min=_TINY)
    signs = torch.randint(0, 2, (one_hot.shape[0], _PROBES)).to(one_hot.dtype) * 2.0 - 1.0
    squares = kprop(graph.kprop, voted * signs, steps).square().mean(dim=1, keepdim=True)
    effective = weight.square() / squares.clamp(min=_TINY)
    return (epsilon * effective * shares).softmax(dim=1)


def least_smoothed(losses: list[float]) -> tuple[int, float]:
    """Where the moving average of the losses is least, and its value; averaging tames the noise of validation."""
    width = min(_SMOOTHED, len(losses))
    averages = torch.tensor(losses, dtype=torch.float64).unfold(0, width, 1).mean(dim=1)
    place = int(averages.argmin())
    return place + width // 2, float(averages[place])


def _cross_entropy(probabilities: Tensor, classes: Tensor) -> Tensor:
    return -(probabilities.gather(1, classes.unsqueeze(1)) + _TINY).log().mean()
