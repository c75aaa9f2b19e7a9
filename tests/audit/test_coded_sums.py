from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from audit_plans import SIZES, observed, sums_plan
from hushgraph.audit import audit_plan
from hushgraph.audit.bounds import gaussian_bound
from hushgraph.audit.result import Verdict
from hushgraph.graph.codes import WHOLE
from hushgraph.mechanisms import CodedSum, DividedCodedSum
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.plan import Plan, Stage

EDGE, DIRECTED, NODE, REPLACED = units.UndirectedEdge(), units.DirectedEdge(), units.Node(), units.NodeReplace()
FRIENDS, SUMS = CodedSum.balanced(EDGE), DividedCodedSum()


@pytest.mark.parametrize(
    ("unit", "count", "mechanism"),
    [
        (EDGE, 1, FRIENDS),
        (EDGE, 6, FRIENDS),
        (EDGE, 2, replace(FRIENDS, guess_norm=0.5)),
        (EDGE, 2, replace(FRIENDS, guess_norm=1.0)),
        (DIRECTED, 4, CodedSum.balanced(DIRECTED)),
        (NODE, 1, SUMS),
        (NODE, 5, SUMS),
        (REPLACED, 5, SUMS),
    ],
)
def test_canaries_reach_what_the_accounting_allows_when_codes_follow_answers(
    unit: units.Unit, count: int, mechanism: Mechanism
) -> None:
    coins, evidence = observed(sums_plan(unit, mechanism, count, 2.0), 4000, seed=0)
    scores = evidence.normal
    assert scores is not None
    # Means of 2,000 unit normals: 5 standard errors, off once in a million.
    assert scores[coins].mean() == pytest.approx(0.5 * math.sqrt(count), abs=0.12)
    assert scores[~coins].mean() == pytest.approx(0.0, abs=0.12)
    assert scores[~coins].std() == pytest.approx(1.0, abs=0.08)


@pytest.mark.parametrize(
    ("unit", "mechanism", "rounds", "budget"),
    [(EDGE, FRIENDS, 6, Budget(1.0, 1e-7)), (EDGE, FRIENDS, 6, Budget(4.0, 1e-7)), (NODE, SUMS, 5, Budget(8.0, 1e-5))],
)
def test_an_audit_of_adaptive_rounds_comes_close_to_epsilon(
    unit: units.Unit, mechanism: Mechanism, rounds: int, budget: Budget
) -> None:
    plan = Plan.make("toy", SIZES, unit, budget, [Stage("sums", mechanism, rounds)])
    coins, evidence = observed(plan, 10_000, seed=0)
    assert evidence.normal is not None
    assert 0.75 * budget.epsilon <= gaussian_bound(evidence.normal, coins, budget.definite_delta) <= budget.epsilon


@pytest.mark.parametrize(("unit", "mechanism"), [(EDGE, FRIENDS), (NODE, SUMS), (REPLACED, SUMS)])
def test_half_the_noise_is_caught(
    unit: units.Unit, mechanism: Mechanism, half_noise: Callable[[int], NoiseSource]
) -> None:
    plan = sums_plan(unit, mechanism, 5, 2.0)
    assert audit_plan(plan, canaries=4000, seed=0).verdict is Verdict.CONSISTENT
    assert audit_plan(plan, canaries=4000, seed=0, noise=half_noise(0)).verdict is Verdict.CONTRADICTED


def test_guesses_at_full_size_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, right = sums_plan(EDGE, FRIENDS, 6, 2.0), CodedSum._whole

    def louder(self: CodedSum, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
        return right(replace(self, guess_norm=1.0), *given)

    monkeypatch.setattr(CodedSum, "_whole", louder)
    assert audit_plan(plan, canaries=4000, seed=0).verdict is Verdict.CONTRADICTED


def test_weights_that_are_left_out_of_the_division_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def lengths_alone(self: DividedCodedSum, lists: Any, weights: Tensor) -> Tensor:
        return (WHOLE / lists.out_degree().clamp(min=1).double().sqrt()).to(torch.int64)

    monkeypatch.setattr(DividedCodedSum, "shares", lengths_alone)
    assert audit_plan(sums_plan(NODE, SUMS, 5, 2.0), canaries=4000, seed=0).verdict is Verdict.CONTRADICTED
