"""Means with intervals, and comparisons in pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
RESAMPLES = 1_000


@dataclass(frozen=True)
class Summary:
    """The mean of `count` values with two 95% intervals: Student's t, and percentiles of 1,000 bootstrap means.

    With one value there is no interval (None).
    """

    count: int
    mean: float
    half_width: float | None
    bootstrap: tuple[float, float] | None

    @property
    def low(self) -> float:
        """The lower end of Student's interval; the mean where there is none."""
        return self.mean - (self.half_width or 0.0)

    @property
    def high(self) -> float:
        """The upper end of Student's interval; the mean where there is none."""
        return self.mean + (self.half_width or 0.0)


def summarize(values: Sequence[float]) -> Summary | None:
    """The summary of values; None without any."""
    found = np.asarray(values, dtype=np.float64)
    if not len(found):
        return None
    mean = float(found.mean())
    if len(found) == 1:
        return Summary(1, mean, None, None)
    quantile = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(found) - 1))
    width = quantile * float(found.std(ddof=1)) / math.sqrt(len(found))
    return Summary(len(found), mean, width, bootstrap(found))


def bootstrap(values: np.ndarray, resamples: int = RESAMPLES) -> tuple[float, float]:
    """The 95% percentile interval of the mean; the resamples are the same at every call."""
    drawn = np.random.default_rng(0).integers(0, len(values), (resamples, len(values)))
    low, high = np.percentile(values[drawn].mean(axis=1), [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
    return float(low), float(high)


@dataclass(frozen=True)
class Paired:
    """Differences of pairs: their summary, how many are above and below zero, and two-sided p-values.

    `p_t` is from the paired t-test, `p_wilcoxon` from the signed-rank test; None where they cannot be had (fewer than
    two pairs, or no difference at all).
    """

    difference: Summary
    won: int
    lost: int
    p_t: float | None
    p_wilcoxon: float | None


def paired(ours: Sequence[float], theirs: Sequence[float]) -> Paired | None:
    """Compare values that belong together place by place."""
    gaps = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    difference = summarize(gaps.tolist())
    if difference is None:
        return None
    varied = len(gaps) > 1 and float(gaps.std()) > 0.0
    p_t = float(stats.ttest_1samp(gaps, 0.0).pvalue) if varied else None
    p_wilcoxon = float(stats.wilcoxon(gaps).pvalue) if varied and bool(np.any(gaps != 0.0)) else None
    return Paired(difference, int((gaps > 0).sum()), int((gaps < 0).sum()), p_t, p_wilcoxon)


def holm(values: Sequence[float | None]) -> list[float | None]:
    """P-values of several tests made at once, corrected after Holm; None stays None."""
    known = sorted((value, place) for place, value in enumerate(values) if value is not None)
    corrected: list[float | None] = [None] * len(values)
    largest = 0.0
    for rank, (value, place) in enumerate(known):
        largest = max(largest, min(1.0, value * (len(known) - rank)))
        corrected[place] = largest
    return corrected
