"""What the neighborhoods of each class look like, and what noisy numbers about one say of its node.

The histogram h of the classes of a node's neighbors is taken to be Gaussian, given the node's class and the size of
its neighborhood, which is one of a few on a grid. Numbers about it are a . h plus noise, with any rows a. Everything
is computed for all nodes at once; a node's result depends on its own numbers alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

_BLOCK, _FEWEST_NODES = 1 << 19, 64  # numbers of one kind that are held at a time
_MOST_KEPT = 1 << 26  # numbers that are kept from one round to the next
_RANK = 3
_FEW_CLASSES = 8  # up to which whole covariances are faster than their parts


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


def log_densities_of(rows: Tensor, means: Tensor, diagonals: Tensor, spread: float) -> Tensor:
    """The same where covariances are a diagonal less `spread` times the square of the mean: nothing is inverted."""
    center, inverse = means.double(), diagonals.double().reciprocal()
    along = center * inverse
    left = 1.0 - spread * (center * along).sum(dim=1, keepdim=True)
    pulled = along / left
    constant = 0.5 * (left.log().sum(dim=1) - inverse.log().sum(dim=1) + (pulled * center).sum(dim=1))
    inverse, along, pulled, more, constant = (
        one.to(rows.dtype) for one in (inverse, along, pulled, (spread / left).squeeze(1), constant)
    )
    square = rows.square() @ inverse.t() + more * (rows @ along.t()).square()
    return rows @ pulled.t() - 0.5 * square - constant


@dataclass(frozen=True)
class Parts:
    """The Gaussians of h that a node may belong to: one for each class and size.

    Covariances are a diagonal and a few directions: `diagonal` + sum of `strength` * `direction` direction'; with few
    classes they are there as a `whole`, `[classes, classes, Gaussians]`. Where a first row about all classes was seen,
    `pull` has what it says of every node: its mean is `means` + covariance `pull`, and `seen` the log density of that
    row.
    """

    means: Tensor
    diagonal: Tensor
    direction: Tensor
    strength: Tensor
    whole: Tensor | None = None
    pull: Tensor | None = None
    seen: Tensor | None = None

    @classmethod
    def of(cls, model: Neighborhoods) -> Parts:
        """Before anything was seen: one direction is enough, that of the mean."""
        means, whole = model.means(), None
        if model.classes <= _FEW_CLASSES:
            whole = model.covariances().permute(1, 2, 0).contiguous()
        strength = torch.full((len(means), 1), -model.spread)
        return cls(means, model.own_variances(), means.unsqueeze(1), strength, whole)

    @classmethod
    def after_rows(cls, model: Neighborhoods, rows: Tensor, noise: Tensor) -> Parts:
        """After one row h + noise per node, whose noise has this covariance: one for each class, one for each pair."""
        means, covariances = model.means(), model.covariances()
        noisy = covariances + noise
        seen = torch.cat([log_densities(part, means, noisy) for part in rows.split(nodes_at_once(means.numel()))])
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
        whole = covariances.permute(1, 2, 0).contiguous() if means.shape[1] <= _FEW_CLASSES else None
        return cls(means, diagonal, direction.to(means.dtype), values.gather(1, largest).to(means.dtype), whole)

    def of_nodes(self, block: slice) -> Parts:
        """The parts for some of the nodes."""
        if self.pull is None or self.seen is None:
            return self
        return replace(self, pull=self.pull[block], seen=self.seen[block])

    def mean_of(self, code: Tensor) -> Tensor:
        """The mean of code . h, `[nodes, Gaussians]`."""
        mean = code @ self.means.t()
        if self.pull is not None:
            mean += self.covariance_of(code, self.pull)
        return mean

    def all_means(self) -> Tensor:
        """The mean of h under every Gaussian, `[nodes (one, if all have the same), classes, Gaussians]`."""
        means = self.means.t().unsqueeze(0)
        if self.pull is None:
            return means
        if self.whole is not None:
            return means + (self.pull @ self.whole.flatten(1)).unflatten(1, self.whole.shape[1:])
        along = torch.einsum("jrd,nd->njr", self.direction, self.pull) * self.strength
        return means + self.diagonal.t() * self.pull.unsqueeze(2) + torch.einsum("njr,jrd->ndj", along, self.direction)

    def covariance_of(self, one: Tensor, other: Tensor) -> Tensor:
        """The covariance of one . h and other . h, `[nodes, Gaussians]`."""
        if self.whole is not None:
            return (one.unsqueeze(2) * other.unsqueeze(1)).flatten(1) @ self.whole.flatten(0, 1)
        result = (one * other) @ self.diagonal.t()
        for k in range(self.direction.shape[1]):
            along = self.direction[:, k].t()
            result += (one @ along) * (other @ along) * self.strength[:, k]
        return result

    def mean_covariance(self, weights: Tensor) -> Tensor:
        """The weighted sum of all covariances for every node, `[nodes, classes, classes]`."""
        if self.whole is not None:
            return (weights @ self.whole.flatten(0, 1).t()).unflatten(1, self.whole.shape[:2])
        along = (self.strength.unsqueeze(2) * self.direction).transpose(1, 2) @ self.direction
        return (weights @ (torch.diag_embed(self.diagonal) + along).flatten(1)).unflatten(1, along.shape[1:])


class Told:
    """What some nodes were told, under all Gaussians: numbers code . h + noise of variance one, one after the other.

    They are whitened as they come, by a Cholesky factor.
    """

    def __init__(self, parts: Parts, nodes: int) -> None:
        self.parts = parts
        self.codes: list[Tensor] = []
        self.numbers: list[Tensor] = []
        self.lower: list[list[Tensor]] = []
        self.white: list[Tensor] = []
        self.log_density = torch.zeros(nodes, len(parts.means)) if parts.seen is None else parts.seen

    @cached_property
    def means(self) -> Tensor:
        """The mean of h under every Gaussian before these numbers, `[nodes (or one), classes, Gaussians]`."""
        return self.parts.all_means()

    def hear(self, code: Tensor, number: Tensor) -> None:
        """Take in one number more for every node."""
        row = self.against(code)
        left = self.parts.covariance_of(code, code).add_(1.0)
        for entry in row:
            left.addcmul_(entry, entry, value=-1.0)
        root = left.clamp_(min=1e-6).sqrt_()
        white = (number.unsqueeze(1) - self.expected(code, row)).div_(root)
        self.codes.append(code)
        self.numbers.append(number)
        self.lower.append([*row, root])
        self.white.append(white)
        self.log_density = (self.log_density - root.log()).addcmul_(white, white, value=-0.5)

    def against(self, code: Tensor) -> list[Tensor]:
        """The covariance of code . h with each whitened number so far."""
        row: list[Tensor] = []
        for other, factors in zip(self.codes, self.lower, strict=True):
            entry = self.parts.covariance_of(code, other)
            for factor, earlier in zip(factors, row):
                entry.addcmul_(factor, earlier, value=-1.0)
            row.append(entry.div_(factors[-1]))
        return row

    def expected(self, code: Tensor, row: list[Tensor]) -> Tensor:
        """The mean of code . h, given the numbers so far."""
        mean = self.parts.mean_of(code)
        for entry, white in zip(row, self.white, strict=True):
            mean.addcmul_(entry, white)
        return mean


class Heard:
    """What every node heard so far, in runs of nodes that are small enough to be held at once.

    What was worked out about them is kept for the next number, as far as there is room.
    """

    def __init__(self, parts: Parts, nodes: int) -> None:
        self.parts, self.nodes = parts, nodes
        self.codes: list[Tensor] = []
        self.numbers: list[Tensor] = []
        self._kept: dict[int, Told] = {}

    def under(self, parts: Parts) -> Heard:
        """The same, under other Gaussians."""
        other = Heard(parts, self.nodes)
        other.codes, other.numbers = self.codes, self.numbers
        return other

    def of_nodes(self, nodes: Tensor) -> Heard:
        """What some of the nodes heard."""
        other = Heard(self.parts, len(nodes))
        other.codes, other.numbers = ([one[nodes] for one in kept] for kept in (self.codes, self.numbers))
        return other

    def hear(self, codes: Tensor, numbers: Tensor, noise: Tensor) -> None:
        """Take in one number more for every node, whose noise has these deviations."""
        self.codes = [*self.codes, codes / noise.unsqueeze(1)]
        self.numbers = [*self.numbers, numbers / noise]
        for start in list(self._kept)[self._room() :]:
            del self._kept[start]
        for start, told in self._kept.items():
            block = slice(start, start + len(told.log_density))
            told.hear(self.codes[-1][block], self.numbers[-1][block])

    def blocks(self) -> Iterator[tuple[slice, Told]]:
        """Runs of nodes, and what they were told."""
        size = self._nodes_at_once()
        for start in range(0, self.nodes, size):
            block = slice(start, min(start + size, self.nodes))
            told = self._kept.get(start)
            if told is None:
                told = Told(self.parts.of_nodes(block), block.stop - block.start)
                for code, number in zip(self.codes, self.numbers, strict=True):
                    told.hear(code[block], number[block])
            if len(self._kept) < self._room():
                self._kept[start] = told
            yield block, told

    def _nodes_at_once(self) -> int:
        return nodes_at_once(self.parts.means.numel())

    def _room(self) -> int:
        """How many blocks may be kept."""
        each = (len(self.codes) + 1) * (len(self.codes) + 2) // 2  # of the factor, whitened numbers and the density
        each += 0 if self.parts.pull is None else self.parts.means.shape[1]
        return _MOST_KEPT // (self._nodes_at_once() * len(self.parts.means) * each)


def nodes_at_once(numbers: int) -> int:
    """How many nodes to work on together, where each of them needs so many numbers."""
    return max(_FEWEST_NODES, _BLOCK // max(1, numbers))


def log_likelihoods(heard: Heard) -> Tensor:
    """The log density of what every node heard, under every Gaussian: `[nodes, classes * sizes]`."""
    found = [told.log_density for _, told in heard.blocks()]
    return torch.cat(found) if found else torch.zeros(0, len(heard.parts.means))


def expected_numbers(heard: Heard, joint: Tensor, codes: Tensor) -> Tensor:
    """The mean of codes . h of every node, given what it heard; `joint` are its probabilities of all Gaussians."""
    found = [
        (told.expected(codes[block], told.against(codes[block])) * joint[block]).sum(dim=1)
        for block, told in heard.blocks()
    ]
    return torch.cat(found) if found else torch.zeros(0)


def joint_probabilities(log_density: Tensor, model: Neighborhoods, log_prior: Tensor) -> Tensor:
    """The probability of every class and size: `[nodes, classes * sizes]`; the prior of classes is one row, or many."""
    weighed = (log_density + model.flat_weights()).unflatten(1, (model.classes, -1))
    return (weighed + log_prior.unsqueeze(-1)).flatten(1).softmax(dim=1)


def expected_sizes(joint: Tensor, model: Neighborhoods) -> Tensor:
    """The mean number of neighbors of every node that h counts."""
    return joint @ model.means().sum(dim=1)


def by_class(joint: Tensor, classes: int) -> Tensor:
    """The probability of every class."""
    return joint.unflatten(1, (classes, -1)).sum(dim=2)


def class_log_likelihoods(log_density: Tensor, model: Neighborhoods) -> Tensor:
    """The log density given each class, whatever the size: `[nodes, classes]`."""
    return (log_density + model.flat_weights()).unflatten(1, (model.classes, -1)).logsumexp(dim=2)
