"""Sizes of memory as people write them, and what they decide."""

from __future__ import annotations

from pathlib import Path

import pytest

from hushgraph.errors import InputError
from hushgraph.graph import room


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("4GiB", 4 << 30),
        ("500MB", 500_000_000),
        ("1.5 GiB", 3 << 29),
        ("2g", 2_000_000_000),
        ("2097152", 1 << 21),
        (1 << 21, 1 << 21),
        ("1KiB", 1024),
    ],
)
def test_sizes_as_they_are_written(written: str | int, meant: int) -> None:
    assert room.bytes_of(written) == meant


@pytest.mark.parametrize("written", ["much", "4 apples", "-1GiB", "0", 0, True, ""])
def test_other_words_are_refused(written: str | int) -> None:
    with pytest.raises(InputError, match="memory: expected"):
        room.bytes_of(written)


@pytest.mark.parametrize("written", ["10", 10, " 16 "])
def test_few_bytes_are_mostly_a_forgotten_unit(written: str | int) -> None:
    with pytest.raises(InputError, match=r"memory: expected a size such as 4GiB; got 1\d bytes; did you mean 1\dGiB"):
        room.bytes_of(written)


def test_without_a_size_half_of_what_is_free_within_the_limit_of_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_CGROUP", tmp_path / "none")
    free = room._free()
    assert free > 0
    (tmp_path / "max").write_text("1000000\n")
    monkeypatch.setattr(room, "_CGROUP", tmp_path / "max")
    assert room.bytes_of(None) == 500_000
    (tmp_path / "max").write_text("max\n")
    assert room._free() > 1_000_000


def test_what_fits_is_used_from_memory() -> None:
    assert room.fits(1_000, 100, 10, 44_000)
    assert not room.fits(1_000, 100, 10, 43_999)
    assert room.at_once(1) == 1 << 26
    assert room.at_once(1 << 40) == 1 << 28
