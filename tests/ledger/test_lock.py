from __future__ import annotations

import json
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from hushgraph.errors import LedgerError
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.lock import held, holder


def _hold(folder: Path, ready: Path, seconds: float) -> None:
    with held(folder):
        ready.write_text("held")
        time.sleep(seconds)


@pytest.fixture
def busy(tmp_path: Path):
    """A ledger that another process holds for two seconds and a half."""
    folder, ready = tmp_path / "book", tmp_path / "ready"
    Ledger(folder).append("note", {})
    process = multiprocessing.get_context("fork").Process(target=_hold, args=(folder, ready, 2.5))
    process.start()
    while not ready.exists():
        time.sleep(0.01)
    yield folder, process
    process.kill()
    process.join()


def test_whoever_waits_too_long_is_told_for_whom(busy) -> None:
    folder, process = busy
    with pytest.raises(LedgerError, match=rf"held by process {process.pid} on \S+ since \S+ \(.+\), and 0.2 s have"):
        Ledger(folder, lock_timeout=0.2).append("note", {})
    assert len(Ledger(folder).history().entries) == 2  # reading needs no lock


def test_a_wait_is_announced_and_ends_when_the_holder_is_gone(busy, caplog: pytest.LogCaptureFixture) -> None:
    folder, process = busy
    Ledger(folder, lock_timeout=30.0).append("note", {})
    assert f"held by process {process.pid}" in caplog.text
    assert len(Ledger(folder).history().entries) == 3


def test_a_lock_dies_with_its_holder(busy) -> None:
    folder, process = busy
    process.kill()
    process.join()
    Ledger(folder, lock_timeout=0.5).append("note", {})
    assert Ledger(folder).history().entries[-1].kind == "note"


def test_the_holder_is_named_while_it_holds(tmp_path: Path) -> None:
    with held(tmp_path):
        assert f"process {os.getpid()}" in holder(tmp_path)
        assert set(json.loads((tmp_path / ".lock.holder").read_text())) == {"pid", "host", "command", "since"}
    assert holder(tmp_path) == "held by a process that left no name"
