from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgraph.errors import InputError
from hushgraph.text import number, plain, read_json, rounded_up, write_json, write_whole


def test_printed_numbers_are_rounded_up() -> None:
    assert rounded_up(7.99647) == "7.997"
    assert rounded_up(4.0) == "4"
    assert rounded_up(0.123401) == "0.1235"
    assert rounded_up(12345.6) == "1.235e+04"
    assert rounded_up(math.inf) == "inf"
    assert rounded_up(0.0) == "0"
    assert rounded_up(7.9943, 3) == "8"


@given(st.floats(1e-6, 1e6), st.integers(2, 6))
def test_no_printed_number_is_below_the_proved_one(value: float, digits: int) -> None:
    shown = float(rounded_up(value, digits))
    assert shown >= value * (1.0 - 1e-8)  # what is a rounding error away from a short number is taken for it
    assert shown <= value * (1.0 + 1.01 * 10.0 ** (1 - digits))


def test_values_for_json_keep_infinities_as_words() -> None:
    values = {"epsilon": math.inf, "nested": [(-math.inf, 1.5)], "parts": frozenset({"b", "a"}), 3: None}
    shown = plain(values)
    assert shown == {"epsilon": "inf", "nested": [["-inf", 1.5]], "parts": ["a", "b"], "3": None}
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
    assert number(shown["epsilon"]) == math.inf
    assert number(None) is None


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = write_json(tmp_path / "a.json", {"epsilon": math.inf})
    assert read_json(target) == {"epsilon": "inf"}
    assert target.stat().st_mode & 0o777 == 0o600

    def crash(*_: object) -> None:
        raise OSError("power cut")

    monkeypatch.setattr("os.replace", crash)
    with pytest.raises(OSError, match="power cut"):
        write_whole(target, "half")
    assert read_json(target) == {"epsilon": "inf"}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.json is missing"):
        read_json(tmp_path / "a.json")
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(InputError, match="damaged"):
        read_json(tmp_path / "a.json")
