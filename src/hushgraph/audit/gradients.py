"""Canaries for private training: examples whose clipped gradient points where no other gradient does.

Each canary has a feature column of its own and a linear model without bias, so its gradient is the bound C times a
known unit vector, in parameters nobody else touches. The auditor watches the weights after every plain SGD step (what
DP-SGD's proof allows everyone to see), reads the noisy sums off their differences, and projects them on each canary's
direction: at a step t the projection is C with probability q and 0 otherwise, plus noise. An absent canary is a null
record, or the opposite one under replacement.

Two statistics are computed from the projections: the likelihood ratio of Poisson sampling, as accounted, and that of
batches that repeat with a fixed period, which a correct sampler never makes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.accounting.plan import GradientStage, Plan
from hushgraph.intake import CheckedGraph, check_graph
from hushgraph.ledger import Ledger
from hushgraph.mechanisms.noise import NoiseSource
from hushgraph.nn import Linear
from hushgraph.nn.sparse import SparseRows
from hushgraph.run import Run, open_run
from hushgraph.units import Relation
from hushgraph.vault import Recipe, Vault

_LOUD = 1e4  # a feature so large that the gradient is clipped
_QUIET = 1e-6  # weights so small that the model's confidence, and with it the gradient's direction, never changes


@dataclass(frozen=True)
class GradientScores:
    """The two statistics for every canary, and the coins."""

    planted: np.ndarray
    poisson: np.ndarray
    periodic: np.ndarray


def observe_training(
    plan: Plan, stage: GradientStage, canaries: int, noise: NoiseSource, rng: np.random.Generator
) -> GradientScores:
    """Run the stage's private training on canaries alone, in a real vault on a ledger in memory."""
    planted = rng.random(canaries) < 0.5
    planted[:2], planted[2:4] = True, False
    replaces = plan.charged_unit.relation is Relation.REPLACE
    graph = _canary_examples(planted, replaces)
    run = open_run(Ledger(), plan, "audit canaries", seeded=noise.seeded_run)
    sums = _watched_training(graph, run, noise, stage, canaries)
    return GradientScores(planted, *_statistics(sums, stage, replaces))


def _canary_examples(planted: np.ndarray, replaces: bool) -> CheckedGraph:
    canaries = len(planted)
    kept = np.ones(canaries, dtype=bool) if replaces else planted
    columns = torch.from_numpy(np.flatnonzero(kept))
    ends = torch.from_numpy(np.concatenate([[0], np.cumsum(kept)]))
    x = SparseRows(ends, columns, torch.full((len(columns),), _LOUD), (canaries, canaries))
    labels = torch.zeros(canaries, dtype=torch.int64)
    if replaces:
        labels[torch.from_numpy(~planted)] = 1
    everyone = torch.ones(canaries, dtype=torch.bool)
    edges = torch.empty((2, 0), dtype=torch.int64)
    data = Data(x=x, edge_index=edges, y=labels, train_mask=everyone, num_classes=2)
    return check_graph(data)


def _watched_training(
    graph: CheckedGraph,
    run: Run,
    noise: NoiseSource,
    stage: GradientStage,
    canaries: int,
) -> np.ndarray:
    """The noisy sum of every step, projected on every canary's direction: `[steps, canaries]`."""
    module = Linear(canaries, 2, bias=False)
    torch.nn.init.zeros_(module.weight)
    # The weights must not change the gradients: after all steps they are still tiny beside the loudness.
    scale = _QUIET / _LOUD / max(stage.std, stage.max_grad_norm)
    expected = stage.sample_rate * canaries
    seen: list[Tensor] = []

    def watch(_: str, done: int, total: int) -> None:
        seen.append(module.weight.detach().clone())

    vault = Vault(graph, run, noise, watch)
    recipe = Recipe(epochs=1, lr=scale * expected, optimizer="sgd")
    vault.train(module, vault.features, recipe, stage, stage.name)
    weights = torch.stack([torch.zeros_like(seen[0]), *seen]).to(torch.float64)
    steps = -(weights[1:] - weights[:-1]) / scale
    # The loss of label 0 falls along (1, -1): the gradient of a canary is C times (-1, 1)/sqrt(2) in its column.
    return ((steps[:, 1] - steps[:, 0]) / math.sqrt(2.0)).numpy()


def _statistics(sums: np.ndarray, stage: GradientStage, replaces: bool) -> tuple[np.ndarray, np.ndarray]:
    ratio = _poisson_ratio(sums, stage).sum(axis=0)
    periodic = _periodic_ratio(sums, stage)
    if replaces:
        ratio = ratio - _poisson_ratio(-sums, stage).sum(axis=0)
        periodic = periodic - _periodic_ratio(-sums, stage)
    return ratio, periodic


def _poisson_ratio(sums: np.ndarray, stage: GradientStage) -> np.ndarray:
    """log of (1 - q + q N(C) / N(0)) at every step."""
    bound, variance, rate = stage.max_grad_norm, stage.std**2, stage.sample_rate
    exponent = (bound * sums - bound**2 / 2.0) / variance
    away = math.log1p(-rate) if rate < 1.0 else -math.inf
    ratio: np.ndarray = np.logaddexp(away, math.log(rate) + exponent)
    return ratio


def _periodic_ratio(sums: np.ndarray, stage: GradientStage) -> np.ndarray:
    """The same if a canary were in exactly one of 1/q batches, which come back in the same order."""
    period = max(1, math.ceil(1.0 / stage.sample_rate - 1e-9))
    whole = len(sums) // period
    if whole < 1:
        return np.zeros(sums.shape[1])
    folded = sums[: whole * period].reshape(whole, period, -1).sum(axis=0)
    bound, variance = stage.max_grad_norm, stage.std**2
    exponent = (bound * folded - whole * bound**2 / 2.0) / variance
    ratio: np.ndarray = np.logaddexp.reduce(exponent, axis=0) - math.log(period)
    return ratio
