from __future__ import annotations

import pytest

from hushgraph.collect import admin
from hushgraph.collect.store import SqliteStore
from hushgraph.errors import InputError


@pytest.fixture
def store(tmp_path, task_maker):
    opened = SqliteStore(tmp_path / "collect.db")
    admin.create_task(opened, task_maker())
    return opened


def test_tokens_are_long_and_different():
    tokens = {admin.new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert {len(token) for token in tokens} == {43}


def test_operator_token_is_made_once_and_stored_hashed(store):
    token = admin.make_operator_token(store)
    assert admin.make_operator_token(store) is None
    assert admin.is_operator(store, token)
    assert not admin.is_operator(store, token[:-1])
    assert not admin.is_operator(store, "")
    assert not admin.is_operator(store, "\ud800")
    assert token not in store.setting(admin.OPERATOR)


def test_a_store_without_operator_lets_nobody_in(store):
    assert not admin.is_operator(store, "")
    assert not admin.is_operator(store, admin.new_token())


def test_enrol_some_then_others(store):
    first = dict(admin.enroll(store, "survey", [3, 1]))
    assert sorted(first) == [1, 3]
    for wrong in ([1], [40], [-1], [5, 5]):
        with pytest.raises(InputError):
            admin.enroll(store, "survey", wrong)
    assert store.counts("survey") == (2, 0)
    with pytest.raises(InputError, match="known: survey"):
        admin.enroll(store, "other")


def test_token_files_are_for_their_owner_and_never_overwritten(tmp_path, store):
    tokens = admin.enroll(store, "survey", [0, 7])
    path = admin.write_secret(tmp_path / "tokens.csv", admin.tokens_csv(tokens))
    assert path.read_text().splitlines() == ["node,token", *(f"{node},{token}" for node, token in tokens)]
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(InputError, match="exists"):
        admin.write_secret(path, "other")


@pytest.mark.parametrize(("count", "shown"), [(0, 0), (9, 0), (10, 10), (19, 10), (1237, 1230)])
def test_counts_are_rounded_down(count, shown):
    assert admin.rounded(count) == shown
