from __future__ import annotations

import math

import numpy as np
import pytest

from audit_plans import plan_of
from hushgraph.audit.findings import Judge, laws, price, within_rounding
from hushgraph.audit.result import Bound
from hushgraph.local import RandomizedResponse
from hushgraph.mechanisms import EdgeCount, Gradient, LocalReport, NeighborSum
from hushgraph.mechanisms.canaries import SCALES, Evidence
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import DirectedEdge, Local, Node


def normal(mu: float, coins: np.ndarray, rng: np.random.Generator) -> Evidence:
    """What a Gaussian release of separation `mu` says."""
    ratio = mu * (rng.standard_normal(len(coins)) + mu * coins) - mu**2 / 2.0
    return Evidence(np.stack([ratio / scale**2 for scale in SCALES]), "edge", np.full(len(coins), mu**2))


def flipped(canaries: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    return rng.random(canaries) < 0.5, rng


def test_two_gaussian_stages_are_one_gaussian() -> None:
    coins, rng = flipped()
    together = Evidence.together([normal(0.6, coins, rng), normal(0.8, coins, rng)])
    assert together.normal is not None
    # Means of 2,000 unit normals: 5 standard errors, off once in a million; mu = sqrt(0.36 + 0.64).
    assert together.normal[coins].mean() == pytest.approx(1.0, abs=0.12)
    assert together.normal[~coins].mean() == pytest.approx(0.0, abs=0.12)
    assert together.normal.std(ddof=1, where=coins) == pytest.approx(1.0, abs=0.08)


def test_ratios_of_one_scale_add_up_with_those_of_two() -> None:
    coins, rng = flipped(10)
    gaussian, other = normal(1.0, coins, rng), Evidence(np.arange(10.0))
    together = Evidence.together([gaussian, other])
    assert together.ratios == pytest.approx(gaussian.ratios + np.arange(10.0))
    assert together.normal is None


def test_gaussian_stages_are_judged_together_by_the_sharpest_bound() -> None:
    stages = [Stage(name, NeighborSum(), scale=1.0) for name in ("first", "second")]
    coins, rng = flipped()
    found = Judge(plan_of(DirectedEdge(), *stages), coins, 0.95).findings(
        [(s, normal(1.0, coins, rng)) for s in stages]
    )
    assert [(one.bound, one.stages) for one in found] == [
        (Bound.GAUSSIAN, ("first", "second")),
        (Bound.ONE_RUN_CURVE, ("first", "second")),
        (Bound.ONE_RUN, ("first", "second")),
        (Bound.THRESHOLD, ("first", "second")),
        (Bound.GAUSSIAN, ("first",)),
        (Bound.GAUSSIAN, ("second",)),
    ]
    assert found[0].claimed == pytest.approx(price(stages, DirectedEdge(), 1e-5))
    assert 0.85 * found[0].claimed < found[0].lower_bound < found[0].claimed
    assert all(one.strict_bound <= one.lower_bound for one in found)


def test_repeated_batches_are_a_finding_of_their_own() -> None:
    stage = Stage("steps", Gradient(1.0, 0.1, 20), scale=2.0)
    coins, rng = flipped(400)
    evidence = Evidence(rng.standard_normal((2, 400)), "gradient", repeated=np.where(coins, 1.0, -1.0))
    found = Judge(plan_of(Node(), stage), coins, 0.95).findings([(stage, evidence)])
    assert [one.bound for one in found] == [Bound.CURVE, Bound.ONE_RUN_CURVE, Bound.ONE_RUN, Bound.REPEATED]
    assert [one.contradicts for one in found] == [False, False, False, True]


def test_parts_are_bounded_one_by_one_and_as_a_whole() -> None:
    stage = Stage("labels", LocalReport(RandomizedResponse(2.0, 2), "labels"), noise=None, scale=1.0)
    coins, rng = flipped()
    right = rng.random((4000, 3)) < 1.0 / (1.0 + math.exp(-2.0))
    parts = np.where(right == coins[:, None], 2.0, -2.0)
    judge = Judge(plan_of(Local(), stage), coins, 0.95)
    each, whole = judge.findings([(stage, Evidence(parts.sum(axis=1), "report", parts=parts))])
    assert (each.bound, each.parts, whole.bound) == (Bound.PARTS, 3, Bound.ONE_RUN_PURE)
    assert 5.0 < each.lower_bound < 6.0
    assert 2.0 < whole.lower_bound < 6.0
    alone = judge.findings([(stage, Evidence(parts[:, 0], "report", parts=parts[:, :1]))])
    assert [one.bound for one in alone] == [Bound.THRESHOLD]


def test_laws_add_up_over_stages_and_counts() -> None:
    counts = [Stage("one", EdgeCount(3), 2, None, scale=6.0), Stage("two", EdgeCount(1), noise=None, scale=4.0)]
    found = laws(plan_of(Node(), *counts, Stage("sums", NeighborSum(), scale=1.0)), counts)
    assert [(one.stages, one.lower_bound) for one in found] == [
        (("one", "two"), pytest.approx(1.25)),
        (("one",), pytest.approx(1.0)),
        (("two",), pytest.approx(0.25)),
    ]
    assert not any(one.contradicts for one in found)


def test_nothing_seen_is_nothing_found() -> None:
    assert Judge(plan_of(Node()), np.zeros(4, dtype=bool), 0.95).findings([]) == []


def test_rounding_alone_contradicts_nothing() -> None:
    assert within_rounding(1.0 + 1e-12, 1.0) == 1.0
    assert within_rounding(1.0 + 1e-6, 1.0) == 1.0 + 1e-6
    assert within_rounding(0.5, 1.0) == 0.5
    assert within_rounding(math.inf, math.inf) == math.inf
