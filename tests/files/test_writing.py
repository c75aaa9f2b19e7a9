from __future__ import annotations

import errno
import json
import math
import os
import stat
from pathlib import Path

import pytest

from hushgraph.errors import InputError, LedgerError
from hushgraph.files.reading import read_json, sha256_of
from hushgraph.files.writing import (
    nothing_half_written,
    number,
    plain,
    private_folder,
    require_writable,
    write_json,
    write_whole,
)


def test_values_for_json_keep_infinities_as_words() -> None:
    values = {"epsilon": math.inf, "nested": [(-math.inf, 1.5)], "parts": frozenset({"b", "a"}), 3: None}
    shown = plain(values)
    assert shown == {"epsilon": "inf", "nested": [["-inf", 1.5]], "parts": ["a", "b"], "3": None}
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
    assert number(shown["epsilon"]) == math.inf
    assert number(None) is None


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_private_files_are_for_their_owner_only(tmp_path: Path) -> None:
    assert mode(private_folder(tmp_path / "a" / "b")) == 0o700
    assert mode(write_whole(tmp_path / "secret", "x")) == 0o600
    with pytest.raises(LedgerError, match="is a file"):
        private_folder(tmp_path / "secret")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_whole(tmp_path / "file", "old")

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    path = write_whole(tmp_path / "file", "old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(LedgerError, match=r"file: could not be written .* Make room on the disk"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.setattr(Path, "mkdir", fail)
    with pytest.raises(LedgerError, match="Make room on the disk"):
        private_folder(tmp_path / "folder")


def test_json_is_written_and_read_with_a_name_to_every_problem(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    with pytest.raises(InputError, match=r"expected a JSON file in .*file\.json is missing"):
        read_json(path)
    for content, words in (("{", "is damaged"), ("[]", "one JSON object")):
        path.write_text(content)
        with pytest.raises(InputError, match=words):
            read_json(path)
    assert mode(write_json(path, {"value": math.inf})) == 0o600
    assert read_json(path) == {"value": "inf"}
    assert sha256_of(path) != sha256_of(write_whole(tmp_path / "other", "x"))


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "old").write_text("before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LedgerError, match=r"could not be written \(No space left on device\)\. Make room"):
        write_whole(tmp_path / "old", "after")
    with pytest.raises(LedgerError, match="No space left"):
        _write_two(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_text() == "before"


def _write_two(folder: Path) -> None:
    with nothing_half_written(folder):
        (folder / "first").write_text("first")
        write_whole(folder / "second", "second")


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_writable(tmp_path / "new" / "folder")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match=r"is read-only. Name another place"):
        require_writable(tmp_path / "new" / "folder")


def test_a_place_is_tried_and_nothing_of_the_trial_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    with pytest.raises(InputError, match="which is a file"):
        require_writable(tmp_path / "file" / "below")
    with pytest.raises(InputError, match=r"name too long|Choose a shorter name"):
        require_writable(tmp_path / "a" / ("x" * 300))
    require_writable(tmp_path)
    require_writable(tmp_path / "file")
    require_writable(tmp_path / "a" / "b" / "c")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no /proc")
def test_a_place_where_only_trying_tells_is_refused() -> None:
    with pytest.raises(InputError, match="expected a place that can be written"):
        require_writable(Path("/proc/model/here"))
