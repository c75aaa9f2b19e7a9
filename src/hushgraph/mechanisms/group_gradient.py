"""Mean gradients of whole classes, or of parts of classes, clipped and noised. Proof: docs/proofs/group-gradient.md."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.rows import Rows, SparseRows, dense_rows, take_rows
from hushgraph.mechanisms.canaries import Evidence, OpenVault, audit_graph
from hushgraph.mechanisms.gradient import LOUD, SumsWatcher
from hushgraph.nn import Linear
from hushgraph.nn.layers import ColumnWeights
from hushgraph.nn.rowwise import require_rowwise
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import events
from hushgraph.privacy.events import Event
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit
from hushgraph.training.config import Training
from hushgraph.training.examples import NoisySteps
from hushgraph.training.groups import GroupExamples
from hushgraph.training.loop import train_private
from hushgraph.training.plain_rows import train as train_plain
from hushgraph.training.sampler import PoissonSampler

_CANARY_GROUPS = 20_000  # groups that canaries are drawn in, over all steps: about ten seconds


@dataclass(frozen=True)
class GroupGradient(Mechanism):
    """`steps` noisy sums over Poisson batches of groups, each group's mean gradient clipped to `max_grad_norm`.

    A group is a class, or one of `parts` parts of it, given with the rows. A sum is divided by the expected number of
    groups in a batch. Bound: every group that a unit touches turns into another one, or comes or goes.
    """

    max_grad_norm: float = 1.0
    sample_rate: float = 0.2
    steps: int = 1
    parts: int = 1

    name = "group-gradient"
    proof = "group-gradient"
    reads = frozenset({"labels"})
    trains = True
    sampling = "poisson"
    released = "sums of the mean gradients of groups"

    def touched(self, unit: Unit) -> tuple[float, float]:
        """How many groups depend on one unit in the one and in the other of two neighboring tables."""
        f = unit.footprint
        if math.isinf(f.groups):  # single records: each leaves one group, and may join another
            changed = f.records * (2 if f.replaced else 1)
            return changed, changed
        if f.parts == self.parts or f.parts == 1:
            changed = f.groups * self.parts / f.parts
            return changed, changed if f.replaced else 0
        return (f.groups, f.groups) if self.parts == 1 else (math.inf, math.inf)

    def sensitivity(self, unit: Unit) -> float:
        """The clip norm for every group that goes, and for every group that comes."""
        return self.max_grad_norm * sum(self.touched(unit))

    def reference(self, unit: Unit) -> float:
        """The clip norm; what a unit costs is in the event."""
        return self.max_grad_norm

    def event(self, unit: Unit, scale: float) -> Event:
        """The two-sided mixture of docs/proofs/mixture.md."""
        if scale == 0.0:
            return events.non_private()
        self.require(unit)
        before, after = (int(count) for count in self.touched(unit))
        return events.sampled_group(self.sample_rate, scale / self.max_grad_norm, before, after, self.steps)

    def check(self, *inputs: Any) -> None:
        """Predictions are made row by row with the same module."""
        require_rowwise(inputs[0])

    def query(self, data: Any, module: nn.Module, rows: Rows, training: Training, parts: Rows | None = None) -> None:
        """Train plainly on the training records."""
        train_plain(
            module,
            rows,
            data.labels,
            data.labeled("train"),
            replace(training, select_best=False),
            generator=data.generator("batches"),
            on_epoch=data.report,
        )

    def release(
        self,
        data: Any,
        scale: float,
        noise: NoiseSource,
        module: nn.Module,
        rows: Rows,
        training: Training,
        parts: Rows | None = None,
    ) -> None:
        """Train by noisy steps; `parts` `[n, 1]` has the part of every record, a whole number."""
        labels = data.labels[data.train]
        groups = self._groups(labels, None if parts is None else dense_rows(parts)[data.train])
        sampler = PoissonSampler(data.metadata.classes * self.parts, self.sample_rate)
        steps = NoisySteps(sampler, self.steps, self.max_grad_norm, scale)
        examples = GroupExamples(module, take_rows(rows, data.train), labels, groups, steps)
        train_private(examples, training, noise, on_step=data.report, keeper=data.keeper)

    def _groups(self, labels: Tensor, parts: Tensor | None) -> Tensor:
        """The group of every record; a part that is no whole number below `parts` counts as part 0."""
        if parts is None:
            if self.parts > 1:
                raise InputError(f"group-gradient: expected the parts of records, of {self.parts}; got none")
            return labels
        part = parts.reshape(len(labels)).nan_to_num(0.0).long()
        part = torch.where((part >= 0) & (part < self.parts), part, 0)
        return torch.where(labels >= 0, labels * self.parts + part, -1)

    # Tests

    @classmethod
    def variants(cls) -> Sequence[Self]:
        """Classes, and two parts of each."""
        return [cls(0.5, 0.25, 4), cls(0.5, 0.25, 4, parts=2)]

    def example_inputs(self, graph: CheckedGraph) -> tuple[Any, ...]:
        """A linear model of the features; the part of a record is its number modulo the parts."""
        metadata = graph.metadata
        module = Linear(metadata.features, metadata.classes, generator=torch.Generator().manual_seed(0))
        parts = (torch.arange(metadata.num_nodes) % self.parts).unsqueeze(1).float()
        return module, graph.features, Training(epochs=1), parts

    def before_noise(self, data: Any, noise: NoiseSource, *inputs: Any) -> np.ndarray:
        """The sum over all groups, up to noise a million times smaller than the clip norm."""
        return self.after_noise(data, 1e-6 * self.max_grad_norm, noise, *inputs)

    def after_noise(self, data: Any, scale: float, noise: NoiseSource, *inputs: Any) -> np.ndarray:
        """One noisy sum over all groups, read off one plain step of the weights."""
        module, groups = copy.deepcopy(inputs[0]).double(), data.metadata.classes * self.parts
        before = nn.utils.parameters_to_vector(module.parameters()).detach()
        once = replace(self, sample_rate=1.0, steps=1)
        training = Training(epochs=1, lr=float(groups), optimizer="sgd")
        once.release(data, scale, noise, module, dense_rows(inputs[1]).double(), training, *inputs[3:])
        found: np.ndarray = (before - nn.utils.parameters_to_vector(module.parameters()).detach()).numpy()
        return found

    # Canaries

    def most_canaries(self, stage: Stage, unit: Unit) -> int:
        """As many groups as can be drawn in all steps in a few seconds."""
        return min(1_000, max(100, int(_CANARY_GROUPS / (self.steps * self.sample_rate))))

    def canary(
        self, stage: Stage, unit: Unit, coins: np.ndarray, open_vault: OpenVault, rng: np.random.Generator
    ) -> Evidence | None:
        """Classes of one record each, with one weight of their own; an absent one is empty, or the opposite record."""
        before, after = self.touched(unit)
        if before != 1:
            return None
        module = ColumnWeights(len(coins))
        watch = SumsWatcher(module.weight, self, stage.scale or 1.0, (1, int(after)))
        vault = open_vault(_classes(coins, replaced=after == 1), progress=lambda *_: watch.step())
        training = Training(epochs=1, lr=watch.rate * self.sample_rate * len(coins) * self.parts, optimizer="sgd")
        parts = torch.zeros(len(coins), 1)
        vault.release(stage.name, module, vault.features, training, parts)
        return watch.evidence("class")


def _classes(coins: np.ndarray, *, replaced: bool) -> Any:
    """One record per class, in a column of its own; the record of an absent one is empty, or the opposite."""
    count, present = len(coins), torch.from_numpy(coins)
    values = torch.where(present, LOUD, -LOUD if replaced else 0.0)
    x = SparseRows(torch.arange(count + 1), torch.arange(count), values, (count, count))
    labels = torch.arange(count)
    if not replaced:
        labels[~present] = -1
    return audit_graph(x, torch.empty((2, 0), dtype=torch.int64), labels, torch.ones(count, dtype=torch.bool), count)
