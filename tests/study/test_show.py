"""Tables, plots, exports and the page, from a store that was filled by hand."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import pytest

from browsing import DESKTOP, PHONE, browsing, cut_off, needs_browser, sheets
from hushgraph.errors import InputError
from hushgraph.study.cell import code_version
from hushgraph.study.choose import choose
from hushgraph.study.cost import Cost, Together, TuningCost
from hushgraph.study.curves import heats, panels
from hushgraph.study.export import in_form, runs_csv, table_as_dict
from hushgraph.study.page import write_study_page
from hushgraph.study.plots import draw
from hushgraph.study.results import Results
from hushgraph.study.spec import Study
from hushgraph.study.store import State, Store
from hushgraph.study.views import View

VALUES = {
    "privacy": "research",
    "name": "shown",
    "datasets": ["campus", "digits"],
    "methods": ["gap", "mlp"],
    "epsilons": [1, 4, "inf"],
    "seeds": 4,
    "parts": [
        {"name": "methods"},
        {"name": "hops", "methods": ["gap"], "settings": {"hops": [1, 2]}, "epsilons": [1, 4]},
    ],
    "choose": {"by": "val_accuracy", "over": ["hops"]},
    "tables": [{"name": "main", "baseline": "mlp", "where": {"part": "methods"}}],
    "plots": [
        {"name": "curves", "where": {"part": "methods"}},
        {"name": "heat", "kind": "heat", "x": "hops", "y": "epsilon", "where": {"part": "hops"}},
    ],
}
COST = Cost((), (Together("campus", "undirected-edge", 3, 2.0, 1e-5, 1),), ())


def filled(tmp_path: Path, values: dict[str, object] = VALUES, left_out: str = "") -> Results:
    study, store = Study.from_dict(values), Store(tmp_path / "shown.sqlite")
    for cell in study.cells:
        level = 90.0 if math.isinf(cell.epsilon or 0.0) else 60.0 + 5.0 * (cell.epsilon or 0.0)
        level += (10.0 if cell.axis("method") == "gap" else 0.0) + 3.0 * (cell.axis("hops") or 0) + cell.seed % 3
        if str(cell.axis("dataset")) != left_out:
            metrics: dict[str, float | None] = {"test_accuracy": level, "val_accuracy": level - 1.0, "odd": None}
            store.finish(cell, code_version(cell.experiment), State.DONE, metrics=metrics, seconds=2.0)
    return Results(study, store)


def test_a_table_has_means_intervals_and_comparisons_in_pairs(tmp_path: Path) -> None:
    table = filled(tmp_path).table(Study.from_dict(VALUES).views[0])
    entry = table[("campus", 1.0), "gap"]
    assert entry is not None
    assert entry.summary.mean == pytest.approx(75.75)
    assert entry.paired is not None
    assert entry.paired.difference.mean == pytest.approx(10.0)
    assert (entry.paired.won, entry.paired.lost) == (4, 0)
    assert table.row_keys[:3] == (("campus", 1.0), ("campus", 4.0), ("campus", math.inf))
    assert table.column_keys == ("gap", "mlp")


def test_nothing_is_averaged_over_in_silence(tmp_path: Path) -> None:
    results = filled(tmp_path)
    by_dataset = results.table(rows=("dataset",), where={"part": "methods"})
    assert by_dataset.rows == ("dataset", "epsilon")
    everything = results.table(rows=("dataset",))
    assert set(everything.rows) == {"dataset", "epsilon", "part", "hops"}


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    results = filled(tmp_path, left_out="digits")
    assert "digits" not in in_form(results.table(where={"part": "methods"}), "markdown")
    with pytest.raises(InputError, match="did you mean 'test_accuracy'"):
        results.table(value="tast_accuracy")
    with pytest.raises(InputError, match="no 'hopps'"):
        results.table(rows=("hopps",))
    with pytest.raises(InputError, match="no column 'sage'"):
        results.table(baseline="sage", where={"part": "methods"})


def test_exports(tmp_path: Path) -> None:
    results = filled(tmp_path)
    table = results.table(results.study.views[0])
    assert "| campus | 1 | 75.8 ± 1.5 (4)" in in_form(table, "markdown")
    assert "not private: evaluation" in in_form(table, "markdown")
    assert r"75.8 $\pm$ 1.5 (4)" in in_form(table, "latex")
    assert "[" in in_form(table, "latex", "bootstrap")
    lines = list(csv.DictReader(io.StringIO(in_form(table, "csv"))))
    assert len(lines) == 12
    assert float(lines[0]["mean"]) == pytest.approx(75.75)
    runs = list(csv.DictReader(io.StringIO(runs_csv(results))))
    assert len(runs) == len(results.rows) == 80
    assert runs[0]["odd"] == ""
    assert len(table_as_dict(table)["entries"]) == 12
    with pytest.raises(InputError, match="did you mean 'latex'"):
        in_form(table, "latx")


def test_curves_have_a_panel_for_each_dataset_and_infinity_is_a_level(tmp_path: Path) -> None:
    results = filled(tmp_path)
    found = panels(results, results.study.views[1])
    assert [one.title for one in found] == ["campus", "digits"]
    gap, mlp = found[0].curves
    assert (gap.name, mlp.name) == ("gap", "mlp")
    assert gap.x == (1.0, 4.0)
    assert gap.level is not None
    assert gap.level.mean == pytest.approx(100.75)
    grid = heats(results, results.study.views[2])
    assert [one.title for one in grid] == ["dataset campus", "dataset digits"]
    assert grid[0].means == ((pytest.approx(78.75), pytest.approx(81.75)), (pytest.approx(93.75), pytest.approx(96.75)))
    with pytest.raises(InputError, match="axis of numbers"):
        panels(results, View("p", "lines", x="method"))


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_plots_are_drawn(tmp_path: Path, ending: str) -> None:
    results = filled(tmp_path)
    for number, view in enumerate(results.study.views[1:]):
        path = draw(results, view, tmp_path / f"{number}.{ending}")
        assert path.stat().st_size > 5_000
    with pytest.raises(InputError, match="ends in"):
        draw(results, results.study.views[1], tmp_path / "plot.txt")


def test_the_best_setting_is_chosen_by_its_score_and_the_price_stands_beside_it(tmp_path: Path) -> None:
    results = filled(tmp_path)
    assert results.study.choose is not None
    found = choose(results, results.study.choose)
    assert {(one.place["dataset"], one.place["epsilon"], one.best["hops"]) for one in found} == {
        (dataset, epsilon, 2) for dataset in ("campus", "digits") for epsilon in (1.0, 4.0)
    }
    price = TuningCost("campus", "undirected-edge", 2, 8, 1.0, 3.5, 1e-5, True)
    page = write_study_page(results, tmp_path / "p.html", cost=Cost((), (), (price,))).read_text()
    assert "choosing among 2 settings looked at 8 runs of epsilon 1 each, together epsilon at most 3.5" in page
    assert "none of it was charged" in page


def test_the_page_of_five_hundred_runs_is_one_file_of_less_than_five_megabytes(tmp_path: Path) -> None:
    results = filled(tmp_path, {**VALUES, "seeds": 25})
    assert len(results.rows) == 500
    path = write_study_page(results, tmp_path / "page.html", cost=COST)
    text = path.read_text()
    assert path.stat().st_size < 1_000_000
    assert "http" not in text.replace("http-equiv", "")
    assert text.count("<svg") == 2
    assert "Research" in text


_LABELS_CUT = """() => [...document.querySelectorAll('.cards td')].filter(cell => {
  const label = getComputedStyle(cell, '::before');
  return -parseFloat(label.marginLeft) > parseFloat(getComputedStyle(cell).paddingLeft);
}).length"""
"""How many names of columns, which a narrow screen shows before their values, begin outside their cell."""


@pytest.mark.slow
@needs_browser
def test_the_page_of_five_hundred_runs_opens_in_two_seconds(tmp_path: Path) -> None:
    path = write_study_page(filled(tmp_path, {**VALUES, "seeds": 25}), tmp_path / "page.html", cost=COST)
    took = []
    with browsing() as page:
        for _ in range(3):
            page.goto(path.as_uri())
            took.append(page.evaluate("performance.getEntriesByType('navigation')[0].duration") / 1000.0)
        assert page.locator("svg").first.is_visible()
        page.get_by_text("All 500 runs").click()
        assert page.get_by_text("epsilon 4, hops=2, seed 24").first.is_visible()
        for size in (DESKTOP, PHONE):
            page.set_viewport_size(size)
            assert cut_off(page) == []
        assert page.complaints == []
        assert page.evaluate(_LABELS_CUT) == 0
        page.reload()
        assert sheets(page.pdf(format="A4")) <= 4  # runs that were not opened stay off the paper
    assert min(took) < 2.0


def test_results_of_other_code_are_counted_on_the_page(tmp_path: Path) -> None:
    study, store = Study.from_dict(VALUES), Store(tmp_path / "shown.sqlite")
    for cell in study.cells:
        store.finish(cell, "another", State.DONE, metrics={"test_accuracy": 50.0, "val_accuracy": 50.0})
    page = write_study_page(Results(study, store, any_code=True), tmp_path / "p.html", cost=COST).read_text()
    assert f"{len(study.cells)} of them were made by other versions of the code" in page
    page = write_study_page(Results(study, store), tmp_path / "p.html", cost=COST).read_text()
    assert f"{len(study.cells)} of the missing ones were made by other versions of the code" in page


def test_a_published_figure_stands_beside_ours_also_where_nothing_was_run(tmp_path: Path) -> None:
    places = [
        {"dataset": "campus", "epsilon": 1, "method": "gap", "is": 70.5, "within": 0.4},
        {"method": "mlp", "is": 50},
        {"dataset": "reddit", "epsilon": 1, "method": "gap", "is": "97.5"},
    ]
    table = {"name": "beside", "where": {"part": "methods"}, "published": places}
    results = filled(tmp_path, {**VALUES, "tables": [table]})
    shown = results.table(results.study.views[0])
    text = in_form(shown, "markdown")
    assert "(4) / 70.5 ± 0.4 |" in text
    assert text.count("(4) / 50 |") == 6
    assert "| reddit | 1 | not run / 97.5 | not run / 50 |" in text
    assert "After a slash: the published figure" in text
    rows = list(csv.DictReader(io.StringIO(in_form(shown, "csv"))))
    assert [row["published"] for row in rows if row["method"] == "mlp"] == ["50.0"] * 6
    entry = next(one for one in table_as_dict(shown)["entries"] if one["method"] == "gap")
    assert (entry["published"], entry["published_half_width"]) == (70.5, 0.4)


def test_a_published_figure_needs_a_number_and_an_axis_of_the_study() -> None:
    with pytest.raises(InputError) as caught:
        Study.from_dict({**VALUES, "tables": [{"name": "beside", "published": [{"method": "gap"}]}]})
    assert "tables[0].published[0].is: expected the published figure, one number; got None" in str(caught.value)
    with pytest.raises(InputError, match="no axis 'school' in this study"):
        Study.from_dict({**VALUES, "tables": [{"name": "beside", "published": [{"school": "a", "is": 1}]}]})
