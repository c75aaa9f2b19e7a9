"""`make fuzz` in short: altered files of every kind are refused by an error of our own, or read as before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fuzz
from hushgraph.errors import InputError


@pytest.mark.parametrize("kind", fuzz.kinds(), ids=lambda kind: kind.name)
def test_altered_files_are_refused_or_read_as_before(kind: fuzz.Kind, tmp_path: Path) -> None:
    told: list[str] = []
    counts = fuzz.fuzz(kind, 60, seed=7, work=tmp_path, tell=told.append)
    assert told == []
    assert sum(counts.values()) == 60
    assert counts["refused"] > 20  # the alterations do something


def test_the_run_sees_what_it_looks_for(tmp_path: Path) -> None:
    def read(folder: Path) -> str:
        text = (folder / "a.txt").read_bytes().decode("ascii")  # a raw exception where a byte is above 127
        if len(text) < 10:
            raise InputError("short")
        return text

    kind = fuzz.Kind("toy", lambda folder: (folder / "a.txt").write_text("a plain text of some length") and None, read)
    counts = fuzz.fuzz(kind, 200, seed=0, work=tmp_path)
    assert min(counts["raw"], counts["silent"], counts["refused"]) > 5


def test_alterations_alter(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    assert sum(fuzz.bytes_altered(b"some bytes", rng) != b"some bytes" for _ in range(50)) > 40
    assert sum(fuzz.json_altered(b'{"a": [1, {"b": 2}]}', rng) != b'{"a": [1, {"b": 2}]}' for _ in range(50)) > 40


def test_a_kind_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["fuzz.py", "collected", "reports"])  # one name, without its quotes
    with pytest.raises(SystemExit, match=r"'collected reports'.*got 'collected', 'reports'"):
        fuzz.main()
