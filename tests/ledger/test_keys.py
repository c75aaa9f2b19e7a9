from __future__ import annotations

from pathlib import Path

import pytest

from hushgraph.errors import InputError, LedgerError
from hushgraph.ledger.keys import Keys, is_signed, make_person_key, person_key, read_private_key


def test_keys_read_back_and_sign(tmp_path: Path) -> None:
    keys = Keys.new()
    keys.write(tmp_path)
    again = Keys.read(tmp_path)
    assert again.secret == keys.secret
    assert again.public == keys.public
    assert is_signed("text", again.sign("text"), keys.public)
    assert not is_signed("texts", again.sign("text"), keys.public)
    assert not is_signed("text", again.sign("text"), Keys.new().public)
    assert not is_signed("text", "no signature", keys.public)


def test_each_purpose_has_its_own_key() -> None:
    keys = Keys.new()
    assert keys.derived("identity") != keys.derived("checksum")
    assert keys.checksum("a") != Keys.new().checksum("a")


def test_damaged_keys_are_named(tmp_path: Path) -> None:
    Keys.new().write(tmp_path)
    (tmp_path / "keys" / "secret").write_text("abcd")
    with pytest.raises(LedgerError, match="expected 32 bytes; got 2"):
        Keys.read(tmp_path)
    (tmp_path / "keys" / "ledger.pem").write_text("nothing")
    with pytest.raises(LedgerError, match=r"Ed25519 key in .*ledger\.pem"):
        read_private_key(tmp_path / "keys" / "ledger.pem")


def test_a_persons_key_is_made_once(tmp_path: Path) -> None:
    path = person_key("a.officer", tmp_path)
    assert make_person_key(path) == make_person_key(path)
    for name in ("", "../x", "ledger", ".hidden", "a/b"):
        with pytest.raises(InputError, match="name: expected letters"):
            person_key(name, tmp_path)
