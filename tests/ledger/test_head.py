from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hushgraph.errors import InputError
from hushgraph.ledger.keys import Head, contradiction, find_heads, read_head, write_head
from hushgraph.ledger.ledger import Ledger
from toy_plans import carry_out, sums


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    book = Ledger(tmp_path / "book")
    carry_out(book, sums())
    return book


def test_a_head_is_signed_and_reads_back(ledger: Ledger, tmp_path: Path) -> None:
    head = ledger.head()
    assert head.is_genuine
    assert (head.number, head.hash) == (len(ledger.history().entries) - 1, ledger.history().last_hash)
    assert Head.from_dict(json.loads(json.dumps(head.as_dict()))) == head
    (tmp_path / "model").mkdir()
    path = write_head(tmp_path / "model", ledger)
    assert read_head(path) == read_head(tmp_path / "model") == head
    assert find_heads(tmp_path) == [(path, head)]
    with pytest.raises(InputError, match="expected a file"):
        find_heads(ledger.folder or tmp_path)
    with pytest.raises(InputError, match="expected the head of a ledger"):
        Head.from_dict({"number": 1})


def test_it_agrees_with_all_that_follows_it(ledger: Ledger) -> None:
    head = ledger.head()
    carry_out(ledger, sums())
    assert contradiction(head, ledger.history()) is None


def test_a_changed_head_is_told_from_a_changed_ledger(ledger: Ledger, tmp_path: Path) -> None:
    head, history = ledger.head(), ledger.history()
    for changed in (replace(head, number=2), replace(head, hash="0" * 64), replace(head, ledger="0" * 64)):
        assert "the head itself was changed" in str(contradiction(changed, history))
    other = Ledger(tmp_path / "other")
    carry_out(other, sums())
    assert "belongs to another ledger" in str(contradiction(head, other.history()))
