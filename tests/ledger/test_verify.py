from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from charges import require_sound
from hushgraph.ledger.checking import Status
from hushgraph.ledger.entries import canonical, digest_of
from hushgraph.ledger.identity import GraphArrays
from hushgraph.ledger.keys import HEAD, Head, read_head, write_head
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.occasion import Occasion
from hushgraph.ledger.run import open_run
from hushgraph.ledger.verify import register, sign_off, verify_ledger
from toy_plans import DELTA, EDGE, carry_out, choice, sums, sums_of, training


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    book = Ledger(tmp_path / "book")
    book.dataset_for(book.identify(GraphArrays(np.arange(1_000).reshape(2, 500))), "data")
    book.set_limit(5.0, DELTA, dataset="data", unit=EDGE)
    for _ in range(3):
        carry_out(book, sums_of(1.0))
    book.declare_group("study", [training()], dataset="other")
    carry_out(book, training(), "other", group="study")
    open_run(book, choice(), "other", seeded=False)
    return book


def contradicted(ledger: Ledger, *heads: Path) -> set[str]:
    return {finding.what for finding in verify_ledger(ledger, heads).having(Status.CONTRADICTED)}


def sql(ledger: Ledger, *statements: str) -> None:
    assert ledger.path is not None
    with sqlite3.connect(ledger.path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def test_a_sound_ledger_is_found_sound_and_what_was_not_checked_is_said(ledger: Ledger, tmp_path: Path) -> None:
    found = verify_ledger(ledger)
    assert [f.what for f in found.having(Status.NOT_VERIFIED)] == ["heads"]
    require_sound(found)
    tmp_path.joinpath("model").mkdir()
    write_head(tmp_path / "model", ledger)
    assert verify_ledger(ledger, [tmp_path / "model"]).status is Status.VERIFIED


def test_changed_running_totals_and_sketches_are_found(ledger: Ledger) -> None:
    sql(ledger, "UPDATE accounts SET state = replace(state, '\"runs\":3', '\"runs\":2')")
    assert contradicted(ledger) == {"running totals"}
    assert any("the running total of 'data' was changed" in f.detail for f in verify_ledger(ledger).findings)
    sql(ledger, "DELETE FROM accounts WHERE dataset = 'data'", "UPDATE sketches SET content = content || ' '")
    assert contradicted(ledger) == {"running totals", "datasets"}
    sql(ledger, "DELETE FROM sketches")
    assert "datasets" in contradicted(ledger)


@pytest.mark.parametrize(
    ("table", "column", "what"), [("sketches", "content", "datasets"), ("accounts", "state", "running totals")]
)
def test_a_table_that_cannot_be_read_is_found(ledger: Ledger, table: str, column: str, what: str) -> None:
    sql(ledger, f"UPDATE {table} SET {column} = CAST(X'7BFF7D' AS TEXT)")  # not UTF-8
    assert contradicted(ledger) == {what}


def test_a_damaged_index_is_found(ledger: Ledger) -> None:
    sql(
        ledger,
        "PRAGMA writable_schema=ON",
        "DELETE FROM sqlite_master WHERE name = 'entries_of_run'",
        "PRAGMA writable_schema=OFF",
    )
    assert contradicted(ledger) == {"file", "chain"}
    assert {"entries", "sign-offs", "keys"} < {finding.what for finding in verify_ledger(ledger).findings}


# Somebody who has the keys, and writes a whole new chain


def rewrite(ledger: Ledger, change) -> None:
    """Change the values of entries, hash everything after them again, and sign with the ledger's own key."""
    assert ledger.path is not None
    keys = ledger.keys
    with sqlite3.connect(ledger.path) as connection:
        rows = connection.execute("SELECT number, kind, time, body, previous FROM entries ORDER BY number").fetchall()
        link = "0" * 64
        first = ""
        for number, kind, time, body, _ in rows:
            values = change(number, kind, json.loads(body))
            digest = digest_of(number, kind, time, canonical(values), link)
            update = "UPDATE entries SET body = ?, previous = ?, hash = ? WHERE number = ?"
            connection.execute(update, (canonical(values), link, digest, number))
            link, first = digest, first or digest
        head = Head.signed(keys, first, rows[-1][0], link, "")
        connection.execute("UPDATE head SET hash = ?, signature = ?", (link, head.signature))
    connection.close()


def lower_noise(number: int, kind: str, values: dict) -> dict:
    """Make a price smaller than its events give."""
    if kind == "open" and values["dataset"] == "data":
        values["prices"][0]["cost"] *= 0.5
    return values


def test_a_price_that_does_not_follow_from_its_events_is_found(ledger: Ledger) -> None:
    rewrite(ledger, lower_noise)
    ledger.history()  # the chain itself is sound
    assert "entries" in contradicted(ledger)


def test_a_limit_that_gives_too_much_is_found(ledger: Ledger) -> None:
    rewrite(ledger, lambda n, kind, v: v | {"cap_epsilon": 50.0} if kind == "limit" else v)
    assert "entries" in contradicted(ledger)


def test_a_run_over_the_limit_is_found(ledger: Ledger) -> None:
    def shrink(number: int, kind: str, values: dict) -> dict:
        return values | {"epsilon": 1.0, "cap_epsilon": 1.0} if kind == "limit" else values

    rewrite(ledger, shrink)
    assert any("over the limit" in f.detail for f in verify_ledger(ledger).having(Status.CONTRADICTED))


def test_an_end_that_gives_back_too_much_is_found(ledger: Ledger) -> None:
    def give_back(number: int, kind: str, values: dict) -> dict:
        if kind == "close" and values["dataset"] == "data":
            values["prices"][0]["cost"] = 0.0
        return values

    rewrite(ledger, give_back)
    assert any("gives back" in f.detail for f in verify_ledger(ledger).having(Status.CONTRADICTED))


def test_a_group_with_another_price_is_found(ledger: Ledger) -> None:
    def cheaper(number: int, kind: str, values: dict) -> dict:
        return {**values, "epsilon": 0.1} if kind == "group" else values

    rewrite(ledger, cheaper)
    assert any("group 'study'" in f.detail for f in verify_ledger(ledger).having(Status.CONTRADICTED))


@pytest.mark.parametrize("change", ["name", "plans"])
def test_a_run_in_a_group_that_did_not_declare_it_is_found(ledger: Ledger, change: str) -> None:
    def another(number: int, kind: str, values: dict) -> dict:
        if kind == "group":
            return {**values, "group": "other"} if change == "name" else {**values, "plans": []}
        return values

    rewrite(ledger, another)
    found = [f.detail for f in verify_ledger(ledger).having(Status.CONTRADICTED)]
    assert any("group 'study': expected" in detail for detail in found)


@pytest.mark.parametrize("attack", ["older copy", "cut tail", "hashed again", "new ledger", "deleted"])
def test_heads_kept_elsewhere_find_what_the_ledger_itself_cannot(ledger: Ledger, tmp_path: Path, attack: str) -> None:
    assert ledger.folder is not None
    shutil.copytree(ledger.folder, tmp_path / "copy")
    run = carry_out(ledger, sums())
    (tmp_path / "models" / "one").mkdir(parents=True)
    write_head(tmp_path / "models" / "one", ledger)
    if attack == "older copy":
        shutil.rmtree(ledger.folder)
        shutil.copytree(tmp_path / "copy", ledger.folder)
    elif attack == "cut tail":
        kept = len(Ledger(tmp_path / "copy").history().entries)
        sql(ledger, f"DELETE FROM entries WHERE number >= {kept}", f"UPDATE head SET number = {kept - 1}")
        rewrite(ledger, lambda n, kind, values: values)
    elif attack == "hashed again":
        rewrite(ledger, lambda n, kind, v: v | {"operator": "somebody else"} if v.get("run") == run.identity else v)
    else:
        shutil.rmtree(ledger.folder)
        if attack == "new ledger":
            carry_out(ledger, sums())
    found = verify_ledger(ledger, [tmp_path / "models"])
    assert found.status is Status.CONTRADICTED
    assert "heads" in {finding.what for finding in found.having(Status.CONTRADICTED)}


def test_heads_of_models_that_the_ledger_knows_are_looked_at(ledger: Ledger, tmp_path: Path) -> None:
    from hushgraph.ledger.manifest import write_manifest

    run = carry_out(ledger, sums())
    folder = tmp_path / "model"
    folder.mkdir()
    write_manifest(folder, ledger, run.identity)
    assert verify_ledger(ledger).status is Status.VERIFIED
    head = read_head(folder)
    (folder / HEAD).write_text(json.dumps({**head.as_dict(), "hash": "0" * 64}))
    assert contradicted(ledger) == {"heads"}
    (folder / HEAD).unlink()
    assert any("no longer where" in f.detail for f in verify_ledger(ledger).findings)


def test_sign_offs_are_checked(ledger: Ledger) -> None:
    run = carry_out(ledger, sums())
    register(ledger, "officer")
    sign_off(ledger, run.identity, "approved", "officer", "looked at the plan")
    assert not contradicted(ledger)
    rewrite(ledger, lambda n, kind, v: v | {"verdict": "rejected"} if kind == "signoff" else v)
    assert "sign-offs" in contradicted(ledger)


def test_a_raised_limit_that_states_its_first_filter_at_a_smaller_delta_is_found(ledger: Ledger) -> None:
    book = ledger.on(Occasion(operator="ben", purpose="decision 13"))
    book.set_limit(9.0, 2 * DELTA, dataset="data", unit=EDGE)
    assert contradicted(ledger) == set()

    def smaller(number: int, kind: str, values: dict) -> dict:
        if kind != "limit" or values["change"] != "raised":
            return values
        earlier = {**values["earlier"], "delta": 0.3 * DELTA}
        return {**values, "earlier": earlier, "cap_delta": values["delta"] - 0.3 * DELTA}

    rewrite(ledger, smaller)
    assert "entries" in contradicted(ledger)
