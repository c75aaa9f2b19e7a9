from __future__ import annotations

import sqlite3
from pathlib import Path

from hushgraph.study.cell import Cell
from hushgraph.study.run import study
from hushgraph.study.standing import find_standings, is_running, read_standings
from hushgraph.study.store import State, Store, StoreLock

HALF = {"privacy": "charged", "file": None, "total": 5, "done": 2, "bad": 1, "likely": 3.0, "low": 2.0, "high": 9.0}


def ended(store: Store, seed: int, state: State = State.DONE, message: str = "") -> None:
    store.finish(Cell("main", "mine", "research", seed), "code", state, message=message, seconds=1.5)


def test_a_study_that_was_run_is_read_without_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "own_numbers.py").write_text("def half(lab, *, x):\n    return {'score': x / 2}\n")
    (folder / "halves.yaml").write_text("privacy: research\nexperiment: own_numbers:half\nsettings: {x: [1, 2]}\n")
    study(folder / "halves.yaml", workers=0)
    (one,) = find_standings([folder], last=5)
    assert (one.name, one.total, one.done, one.bad, one.state) == ("halves", 2, 2, 0, "finished")
    assert one.file == folder / "halves.yaml"
    assert one.counts == {"done": 2}
    assert {ending.cell for ending in one.last} == {"x=1, seed 0", "x=2, seed 0"}
    assert one.words == "2 of 2 runs ended"


def test_a_study_of_which_a_part_was_run_is_not_finished(tmp_path: Path) -> None:
    (tmp_path / "own_sizes.py").write_text("def half(lab, *, x):\n    return {'score': x / 2}\n")
    (tmp_path / "parts.yaml").write_text("privacy: research\nexperiment: own_sizes:half\nsettings: {x: [1, 2, 3]}\n")
    study(tmp_path / "parts.yaml", workers=0, where={"x": 2})
    (one,) = find_standings([tmp_path])
    assert (one.total, one.done, one.state) == (3, 1, "stopped")
    study(tmp_path / "parts.yaml", workers=0)
    (one,) = find_standings([tmp_path])
    assert (one.total, one.done, one.state) == (3, 3, "finished")


def test_half_a_study(tmp_path: Path) -> None:
    store = Store(tmp_path / "half.sqlite")
    ended(store, 1)
    ended(store, 2, State.FAILED, "Traceback\nValueError: no")
    store.note("half", {**HALF, "unknown": 0})
    (one,) = read_standings(store.path)
    assert (one.state, one.share, one.remaining) == ("stopped", 0.4, None)
    assert one.words == "2 of 5 runs ended, 1 of them not done"
    assert one.last[0].message == "ValueError: no"
    with StoreLock(store.path):
        (one,) = read_standings(store.path)
        assert one.state == "running"
        assert str(one.remaining) == "about 3 s (2 s to 9 s)"
        assert is_running(store.path)
    assert not is_running(store.path)


def test_results_of_older_versions_are_counted(tmp_path: Path) -> None:
    store = Store(tmp_path / "old.sqlite")
    ended(store, 1)
    with sqlite3.connect(store.path) as rows:
        rows.execute("DROP TABLE progress")
    (one,) = read_standings(store.path)
    assert (one.name, one.total, one.words) == ("old", None, "1 results")


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "text.sqlite").write_text("no database")
    with sqlite3.connect(tmp_path / "other.sqlite") as rows:
        rows.execute("CREATE TABLE people (name TEXT)")
    (tmp_path / "empty.sqlite").touch()
    Store(tmp_path / "new.sqlite").begun()
    damaged = Store(tmp_path / "damaged.sqlite")
    damaged.note("x", {"total": "many"})
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.suffix == ".sqlite"}
    assert find_standings([tmp_path, tmp_path / "none"]) == []
    assert {path: path.read_bytes() for path in before} == before


def test_no_study_file_from_elsewhere_is_named(tmp_path: Path) -> None:
    """What a file of results says is not trusted: a report would run the code that a study file names."""
    place = tmp_path / "deep" / "results"
    place.mkdir(parents=True)
    store = Store(place / "s.sqlite")
    for where, allowed in {"deep/results": True, "deep": True, ".": False}.items():
        file = tmp_path / where / "s.yaml"
        file.write_text("")
        store.note("s", {**HALF, "unknown": 0, "file": str(file)})
        (one,) = read_standings(store.path)
        assert (one.file is not None) is allowed
    for strange in ("/etc/passwd", str(place / "s.sqlite"), str(place / ".." / ".." / "s.yaml")):
        store.note("s", {**HALF, "unknown": 0, "file": strange})
        (one,) = read_standings(store.path)
        assert one.file is None
