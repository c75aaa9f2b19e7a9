from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from hushgraph.study.store import Store, StoreLock
from hushgraph.ui import reports as reporting
from hushgraph.ui.reports import StudyReports

from .conftest import Team

QUICK = """
privacy: research
experiment: quick_runs:double
settings: {x: [1, 2, 3]}
seeds: 1
"""
CODE = "def double(lab, *, x):\n    return {'score': 2.0 * x}\n"


@pytest.fixture
def quick(team: Team) -> Path:
    """A study of three runs, done."""
    from hushgraph.study.run import study

    (team.home / "quick.yaml").write_text(QUICK)
    (team.home / "quick_runs.py").write_text(CODE)
    study(team.home / "quick.yaml", workers=0)
    return team.home / "quick.yaml"


def test_a_finished_study_and_its_report(team: Team, quick: Path) -> None:
    page = team.get("studies")
    assert "3 of 3 runs ended" in page
    assert "finished" in page
    (found,) = team.web.get(f"{team.root}studies/state").json()
    assert f"{team.root}studies/{found['key']}" in page
    assert "done: 3" in team.get(f"studies/{found['key']}")
    report = team.web.get(f"{team.root}studies/{found['key']}/report")
    assert report.status_code == 200
    assert "hushgraph study" in report.text
    assert report.headers["Content-Security-Policy"].endswith("sandbox allow-scripts")


def test_looking_runs_no_code_of_the_study(team: Team, quick: Path) -> None:
    mark = team.home / "ran"
    (team.home / "quick_runs.py").write_text(f"open({str(mark)!r}, 'w')\n")
    sys.modules.pop("quick_runs", None)
    (found,) = team.web.get(f"{team.root}studies/state").json()
    team.get("studies")
    team.get(f"studies/{found['key']}")
    assert not mark.exists()


def test_a_study_that_runs_is_told_from_one_that_stopped(team: Team) -> None:
    store = Store(team.home / "half.sqlite")
    store.note(
        "half",
        {"privacy": "research", "file": None, "total": 4, "done": 1, "bad": 1, "unknown": 0}
        | dict.fromkeys(("likely", "low", "high"), 60.0),
    )
    assert "stopped" in team.get("studies")
    with StoreLock(store.path):
        page = team.get("studies")
        assert "running" in page
        assert "about 60 s left" in page
        assert "1 of them not done" in page


def test_a_report_is_made_once_for_a_state(team: Team, quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    def make(found: object, out: Path) -> None:
        made.append(out)
        out.write_text("<h1>made</h1>")

    monkeypatch.setattr(reporting, "_make", make)
    reports = StudyReports()
    (found,) = team.web.get(f"{team.root}studies/state").json()
    for _ in range(2):
        assert b"made" in reports.show(team.desk, found["key"]).body
    assert len(made) == 1
    os.utime(quick, (time.time() + 5, time.time() + 5))
    reports.show(team.desk, found["key"])
    assert len(made) == 2
    reports.end()
    assert not made[0].parent.exists()


def test_what_goes_wrong_is_said(team: Team, quick: Path) -> None:
    (found,) = team.web.get(f"{team.root}studies/state").json()
    quick.write_text("privacy: resaerch\n")
    answer = team.web.get(f"{team.root}studies/{found['key']}/report")
    assert answer.status_code == 404
    assert "its report was not made" in answer.text
    quick.unlink()
    assert "expected its study file" in team.web.get(f"{team.root}studies/{found['key']}/report").text
    shutil.rmtree(team.home / "studies", ignore_errors=True)
    (team.home / "quick.sqlite").unlink()
    assert team.web.get(f"{team.root}studies/{found['key']}").status_code == 404
    assert "No results of studies" in team.get("studies")
