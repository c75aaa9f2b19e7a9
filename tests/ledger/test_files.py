from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from hushgraph.errors import InputError, LedgerError
from hushgraph.ledger.files import json_text, private_folder, read_json, sha256_of, write_private


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_private_files_are_for_their_owner_only(tmp_path: Path) -> None:
    assert mode(private_folder(tmp_path / "a" / "b")) == 0o700
    assert mode(write_private(tmp_path / "secret", "x")) == 0o600
    with pytest.raises(LedgerError, match="is a file"):
        private_folder(tmp_path / "secret")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_private(tmp_path / "file", "old")

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_private(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    path = write_private(tmp_path / "file", "old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(LedgerError, match=r"file: could not be written .* Make room on the disk"):
        write_private(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.setattr(Path, "mkdir", fail)
    with pytest.raises(LedgerError, match="Make room on the disk"):
        private_folder(tmp_path / "folder")


def test_json_is_read_with_a_name_to_every_problem(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    with pytest.raises(InputError, match="it is missing"):
        read_json(path)
    for content, words in (("{", "is damaged"), ("[]", "one JSON object")):
        path.write_text(content)
        with pytest.raises(InputError, match=words):
            read_json(path)
    path.write_text(json_text({"value": float("inf")}))
    assert read_json(path) == {"value": "inf"}
    assert sha256_of(path) != sha256_of(write_private(tmp_path / "other", "x"))
