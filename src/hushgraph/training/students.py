"""Students that learn from the votes alone: by kernels, by convolutions, or on a public graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import nn

from hushgraph.nn.backbones import Backbone, MeanRidge, RawGraph
from hushgraph.nn.hog import HOG, image_shape
from hushgraph.nn.pictures import KernelStudent
from hushgraph.training.kernel_ridge import best_weights, fit_kernels
from hushgraph.training.learners import PICTURE_LEARNERS, fit_classes, fit_nodes, neighborhood, sage, small_convnet
from hushgraph.training.lesson import Lesson, Report, Student
from hushgraph.training.semi_gan import CoTeaching, GanStudent, PatePlus, PatePlusPlus
from hushgraph.training.vote_shares import CENTERS, fit_shares

_GRAPH_RIDGES = tuple(10.0 ** (step / 2.0) for step in range(-2, 9))


@dataclass(frozen=True)
class Kernel(Student):
    """Kernel ridge regression on labels, with the ridge that predicts left-out ones best.

    From noisy counts: the likeliest model of the shares of votes, by the known law of the noise.
    """

    learner: str = "hog-ridge"
    image_height: int | None = None

    def network(self, columns: int, classes: int, most: int) -> nn.Module:
        """A kernel for each answer, or more; on histograms where teachers look at pictures, else on the features."""
        kernels = max(most, CENTERS)
        if self.learner in PICTURE_LEARNERS:
            look = HOG(columns, self.image_height)
            return KernelStudent(look, look.width_out, kernels, classes)
        return KernelStudent(nn.Identity(), columns, kernels, classes)

    def learn(self, network: nn.Module, lesson: Lesson, generator: torch.Generator, report: Report) -> dict[str, float]:
        """In seconds."""
        student, found = cast(KernelStudent, network), {"labeled": float(lesson.labeled.numel())}
        if lesson.use_counts:
            fit_shares(student, lesson.public.x, lesson.labeled, lesson.shares, lesson.noise / lesson.teachers)
        else:
            found["ridge"] = fit_kernels(student, lesson.public.x[lesson.labeled], lesson.targets)
        report(1, 1)
        return found


@dataclass(frozen=True)
class Convolutions(Student):
    """A small convolutional network, trained on the labels alone."""

    width: int = 16
    epochs: int = 30
    batch_size: int = 100
    lr: float = 0.002
    image_height: int | None = None

    def network(self, columns: int, classes: int, most: int) -> nn.Module:
        """Two convolutions, two linear layers."""
        return small_convnet(image_shape(columns, self.image_height), self.width, classes)

    def learn(self, network: nn.Module, lesson: Lesson, generator: torch.Generator, report: Report) -> dict[str, float]:
        """Cross-entropy."""
        x = lesson.public.x[lesson.labeled]
        fit_classes(network, x, lesson.labels, self.epochs, self.batch_size, self.lr, generator, report)
        return {"labeled": float(len(x))}


@dataclass(frozen=True)
class GraphStudent(Student):
    """GraphSAGE on the public graph."""

    width: int = 32
    epochs: int = 100
    lr: float = 0.01

    def network(self, columns: int, classes: int, most: int) -> nn.Module:
        """Two layers."""
        return RawGraph(sage(columns, self.width, classes))

    def learn(self, network: nn.Module, lesson: Lesson, generator: torch.Generator, report: Report) -> dict[str, float]:
        """All public nodes take part; those with votes have a loss."""
        targets = lesson.shares if lesson.use_counts else lesson.labels
        module = cast(Backbone, cast(RawGraph, network).backbone)
        fit_nodes(module, lesson.public, lesson.labeled, targets, self.epochs, self.lr, 5e-4)
        report(1, 1)
        return {"labeled": float(lesson.labeled.numel())}


@dataclass(frozen=True)
class NeighborStudent(Student):
    """Ridge regression on the votes, from means over neighbors; the ridge is the one that predicts left-out votes best.

    Noisy counts are enough: their noise has mean 0 and is averaged away, as it is not in a network that fits them.
    """

    def network(self, columns: int, classes: int, most: int) -> nn.Module:
        """Two hops."""
        return RawGraph(MeanRidge(columns, classes))

    def learn(self, network: nn.Module, lesson: Lesson, generator: torch.Generator, report: Report) -> dict[str, float]:
        """In closed form, on the public graph."""
        module = cast(MeanRidge, cast(RawGraph, network).backbone)
        rows = module.rows(lesson.public.x, neighborhood(lesson.public))
        module.get_buffer("center").copy_(rows.mean(dim=0))
        known = rows[lesson.labeled] - rows.mean(dim=0)
        weights, ridge = best_weights(known @ known.T, lesson.targets, _GRAPH_RIDGES)
        module.get_buffer("weights").copy_(known.T @ weights)
        report(1, 1)
        return {"ridge": ridge, "labeled": float(lesson.labeled.numel())}


STUDENTS: dict[str, type[Student]] = {
    "kernel": Kernel,
    "cnn": Convolutions,
    "gnn": GraphStudent,
    "neighbors": NeighborStudent,
    "gan": GanStudent,
    "co-teaching": CoTeaching,
    "pate+": PatePlus,
    "pate++": PatePlusPlus,
}
"""By name."""
GRAPH_STUDENTS = ("gnn", "neighbors")
"""Those that read edges."""
