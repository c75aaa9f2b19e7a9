from __future__ import annotations

import math

from hushgraph.report.context import read_context
from hushgraph.text import rounded_up
from reports import context, fitted, shown


def test_every_stage_has_a_bar_a_row_and_its_parameters() -> None:
    about = read_context(fitted("gap", "node", 4.0))
    page = shown("budget", about)
    assert page.count('class="bar"') == len(about.stages) == 3
    for cost in about.stages:
        assert f"{cost.charge.scale:.4g}" in page
        assert rounded_up(cost.epsilon) in page
        assert f">{rounded_up(cost.charge.sensitivity)}<" in page
    assert "sample_rate 0.5, steps 2" in page
    assert "bars sum to more than the total" in page


def test_stages_that_read_only_what_is_public_are_named() -> None:
    page = shown("budget", read_context(fitted("gap", "undirected-edge", 4.0)))
    assert "all they read is public: encoder and classifier." in page
    assert "more than the total" not in page


def test_reports_of_randomizers_have_no_scale() -> None:
    page = shown("budget", read_context(fitted("lpgnn", "local", 4.0)))
    assert page.count(">—</td>") == 4
    assert "multi-bit" in page


def test_runs_without_a_finite_cost_have_no_bars() -> None:
    assert "Nothing that depends on the protected unit" in shown("budget", context(epsilon=0.0))
    page = shown("budget", read_context(fitted("gcn", "undirected-edge", math.inf)))
    assert "protects nothing" in page
    assert "edges: raw, no noise" in page
    assert "<svg" not in page
