from __future__ import annotations

import re

from documentation.pages import ROOT
from skipped import GET, skipped_lines


def test_each_reason_is_named_once_with_what_to_do() -> None:
    reasons = ["Skipped: needs Chromium", "Skipped: needs Chromium", "Skipped: could not import 'captum': none"]
    assert skipped_lines(reasons) == [
        "2 tests: needs Chromium. To run: apt-get install chromium",
        "1 test: could not import 'captum': none. To run: pip install -e '.[dev]'",
    ]
    assert skipped_lines(["Skipped: too hot"]) == ["1 test: too hot."]
    assert skipped_lines([]) == []


def test_every_reason_in_the_tests_has_a_remedy() -> None:
    """The reasons that stand in the sources; those of `importorskip` without one say "could not import"."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    reasons = [reason for text in sources for reason in re.findall(r'skipif\([^\n]*reason="([^"]+)"', text)]
    assert reasons
    assert [reason for reason in reasons if not any(word in reason.lower() for word in GET)] == []
