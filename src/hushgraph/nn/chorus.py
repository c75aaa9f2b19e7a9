"""Networks of Chorus and Quorum: classifiers on features next to noisy sums of labels, and row-wise steps beside."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hushgraph.graph.rows import JoinedRows, Rows, SparseRows
from hushgraph.nn.layers import Dropout, Linear, fresh_generator, log_probabilities, probabilities
from hushgraph.nn.rowwise import Branches, rowwise, unfolds


@rowwise("Divides a row by its own length.")
class UnitRows(nn.Module):
    """Scale each row to length one, dense or sparse; an all-zero row stays zero."""

    def forward(self, rows: Rows) -> Rows:
        """Rows of unit length, in the form they came in."""
        if isinstance(rows, Tensor):
            return F.normalize(rows, dim=1)
        lengths = rows.row_square_norms().sqrt().clamp(min=1e-12)
        values = torch.ones(rows.indices.numel()) if rows.values is None else rows.values
        owner = torch.repeat_interleave(torch.arange(len(rows)), rows.indptr.diff())
        return SparseRows._trusted(rows.indptr, rows.indices, values / lengths[owner], rows.shape)


def without_mean(rows: Tensor, blocks: int = 1) -> Tensor:
    """Each block of a row less its mean: sums of centered messages have none, so it can only be noise."""
    if blocks > 1:
        return without_mean(rows.reshape(len(rows) * blocks, -1)).reshape(rows.shape)
    return rows - rows.mean(dim=1, keepdim=True)


def sum_of(parts: Iterable[Tensor]) -> Tensor:
    """The parts added up, one after the other."""
    return reduce(torch.add, parts)


@rowwise("Divides a row by its own length or a constant.")
class FloorScale(nn.Module):
    """Divide each row by its length, but by no less than `floor`; with `centered`, take its blocks' means off first.

    Rows that are mostly noise stay short, so that a classifier listens to them less; long rows have length one.
    """

    def __init__(self, floor: float, centered: bool = False, blocks: int = 1) -> None:
        super().__init__()
        self.floor, self.centered, self.blocks = floor, centered, blocks

    def forward(self, rows: Tensor) -> Tensor:
        """Rows of length at most one."""
        if self.centered:
            rows = without_mean(rows, self.blocks)
        return rows / rows.norm(dim=1, keepdim=True).clamp(min=max(self.floor, 1e-12))


class _Guessing(nn.Module):
    @torch.no_grad()
    def guess(self, rows: JoinedRows) -> Tensor:
        """The roots of the class probabilities: rows of length one, fit to be sent as messages."""
        was_training = self.training
        self.eval()
        try:
            return probabilities(self(rows)).sqrt()
        finally:
            self.train(was_training)


@rowwise("Adds up linear maps of the parts of one row; averages class scores of one row.")
class Ensemble(_Guessing):
    """Small networks side by side, each with one hidden layer; scores are the mean of their log probabilities.

    For plain training: it holds batch norm. The hidden layers of all members are one matrix, and the members differ
    by where they start only.
    """

    def __init__(
        self,
        widths: Sequence[int],
        hidden: int,
        num_classes: int,
        *,
        members: int = 1,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        generator = fresh_generator(generator)
        self.maps = nn.ModuleList(
            Linear(width, members * hidden, bias=k == 0, generator=generator) for k, width in enumerate(widths)
        )
        self.activation = nn.SELU()
        self.norm = nn.BatchNorm1d(members * hidden)
        self.dropout = Dropout(dropout, generator=generator)
        self.heads = nn.ModuleList(Linear(hidden, num_classes, generator=generator) for _ in range(members))

    def forward(self, rows: JoinedRows) -> Tensor:
        """Class scores, one row per node."""
        scores = [log_probabilities(scores) for scores in self.member_scores(rows)]
        return scores[0] if len(scores) == 1 else torch.stack(scores).mean(0)

    def member_scores(self, rows: JoinedRows) -> list[Tensor]:
        """The class scores of each member."""
        inner = sum_of(part_map(part) for part_map, part in zip(self.maps, rows.parts))
        hidden = self.dropout(self.norm(self.activation(inner)))
        return [head(part) for head, part in zip(self.heads, hidden.chunk(len(self.heads), dim=1))]


@rowwise("Adds up linear maps of the parts of one row.")
@unfolds(lambda net: [Branches(net.maps, "sum")])
class LinearNetwork(_Guessing):
    """A linear map of all parts together: few numbers to learn, so little noise per number.

    Weights start from zero, or are drawn from `generator`.
    """

    def __init__(self, widths: Sequence[int], num_classes: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.maps = nn.ModuleList(
            Linear(width, num_classes, bias=k == 0, generator=generator) for k, width in enumerate(widths)
        )
        if generator is None:
            for parameter in self.parameters():
                nn.init.zeros_(parameter)

    def forward(self, rows: JoinedRows) -> Tensor:
        """Class scores, one row per node."""
        return sum_of(part_map(part) for part_map, part in zip(self.maps, rows.parts))


@rowwise("Hands the features of one row to a module that was found to treat rows alone.")
class OwnFeatures(_Guessing):
    """A module of the user, from features to class scores, where a classifier takes joined rows."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, rows: JoinedRows) -> Tensor:
        """Class scores, one row per node."""
        scores: Tensor = self.module(rows.parts[0])
        return scores


@rowwise("Rescales the class scores of one row.")
class FeatureModel(nn.Module):
    """What a classifier of features says: log probabilities above the uniform one, in rows of length at most one."""

    def __init__(self, classifier: nn.Module, num_classes: int) -> None:
        super().__init__()
        self.classifier = classifier
        self.uniform = math.log(num_classes)

    def forward(self, features: Rows) -> Tensor:
        """One row per node."""
        said = log_probabilities(self.classifier(JoinedRows([features]))) + self.uniform
        return said / said.norm(dim=1, keepdim=True).clamp(min=1.0)


@rowwise("Adds a constant multiple of one row's own sum to the same row's class scores.")
class VoteReader(nn.Module):
    """Adds what neighbors vote for to what a classifier of features says; takes `JoinedRows` of both.

    If neighbors agree with a node more often than not, the centered sum S of a node of class c is about a (e_c - 1/C)
    for some `strength` a, with noise of variance std^2 and a spread of the votes themselves of about a. Bayes' rule
    then adds a S / (std^2 + a) to the log probabilities: next to nothing where the noise is large.
    """

    def __init__(self, std: float, strength: float) -> None:
        super().__init__()
        self.weight = strength / max(std**2 + strength, 1e-12)

    def forward(self, rows: JoinedRows) -> Tensor:
        """Class scores, one row per node."""
        said, votes = rows.parts
        assert isinstance(said, Tensor)
        assert isinstance(votes, Tensor)
        return log_probabilities(said) + self.weight * without_mean(votes)


class ChorusNetwork(nn.Module):
    """All of Chorus: a classifier per stage, and a model of features where only a part of the nodes read sums.

    Plain training starts with stage 0, a model of features alone; private training with stage 1, because stage 0 would
    cost gradient steps. A sum has `num_classes` columns for each of the `types` of edges; `scale` brings sums to a
    length that classifiers can use. `own` is a module of the user in place of the model of features.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        types: int = 1,
        *,
        hops: int,
        plain: bool,
        feature_model: bool,
        hidden: int,
        ensemble_size: int,
        dropout: float,
        zero_init: bool,
        generator: torch.Generator,
        scale: FloorScale | None = None,
        own: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.plain, self.scale = plain, scale
        start = None if zero_init else generator
        self.feature_model = None
        if feature_model:
            usual = LinearNetwork([num_features], num_classes, generator=start)
            self.feature_model = FeatureModel(usual if own is None else OwnFeatures(own), num_classes)
        width = num_classes if feature_model else num_features
        self.stages = nn.ModuleDict()
        for k in range(0 if plain else 1, hops + 1):
            widths = [width, *[num_classes * types] * k]
            members = ensemble_size if k == hops else 1
            self.stages[str(k)] = (
                Ensemble(widths, hidden, num_classes, members=members, dropout=dropout, generator=generator)
                if plain
                else LinearNetwork(widths, num_classes, generator=start)
            )
        if plain and own is not None:
            self.stages["0"] = OwnFeatures(own)

    @property
    def classifiers(self) -> dict[int, Any]:
        """The classifier of each stage, by its number."""
        return {int(name): module for name, module in self.stages.items()}
