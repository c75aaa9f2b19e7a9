from __future__ import annotations

from pathlib import Path

import pytest

from hushgraph.ledger.project import Project, default_ledger


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of no project, and a user's data folder elsewhere."""
    monkeypatch.delenv("HUSHGRAPH_LEDGER")
    monkeypatch.setattr("platformdirs.user_data_dir", lambda name: str(tmp_path / "home" / name))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_nearest_folder_above_is_found(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (outside / ".hushgraph").mkdir()
    (outside / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(outside / "a" / "b")
    assert Project.find().folder == outside / ".hushgraph"
    (outside / "a" / ".hushgraph").mkdir()
    assert Project.find().folder == outside / "a" / ".hushgraph"
    assert Project.find(outside).folder == outside / ".hushgraph"


def test_without_a_project_the_users_data_folder_is_used(outside: Path) -> None:
    assert Project.find().folder == outside / "home" / "hushgraph"
    assert not default_ledger().exists  # made when the first run is entered
    default_ledger().append("note", {})
    assert default_ledger().exists


def test_a_named_folder_comes_first(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (outside / ".hushgraph").mkdir()
    monkeypatch.setenv("HUSHGRAPH_LEDGER", str(outside / "named"))
    assert default_ledger().folder == outside / "named"
    assert default_ledger(outside / "given").folder == outside / "given"
