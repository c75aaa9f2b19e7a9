from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from charges import require_sound
from hushgraph.errors import BudgetError, InputError, LedgerError
from hushgraph.ledger.identity import GraphArrays
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.store import Rows
from hushgraph.ledger.transfer import export, recover
from hushgraph.ledger.verify import verify_ledger
from toy_plans import EDGE, carry_out, sums_of


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    book = Ledger(tmp_path / "book")
    book.dataset_for(book.identify(GraphArrays(np.arange(1_000).reshape(2, 500))), "data")
    for _ in range(30):
        carry_out(book, sums_of(0.1))
    return book


def sql(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def test_a_ledger_whose_indexes_are_damaged_is_saved_whole(ledger: Ledger) -> None:
    assert ledger.path is not None
    assert ledger.folder is not None
    before, total = ledger.history(), ledger.total("data", EDGE)
    sql(ledger.path, "DROP INDEX entries_of_run", "DELETE FROM accounts")
    with pytest.raises(LedgerError, match="other tables"):
        ledger.history()
    done = recover(ledger.folder)
    assert (done["kept"], done["lost"]) == (len(before.entries), 0)
    assert ledger.history() == before
    assert ledger.total("data", EDGE) == total
    require_sound(verify_ledger(ledger))
    assert Path(done["damaged_file"]).exists()
    again = ledger.identify(GraphArrays(np.arange(1_000).reshape(2, 500)))
    assert ledger.dataset_for(again, "renamed") == "data"  # still recognized
    with pytest.raises(InputError, match="shares about"):
        ledger.dataset_for(ledger.identify(GraphArrays(np.arange(1_000).reshape(2, 500)[:, :450])), "newer")


def test_lost_entries_make_every_total_not_private_also_of_data_that_looks_new(ledger: Ledger) -> None:
    assert ledger.path is not None
    assert ledger.folder is not None
    last = ledger.history().entries[-1].number
    sql(ledger.path, "DELETE FROM entries WHERE number = 40")
    done = recover(ledger.folder)
    assert (done["kept"], done["lost"]) == (40, last + 1 - 40)
    assert done["salvaged"] == last - 40
    history = ledger.history()
    assert [entry.kind for entry in history.entries[40:42]] == ["lost", "salvaged"]
    total = ledger.total("data", EDGE)
    assert not total.private
    assert "lost" in total.reason
    carry_out(ledger, sums_of(0.1), "looks new")
    assert not ledger.total("looks new", EDGE).private
    ledger.set_limit(5.0, 1e-5, dataset="looks new", unit=EDGE)
    with pytest.raises(BudgetError, match="not private already"):
        carry_out(ledger, sums_of(0.1), "looks new")
    require_sound(verify_ledger(ledger))


@pytest.mark.parametrize("kind", ["export", "copy", "folder"])
def test_a_copy_fills_the_holes(ledger: Ledger, tmp_path: Path, kind: str) -> None:
    assert ledger.path is not None
    assert ledger.folder is not None
    export(ledger, tmp_path / "export.jsonl")
    shutil.copytree(ledger.folder, tmp_path / "folder")
    shutil.copy(ledger.path, tmp_path / "copy")
    carry_out(ledger, sums_of(0.1))  # the copies are older
    before = ledger.history()
    sql(ledger.path, "DELETE FROM entries WHERE number IN (12, 40)")
    done = recover(ledger.folder, [tmp_path / {"export": "export.jsonl"}.get(kind, kind)])
    assert done["lost"] == 0
    assert ledger.history() == before


def test_a_cut_file_is_known_to_have_been_longer_by_a_head(ledger: Ledger) -> None:
    assert ledger.path is not None
    assert ledger.folder is not None
    head = ledger.head()
    content = ledger.path.read_bytes()
    ledger.path.write_bytes(content[: len(content) // 2])
    with pytest.raises(LedgerError, match="changed or damaged"):
        ledger.history()
    done = recover(ledger.folder, heads=[head])
    assert 0 < done["kept"] < head.number
    assert done["lost"] == head.number + 1 - done["kept"]
    assert not ledger.total("data", EDGE).private


def test_nothing_is_made_up_where_nothing_is_left(ledger: Ledger, tmp_path: Path) -> None:
    assert ledger.path is not None
    assert ledger.folder is not None
    shutil.copy(ledger.path, tmp_path / "copy")
    ledger.path.write_bytes(b"")
    with pytest.raises(LedgerError, match="nothing can be saved"):
        recover(ledger.folder)
    (tmp_path / "empty").write_text("")
    with pytest.raises(LedgerError, match="nothing in it could be read"):
        recover(ledger.folder, [tmp_path / "empty"])
    assert recover(ledger.folder, [tmp_path / "copy"])["lost"] == 0
    carry_out(ledger, sums_of(0.1))


@pytest.mark.parametrize("head", [(None, "a", "b"), (1, None, "b"), (1, "a", 2)])
def test_a_head_of_other_kinds_is_named(head: tuple[object, ...]) -> None:
    rows = SimpleNamespace(fetchall=lambda: [head])
    changed = SimpleNamespace(connection=SimpleNamespace(execute=lambda _: rows), store=SimpleNamespace(where="here"))
    with pytest.raises(LedgerError, match="here: expected a number, a hash and a signature"):
        Rows.head(changed)  # type: ignore[arg-type]
