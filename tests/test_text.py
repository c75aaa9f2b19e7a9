"""Numbers and text for people."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from hushgraph.text import rounded_down, rounded_up, settings_in_words, to_the_minute, visible


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


@given(st.floats(1e-6, 1e6), st.integers(2, 6))
def test_what_is_left_is_never_shown_as_more(value: float, digits: int) -> None:
    shown = float(rounded_down(value, digits))
    assert shown <= value * (1.0 + 1e-8)
    assert shown >= value * (1.0 - 1.01 * 10.0 ** (1 - digits))


def test_nothing_left_is_nothing() -> None:
    assert rounded_down(0.0) == "0"
    assert rounded_down(1.2079) == "1.207"


def test_what_steers_a_terminal_is_written_out() -> None:
    assert visible("a\x1b[2J\x07b\u202ec\nd\te é") == "a\\x1b[2J\\x07b\\x202ec\nd\te é"


def test_times_are_shown_to_the_minute() -> None:
    assert to_the_minute("2026-01-31T12:34:56+00:00") == "2026-01-31 12:34 UTC"
    assert to_the_minute("2026-01-31T12:34:56+02:00") == "2026-01-31T12:34:56+02:00"
    assert to_the_minute("") == ""


def test_settings_are_words_without_what_is_not_set() -> None:
    found = settings_in_words({"parts": 50, "removal": False, "labels": True, "cap": None, "share": 0.5})
    assert found == "parts 50, removal no, labels yes, share 0.5"
