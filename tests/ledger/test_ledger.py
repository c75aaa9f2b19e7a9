from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hushgraph.errors import BudgetError, InputError, LedgerError
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.store import FILE
from hushgraph.privacy import events
from toy_plans import EDGE, NODE, carry_out, sums, sums_of

UNIT = EDGE.as_dict()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    book = Ledger(tmp_path / "book")
    book.create("toy", UNIT)
    return book


def test_entries_are_chained_and_read_back(ledger: Ledger) -> None:
    first = ledger.append("note", {"text": "one"})
    second = ledger.append("note", {"text": "two", "value": float("inf")})
    entries = ledger.history().entries
    assert [entry.kind for entry in entries] == ["ledger", "dataset", "unit", "note", "note"]
    assert [entry.number for entry in entries] == list(range(5))
    assert entries[4].previous == first == entries[3].hash
    assert ledger.history().last_hash == second
    assert entries[4].values == {"text": "two", "value": "inf"}


def test_nothing_in_the_package_imports_torch() -> None:
    folder = Path(__file__).parents[2] / "src/hushgraph/ledger"
    names = [f"hushgraph.ledger.{path.stem}" for path in folder.glob("*.py") if path.stem != "__init__"]
    assert len(names) > 15
    code = f"import sys, {', '.join(names)}; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_ledger_in_memory_behaves_like_one_on_disk() -> None:
    book = Ledger.in_memory()
    assert not book.exists
    book.create("toy", UNIT)
    book.set_limit(2.0, 1e-6)
    assert book.exists
    (account,) = book.accounts()
    assert account.limit is not None
    assert (account.limit["epsilon"], account.limit["delta"]) == (2.0, 1e-6)
    assert book.history().in_memory


def test_files_are_for_their_owner_only(ledger: Ledger) -> None:
    assert ledger.folder is not None
    assert stat.S_IMODE(ledger.folder.stat().st_mode) == 0o700
    for path in ledger.folder.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def _sql(ledger: Ledger, *statements: str) -> None:
    assert ledger.path is not None
    with sqlite3.connect(ledger.path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


CHANGES = {
    "values": "UPDATE entries SET body = replace(body, 'two', 'owt') WHERE number = 4",
    "time": "UPDATE entries SET time = '2020-01-01T00:00:00+00:00' WHERE number = 4",
    "kind": "UPDATE entries SET kind = 'charge' WHERE number = 4",
    "run column": "UPDATE entries SET run = 'r' WHERE number = 4",
    "removed": "DELETE FROM entries WHERE number = 4",
    "first removed": "DELETE FROM entries WHERE number = 0",
    "tail cut": "DELETE FROM entries WHERE number = 5",
    "head": "UPDATE head SET hash = (SELECT hash FROM entries WHERE number = 4), number = 4",
    "no head": "DELETE FROM head",
    "signature": "UPDATE head SET signature = replace(signature, 'a', 'b')",
    "trigger": "CREATE TRIGGER silent BEFORE INSERT ON entries BEGIN SELECT RAISE(IGNORE); END",
    "table": "CREATE TABLE more (a)",
    "no index": "DROP INDEX entries_of_run",
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_to_the_file_shows(ledger: Ledger, change: str) -> None:
    for text in ("one", "two", "three"):
        ledger.append("note", {"text": text})
    _sql(ledger, CHANGES[change])
    with pytest.raises(LedgerError, match=FILE):
        ledger.history()


def test_a_swap_of_two_entries_shows(ledger: Ledger) -> None:
    for text in ("one", "two"):
        ledger.append("note", {"text": text})
    _sql(
        ledger,
        "UPDATE entries SET number = 99 WHERE number = 3",
        "UPDATE entries SET number = 3 WHERE number = 4",
        "UPDATE entries SET number = 4 WHERE number = 99",
    )
    with pytest.raises(LedgerError):
        ledger.history()


def test_a_cut_tail_is_noticed_before_the_next_charge(ledger: Ledger) -> None:
    ledger.append("note", {"text": "one"})
    _sql(ledger, "DELETE FROM entries WHERE number = 3")
    with pytest.raises(LedgerError, match="entries were removed"):
        ledger.append("note", {"text": "two"})


def test_a_running_total_that_was_changed_is_computed_again(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    carry_out(ledger, sums(), "toy")
    expected = ledger.total("toy", EDGE)
    _sql(ledger, "UPDATE accounts SET state = replace(state, '\"runs\":1', '\"runs\":0')")
    assert ledger.total("toy", EDGE) == expected
    assert "computed again" in caplog.text
    carry_out(ledger, sums(), "toy")  # and written again with the next entry
    assert ledger.total("toy", EDGE).epsilon == pytest.approx(2 * expected.epsilon)
    _sql(ledger, "DELETE FROM accounts")
    carry_out(ledger, sums(), "toy")
    assert ledger.total("toy", EDGE).epsilon == pytest.approx(3 * expected.epsilon)


def test_an_older_running_total_put_back_is_noticed(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    """With its genuine checksum, which whoever has a copy of the file can put back without any key."""
    assert ledger.path is not None
    ledger.set_limit(1.0, 1e-6, dataset="toy", unit=EDGE)
    with sqlite3.connect(ledger.path) as connection:
        older = connection.execute("SELECT dataset, unit, state, checksum FROM accounts").fetchone()
    connection.close()
    carry_out(ledger, sums_of(0.9), "toy")
    with sqlite3.connect(ledger.path) as connection:
        connection.execute("INSERT OR REPLACE INTO accounts VALUES (?, ?, ?, ?)", older)
    connection.close()
    with pytest.raises(BudgetError):
        carry_out(ledger, sums_of(0.9), "toy")
    assert "computed again" in caplog.text


def test_missing_and_impossible_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="no ledger in"):
        Ledger(tmp_path / "nowhere").history()
    (tmp_path / "file").write_text("x")
    with pytest.raises(LedgerError, match="is a file"):
        Ledger(tmp_path / "file")


@pytest.mark.parametrize("how", ["removed", "emptied"])
def test_a_file_that_is_gone_is_not_taken_for_a_new_ledger(ledger: Ledger, how: str) -> None:
    assert ledger.path is not None
    assert ledger.folder is not None
    ledger.path.unlink() if how == "removed" else ledger.path.write_bytes(b"")
    again = Ledger(ledger.folder)
    assert again.exists
    with pytest.raises(LedgerError, match="is gone"):
        again.append("note", {"text": "two"})
    with pytest.raises(LedgerError, match="is gone"):
        again.history()


def test_a_start_that_was_interrupted_is_carried_on(tmp_path: Path) -> None:
    folder = tmp_path / "book"
    (folder / "keys").mkdir(parents=True)
    (folder / "keys" / "secret").write_text("abc")  # the process died while it made the keys
    (folder / FILE).write_bytes(b"")
    Ledger(folder).append("note", {"text": "one"})
    assert [entry.kind for entry in Ledger(folder).history().entries] == ["ledger", "note"]


def test_a_first_transaction_that_was_cut_short_never_happened(tmp_path: Path) -> None:
    """The pages of the new file are on the disk, and so is the journal that undoes them."""
    folder = tmp_path / "book"

    def begin_and_die() -> None:
        book = Ledger(folder)
        with book.transaction() as rows:
            rows.connection.execute("PRAGMA cache_spill=1")
            rows.connection.execute("PRAGMA cache_size=1")
            for number in range(2_000):  # more than fits into the cache: pages go to the file before the end
                rows.add_sketch(f"{number:064x}", "x" * 500)
            os.kill(os.getpid(), signal.SIGKILL)

    process = multiprocessing.get_context("fork").Process(target=begin_and_die)
    process.start()
    process.join()
    assert (folder / FILE).stat().st_size > 0
    assert not Ledger(folder).exists
    with pytest.raises(LedgerError, match="no ledger in"):
        Ledger(folder).history()
    Ledger(folder).append("note", {})
    assert Ledger(folder).exists


def test_keys_that_were_replaced_or_lost_are_noticed(ledger: Ledger, tmp_path: Path) -> None:
    assert ledger.folder is not None
    other = Ledger(tmp_path / "other")
    other.append("note", {})
    key = ledger.folder / "keys" / "ledger.pem"
    own = key.read_bytes()
    key.write_bytes((tmp_path / "other" / "keys" / "ledger.pem").read_bytes())
    with pytest.raises(LedgerError, match="not those it began with"):
        ledger.append("note", {})
    key.write_bytes(own)
    secret = (ledger.folder / "keys" / "secret").read_text()
    (ledger.folder / "keys" / "secret").write_text(secret[::-1].strip())
    with pytest.raises(LedgerError, match="not those it began with"):
        ledger.append("note", {})
    (ledger.folder / "keys" / "secret").unlink()
    with pytest.raises(LedgerError, match="secret"):
        ledger.append("note", {})
    assert len(ledger.history().entries) == 3  # reading needs no key
    assert ledger.accounts()[0].runs == 0


def test_another_kind_of_file_is_named(ledger: Ledger) -> None:
    assert ledger.path is not None
    ledger.path.write_bytes(b"not a database at all, but long enough to look at" * 20)
    with pytest.raises(LedgerError, match="changed or damaged"):
        ledger.history()


def test_a_transaction_is_whole_or_nothing(ledger: Ledger) -> None:
    def write_and_fail() -> None:
        with ledger.transaction():
            ledger.append("note", {"text": "one"})
            assert len(ledger.history().entries) == 4  # visible inside
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        write_and_fail()
    assert len(ledger.history().entries) == 3


def test_a_limit_says_who_set_it_and_needs_a_dataset_where_there_are_several(ledger: Ledger) -> None:
    found = ledger.set_limit(1.0, 1e-6)
    assert (found["dataset"], found["change"]) == ("toy", "set")
    assert ledger.history().entries[-1].values["operator"] == "tester"
    ledger.create("other", UNIT)
    with pytest.raises(InputError, match="the ledger has 2"):
        ledger.set_limit(2.0, 1e-6)
    ledger.create("other", NODE.as_dict())
    with pytest.raises(InputError, match="unit: expected one"):
        ledger.set_limit(2.0, 1e-6, dataset="other")
    ledger.set_limit(2.0, 1e-6, dataset="other", unit=NODE)


def _append_many(folder: Path, who: int) -> None:
    book = Ledger(folder, lock_timeout=60.0)
    for i in range(20):
        with book.transaction():
            book.append("note", {"who": who, "i": i})


def test_processes_wait_for_each_other(ledger: Ledger) -> None:
    assert ledger.folder is not None
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_append_many, args=(ledger.folder, who)) for who in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    entries = ledger.history().entries
    assert len(entries) == 3 + 160
    for who in range(8):
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


def test_killing_at_random_moments_never_leaves_a_release_uncharged_or_a_ledger_unusable(tmp_path: Path) -> None:
    rng = random.Random(7)
    context = multiprocessing.get_context("fork")
    folder, marker = tmp_path / "book", tmp_path / "released"
    for moment in range(30):
        if moment % 10 == 0:  # a new one now and then, so that some are killed while they begin
            folder, marker = tmp_path / f"book-{moment}", tmp_path / f"released-{moment}"
        before = marker.stat().st_size if marker.exists() else 0
        process = context.Process(target=_release_forever, args=(folder, marker))
        process.start()
        while moment % 2 and not (marker.exists() and marker.stat().st_size > before):
            time.sleep(0.001)  # every second one has released something before it is killed
        time.sleep(rng.uniform(0.0, 0.04))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        book = Ledger(folder)
        book.append("note", {"text": "usable"})
        charged = {e.values["release"] for e in book.history().entries if e.kind == "charge"}
        released = set(marker.read_text().split()) if marker.exists() else set()
        assert released <= charged
        assert released or moment % 2 == 0


def test_an_export_form_of_an_entry_is_one_json_object(ledger: Ledger) -> None:
    ledger.append("note", {"text": "line\nbreak"})
    shown = json.loads(json.dumps(ledger.history().entries[-1].as_dict()))
    assert set(shown) == {"number", "kind", "time", "values", "previous", "hash"}
