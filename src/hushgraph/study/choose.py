"""Choosing the best setting of a study, with what the choice costs beside the result. It is never silent."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hushgraph.errors import UnprovenError
from hushgraph.study.stats import Summary, summarize
from hushgraph.study.views import Choice

if TYPE_CHECKING:
    from hushgraph.study.cost import Cost, TuningCost
    from hushgraph.study.results import Results, Row
    from hushgraph.study.spec import Study

_APART = ("dataset", "method", "unit", "epsilon", "delta", "label_share", "inference", "paper_mode")

_NAMES = ("dataset", "method", "unit")


@dataclass(frozen=True)
class Chosen:
    """The best setting for one combination of the other axes."""

    place: dict[str, Any]
    best: dict[str, Any]
    tried: int
    score: float
    summary: Summary


def choose(results: Results, choice: Choice, value: str = "test_accuracy") -> list[Chosen]:
    """For each combination of the other axes the setting with the best mean score, and the measure `value` there."""
    grouped: dict[tuple[Any, ...], dict[tuple[Any, ...], list[Row]]] = defaultdict(lambda: defaultdict(list))
    apart = [axis for axis in _APART if axis not in choice.over]
    for row in results.rows:
        scored = row.metrics.get(choice.by) is not None and row.metrics.get(value) is not None
        if scored and choice.concerns(row.cell):
            place = tuple(row.cell.axis(axis) for axis in apart)
            grouped[place][tuple(row.cell.axis(axis) for axis in choice.over)].append(row)
    varied = {axis for number, axis in enumerate(apart) if axis in _NAMES or len({one[number] for one in grouped}) > 1}
    found = []
    for place, settings in grouped.items():
        means = {
            one: statistics.fmean(float(row.metrics[choice.by] or 0.0) for row in rows)
            for one, rows in settings.items()
        }
        best = (max if choice.largest else min)(means, key=lambda one: means[one])
        summary = summarize([float(row.metrics[value] or 0.0) for row in settings[best]])
        assert summary is not None
        shown = {axis: one for axis, one in zip(apart, place) if axis in varied and one is not None}
        found.append(Chosen(shown, dict(zip(choice.over, best)), len(settings), means[best], summary))
    return found


def _mean(rows: Sequence[Row], name: str) -> float:
    return statistics.fmean(float(row.metrics[name] or 0.0) for row in rows)


def require_allowed(study: Study, cost: Cost) -> None:
    """In a charged study a choice by scores that nobody charged is refused."""
    if study.privacy != "charged":
        return
    bad = [one for one in cost.tuning if not one.free_scores]
    if bad:
        raise UnprovenError(
            f"choose: scores on private labels are not charged (unit '{bad[0].unit}'); use `experiment: select`, which "
            "is, or declare `scores: public` if they are computed from public data alone"
        )


def price_words(one: TuningCost, privacy: str) -> str:
    """What a choice costs, in a sentence."""
    from hushgraph.text import rounded_up

    words = (
        f"{one.dataset}, unit {one.unit}: choosing among {one.settings} settings looked at {one.runs} runs of epsilon "
        f"{rounded_up(one.one)} each, together epsilon at most {rounded_up(one.all)} at delta {one.delta:g}"
    )
    scores = "the scores add nothing" if one.free_scores else "the scores on private labels are not even in that"
    if privacy == "research":
        return f"{words}; {scores}. Research: none of it was charged, and the best result is not private"
    return f"{words}, all charged; {scores}"
