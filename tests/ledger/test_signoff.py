from __future__ import annotations

import stat
from pathlib import Path

import pytest

from hushgraph.errors import InputError, LedgerError
from hushgraph.ledger.keys import make_person_key, person_key
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.verify import find_run, register, sign_off, signature_problems
from toy_plans import carry_out, sums


def test_a_person_signs_with_a_key_of_their_own(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "book")
    run = carry_out(ledger, sums())
    public = register(ledger, "officer")
    assert register(ledger, "officer") == public  # once
    key = person_key("officer", ledger.folder)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert ledger.folder not in key.parents  # who can write the ledger cannot sign for others
    found = sign_off(ledger, run.identity[:6], "rejected", "officer", "too much")
    assert found["run"] == run.identity
    entry = ledger.history().entries[-1]
    assert (entry.kind, entry.values["verdict"], entry.values["note"]) == ("signoff", "rejected", "too much")
    assert signature_problems(ledger.history()) == []


def test_a_key_can_be_kept_elsewhere(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "book")
    run = carry_out(ledger, sums())
    register(ledger, "officer", tmp_path / "stick" / "me.pem")
    with pytest.raises(InputError, match="make it with `hushgraph init --as officer`"):
        sign_off(ledger, run.identity, "approved", "officer")
    sign_off(ledger, run.identity, "approved", "officer", key=tmp_path / "stick" / "me.pem")


def test_nobody_signs_with_another_key_or_under_another_name(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "book")
    run = carry_out(ledger, sums())
    register(ledger, "officer")
    make_person_key(tmp_path / "mine.pem")
    with pytest.raises(LedgerError, match="has no such key"):
        sign_off(ledger, run.identity, "approved", "officer", key=tmp_path / "mine.pem")
    with pytest.raises(LedgerError, match="has another key in this ledger"):
        register(ledger, "officer", tmp_path / "mine.pem")
    with pytest.raises(InputError, match="verdict: expected one of"):
        sign_off(ledger, run.identity, "fine", "officer")
    with pytest.raises(InputError, match="has no run 'zzz'"):
        sign_off(ledger, "zzz", "approved", "officer")
    with pytest.raises(InputError, match="in memory"):
        sign_off(Ledger.in_memory(), run.identity, "approved", "officer")


def test_a_run_is_found_by_the_beginning_of_its_id() -> None:
    assert find_run(["abc1", "abd2"], "abd") == "abd2"
    assert find_run(["ab", "abd2"], "ab") == "ab"
    with pytest.raises(InputError, match="beginning of one id"):
        find_run(["abc1", "abd2"], "ab")


def test_the_same_word_again_is_entered_once(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "book")
    run = carry_out(ledger, sums()).identity
    register(ledger, "officer")
    sign_off(ledger, run, "approved", "officer", "read")
    for note in ("", "read"):
        sign_off(ledger, run, "approved", "officer", note)
    assert len(ledger.history().of_kind("signoff")) == 1
    sign_off(ledger, run, "rejected", "officer")
    sign_off(ledger, run, "approved", "officer")
    assert [entry.values["verdict"] for entry in ledger.history().of_kind("signoff")] == [
        "approved",
        "rejected",
        "approved",
    ]
