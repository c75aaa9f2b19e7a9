from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest

from hushgraph.errors import InputError, LedgerError
from hushgraph.ledger.ledger import FILE, Ledger
from hushgraph.privacy import events, units

UNIT = units.UndirectedEdge().as_dict()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    book = Ledger(tmp_path / "book")
    book.create("toy", UNIT)
    return book


def _lines(ledger: Ledger) -> list[bytes]:
    assert ledger.path is not None
    return ledger.path.read_bytes().splitlines(keepends=True)


def test_entries_are_chained_and_read_back(ledger: Ledger) -> None:
    first = ledger.append("note", {"text": "one"})
    second = ledger.append("note", {"text": "two"})
    history = ledger.history()
    assert [entry.kind for entry in history.entries] == ["ledger", "note", "note"]
    assert history.entries[2].values["previous"] == first
    assert history.last_hash == second


def test_a_ledger_in_memory_behaves_like_one_on_disk() -> None:
    book = Ledger()
    book.create("toy", UNIT)
    book.set_limit(2.0, 1e-6)
    assert book.history().limit() == {"epsilon": 2.0, "delta": 1e-6}


@pytest.mark.parametrize("damage", ["change", "remove", "swap", "insert", "header", "cut line"])
def test_any_change_to_the_file_shows(ledger: Ledger, damage: str) -> None:
    for text in ("one", "two", "three"):
        ledger.append("note", {"text": text})
    lines = _lines(ledger)
    if damage == "change":
        lines[2] = lines[2].replace(b"two", b"owt")
    elif damage == "remove":
        del lines[2]
    elif damage == "swap":
        lines[1], lines[2] = lines[2], lines[1]
    elif damage == "insert":
        lines.insert(2, lines[1])
    elif damage == "header":
        del lines[0]
    elif damage == "cut line":
        lines[2] = lines[2][:10] + b"\n"
    assert ledger.path is not None
    ledger.path.write_bytes(b"".join(lines))
    with pytest.raises(LedgerError):
        ledger.history()


def test_a_torn_last_line_is_recognized_kept_and_sealed(ledger: Ledger) -> None:
    ledger.append("note", {"text": "one"})
    assert ledger.path is not None
    torn = b'{"kind":"charge","number":2,"ru'
    with open(ledger.path, "ab") as file:
        file.write(torn)
    history = ledger.history()
    assert history.torn == torn
    ledger.append("note", {"text": "two"})
    history = ledger.history()
    assert history.torn == b""
    assert [entry.kind for entry in history.entries] == ["ledger", "note", "recovered", "note"]
    assert torn in ledger.path.read_bytes()


def test_a_sealed_torn_line_may_not_be_changed_later(ledger: Ledger) -> None:
    assert ledger.path is not None
    with open(ledger.path, "ab") as file:
        file.write(b'{"half')
    ledger.append("note", {"text": "after"})
    ledger.path.write_bytes(ledger.path.read_bytes().replace(b'{"half', b'{"hulf'))
    with pytest.raises(LedgerError):
        ledger.history()


def test_a_ledger_belongs_to_one_dataset_and_one_unit(ledger: Ledger) -> None:
    ledger.create("toy", UNIT)
    with pytest.raises(LedgerError, match="belongs to the dataset 'toy'"):
        ledger.create("other", UNIT)
    with pytest.raises(LedgerError, match="do not add up"):
        ledger.create("toy", units.Node().as_dict())


def test_missing_and_impossible_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="no ledger in"):
        Ledger(tmp_path / "nowhere").history()
    (tmp_path / "file").write_text("x")
    with pytest.raises(LedgerError, match="is a file"):
        Ledger(tmp_path / "file")


def test_reserved_names_cannot_be_forged(ledger: Ledger) -> None:
    with pytest.raises(InputError, match="hash"):
        ledger.append("note", {"hash": "0"})


def test_the_last_declared_limit_is_in_force(ledger: Ledger) -> None:
    ledger.set_limit(1.0, 1e-6)
    ledger.set_limit(2.0, 1e-6)
    assert ledger.history().limit() == {"epsilon": 2.0, "delta": 1e-6}


def _append_many(folder: Path, who: int) -> None:
    book = Ledger(folder)
    for i in range(20):
        with book.transaction():
            book.append("note", {"who": who, "i": i})


def test_processes_wait_for_each_other(ledger: Ledger) -> None:
    assert ledger.folder is not None
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_append_many, args=(ledger.folder, who)) for who in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    entries = ledger.history().entries
    assert len(entries) == 61
    for who in range(3):
        assert [e.values["i"] for e in entries if e.values.get("who") == who] == list(range(20))


def _release_forever(folder: Path, marker: Path) -> None:
    """Charge, then 'release' by writing a marker that reaches the disk: what a mechanism does, as fast as it can."""
    book = Ledger(folder)
    event = events.to_json(events.gaussian(1.0))
    with open(marker, "ab", buffering=0) as out:
        number = 0
        while True:
            number += 1
            with book.transaction():
                book.append("charge", {"run": "r", "stage": "s", "release": f"{os.getpid()}-{number}", "event": event})
            out.write(f"{os.getpid()}-{number}\n".encode())


def test_killing_at_fifty_random_moments_never_leaves_a_release_uncharged(tmp_path: Path) -> None:
    rng = random.Random(7)
    context = multiprocessing.get_context("fork")
    folder, marker = tmp_path / "book", tmp_path / "released"
    Ledger(folder).create("toy", UNIT)
    killed_with_releases = 0
    for moment in range(50):
        if moment % 10 == 0:  # keep the file short, so that many charges happen between two kills
            folder = tmp_path / f"book-{moment}"
            Ledger(folder).create("toy", UNIT)
            marker = tmp_path / f"released-{moment}"
        process = context.Process(target=_release_forever, args=(folder, marker))
        process.start()
        time.sleep(rng.uniform(0.0, 0.06))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        charged = {e.values["release"] for e in Ledger(folder).history().entries if e.kind == "charge"}
        released = set(marker.read_text().split()) if marker.exists() else set()
        assert released <= charged
        killed_with_releases += bool(released)
    assert killed_with_releases > 20


def test_the_file_holds_one_json_object_a_line(ledger: Ledger) -> None:
    ledger.append("note", {"text": "line\nbreak"})
    assert ledger.path is not None
    assert ledger.path.name == FILE
    assert [json.loads(line)["number"] for line in _lines(ledger)] == [0, 1]
