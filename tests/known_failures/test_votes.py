"""Known failures of noisy edges, chosen models and votes: P22, P24, P28, P29.

The methods are not built yet. The rules that will bind them are tested here on what exists, and on small right and
wrong ways whose laws can be written down.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from hushgraph.errors import InputError
from hushgraph.local import realized_epsilon
from hushgraph.mechanisms.edge_count import EdgeCount
from hushgraph.mechanisms.label_sum import LabelSum
from hushgraph.privacy import events
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Relation, UndirectedEdge
from known_failures.common import answer, gaussian_delta, keeps_its_bound, small_graph

EPSILON = 1.0
SIZES = Metadata(2_000, 1_000)

# P22: one count of all edges, and every pair once


def chunk_densities(pairs: list[tuple[int, int]], nodes: int, rows: int) -> np.ndarray:
    """The share of ones in each block of `rows` rows of the adjacency matrix."""
    matrix = np.zeros((nodes, nodes))
    for one, other in pairs:
        matrix[one, other] = matrix[other, one] = 1.0
    return matrix.reshape(-1, rows, nodes).mean(axis=(1, 2))


def cost_of_densities(rows: int, nodes: int, laplace_scale: float) -> float:
    """Epsilon of noisy densities: the L1 change over one edge, in scales of the noise."""
    pairs = [(0, 1), (1, 2)]
    change = np.abs(chunk_densities(pairs, nodes, rows) - chunk_densities(pairs[1:], nodes, rows)).sum()
    return float(change / laplace_scale)


def test_p22_the_number_of_edges_is_one_count_with_noise_for_that_count() -> None:
    unit, graph = UndirectedEdge(), small_graph(UndirectedEdge())
    count = EdgeCount(cap=1_000)
    assert keeps_its_bound(count, unit)
    assert count.sensitivity(unit) == 2.0  # both entries of an undirected edge
    scale = count.whole_scale_within(EPSILON, unit)
    plan = Plan("test", SIZES, unit, Budget(EPSILON, 1e-6), (Stage("count", count, noise=None, scale=scale),))
    assert plan.epsilon <= EPSILON
    assert len(answer(count, unit, graph)) == 1
    nodes, whole_matrix = 20, 2.0 / (20**2 * EPSILON)
    assert cost_of_densities(nodes, nodes, whole_matrix) <= EPSILON * (1.0 + 1e-9)
    assert cost_of_densities(5, nodes, whole_matrix) > 3.9 * EPSILON  # noise of the whole matrix on a quarter of it


def keeps_to_epsilon(randomizer: Any) -> bool:
    return realized_epsilon(randomizer) <= randomizer.epsilon * (1.0 + 1e-9)


# P24: the exponential mechanism, as it is proved


MODELS = 8
SCORES = np.array([[1.0] + [0.0] * (MODELS - 1), [0.0] + [1.0] * (MODELS - 1)])
"""Scores of eight models on two neighboring datasets; one change moves each score by 1, some up and some down."""
PUBLIC_WEIGHTS = np.exp(np.linspace(0.0, 3.0, MODELS))


class ChosenModel:
    """One of the models, drawn by a law that depends on the private scores."""

    epsilon = EPSILON

    def __init__(self, law_of: Any, samples: int = 1) -> None:
        self.law_of, self.samples = law_of, samples

    def inputs(self) -> Sequence[int]:
        return range(len(SCORES))

    def law(self, dataset: int) -> tuple[Any, np.ndarray]:
        one = self.law_of(SCORES[dataset])
        return None, np.array([math.prod(each) for each in itertools.product(one, repeat=self.samples)])


def exponential(scores: np.ndarray, factor: float = 0.5) -> np.ndarray:
    """Weights exp(factor * epsilon * score / sensitivity), sensitivity 1."""
    weights = np.exp(factor * EPSILON * scores)
    return weights / weights.sum()


def kernel(weights: np.ndarray) -> np.ndarray:
    """A Metropolis step among the models, each proposed equally often."""
    steps = np.minimum(1.0, weights[None, :] / weights[:, None]) / len(weights)
    np.fill_diagonal(steps, 0.0)
    return steps + np.diag(1.0 - steps.sum(axis=1))


def target(scores: np.ndarray) -> np.ndarray:
    """The exponential mechanism with public weights: one law, for which there is a proof."""
    weights = PUBLIC_WEIGHTS * exponential(scores)
    return weights / weights.sum()


def reaches_target(step: np.ndarray, scores: np.ndarray) -> bool:
    """Whether a chain of this step ends where the proof needs it."""
    return bool(np.allclose(np.linalg.matrix_power(step, 2_000)[0], target(scores), atol=1e-9))


def test_p24_a_choice_by_score_follows_the_exponential_mechanism() -> None:
    """Guards the choice of a hierarchy when it is built."""
    assert keeps_to_epsilon(ChosenModel(exponential))
    assert keeps_to_epsilon(ChosenModel(target))
    assert not keeps_to_epsilon(ChosenModel(lambda scores: exponential(scores, factor=1.0)))  # the factor 1/2 lost
    for scores in SCORES:
        assert reaches_target(kernel(target(scores)), scores)
        in_turn = kernel(PUBLIC_WEIGHTS) @ kernel(exponential(scores))  # public and private steps in turn
        assert not reaches_target(in_turn, scores)


def test_p24_every_further_sample_costs_again() -> None:
    assert not keeps_to_epsilon(ChosenModel(exponential, samples=2))
    count, unit = EdgeCount(cap=4), UndirectedEdge()
    prices = [
        Plan("test", SIZES, unit, Budget(9.0, 1e-6), (Stage("count", count, times, noise=None, scale=2.0),)).epsilon
        for times in (1, 2, 3)
    ]
    assert prices == pytest.approx([1.0, 2.0, 3.0])


# P28: only bounded scores are noised


def l1_move(transform: Any) -> float:
    """The furthest that a row of a classifier's output moves over scores from -40 to 40."""
    extremes = [torch.tensor(scores) for scores in itertools.product((-40.0, 0.0, 40.0), repeat=3)]
    rows = [transform(scores) for scores in extremes]
    return max(float((one - other).abs().sum()) for one in rows for other in rows)


def test_p28_noise_goes_on_probabilities_and_never_on_their_logarithms() -> None:
    """Guards noisy predictions of teachers when they are built; sums of labels refuse logarithms today."""
    assert l1_move(lambda scores: scores.softmax(0)) <= 2.0 + 1e-6
    assert l1_move(lambda scores: scores.log_softmax(0)) > 2.0 + 1e-6
    graph, unit = small_graph(UndirectedEdge()), UndirectedEdge()
    scores = torch.randn(24, 3, generator=torch.Generator().manual_seed(0))
    assert torch.isfinite(answer(LabelSum(), unit, graph, scores.softmax(dim=1))).all()
    with pytest.raises(InputError, match="negative"):
        answer(LabelSum(), unit, graph, scores.log_softmax(dim=1))


# P29: one voter moves two counts


class NoisyMaximum:
    """The larger of two vote counts with Laplace noise; one voter may change sides."""

    epsilon = EPSILON

    def __init__(self, laplace_scale: float) -> None:
        self.scale = laplace_scale

    def inputs(self) -> Sequence[int]:
        return (-20, -18)  # how far the first class leads, before and after one voter changes sides

    def law(self, lead: int) -> tuple[Any, np.ndarray]:
        first, _ = integrate.quad(
            lambda x: stats.laplace.pdf(x, scale=self.scale) * stats.laplace.cdf(lead + x, scale=self.scale),
            -60 * self.scale,
            60 * self.scale,
            points=[0.0, -lead],
            limit=500,
            epsabs=1e-16,
        )
        return None, np.array([first, 1.0 - first])


def test_p29_a_vote_that_changes_sides_moves_two_counts() -> None:
    """Guards labels by vote of teachers when they are built."""
    assert keeps_to_epsilon(NoisyMaximum(laplace_scale=2.0 / EPSILON))
    assert not keeps_to_epsilon(NoisyMaximum(laplace_scale=1.0 / EPSILON))
    loss = PrivacyLoss(events.gaussian(5.0 / math.sqrt(2.0)), Relation.REPLACE)
    votes = [np.array([3.0, 2.0]), np.array([2.0, 3.0])]
    distance = float(np.linalg.norm(votes[0] - votes[1]))
    assert gaussian_delta(distance / 5.0, loss.epsilon(1e-6)) <= 1e-6 * (1.0 + 1e-6)
    one_count = PrivacyLoss(events.gaussian(5.0), Relation.REPLACE)
    assert gaussian_delta(distance / 5.0, one_count.epsilon(1e-6)) > 1e-6


def test_p29_a_delta_written_ten_times_too_large_is_refused() -> None:
    assert Budget(1.0, 1e-5).for_units(10_000).delta == 1e-5
    with pytest.raises(InputError, match="delta"):
        Budget(1.0, 10e-5).for_units(10_000)
