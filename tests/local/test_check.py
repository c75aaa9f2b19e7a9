"""The check itself: it sees what a law gives away, and nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from hushgraph.local import OneBit, RandomizedResponse, realized_epsilon


@dataclass(frozen=True)
class Truthful(OneBit):
    def law(self, value):
        return np.array([0, 1]), np.array([1.0 - value, value])


@dataclass(frozen=True)
class Silent(OneBit):
    def law(self, value):
        return np.array([0, 1, 2]), np.array([0.5, 0.5, 0.0])


def test_a_report_that_one_input_forbids_is_infinite():
    assert realized_epsilon(Truthful(1.0)) == math.inf
    assert realized_epsilon(Truthful(1.0), [0.2, 0.8]) == pytest.approx(math.log(4))


def test_a_law_that_ignores_its_input_costs_nothing():
    assert realized_epsilon(Silent(1.0)) == 0.0


def test_only_the_given_inputs_are_compared():
    assert realized_epsilon(RandomizedResponse(2.0, 4), [3]) == 0.0
    assert realized_epsilon(RandomizedResponse(2.0, 4), [3, 1]) == pytest.approx(2.0)
