from __future__ import annotations

import math
import re
from typing import Any

from hushgraph.privacy.units import UndirectedEdge
from hushgraph.report.accuracy import accuracy
from hushgraph.report.record import RunRecord


def run(method: str, epsilon: float, test: float | None = 70.0, classes: list[float | None] | None = None) -> RunRecord:
    certificate = {"epsilon": epsilon, "delta": 1e-6, "unit": UndirectedEdge().as_dict(), "method": method}
    metrics: dict[str, Any] = {"accuracy": {"train": test, "val": test, "test": test}}
    if classes is not None:
        metrics["test_by_class"] = [
            {"class": number, "train": 100 - number, "tested": 10, "accuracy": value}
            for number, value in enumerate(classes)
        ]
        metrics["test_balanced_accuracy"] = 55.5
    return RunRecord({}, certificate, metrics)


def test_runs_without_privacy_and_runs_that_read_nothing_are_labeled_levels() -> None:
    page = accuracy(run("gap", 4.0, 79.0), [run("mlp", 0.0, 47.0), run("gcn", math.inf, 95.0)])
    assert page.count('class="curve dashed"') == 2
    labels = re.findall(r'<text class="mine"[^>]*>([^<]*)</text>', page)
    assert labels == ["mlp, reads nothing protected", "gcn, no privacy"]
    levels = re.findall(r'<polyline class="curve dashed" points="([^"]*)"', page)
    ends = [[point.split(",")[1] for point in level.split()] for level in levels]
    assert all(first == last for first, last in ends)
    assert float(ends[0][0]) > float(ends[1][0])  # 47% is drawn below 95%


def test_this_run_without_privacy_is_a_level_too() -> None:
    page = accuracy(run("gcn", math.inf, 95.0), [run("gap", 4.0, 79.0)])
    assert "gcn, no privacy" in page
    assert page.count('class="curve dashed"') == 1


def test_one_run_alone_and_runs_without_figures_are_not_plotted() -> None:
    assert "<svg" not in accuracy(run("gap", 4.0), [])
    assert "<svg" not in accuracy(run("gap", 4.0), [run("mlp", 0.0, None)])
    assert "<svg" not in accuracy(run("mlp", 0.0), [run("gcn", math.inf)])


def test_labels_of_close_levels_do_not_cover_each_other() -> None:
    page = accuracy(run("gap", 4.0, 60.0), [run("gcn", math.inf, 80.0), run("sage", math.inf, 80.2)])
    heights = [float(y) for y in re.findall(r'<text class="mine" x="[\d.]+" y="([\d.]+)"', page)]
    assert len(heights) == 2
    assert abs(heights[0] - heights[1]) > 12


def test_classes_are_shown_beside_runs_with_the_same_classes() -> None:
    page = accuracy(
        run("gap", 4.0, classes=[90.0, 50.0, None]),
        [run("gap", 1.0, classes=[80.0, 30.0, None]), run("other", 1.0, classes=[80.0, 30.0]), run("mlp", 0.0)],
    )
    table = page[page.index("Test accuracy by class") :]
    assert "90.0%" in table
    assert "30.0%" in table
    assert "—" in table
    assert "gap, ε 1" in table
    assert "other" not in table
    assert "mean over classes 55.5%" in table


def test_runs_without_figures_by_class_have_no_such_table() -> None:
    assert "by class" not in accuracy(run("gap", 4.0), [])
