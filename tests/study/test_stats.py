"""Intervals and tests in pairs, against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hushgraph.study.stats import bootstrap, holm, paired, summarize

VALUES = np.array([71.0, 73.5, 70.2, 74.1, 72.9])
OTHERS = np.array([70.0, 71.5, 70.4, 72.1, 70.9])


def test_the_mean_has_student_s_interval() -> None:
    found = summarize(VALUES.tolist())
    assert found is not None
    low, high = stats.t.interval(0.95, 4, VALUES.mean(), stats.sem(VALUES))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.count == 5


def test_one_value_has_no_interval_and_none_no_summary() -> None:
    one = summarize([3.0])
    assert one is not None
    assert (one.mean, one.half_width, one.bootstrap, one.low) == (3.0, None, None, 3.0)
    assert summarize([]) is None


def test_bootstrap_covers_a_known_mean_about_as_often_as_it_says() -> None:
    """200 samples of 60 from fixed seeds; 95% would be 190, and the percentile interval is a little short."""
    rng = np.random.default_rng(1)
    hits = sum(low <= 5.0 <= high for low, high in (bootstrap(rng.exponential(5.0, 60)) for _ in range(200)))
    assert 176 <= hits <= 198
    assert bootstrap(VALUES) == bootstrap(VALUES)


def test_pairs_are_compared_as_scipy_does() -> None:
    found = paired(VALUES.tolist(), OTHERS.tolist())
    assert found is not None
    assert found.p_t == pytest.approx(stats.ttest_rel(VALUES, OTHERS).pvalue)
    assert found.p_wilcoxon == pytest.approx(stats.wilcoxon(VALUES, OTHERS).pvalue)
    assert (found.won, found.lost) == (4, 1)
    same = paired([1.0, 1.0], [1.0, 1.0])
    assert same is not None
    assert same.p_t is None
    assert paired([], []) is None


def test_holm_corrects_and_never_falls() -> None:
    assert holm([0.01, None, 0.04, 0.03]) == [pytest.approx(0.03), None, pytest.approx(0.06), pytest.approx(0.06)]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
