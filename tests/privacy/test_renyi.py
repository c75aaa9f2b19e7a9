"""The price of publishing the best of several runs, against the library and against whole laws."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from dp_accounting import dp_event as dpa
from dp_accounting.rdp import RdpAccountant
from scipy import special

from hushgraph.privacy import events, renyi
from hushgraph.privacy.events import BestOfDpEvent, mean_runs
from hushgraph.privacy.filters import RenyiFilter
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.units import Relation

RELATION = Relation.ADD_OR_REMOVE


def best_of(*candidates: events.Event, gamma: float = 0.1, shape: float = 0.0) -> BestOfDpEvent:
    return BestOfDpEvent(candidates, gamma, shape)


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("gamma", [0.02, 0.1, 0.5])
def test_the_bound_is_that_of_the_library(gamma: float, shape: float) -> None:
    one = events.gaussian(2.0, 3)
    ours = best_of(one, gamma=gamma, shape=shape)
    accountant = RdpAccountant(list(renyi.ORDERS))
    accountant.compose(dpa.RepeatAndSelectDpEvent(one, mean_runs(gamma, shape), shape))
    assert [renyi.divergence(ours, RELATION, order) for order in renyi.ORDERS] >= [
        (1 - 1e-7) * float(value) for value in accountant.rdp
    ]
    assert PrivacyLoss(ours, RELATION).epsilon(1e-6) == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-5)


def test_the_costliest_candidate_counts_at_every_order() -> None:
    quiet, loud = events.gaussian(4.0), events.gaussian(1.0)
    price = PrivacyLoss(best_of(quiet, loud), RELATION).epsilon(1e-6)
    assert price == PrivacyLoss(best_of(loud), RELATION).epsilon(1e-6)
    assert price > PrivacyLoss(loud, RELATION).epsilon(1e-6)
    assert PrivacyLoss(best_of(quiet, events.non_private()), RELATION).epsilon(1e-6) == math.inf


def test_it_composes_reads_back_and_is_taken_by_a_filter() -> None:
    event = events.composed([best_of(events.gaussian(3.0), events.pure(0.2)), events.gaussian(5.0)])
    assert events.from_json(json.loads(json.dumps(events.to_json(event)))) == event
    alone = PrivacyLoss(best_of(events.gaussian(3.0), events.pure(0.2)), RELATION)
    both = PrivacyLoss(event, RELATION)
    assert both.accountant == "RDP"
    assert both.epsilon(1e-6) > alone.epsilon(1e-6)
    assert both.delta(both.epsilon(1e-6)) == pytest.approx(1e-6, rel=1e-6)
    assert math.isfinite(RenyiFilter(8.0).cost(event, RELATION))


def law_of_best(one: np.ndarray, pmf: np.ndarray) -> np.ndarray:
    """The law of the largest of K independent draws from `one` (outcomes in order of their score)."""
    upto = np.cumsum(one)
    below = upto - one
    k = np.arange(1, len(pmf) + 1)
    return np.array([(pmf * (u**k - b**k)).sum() for u, b in zip(upto, below)])


def runs_law(gamma: float, shape: float, most: int = 4_000) -> np.ndarray:
    logs = np.arange(1, most + 1) * math.log1p(-gamma)
    steps = np.log([(k + shape) / (k + 1) for k in range(1, most)])
    logs[1:] += np.cumsum(steps)
    weights = np.exp(logs)
    return weights / weights.sum()


@pytest.mark.parametrize(("gamma", "shape"), [(0.3, 0.0), (0.1, 0.0), (0.2, 1.0), (0.2, 0.5)])
def test_no_pair_of_laws_of_the_best_is_further_apart_than_the_bound(gamma: float, shape: float) -> None:
    """Every pure law on three outcomes with ratios e^-1 or e, in any order of score, both ways, at every order."""
    epsilon, pmf = 0.8, runs_law(gamma, shape)
    event = best_of(events.pure(epsilon), gamma=gamma, shape=shape)
    worst = dict.fromkeys(renyi.ORDERS, 0.0)
    base = np.array([0.2, 0.3, 0.5])
    for signs in itertools.product((-0.5, 0.5), repeat=3):
        other = base * np.exp(epsilon * np.array(signs))
        other /= other.sum()
        assert np.abs(np.log(other / base)).max() <= epsilon + 1e-12
        for order_of in itertools.permutations(range(3)):
            p, q = (law_of_best(law[list(order_of)], pmf) for law in (base, other))
            for order in renyi.ORDERS:
                for first, second in ((p, q), (q, p)):
                    logs = order * np.log(first) + (1 - order) * np.log(second)
                    worst[order] = max(worst[order], float(special.logsumexp(logs)) / (order - 1))
    assert all(worst[order] <= renyi.divergence(event, RELATION, order) for order in renyi.ORDERS)
    assert max(worst.values()) > epsilon * 0.5


def test_the_mean_number_of_runs() -> None:
    for gamma, shape in ((0.3, 0.0), (0.1, 1.0), (0.25, 0.5), (0.2, -0.5)):
        pmf = runs_law(gamma, shape)
        assert mean_runs(gamma, shape) == pytest.approx((pmf * np.arange(1, len(pmf) + 1)).sum(), rel=1e-9)
