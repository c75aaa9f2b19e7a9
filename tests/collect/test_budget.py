from __future__ import annotations

import json
import os
import stat

import pytest

from hushgraph.collect.client import LifetimeBudget
from hushgraph.errors import BudgetError, InputError, LedgerError
from hushgraph.files.writing import write_whole


def test_charges_add_up_and_stop_at_the_limit(tmp_path):
    budget = LifetimeBudget(tmp_path / "budget.json", 3.0)
    budget.charge("a", 1.0)
    budget.charge("b", 2.0)
    assert budget.spent == 3.0
    with pytest.raises(BudgetError, match="3 is spent"):
        budget.charge("c", 0.001)
    assert LifetimeBudget(tmp_path / "budget.json", 3.0).spent == 3.0


def test_the_same_task_is_charged_once(tmp_path):
    budget = LifetimeBudget(tmp_path / "budget.json", 1.0)
    budget.charge("a", 1.0)
    budget.charge("a", 1.0)
    assert budget.charges == {"a": 1.0}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": "x", "charges": {}}', b'{"charges": {"a": -1}}'])
def test_a_damaged_file_is_an_error_not_a_fresh_start(tmp_path, content):
    path = tmp_path / "budget.json"
    path.write_bytes(content)
    with pytest.raises(LedgerError):
        LifetimeBudget(path, 1.0).charge("a", 0.5)


def test_negative_charges_in_the_file_are_refused(tmp_path):
    path = tmp_path / "budget.json"
    path.write_text(json.dumps({"format": "hushgraph-lifetime/1", "charges": {"a": -5.0}}))
    with pytest.raises(LedgerError):
        _ = LifetimeBudget(path, 1.0).spent


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_must_be_a_limit(tmp_path, limit):
    with pytest.raises(InputError):
        LifetimeBudget(tmp_path / "budget.json", limit)


def test_failed_writes_keep_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, b"old")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def broken(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="disk full"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
