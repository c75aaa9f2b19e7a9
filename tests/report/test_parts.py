from __future__ import annotations

from hushgraph.report.sections import below, mono, pill


def test_what_is_put_into_a_cell_is_escaped() -> None:
    for made in (pill("<b>", "good"), mono("<b>"), below("<b>", "<i>"), below("<b>", "")):
        assert "<b>" not in made
        assert "&lt;b&gt;" in made


def test_a_cell_with_nothing_below_has_one_line() -> None:
    assert below("4", "") == "4"
    assert below(pill("4", "bad"), "at most") == (
        '<span class="pill bad">4</span><br><span class="note">at most</span>'
    )
