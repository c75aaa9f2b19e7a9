"""What neighborhoods look like where few labels are known: learned from the numbers that nodes were told.

Edges between training nodes say nothing then, because there are hardly any. Numbers of nodes whose class is known say
it instead: how many neighbors a node has, and how much more often than chance they are of its class. Both follow from
what was released, so they cost nothing more.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hushgraph.nn.neighborhoods import Heard, Neighborhoods, Parts, class_log_likelihoods, log_likelihoods

_LEVELS = (-0.8, 0.0, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8)
_AVERAGES = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
_SPREADS = (0.01, 0.06)
_SMALLEST, _LARGEST, _MEDIAN, _WIDTH = 0.1, 4.0, 0.7, 0.9  # of sizes over their average; the width of their logarithm
_POWERS = tuple(2.0 ** (0.5 * step) for step in range(-4, 11))


@dataclass(frozen=True)
class Agreement:
    """A share `level` of the neighbors are of the own class for a reason, all others as frequent as members are.

    A `level` below zero: so many of those that would be of the own class by chance are not. None: as was counted.
    `average` is the mean number of neighbors, and sizes vary around it alike in all classes; `spread` is that of
    `Neighborhoods`.
    """

    level: float | None = 0.5
    average: float = 20.0
    spread: float = 0.03

    def neighborhoods(self, shares: Tensor, sizes: int, counted: Tensor | None = None) -> Neighborhoods:
        """The same as a mean histogram by class and a grid of sizes; `shares` are those of the classes."""
        mix = counted if self.level is None else _mixed(self.level, shares)
        assert mix is not None
        grid = torch.linspace(math.log(_SMALLEST), math.log(_LARGEST), sizes).exp()
        weights = (-0.5 * ((grid / _MEDIAN).log() / _WIDTH).square()).exp()
        weights = weights / weights.sum()
        grid = self.average * grid / (grid * weights).sum()
        return Neighborhoods(mix, grid, weights.repeat(len(shares), 1), spread=self.spread)


def _mixed(level: float, shares: Tensor) -> Tensor:
    own = torch.eye(len(shares))
    if level >= 0.0:
        return level * own + (1.0 - level) * shares
    fewer = shares * (1.0 + level * own)
    return fewer / fewer.sum(dim=1, keepdim=True)


def likeliest(heard: Heard, log_class: Tensor, shares: Tensor, sizes: int, counted: Tensor) -> Agreement:
    """What makes the numbers of some nodes likeliest; `log_class` has what is known of the class of each."""

    def likelihood(one: Agreement) -> float:
        model = one.neighborhoods(shares, sizes, counted)
        said = class_log_likelihoods(log_likelihoods(heard.under(Parts.of(model))), model)
        return float((said + log_class).logsumexp(dim=1).sum())

    found = Agreement()
    for _ in range(2):  # one thing after the other, twice: all combinations take four times as long
        tried = [replace(found, average=average, spread=spread) for average, spread in _sized()]
        found = max(tried, key=likelihood)
        found = max((replace(found, level=level) for level in (None, *_LEVELS)), key=likelihood)
    return found


def _sized() -> itertools.product[tuple[float, float]]:
    return itertools.product(_AVERAGES, _SPREADS)


def best_power(log_probabilities: Tensor, labels: Tensor) -> float:
    """The power of class probabilities that makes labels likeliest: few examples leave a model too sure, or unsure."""
    if not len(labels):
        return 1.0

    def likelihood(power: float) -> float:
        return float((power * log_probabilities).log_softmax(dim=1).gather(1, labels.unsqueeze(1)).sum())

    return max(_POWERS, key=likelihood)
