"""What the neighborhoods of each class look like, and what noisy numbers about one say of its node.

The histogram h of the classes of a node's neighbors is taken to be Gaussian, given the node's class and the size of
its neighborhood, which is one of a few on a grid. Numbers about it are a . h plus noise, with any rows a. Everything
is computed for all nodes at once; a node's result depends on its own numbers alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

_LARGEST_BLOCK = 1 << 21  # numbers of one kind that are held at a time
_RANK = 3


@dataclass(frozen=True)
class Neighborhoods:
    """Mean and covariance of h by class and size.

    mix: `[classes, classes]`, the mean histogram of each class at size 1.
    sizes: the grid, `[sizes]`.
    weights: how likely each size is, by class, `[classes, sizes]`.
    grain: the variance of a count over its mean, where neighbors are drawn one by one (1 if each counts for one).
    spread: how much the mix itself varies from node to node: the squared coefficient of its variation.
    """

    mix: Tensor
    sizes: Tensor
    weights: Tensor
    grain: float = 1.0
    spread: float = 0.03

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return self.mix.shape[0]

    def means(self) -> Tensor:
        """`[classes * sizes, classes]`."""
        return (self.mix.unsqueeze(1) * self.sizes[None, :, None]).flatten(0, 1)

    def covariances(self) -> Tensor:
        """`[classes * sizes, classes, classes]`: a diagonal less a multiple of the mean's square."""
        means = self.means()
        return torch.diag_embed(self.own_variances()) - self.spread * means.unsqueeze(2) * means.unsqueeze(1)

    def own_variances(self) -> Tensor:
        """The diagonal, `[classes * sizes, classes]`: counts of each class, and how they vary with the mix."""
        means = self.means()
        least = 1e-3 * self.grain * self.mix.sum(dim=1).mean()
        return means * (self.grain + self.spread * means.sum(dim=1, keepdim=True)) + least

    def flat_weights(self) -> Tensor:
        """Logarithms of the weights, `[classes * sizes]`."""
        return (self.weights + 1e-12).log().flatten()


def log_densities(rows: Tensor, means: Tensor, covariances: Tensor) -> Tensor:
    """The log density of every row under every Gaussian, `[rows, Gaussians]`, up to a constant."""
    precision = torch.linalg.inv(covariances.double()).to(rows.dtype)
    half = 0.5 * torch.logdet(covariances.double()).to(rows.dtype)
    pulled = (precision @ means.unsqueeze(2)).squeeze(2)
    constant = half + 0.5 * (pulled * means).sum(dim=1)
    square = (rows.unsqueeze(2) * rows.unsqueeze(1)).flatten(1) @ precision.flatten(1).t()
    return rows @ pulled.t() - 0.5 * square - constant


@dataclass(frozen=True)
class Parts:
    """The Gaussians of h that a node may belong to: one for each class and size.

    Covariances are a diagonal and a few directions: `diagonal` + sum of `strength` * `direction` direction'. Where a
    first row about all classes was seen, `pull` has what it says of every node: its mean is `means` + covariance
    `pull`, and `seen` the log density of that row.
    """

    means: Tensor
    diagonal: Tensor
    direction: Tensor
    strength: Tensor
    pull: Tensor | None = None
    seen: Tensor | None = None

    @classmethod
    def of(cls, model: Neighborhoods) -> Parts:
        """Before anything was seen."""
        return cls._split(model.means(), model.covariances(), model.own_variances())

    @classmethod
    def after_rows(cls, model: Neighborhoods, rows: Tensor, noise: Tensor) -> Parts:
        """After one row h + noise per node, whose noise has this covariance: one for each class, one for each pair."""
        means, covariances = model.means(), model.covariances()
        noisy = covariances + noise
        seen = torch.cat([log_densities(part, means, noisy) for part in rows.split(_nodes_at_once(len(means) * 4))])
        gain = covariances @ torch.linalg.inv(noisy.double()).to(means.dtype)
        left = covariances - gain @ covariances
        precision = torch.linalg.inv(noise.double()).to(means.dtype)
        start = means - (left @ precision @ means.unsqueeze(2)).squeeze(2)
        alone = noise[0, 0] - (noise[0, 1] if len(noise) > 1 else 0.0)
        diagonal = alone - alone**2 / (model.own_variances() + alone)
        return replace(cls._split(start, left, diagonal), pull=rows @ precision, seen=seen)

    @classmethod
    def _split(cls, means: Tensor, covariances: Tensor, diagonal: Tensor) -> Parts:
        """What the diagonal leaves has at most three directions: the mean, ones, and both of them by the diagonal."""
        values, vectors = torch.linalg.eigh((covariances - torch.diag_embed(diagonal)).double())
        largest = values.abs().topk(min(_RANK, values.shape[1]), dim=1).indices
        direction = vectors.gather(2, largest.unsqueeze(1).expand(-1, vectors.shape[1], -1)).transpose(1, 2)
        return cls(means, diagonal, direction.to(means.dtype), values.gather(1, largest).to(means.dtype))

    def of_nodes(self, start: int, stop: int) -> Parts:
        """The parts for some of the nodes."""
        if self.pull is None or self.seen is None:
            return self
        return replace(self, pull=self.pull[start:stop], seen=self.seen[start:stop])

    def mean_of(self, code: Tensor) -> Tensor:
        """The mean of code . h, `[nodes, Gaussians]`."""
        mean = code @ self.means.t()
        if self.pull is not None:
            mean += self.covariance_of(code, self.pull)
        return mean

    def covariance_of(self, one: Tensor, other: Tensor) -> Tensor:
        """The covariance of one . h and other . h, `[nodes, Gaussians]`."""
        result = (one * other) @ self.diagonal.t()
        for k in range(self.direction.shape[1]):
            along = self.direction[:, k].t()
            result += (one @ along) * (other @ along) * self.strength[:, k]
        return result


@dataclass(frozen=True)
class Heard:
    """What every node was told: numbers[:, k] = codes[:, k] . h + noise of variance one."""

    codes: Tensor
    numbers: Tensor

    @classmethod
    def nothing(cls, nodes: int, classes: int) -> Heard:
        """Before the first number."""
        return cls(torch.zeros(nodes, 0, classes), torch.zeros(nodes, 0))

    def and_then(self, codes: Tensor, numbers: Tensor, noise: float) -> Heard:
        """With one number more, whose noise has this deviation."""
        return Heard(
            torch.cat([self.codes, (codes / noise).unsqueeze(1)], dim=1),
            torch.cat([self.numbers, (numbers / noise).unsqueeze(1)], dim=1),
        )

    def of_nodes(self, start: int, stop: int) -> Heard:
        """What some of the nodes were told."""
        return Heard(self.codes[start:stop], self.numbers[start:stop])


class Factored:
    """The numbers of some nodes under all Gaussians: whitened one after the other, by a Cholesky factor."""

    def __init__(self, parts: Parts, heard: Heard) -> None:
        self.parts, self.codes = parts, heard.codes.unbind(1)
        self.lower: list[list[Tensor]] = []
        self.white: list[Tensor] = []
        self.log_density = torch.zeros(len(heard.numbers), len(parts.means)) if parts.seen is None else parts.seen
        for code, number in zip(self.codes, heard.numbers.unbind(1), strict=True):
            row = self.against(code)
            left = 1.0 + self.parts.covariance_of(code, code)
            for entry in row:
                left -= entry.square()
            root = left.clamp(min=1e-6).sqrt()
            white = (number.unsqueeze(1) - self.expected(code, row)) / root
            self.lower.append([*row, root])
            self.white.append(white)
            self.log_density = self.log_density - 0.5 * white.square() - root.log()

    def against(self, code: Tensor) -> list[Tensor]:
        """The covariance of code . h with each whitened number so far."""
        row: list[Tensor] = []
        for k, factors in enumerate(self.lower):
            entry = self.parts.covariance_of(code, self.codes[k])
            for m in range(k):
                entry -= factors[m] * row[m]
            row.append(entry / factors[k])
        return row

    def expected(self, code: Tensor, row: list[Tensor]) -> Tensor:
        """The mean of code . h, given the numbers so far."""
        mean = self.parts.mean_of(code)
        for entry, white in zip(row, self.white, strict=True):
            mean += entry * white
        return mean


def blocks(nodes: int, gaussians: int) -> Iterator[tuple[int, int]]:
    """Nodes in runs that are small enough to be held at once."""
    size = _nodes_at_once(gaussians)
    yield from ((start, min(start + size, nodes)) for start in range(0, nodes, size))


def _nodes_at_once(numbers: int) -> int:
    return max(1, _LARGEST_BLOCK // max(1, numbers) // 16)


def log_likelihoods(parts: Parts, heard: Heard) -> Tensor:
    """The log density of what every node heard, under every Gaussian: `[nodes, classes * sizes]`."""
    found = [
        Factored(parts.of_nodes(*block), heard.of_nodes(*block)).log_density
        for block in blocks(len(heard.numbers), len(parts.means))
    ]
    return torch.cat(found) if found else torch.zeros(0, len(parts.means))


def expected_numbers(parts: Parts, heard: Heard, joint: Tensor, codes: Tensor) -> Tensor:
    """The mean of codes . h of every node, given what it heard; `joint` are its probabilities of all Gaussians."""
    found = []
    for start, stop in blocks(len(heard.numbers), len(parts.means)):
        factored = Factored(parts.of_nodes(start, stop), heard.of_nodes(start, stop))
        code = codes[start:stop]
        found.append((factored.expected(code, factored.against(code)) * joint[start:stop]).sum(dim=1))
    return torch.cat(found) if found else torch.zeros(0)


def joint_probabilities(log_density: Tensor, model: Neighborhoods, log_prior: Tensor) -> Tensor:
    """The probability of every class and size: `[nodes, classes * sizes]`; the prior of classes is one row, or many."""
    prior = log_prior.expand(len(log_density), -1).repeat_interleave(len(model.sizes), dim=1)
    return (log_density + model.flat_weights() + prior).softmax(dim=1)


def by_class(joint: Tensor, classes: int) -> Tensor:
    """The probability of every class."""
    return joint.unflatten(1, (classes, -1)).sum(dim=2)


def class_log_likelihoods(log_density: Tensor, model: Neighborhoods) -> Tensor:
    """The log density given each class, whatever the size: `[nodes, classes]`."""
    return (log_density + model.flat_weights()).unflatten(1, (model.classes, -1)).logsumexp(dim=2)
