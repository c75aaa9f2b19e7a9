"""What one teacher is: a learner that sees its own part of the records and votes on public queries.

A learner always gives one vote per query, whatever its part holds, and its vote follows from its part and from public
values alone: nothing else is needed for the bound on votes. Learners have names, so that a plan can be read back; your
own is made known by `@learner`.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import batchnorm

from hushgraph.errors import InputError, did_you_mean
from hushgraph.graph.edges import MemoryEdges
from hushgraph.nn.backbones import Backbone, backbone
from hushgraph.nn.hog import HOG, image_shape
from hushgraph.nn.pictures import AsPictures, PictureConv, PicturePool, gaussian_kernel
from hushgraph.nn.propagation import Neighborhood
from hushgraph.settings import Settings, setting
from hushgraph.training.kernel_ridge import kernel_width, solve


@dataclass(frozen=True)
class Part:
    """Rows and the edges between them (`[2, E]`, numbered as the rows; None where a learner reads none).

    `nodes` are the rows that are meant, where others are there as their neighbors only. `links` are pairs of a row of
    this part and a row of the queries with an edge between them, `[2, L]`.
    """

    x: Tensor
    edge_index: Tensor | None = None
    nodes: Tensor | None = None
    links: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x) if self.nodes is None else self.nodes.numel()


@dataclass(frozen=True)
class Learner(Settings):
    """Public settings of a teacher."""

    name: ClassVar[str]
    reads: ClassVar[frozenset[str]] = frozenset({"features", "labels"})

    def rows(self, x: Tensor) -> Tensor:
        """What the learner looks at instead of `x`, row by row; queries are turned into it once for all teachers."""
        return x

    @abstractmethod
    def votes(self, part: Part, labels: Tensor, queries: Part, classes: int, generator: torch.Generator) -> Tensor:
        """One class per row of `queries`. `part` holds at least one row, and all `labels` are classes."""

    def as_dict(self) -> dict[str, Any]:
        """Name and settings as plain JSON values."""
        return {"name": self.name, **super().as_dict()}


_LEAST_SHARE = 0.02

_LEARNERS: dict[str, type[Learner]] = {}
PICTURE_LEARNERS = ("hog-ridge", "cnn")
"""Those that take rows for pictures."""


def learner(made: type[Learner]) -> type[Learner]:
    """Make a class of learners known by its name; used above the class."""
    _LEARNERS[made.name] = made
    return made


def learner_names() -> list[str]:
    """The known learners."""
    return list(_LEARNERS)


def learner_from(values: dict[str, Any]) -> Learner:
    """The inverse of `Learner.as_dict`."""
    settings = dict(values)
    name = str(settings.pop("name", None))
    if name not in _LEARNERS:
        raise InputError(f"unknown learner '{name}'; {did_you_mean(name, _LEARNERS)}")
    return _LEARNERS[name](**settings)


@learner
@dataclass(frozen=True)
class Ridge(Learner):
    """Kernel ridge regression on the features as they are."""

    ridge: float = setting(0.1, above=0)

    name = "ridge"

    def votes(self, part: Part, labels: Tensor, queries: Part, classes: int, generator: torch.Generator) -> Tensor:
        """The class with the largest regressed indicator. The kernel's width comes from the public queries."""
        gamma = kernel_width(queries.x)
        targets = functional.one_hot(labels, classes).to(part.x.dtype) - 1.0 / classes
        weights = solve(gaussian_kernel(part.x, part.x, gamma), targets, self.ridge)
        return (gaussian_kernel(queries.x, part.x, gamma) @ weights).argmax(dim=1)


@learner
@dataclass(frozen=True)
class HogRidge(Ridge):
    """Kernel ridge regression on histograms of oriented gradients: pictures, in hundredths of a second."""

    image_height: int | None = setting(None, least=8, help="of pictures that are not square")

    name = "hog-ridge"

    def rows(self, x: Tensor) -> Tensor:
        """The histograms."""
        made: Tensor = HOG(x.shape[1], self.image_height)(x)
        return made


@dataclass(frozen=True)
class TorchLearner(Learner):
    """A torch module trained with Adam; subclasses say which (`module`)."""

    epochs: int = setting(30, least=1)
    batch_size: int = setting(32, least=1)
    lr: float = setting(0.002, above=0, help="learning rate")

    @abstractmethod
    def module(self, columns: int, classes: int) -> nn.Module:
        """The network on rows of `columns` numbers, made under a seed of this teacher's own; a copy is trained."""

    def votes(self, part: Part, labels: Tensor, queries: Part, classes: int, generator: torch.Generator) -> Tensor:
        """The likeliest class after training."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator.initial_seed())
            # A module that all teachers share, such as a pretrained one, would carry records from part to part.
            module = copy.deepcopy(self.module(part.x.shape[1], classes))
            fit_classes(module, part.x, labels, self.epochs, self.batch_size, self.lr, generator)
        with torch.no_grad():
            return torch.cat([module(rows).argmax(dim=1) for rows in queries.x.split(1_000)])


@learner
@dataclass(frozen=True)
class ConvNet(TorchLearner):
    """A small convolutional network on pictures."""

    width: int = setting(16, least=1, help="channels of the first layer")
    image_height: int | None = setting(None, least=8, help="of pictures that are not square")

    name = "cnn"

    def module(self, columns: int, classes: int) -> nn.Module:
        """Two convolutions and two linear layers."""
        return small_convnet(image_shape(columns, self.image_height), self.width, classes)


def small_convnet(shape: tuple[int, int], width: int, classes: int) -> nn.Module:
    """Two convolutions with pooling, then two linear layers."""
    down, across = shape[0] // 4, shape[1] // 4
    return nn.Sequential(
        AsPictures(shape),
        PictureConv(1, width, 5, padding=2),
        nn.ReLU(),
        PicturePool(2),
        PictureConv(width, 2 * width, 5, padding=2),
        nn.ReLU(),
        PicturePool(2),
        nn.Flatten(),
        nn.Linear(2 * width * down * across, 8 * width),
        nn.ReLU(),
        nn.Linear(8 * width, classes),
    )


def fit_classes(
    module: nn.Module,
    x: Tensor,
    targets: Tensor,
    epochs: int,
    batch_size: int,
    lr: float,
    generator: torch.Generator,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Cross-entropy with Adam, in shuffled batches; `targets` are classes, or a distribution per row.

    Batch norm refuses a batch of one row, which is left out then: how many rows there are must not stop a run.
    """
    optimizer = torch.optim.Adam(module.parameters(), lr)
    fewest = 2 if any(isinstance(layer, batchnorm._BatchNorm) for layer in module.modules()) else 1
    module.train()
    for epoch in range(epochs):
        for batch in torch.randperm(len(x), generator=generator).split(batch_size):
            if batch.numel() < fewest:
                continue
            optimizer.zero_grad()
            functional.cross_entropy(module(x[batch]), targets[batch]).backward()
            optimizer.step()
        report(epoch + 1, epochs)
    module.eval()


@learner
@dataclass(frozen=True)
class GraphNet(Learner):
    """Two layers of GraphSAGE on the part's own nodes and the edges between them; queries are public nodes."""

    hidden: int = setting(32, least=1)
    epochs: int = setting(60, least=1)
    lr: float = setting(0.01, above=0, help="learning rate")
    weight_decay: float = setting(5e-4, least=0)

    name = "gnn"
    reads = frozenset({"edges", "features", "labels"})

    def votes(self, part: Part, labels: Tensor, queries: Part, classes: int, generator: torch.Generator) -> Tensor:
        """The likeliest class of every public node, from the public graph."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator.initial_seed())
            module = sage(part.x.shape[1], self.hidden, classes)
            fit_nodes(module, part, torch.arange(len(part.x)), labels, self.epochs, self.lr, self.weight_decay)
        with torch.no_grad():
            scores: Tensor = module(queries.x, neighborhood(queries))
        return scores.argmax(dim=1)


@learner
@dataclass(frozen=True)
class NeighborRidge(Learner):
    """Ridge regression on features of a node and of its public neighbors, and the classes of a query's own neighbors.

    The public neighbors of the part's nodes and the neighbors that a query has in the part are known from the edges
    between them: each is an edge of one private node, so the part of that node may use it.
    """

    ridge: float = setting(10.0, above=0)
    trust: float = setting(1.0, least=0, help="log odds that a neighbor of a query adds to its own class")

    name = "neighbors"
    reads = frozenset({"edges", "features", "labels"})

    def votes(self, part: Part, labels: Tensor, queries: Part, classes: int, generator: torch.Generator) -> Tensor:
        """The likeliest class of every public node."""
        links = torch.empty((2, 0), dtype=torch.int64) if part.links is None else part.links
        around = torch.zeros_like(part.x).index_add_(0, links[0], queries.x[links[1]])
        count = torch.bincount(links[0], minlength=len(part.x)).clamp(min=1).unsqueeze(1)
        known = torch.cat([part.x, around / count], dim=1)
        asked = torch.cat([queries.x, neighborhood(queries).mean(queries.x)], dim=1)
        center = asked.mean(dim=0)
        indicators = functional.one_hot(labels, classes).to(known.dtype)
        prior = indicators.mean(dim=0)
        weights = (known - center).T @ solve((known - center) @ (known - center).T, indicators - prior, self.ridge)
        shares = (asked - center) @ weights + prior
        near = torch.zeros_like(shares).index_put_((links[1], labels[links[0]]), shares.new_ones(()), accumulate=True)
        return (shares.clamp(min=_LEAST_SHARE).log() + self.trust * near).argmax(dim=1)


def sage(columns: int, hidden: int, classes: int) -> Backbone:
    """An untrained network of two layers, with weights from torch's global generator."""
    module = backbone("sage", columns, hidden, classes, 0.3)
    module.reset_parameters()
    return module


def neighborhood(part: Part) -> Neighborhood:
    """The edges of a part, as networks use them."""
    edges = torch.empty((2, 0), dtype=torch.int64) if part.edge_index is None else part.edge_index
    return Neighborhood(MemoryEdges.from_edge_index(edges, len(part.x)))


def fit_nodes(
    module: Backbone, part: Part, nodes: Tensor, targets: Tensor, epochs: int, lr: float, weight_decay: float
) -> None:
    """Train on `nodes` with Adam, all nodes in every step.

    `targets` are classes, learned by cross-entropy, or noisy shares of votes, learned by squares: noise of mean 0 does
    not move where their expectation is smallest.
    """
    graph = neighborhood(part)
    optimizer = torch.optim.Adam(module.parameters(), lr, weight_decay=weight_decay)
    module.train()
    for _ in range(epochs):
        optimizer.zero_grad()
        scores = module(part.x, graph)[nodes]
        if targets.is_floating_point():
            loss = (scores.softmax(dim=1) - targets).square().sum(dim=1).mean()
        else:
            loss = functional.cross_entropy(scores, targets)
        loss.backward()
        optimizer.step()
    module.eval()
