from __future__ import annotations

import math
import re

from hushgraph.report.context import RunContext
from reports import context, shown


def page_of(this: RunContext, *others: RunContext) -> str:
    from dataclasses import replace

    return shown("accuracy", replace(this, others=others))


def test_runs_without_privacy_and_runs_that_read_nothing_are_labeled_levels() -> None:
    page = page_of(context("gap", 4.0, 79.0), context("mlp", 0.0, 47.0), context("gcn", math.inf, 95.0))
    assert page.count('class="curve dashed"') == 2
    labels = re.findall(r'<text class="mine"[^>]*>([^<]*)</text>', page)
    assert labels == ["mlp, reads nothing protected", "gcn, no privacy"]
    levels = re.findall(r'<polyline class="curve dashed" points="([^"]*)"', page)
    ends = [[point.split(",")[1] for point in level.split()] for level in levels]
    assert all(first == last for first, last in ends)
    assert float(ends[0][0]) > float(ends[1][0])  # 47% is drawn below 95%


def test_this_run_without_privacy_is_a_level_too() -> None:
    page = page_of(context("gcn", math.inf, 95.0), context("gap", 4.0, 79.0))
    assert "gcn, no privacy" in page
    assert page.count('class="curve dashed"') == 1


def test_one_run_alone_and_runs_without_figures_are_not_plotted() -> None:
    assert "<svg" not in page_of(context("gap", 4.0))
    assert "<svg" not in page_of(context("gap", 4.0), context("mlp", 0.0, None))
    assert "<svg" not in page_of(context("mlp", 0.0), context("gcn", math.inf))


def test_labels_of_close_levels_do_not_cover_each_other() -> None:
    page = page_of(context("gap", 4.0, 60.0), context("gcn", math.inf, 80.0), context("sage", math.inf, 80.2))
    heights = [float(y) for y in re.findall(r'<text class="mine" x="[\d.]+" y="([\d.]+)"', page)]
    assert len(heights) == 2
    assert abs(heights[0] - heights[1]) > 12


def test_classes_are_shown_beside_runs_with_the_same_classes() -> None:
    page = page_of(
        context("gap", 4.0, classes=[90.0, 50.0, None], class_names=("a", "b", "c")),
        context("gap", 1.0, classes=[80.0, 30.0, None]),
        context("other", 1.0, classes=[80.0, 30.0]),
        context("mlp", 0.0),
    )
    table = page[page.index("Test accuracy by class") :]
    for part in (">a<", "90.0%", "30.0%", "—", "gap, ε 1", "mean over classes 55.5%"):
        assert part in table
    assert "other" not in table


def test_runs_without_figures_by_class_have_no_such_table() -> None:
    assert "by class" not in page_of(context("gap", 4.0))


def test_all_of_it_is_marked_as_an_evaluation() -> None:
    assert "Not private: evaluation" in page_of(context("gap", 4.0))
