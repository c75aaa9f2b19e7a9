"""Learning what neighborhoods look like from what was released; costs nothing more."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hushgraph.nn.neighborhoods import Neighborhoods, log_densities, log_densities_of
from hushgraph.training.config import Training

_SPREADS = (0.003, 0.01, 0.03, 0.06, 0.1, 0.2, 0.4)
_SMALLEST, _LARGEST = 1.5, 6.0  # sizes: from 1.5 neighbors to 6 times the average
_ROUNDS = 10


def assumed(members: Tensor, sizes: int) -> Neighborhoods:
    """Before anything is known: half of the neighbors are of the own class, the others as frequent as members are."""
    shares = (members + 1.0) / (members + 1.0).sum()
    mix = 0.5 * torch.eye(len(shares)) + 0.5 * shares
    return Neighborhoods(mix, torch.ones(sizes), torch.full((len(shares), sizes), 1.0 / sizes))


# From edges between nodes with public labels


def mixed(pairs: Tensor, noise: float, members: Tensor) -> tuple[Tensor, float]:
    """The shares of classes around each class, from noisy counts of edges; and how many neighbors a node has.

    Where counts are not above their noise, the shares are those of `assumed`.
    """
    counts = pairs.clamp(min=0.0)
    counts = counts + torch.diag(counts.diagonal())  # an edge within a class has two ends there
    average = float(counts.sum() / members.sum().clamp(min=1.0))
    counts = counts + (noise + 1.0) * assumed(members, 1).mix
    return counts / counts.sum(dim=1, keepdim=True), average


def fitted(mix: Tensor, average: float, rows: Tensor, own: Tensor, noise: float, sizes: int) -> Neighborhoods:
    """Sizes by class, and the spread, that make noisy histograms of nodes with known classes likeliest."""
    largest = max(_LARGEST * average, 2.0 * _SMALLEST)
    grid = torch.linspace(math.log(_SMALLEST), math.log(largest), sizes).exp()
    start = Neighborhoods(mix, grid, torch.full((len(mix), sizes), 1.0 / sizes))
    if not len(rows):
        return start
    tried = [_with_sizes(replace(start, spread=spread), rows, own, noise) for spread in _SPREADS]
    return max(tried, key=lambda one: one[0])[1]


def _with_sizes(model: Neighborhoods, rows: Tensor, own: Tensor, noise: float) -> tuple[float, Neighborhoods]:
    """The log likelihood with the best weights of sizes, and these."""
    shape = (model.classes, len(model.sizes))
    means = model.means().unflatten(0, shape)
    diagonals = (model.own_variances() + noise**2).unflatten(0, shape)
    weights, total = model.weights.clone(), 0.0
    for c in range(model.classes):
        density = log_densities_of(rows[own == c], means[c], diagonals[c], model.spread)
        if len(density):
            weights[c], found = _weighed(density, weights[c])
            total += found
    return total, replace(model, weights=weights)


def _weighed(density: Tensor, weights: Tensor) -> tuple[Tensor, float]:
    """Weights of a mixture of known densities, by expectation maximization; and the log likelihood."""
    top = density.amax(dim=1, keepdim=True)
    likelihood = (density - top).exp()
    for _ in range(_ROUNDS):
        joint = likelihood * (weights + 1e-12)
        weights = (joint / joint.sum(dim=1, keepdim=True)).mean(dim=0)
    return weights, float(((likelihood @ (weights + 1e-12)).log() + top.squeeze(1)).sum())


# From rows of records whose labels are private

_LEAST_SIZE, _MOST_SIZE = 0.12, 4.0  # of neighborhoods, over the mean of the class
_GRAINS, _RECORD_SPREADS = (0.1, 0.2), (0.01, 0.03, 0.06)
_SAMPLE = 3_000
_COUNT = 0.5  # the entry that counts a node, beside a row of length one at most
_QUIET = 1e-4
_LEAST_SHARE = 0.02


@dataclass(frozen=True)
class QuietLesson:
    """Sums of rows by class, from DP-SGD that moves too little to change what it learns from.

    A linear model of C classes starts from zero and takes plain steps so small that it goes on giving every class
    probability 1/C. The gradient of an example with class y and row x is then (1/C - e_y) x', and the weights add up to
    the sums of rows by class, less their mean over classes; the sum of all rows is known, because rows were released.
    Rows are as long as the clip norm of 1 allows: sqrt(1 - 1/C) |x| = 1.
    """

    classes: int
    steps: int

    @property
    def training(self) -> Training:
        """Plain steps that add up to `_QUIET`."""
        return Training(epochs=1, lr=_QUIET / self.steps, optimizer="sgd", is_fixed=True)

    @property
    def _length(self) -> float:
        return (1.0 - 1e-6) * math.sqrt(self.classes / max(1, self.classes - 1) / (1.0 + _COUNT**2))

    def rows(self, released: Tensor, limit: float) -> Tensor:
        """Released rows, shortened to `limit` and in multiples of it, and an entry that counts."""
        short = released / released.norm(dim=1, keepdim=True).clamp(min=limit)
        return self._length * torch.cat([short, torch.full((len(short), 1), _COUNT)], dim=1)

    def deviation(self, noise: float, sample_rate: float) -> float:
        """Of the noise of every sum, where each step adds `noise` to the gradients of a batch."""
        return noise / (sample_rate * math.sqrt(self.steps) * self._length)

    def sums(self, weight: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The noisy sums of shortened rows by class, and how many rows each class has; `rows` are the examples'."""
        total = weight * len(rows) / _QUIET + rows.sum(dim=0) / self.classes
        return total[:, :-1] / self._length, total[:, -1] / (self._length * _COUNT)


def from_lesson(
    sums: Tensor,
    counts: Tensor,
    deviation: float,
    released: Tensor,
    limit: float,
    decode: Tensor,
    noise: Tensor,
    sizes: int,
) -> tuple[Neighborhoods, Tensor]:
    """Neighborhoods and shares of classes, from the sums by class of a lesson and all `released` rows.

    Sums have noise of this `deviation`. `decode` turns a released row into a histogram, whose noise then has the
    covariance `noise`.
    """
    counts = counts.clamp(min=_LEAST_SHARE * max(float(counts.sum()), 1.0))
    shares = counts / counts.sum()
    short = released / released.norm(dim=1, keepdim=True).clamp(min=limit)
    lengthen = float(released.mean(dim=0).norm() / short.mean(dim=0).norm().clamp(min=1e-9))
    mix = (sums / counts.unsqueeze(1)) * lengthen @ decode
    # Of a mean: the noise of its sum, and that of its rows, which have length one at most.
    variance = lengthen**2 * (deviation**2 / counts.square() + 1.0 / (len(counts) * counts))
    mix = steadied(mix, variance.unsqueeze(1) * decode.square().sum(dim=0), (released @ decode).mean(dim=0), shares)
    total = mix.sum(dim=1)
    total = total.clamp(min=max(0.2 * float(total.abs().mean()), 1e-3)).unsqueeze(1)
    mix = torch.maximum(mix, 0.01 * total)
    return _sized(mix, shares, released[:_SAMPLE] @ decode, noise, sizes), shares


def steadied(mix: Tensor, variances: Tensor, overall: Tensor, shares: Tensor) -> Tensor:
    """Noisy mean histograms by class, `[classes, classes]`, drawn toward what all of them say together.

    Few members tell little about their class. All classes together tell well how much more neighbors agree than
    chance, around the mean histogram of all nodes, `overall`; and how far entries differ from that beyond what their
    `variances` explain. Each entry is believed as far as these two ask (empirical Bayes).
    """
    overall = torch.maximum(overall, _LEAST_SHARE * overall.clamp(min=0.0).sum() * shares).clamp(min=1e-4)
    total, trust = overall.sum(), variances.clamp(min=1e-12).reciprocal()
    agreeing = total * torch.eye(len(shares)) - overall
    agreement = (trust * (mix - overall) * agreeing).sum() / (trust * agreeing.square()).sum().clamp(min=1e-12)
    expected = (overall + agreement.clamp(-1.0, 0.98) * agreeing).clamp(min=1e-3 * float(total))
    beyond, scale = mix - expected, expected * total
    excess = (trust.square() * scale * (beyond.square() - variances)).sum() / (trust * scale).square().sum()
    varies = excess.clamp(min=0.0) * scale
    return expected + varies / (varies + variances.clamp(min=1e-12)) * beyond


def _sized(mix: Tensor, shares: Tensor, rows: Tensor, noise: Tensor, sizes: int) -> Neighborhoods:
    """The grain, the spread and the weights of sizes that make the rows likeliest, whatever their classes are."""
    grid = torch.linspace(math.log(_LEAST_SIZE), math.log(_MOST_SIZE), sizes).exp()
    start = Neighborhoods(mix, grid, torch.full((len(mix), sizes), 1.0 / sizes))
    tried = []
    for grain, spread in itertools.product(_GRAINS, _RECORD_SPREADS):
        model = replace(start, grain=grain, spread=spread)
        density = log_densities(rows, model.means(), model.covariances() + noise)
        tried.append(_weighed_by_class(model, density, shares))
    return max(tried, key=lambda one: one[0])[1]


def _weighed_by_class(model: Neighborhoods, density: Tensor, shares: Tensor) -> tuple[float, Neighborhoods]:
    top = density.amax(dim=1, keepdim=True)
    likelihood, weights = (density - top).exp(), model.weights
    for _ in range(_ROUNDS):
        joint = likelihood * ((weights + 1e-12) * shares.unsqueeze(1)).flatten()
        total = joint.sum(dim=1, keepdim=True).clamp(min=1e-30)
        weights = (joint / total).sum(dim=0).view_as(weights) + 0.5
        weights = weights / weights.sum(dim=1, keepdim=True)
    return float((total.log() + top).sum()), replace(model, weights=weights)
