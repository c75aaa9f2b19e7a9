"""Results that are kept as text beside a study, and what tables and heat maps say beyond means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from hushgraph.cli import app
from hushgraph.errors import InputError
from hushgraph.study.cell import code_version
from hushgraph.study.curves import heats
from hushgraph.study.kept import keep, kept_file, read_kept
from hushgraph.study.results import Results
from hushgraph.study.run import study
from hushgraph.study.spec import Study
from hushgraph.study.store import State, Store

VALUES = {
    "name": "toy",
    "privacy": "research",
    "seeds": 2,
    "parts": [
        {"name": "noisy", "experiment": "toy_experiments:noisy", "settings": {"size": [1, 2]}, "epsilons": [1, "inf"]},
        {"name": "bad", "experiment": "toy_experiments:fails", "settings": {"how": ["refused"]}, "epsilons": [1]},
    ],
    "tables": [
        {
            "name": "Two measures",
            "values": ["value", "other"],
            "rows": ["size"],
            "where": {"part": "noisy", "epsilon": 1},
        },
        {"name": "Over epsilon", "value": "value", "rows": ["part"], "columns": "epsilon"},
        {"name": "Nothing yet", "value": "value", "rows": ["size"], "columns": "epsilon", "where": {"part": "bad"}},
    ],
    "plots": [
        {"name": "Value, by size", "value": "value", "x": "size", "series": "epsilon", "where": {"part": "noisy"}}
    ],
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "toy.yaml").write_text(yaml.safe_dump(VALUES))
    study(tmp_path / "studies" / "toy.yaml", workers=0)
    return tmp_path


def test_refused_runs_are_named_in_tables(project: Path) -> None:
    found = CliRunner().invoke(app, ["study", "table", str(project / "studies" / "toy.yaml"), "--form", "markdown"])
    assert found.exit_code == 0
    (project / "studies" / "toy.yaml").write_text(yaml.safe_dump({**VALUES, "tables": VALUES["tables"][1:2]}))
    results = Results(Study.read(project / "studies" / "toy.yaml"), Store(project / "studies" / "toy.sqlite"))
    table = results.table(results.study.views[0])
    assert any(key[0] == "bad" and column == 1.0 for key, column in table.refused)


def test_what_is_kept_stands_in_for_a_store_that_is_not_there(project: Path) -> None:
    file = project / "studies" / "toy.yaml"
    assert CliRunner().invoke(app, ["study", "keep", str(file)]).exit_code == 0
    declared = Study.read(file)
    lines = [json.loads(line) for line in kept_file(declared).read_text().splitlines()]
    assert len(lines) == 10
    assert {line["state"] for line in lines} == {"done", "refused"}
    (project / "studies" / "toy.sqlite").unlink()
    empty = Store(project / "studies" / "toy.sqlite")
    assert Results(declared, empty).rows == []
    assert len(Results(declared, empty, any_code=True).rows) == 8
    shown = CliRunner().invoke(app, ["study", "table", str(file), "--any-code", "--form", "markdown"]).output
    assert "| size | value | other |" in shown
    assert "| 2 | 20.5 ± 6.4 (2) | -2.000 ± 0.000 (2) |" in shown


def test_kept_files_that_are_damaged_are_named(project: Path) -> None:
    declared = Study.read(project / "studies" / "toy.yaml")
    results = Results(declared, Store(project / "studies" / "toy.sqlite"))
    path = keep(declared, results.by_cell)
    path.write_text(path.read_text()[:-40])
    with pytest.raises(InputError, match="kept run"):
        read_kept(declared)


def test_a_part_is_done_first_and_what_others_did_is_not_done_again(project: Path, tmp_path: Path) -> None:
    file, log = project / "studies" / "toy.yaml", tmp_path / "log"
    changed = {"name": "noisy", "experiment": "toy_experiments:noisy", "settings": {"size": [1, 2], "log": [str(log)]}}
    file.write_text(yaml.safe_dump({"name": "part", "privacy": "research", "seeds": 2, "parts": [changed]}))
    first = study(file, workers=0, where={"size": 2})
    assert first.counts == {"done": 2, "missing": 2}
    keep(first.study, first.by_cell)
    first.store.path.unlink()
    log.unlink()
    whole = study(file, workers=0, any_code=True)
    assert log.read_text().split() == ["1", "0", "1", "1"]
    assert whole.counts == {"done": 4}


def test_a_heat_map_says_what_is_reached_without_protection(tmp_path: Path) -> None:
    values = {
        "privacy": "research",
        "experiment": "toy_experiments:noisy",
        "parts": [
            {"name": "grid", "settings": {"size": [1, 2]}, "epsilons": [1, 2]},
            {"name": "clean", "settings": {"size": ["inf"]}, "epsilons": ["inf"]},
        ],
        "plots": [{"name": "heat", "kind": "heat", "value": "value", "x": "epsilon", "y": "size"}],
    }
    store = Store(tmp_path / "heat.sqlite")
    results = Results(Study.from_dict(values), store)
    for cell in results.study.cells:
        size = cell.settings["size"]
        store.finish(cell, code_version(cell.experiment), State.DONE, metrics={"value": 67.25 if size > 2 else size})
    (heat,) = heats(Results(results.study, store), results.study.views[0])
    assert heat.x == (1.0, 2.0)
    assert heat.y == (1.0, 2.0)
    assert heat.heading == "without protection 67.2"


def test_what_is_shown_has_the_digits_that_are_kept(project: Path) -> None:
    """Else a page made from a store would differ from one made from what is kept of it."""
    declared = Study.read(project / "studies" / "toy.yaml")
    cell, store = declared.cells[0], Store(project / "fine.sqlite")
    store.finish(cell, code_version(cell.experiment), State.DONE, metrics={"value": 1.0 / 3.0}, seconds=2.0 / 3.0)
    keep(declared, Results(declared, store).by_cell)
    shown, kept = (Results(declared, Store(project / name), any_code=True) for name in ("fine.sqlite", "none.sqlite"))
    assert shown.rows[0].metrics == kept.rows[0].metrics == {"value": 0.333333}
    assert Results(declared, store).rows[0].metrics == {"value": 1.0 / 3.0}
