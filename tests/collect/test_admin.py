from __future__ import annotations

import os

import pytest

from hushgraph.collect import admin
from hushgraph.collect.store import SqliteStore
from hushgraph.errors import InputError, LedgerError


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


def failing(*_):
    raise OSError(28, "No space left on device")


def test_tokens_are_written_before_they_are_valid(tmp_path, task_maker):
    """Whatever keeps them from being written leaves nothing registered, and the same command works later."""
    store = SqliteStore(tmp_path / "a.db")
    with pytest.raises(OSError, match="No space"):
        admin.make_operator_token(store, failing)
    assert store.setting(admin.OPERATOR) is None
    admin.create_task(store, task_maker())
    with pytest.raises(OSError, match="No space"):
        admin.enroll(store, "survey", None, failing)
    assert store.counts("survey") == (0, 0)
    kept = []
    tokens = admin.enroll(store, "survey", None, kept.append)
    assert kept == [tokens]
    with pytest.raises(OSError, match="No space"):
        admin.reissue(store, "survey", [3], failing)
    assert store.token_hashes("survey").count(admin.token_hash(dict(tokens)[3])) == 1
    assert admin.make_operator_token(store, kept.append) == kept[-1]


def test_reissued_revoked_and_rotated(world):
    ((node, new),) = admin.reissue(world.store, "survey", [3])
    assert node == 3
    assert world.post(world.body(3)).status_code in (403, 429)
    assert world.post(world.body(3, node_token=new)).status_code in (201, 429)
    assert admin.revoke(world.store, "survey", [4]) == 1
    assert admin.revoke(world.store, "survey", [4]) == 0
    assert world.post(world.body(4)).status_code in (403, 429)
    with pytest.raises(InputError, match="node 4 has no token"):
        admin.reissue(world.store, "survey", [4])
    admin.enroll(world.store, "survey", [4])
    with pytest.raises(InputError, match="node 4 has one"):
        admin.enroll(world.store, "survey", [4])
    token = admin.rotate_operator_token(world.store)
    assert not admin.is_operator(world.store, world.operator)
    assert admin.is_operator(world.store, token)


def test_a_secret_that_cannot_be_written_leaves_no_file(tmp_path, monkeypatch):
    assert admin.write_secret(tmp_path / "new" / "folder" / "token", "x").read_text() == "x"
    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(LedgerError, match="Make room on the disk"):
        admin.write_secret(tmp_path / "token", "x")
    assert not (tmp_path / "token").exists()
