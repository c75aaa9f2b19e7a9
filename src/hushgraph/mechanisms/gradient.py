"""Clip, sum, perturb: DP-SGD on rows, each of which belongs to one record. Proof: docs/proofs/gradient.md."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.rows import Rows, SparseRows
from hushgraph.mechanisms.canaries import SCALES, Evidence, OpenVault, audit_graph
from hushgraph.nn import Linear
from hushgraph.nn.chorus import Ensemble
from hushgraph.nn.rowwise import require_rowwise
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import events
from hushgraph.privacy.events import Event
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.mixture import TwoSidedMixture
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit
from hushgraph.training.config import Training
from hushgraph.training.examples import Examples, NoisySteps, RowExamples
from hushgraph.training.loop import train_private
from hushgraph.training.losses import weighted_labels
from hushgraph.training.minibatches import Minibatches
from hushgraph.training.plain import train_plainly
from hushgraph.training.ranks import RankedExamples, Ranks
from hushgraph.training.sampler import PoissonSampler

LOUD = 1e4  # a feature so large that the gradient is clipped
QUIET = 1e-6  # weights so small that the model's confidence, and with it the gradient's direction, never changes
_MOST_CANARY_STEPS = 20_000_000
_TABLE = 20_001


@dataclass(frozen=True)
class Gradient(Mechanism):
    """`steps` noisy sums of clipped per-example gradients over Poisson batches; the trained weights are the release.

    Bound: the one example of a changed record, of norm at most `max_grad_norm`, comes or goes, or turns into its
    opposite under replacement.
    """

    max_grad_norm: float = 1.0
    sample_rate: float = 1.0
    steps: int = 1

    name = "gradient"
    proof = "gradient"
    reads = frozenset({"labels"})
    trains = True
    takes_class_weights = True
    stops_early = True
    takes_ranks = True
    sampling = "poisson"
    released = "sums of per-example gradients"

    @classmethod
    def of(cls, num_examples: int, batch_size: int, epochs: int, max_grad_norm: float) -> Self:
        """Batches of `batch_size` examples on average, as many as make `epochs` passes."""
        rate = min(1.0, batch_size / max(1, num_examples))
        return cls(max_grad_norm, rate, epochs * math.ceil(1.0 / rate))

    def sensitivity(self, unit: Unit) -> float:
        """The clip norm, twice that under replacement, if a unit is one example."""
        f = unit.footprint
        return self.max_grad_norm * f.records * (2.0 if f.replaced else 1.0) if f.records <= 1 else math.inf

    def reference(self, unit: Unit) -> float:
        """The clip norm; what replacement costs is in the event."""
        return self.max_grad_norm

    def event(self, unit: Unit, scale: float) -> Event:
        """Poisson-sampled Gaussians; under replacement an example may turn into its opposite."""
        if scale == 0.0:
            return events.non_private()
        self.require(unit)
        return events.sampled_gaussian(self.sample_rate, scale / self.max_grad_norm, self.steps)

    def check(self, *inputs: Any) -> None:
        """Each row must be one example: modules that mix rows are refused."""
        require_rowwise(inputs[0])

    def query(
        self, data: Any, module: nn.Module, rows: Rows, training: Training, *, nodes: Tensor | None = None
    ) -> Minibatches | None:
        """Train plainly on the training nodes; the best state on the validation nodes is kept.

        Where rows are many and nothing was asked for, by minibatches, which are returned.
        """
        labels, random = data.labels, data.generator("dropout" if isinstance(module, Ensemble) else "batches")
        train, val = data.labeled("train"), data.labeled("val")
        return train_plainly(module, rows, labels, train, val, training, random, data.report)

    def release(
        self,
        data: Any,
        scale: float,
        noise: NoiseSource,
        module: nn.Module,
        rows: Rows,
        training: Training,
        *,
        nodes: Tensor | None = None,
    ) -> None:
        """Train by clipped, noised steps on the training nodes, or on those named by `nodes`."""
        self.check(module)
        labels, train = data.labels, data.train if nodes is None else nodes
        if training.class_weights is not None:
            labels = weighted_labels(labels, training.class_weights)
        steps = NoisySteps(PoissonSampler(train.numel(), self.sample_rate), self.steps, self.max_grad_norm, scale)
        settings: Any = {"index": train, "normalize": training.normalize}
        examples: Examples
        if training.ranks is None:
            examples = RowExamples(module, rows, labels, steps, **settings)
        else:
            examples = RankedExamples(cast(Ranks, training.ranks), module, rows, labels, steps, noise=noise, **settings)
        train_private(examples, training, noise, on_step=data.report, keeper=data.keeper)

    @classmethod
    def variants(cls) -> Sequence[Self]:
        """A few steps on Poisson batches."""
        return [cls(0.5, 0.25, 4)]

    def example_inputs(self, graph: CheckedGraph) -> tuple[Any, ...]:
        """A linear model of the features."""
        metadata = graph.metadata
        module = Linear(metadata.features, metadata.classes, generator=torch.Generator().manual_seed(0))
        return module, graph.features, Training(epochs=1)

    def before_noise(self, data: Any, noise: NoiseSource, *inputs: Any) -> np.ndarray:
        """The sum of all clipped gradients, up to noise a million times smaller than the clip norm."""
        return self.after_noise(data, 1e-6 * self.max_grad_norm, noise, *inputs)

    def after_noise(self, data: Any, scale: float, noise: NoiseSource, *inputs: Any) -> np.ndarray:
        """One noisy sum over all examples, read off one plain step of the weights."""
        module, training = copy.deepcopy(inputs[0]), Training(epochs=1, lr=float(data.train.numel()), optimizer="sgd")
        before = nn.utils.parameters_to_vector(module.parameters()).detach().double()
        once: Any = replace(self, sample_rate=1.0, steps=1)
        once.release(data, scale, noise, module, *inputs[1:-1], training)
        after = nn.utils.parameters_to_vector(module.parameters()).detach().double()
        return (before - after).numpy()

    # Canaries

    def most_canaries(self, stage: Stage, unit: Unit) -> int:
        """As many as can be watched through all steps in well under a minute."""
        return max(1_000, _MOST_CANARY_STEPS // self.steps)

    def canary(
        self, stage: Stage, unit: Unit, coins: np.ndarray, open_vault: OpenVault, rng: np.random.Generator
    ) -> Evidence:
        """Examples whose clipped gradient points where no other gradient does.

        Each canary has a feature column of its own and a linear model without bias, so its gradient is the bound C
        times a known unit vector, in parameters nobody else touches. An absent canary is an empty record, or the
        opposite one under replacement.
        """
        replaced = unit.footprint.replaced
        module = Linear(len(coins), 2, bias=False)
        torch.nn.init.zeros_(module.weight)
        watch = SumsWatcher(module.weight, self, stage.scale or 1.0, (1, 1) if replaced else (1, 0))
        vault = open_vault(_examples(coins, replaced), progress=lambda *_: watch.step())
        training = Training(epochs=1, lr=watch.rate * self.sample_rate * len(coins), optimizer="sgd")
        vault.release(stage.name, module, vault.features, training)
        return watch.evidence("gradient")


def _examples(coins: np.ndarray, replaced: bool) -> Any:
    """One example per canary, in a column of its own; an absent one has no features, or the other label."""
    canaries = len(coins)
    kept = np.ones(canaries, dtype=bool) if replaced else coins
    columns = torch.from_numpy(np.flatnonzero(kept))
    ends = torch.from_numpy(np.concatenate([[0], np.cumsum(kept)]))
    x = SparseRows(ends, columns, torch.full((len(columns),), LOUD), (canaries, canaries))
    labels = torch.zeros(canaries, dtype=torch.int64)
    if replaced:
        labels[torch.from_numpy(~coins)] = 1
    return audit_graph(x, torch.empty((2, 0), dtype=torch.int64), labels, torch.ones(canaries, dtype=torch.bool))


class SumsWatcher:
    """Reads the noisy sums off the weights after every plain SGD step, and adds up what they say about each canary.

    What DP-SGD's proof allows everyone to see are the weights after every step. `weight` has one column per canary, in
    which a planted canary's gradient points along -1, or along (-1, 1) if there are two rows. `touched` are the numbers
    of examples that a canary can move, planted and absent. Steps are `rate` times the noisy sum: so little that all
    gradients stay what they are. Log likelihood ratios are added up over the steps: those of Poisson sampling, and
    that of batches that repeat with a fixed period, which a correct sampler never makes.
    """

    def __init__(self, weight: Tensor, mechanism: Any, scale: float, touched: tuple[int, int]) -> None:
        self.weight, self.mechanism, self.noise, self.touched = weight, mechanism, scale, touched
        self.rate = QUIET / LOUD / max(scale, mechanism.max_grad_norm)
        self.seen = weight.detach().clone()
        self.steps = 0
        canaries = weight.shape[1]
        self.ratios = np.zeros((len(SCALES), canaries))
        # Every example is in one of this many batches, if batches repeat.
        self.period = max(1, math.ceil(1.0 / mechanism.sample_rate - 1e-9))
        self.whole = mechanism.steps // self.period
        self.folded = np.zeros((self.period if self.whole else 0, canaries), dtype=np.float32)
        self.tables = [self._ratio_table(less) for less in SCALES]

    def step(self) -> None:
        """Called after every step."""
        now = self.weight.detach().clone()
        sums = (now.to(torch.float64) - self.seen) / self.rate
        along = (sums[0] - sums[1]) / math.sqrt(2.0) if len(sums) == 2 else sums[0]
        projected = along.numpy() / self.mechanism.max_grad_norm
        for ratio, table in zip(self.ratios, self.tables, strict=True):
            ratio += np.interp(projected, *table)
        if len(self.folded) and self.steps < self.whole * self.period:
            self.folded[self.steps % self.period] += projected
        self.seen = now
        self.steps += 1

    def evidence(self, planted: str) -> Evidence:
        """The ratios of every canary after all steps."""
        if self.steps != self.mechanism.steps:
            raise RuntimeError(f"expected to see {self.mechanism.steps} steps; saw {self.steps}")
        repeated = self._periodic(self.folded)
        if self.touched[1]:
            repeated = repeated - self._periodic(-self.folded)
        draws = self.mechanism.sample_rate < 1.0 and bool(repeated.any())
        return Evidence(self.ratios, planted, repeated=repeated if draws else None)

    def _periodic(self, folded: np.ndarray) -> np.ndarray:
        """The log ratio if a canary were in exactly one of 1/q batches, which come back in the same order."""
        if not len(folded):
            return np.zeros(folded.shape[1])
        variance = (self.noise / self.mechanism.max_grad_norm) ** 2
        exponent = (folded.astype(np.float64) - self.whole / 2.0) / variance
        ratio: np.ndarray = np.logaddexp.reduce(exponent, axis=0) - math.log(self.period)
        return ratio

    def _ratio_table(self, less: float) -> tuple[np.ndarray, np.ndarray]:
        """The log likelihood ratio of one noisy sum, tabulated: any function of the sum may serve as a score."""
        multiplier = self.noise / self.mechanism.max_grad_norm
        pair = TwoSidedMixture(less * multiplier, self.mechanism.sample_rate, *self.touched)
        # Sums are a few clip norms and a few deviations away from zero; beyond, the last value serves.
        where = np.linspace(-self.touched[1] - 8.0 * multiplier, self.touched[0] + 8.0 * multiplier, _TABLE)
        return where, pair.loss(where)
