from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from hushgraph.report.svg import Axis, Bar, Series, bar_chart, line_chart


def parse(figure: str) -> ET.Element:
    return ET.fromstring(figure)


def test_places_are_linear_or_logarithmic_and_cut_off() -> None:
    assert Axis("x", 0, 10).place(5, 0, 100) == pytest.approx(50)
    assert Axis("x", 1e-4, 1, log=True).place(1e-2, 0, 100) == pytest.approx(50)
    assert Axis("x", 1e-4, 1, log=True).place(0.0, 0, 100) == 0
    assert Axis("x", 0, 1).place(7, 0, 100) == 100


def test_ticks_are_round_and_inside() -> None:
    assert Axis("x", 1e-4, 1, log=True).marks() == pytest.approx((1e-4, 1e-3, 1e-2, 1e-1, 1))
    marks = Axis("x", 40, 97).marks()
    assert marks == (40, 50, 60, 70, 80, 90)


def test_a_line_chart_draws_every_series_and_a_legend() -> None:
    series = [Series("one", [0, 1], [0, 1], dots=True), Series("two & more", [0, 1], [1, 0], 1, dashed=True)]
    figure = parse(line_chart(Axis("x", 0, 1), Axis("y", 0, 1), series, title="t < u"))
    assert len(figure.findall(".//polyline")) == 2
    assert len(figure.findall(".//circle")) == 2
    assert [button.attrib["data-toggle"] for button in figure.findall(".//button")] == ["0", "1"]
    assert "two & more" in "".join(figure.itertext())


def test_a_bar_is_as_long_as_its_value() -> None:
    figure = bar_chart([Bar("a", 1.0), Bar("b", 2.0, mark=4.0)], title="t", label="epsilon")
    widths = [float(width) for width in re.findall(r'class="bar"[^>]*width="([\d.]+)"', figure)]
    assert widths[1] == pytest.approx(2 * widths[0], rel=0.01)
    parse(figure)


def test_nothing_to_compare_still_draws() -> None:
    assert parse(bar_chart([Bar("a", 0.0)], title="t", label="epsilon")) is not None
