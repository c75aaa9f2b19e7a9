"""Canaries for private training: examples whose clipped gradient points where no other gradient does.

Each canary has a feature column of its own and a linear model without bias, so its gradient is the bound C times a
known unit vector, in parameters nobody else touches. The auditor watches the weights after every plain SGD step (what
DP-SGD's proof allows everyone to see), reads the noisy sums off their differences, and projects them on each canary's
direction: at a step t the projection is C with probability q and 0 otherwise, plus noise. An absent canary is a null
record, or the opposite one under replacement.

Log likelihood ratios are added up over the steps: those of Poisson sampling, with noise as planned and with less, and
that of batches that repeat with a fixed period, which a correct sampler never makes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.audit.family import SCALES
from hushgraph.audit.layout import flip_coins
from hushgraph.data.checks import CheckedGraph, check_graph
from hushgraph.data.rows import SparseRows
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.run import open_run
from hushgraph.nn import Linear
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.mixture import TwoSidedMixture
from hushgraph.privacy.plan import GradientStage, Plan, RootedGradientStage
from hushgraph.privacy.units import Relation
from hushgraph.vault import Recipe, Vault

LOUD = 1e4  # a feature so large that the gradient is clipped
QUIET = 1e-6  # weights so small that the model's confidence, and with it the gradient's direction, never changes
MOST_CANARY_STEPS = 20_000_000
_TABLE = 20_001


@dataclass(frozen=True)
class GradientScores:
    """The log likelihood ratios of every canary, and the coins. `poisson` has a row for each of `family.SCALES`."""

    planted: np.ndarray
    poisson: np.ndarray
    periodic: np.ndarray


def most_gradient_canaries(stage: GradientStage | RootedGradientStage) -> int:
    """How many canaries can be watched through all steps in well under a minute."""
    return max(1_000, MOST_CANARY_STEPS // stage.count)


def observe_training(
    plan: Plan, stage: GradientStage, canaries: int | np.ndarray, noise: NoiseSource, rng: np.random.Generator
) -> GradientScores:
    """Run the stage's private training on canaries alone (so many, or with these coins), in a vault of its own."""
    planted = flip_coins(canaries, rng) if isinstance(canaries, int) else canaries
    replaces = plan.charged_unit.relation is Relation.REPLACE
    run = open_run(Ledger.in_memory(warn=False), plan, "audit canaries", seeded=noise.seeded_run)
    module = Linear(len(planted), 2, bias=False)
    torch.nn.init.zeros_(module.weight)
    watch = SumsWatcher(module.weight, stage, (1, 1) if replaces else (1, 0))
    vault = Vault(canary_examples(planted, replaces), run, noise, lambda *_: watch.step())
    recipe = Recipe(epochs=1, lr=watch.scale * stage.sample_rate * len(planted), optimizer="sgd")
    vault.train(module, vault.features, recipe, stage, stage.name)
    return watch.scores(planted)


def canary_examples(planted: np.ndarray, replaces: bool) -> CheckedGraph:
    """One example per canary, in a column of its own; an absent one has no features, or the other label."""
    canaries = len(planted)
    kept = np.ones(canaries, dtype=bool) if replaces else planted
    columns = torch.from_numpy(np.flatnonzero(kept))
    ends = torch.from_numpy(np.concatenate([[0], np.cumsum(kept)]))
    x = SparseRows(ends, columns, torch.full((len(columns),), LOUD), (canaries, canaries))
    labels = torch.zeros(canaries, dtype=torch.int64)
    if replaces:
        labels[torch.from_numpy(~planted)] = 1
    everyone = torch.ones(canaries, dtype=torch.bool)
    edges = torch.empty((2, 0), dtype=torch.int64)
    data = Data(x=x, edge_index=edges, y=labels, train_mask=everyone, num_classes=2)
    return check_graph(data)


class SumsWatcher:
    """Reads the noisy sums off the weights after every step, and adds up what they say about each canary.

    `weight` has one column per canary, in which a planted canary's gradient points along -1, or along (-1, 1) if there
    are two rows. `touched` are the numbers of examples that a canary can move, planted and absent. Steps are `scale`
    times the noisy sum: so little that all gradients stay what they are.
    """

    def __init__(self, weight: Tensor, stage: GradientStage | RootedGradientStage, touched: tuple[int, int]) -> None:
        self.weight, self.stage, self.touched = weight, stage, touched
        self.scale = QUIET / LOUD / max(stage.std, stage.max_grad_norm)
        self.seen = weight.detach().clone()
        self.steps = 0
        canaries = weight.shape[1]
        self.ratios = np.zeros((len(SCALES), canaries))
        # Every example is in one of this many batches, if batches repeat.
        self.period = max(1, math.ceil(1.0 / stage.sample_rate - 1e-9))
        self.folded = np.zeros((self.period if self.period <= stage.count else 0, canaries), dtype=np.float32)
        self.tables = [_ratio_table(stage, touched, scale) for scale in SCALES]

    def step(self) -> None:
        """Called after every step."""
        now = self.weight.detach().clone()
        sums = (now.to(torch.float64) - self.seen) / self.scale
        along = (sums[0] - sums[1]) / math.sqrt(2.0) if len(sums) == 2 else sums[0]
        projected = along.numpy() / self.stage.max_grad_norm
        for ratio, table in zip(self.ratios, self.tables, strict=True):
            ratio += np.interp(projected, *table)
        if len(self.folded) and self.steps < self._whole * self.period:
            self.folded[self.steps % self.period] += projected
        self.seen = now
        self.steps += 1

    @property
    def _whole(self) -> int:
        return self.stage.count // self.period

    def scores(self, planted: np.ndarray) -> GradientScores:
        """The two ratios of every canary after all steps."""
        if self.steps != self.stage.count:
            raise RuntimeError(f"expected to see {self.stage.count} steps; saw {self.steps}")
        ratio = self._periodic(self.folded)
        if self.touched[1]:
            ratio = ratio - self._periodic(-self.folded)
        return GradientScores(planted, self.ratios, ratio)

    def _periodic(self, folded: np.ndarray) -> np.ndarray:
        """The log ratio if a canary were in exactly one of 1/q batches, which come back in the same order."""
        if not len(folded):
            return np.zeros(folded.shape[1])
        variance = (self.stage.std / self.stage.max_grad_norm) ** 2
        exponent = (folded.astype(np.float64) - self._whole / 2.0) / variance
        ratio: np.ndarray = np.logaddexp.reduce(exponent, axis=0) - math.log(self.period)
        return ratio


def _ratio_table(
    stage: GradientStage | RootedGradientStage, touched: tuple[int, int], scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """The log likelihood ratio of one noisy sum, tabulated: any function of the sum may serve as a score."""
    multiplier = stage.std / stage.max_grad_norm
    pair = TwoSidedMixture(scale * multiplier, stage.sample_rate, *touched)
    # Sums are a few clip norms and a few deviations away from zero; beyond, the last value serves.
    where = np.linspace(-touched[1] - 8.0 * multiplier, touched[0] + 8.0 * multiplier, _TABLE)
    return where, pair.loss(where)
