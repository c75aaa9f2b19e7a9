"""The report as Markdown and as a model card: the words of the page, and no markup from outside."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import yaml

from hushgraph.report import words
from hushgraph.report.context import read_context
from hushgraph.report.markdown import render_card, render_markdown
from hushgraph.report.sections.reporting import reporting_rows
from hushgraph.report.sections.verdict import verdict_of
from reports import context, fitted


@pytest.mark.parametrize(("method", "unit"), [("gap", "undirected-edge"), ("dp-mlp", "node"), ("lpgnn", "local")])
def test_it_says_what_the_page_says(method: str, unit: str) -> None:
    about = read_context(fitted(method, unit, 4.0))
    text = render_markdown(about)
    assert verdict_of(about).sentence in text
    assert words.claim(about.certificate) in text
    for line in words.released(about.certificate):
        assert f"- {line}" in text
    for row in reporting_rows(about):
        assert f"| {row.name} | {row.state} |" in text
    assert "not private: evaluation" in text


def test_a_card_has_front_matter_and_says_what_it_is_not_for() -> None:
    about = read_context(fitted("gap", "undirected-edge", 4.0))
    card = render_card(about)
    front = yaml.safe_load(card.split("---")[1])
    assert front["tags"] == ["graph-machine-learning", "differential-privacy", "gap"]
    for one in about.certificate.unprotected:
        assert f"- keeping secret what is not protected: {one}" in card
    assert "anything outside the house" in render_card(context(epsilon=math.inf))


def test_what_comes_from_outside_stays_text() -> None:
    about = context()
    name = "<script>x</script> | [a](b)\n# c `d`"
    changed = replace(about, certificate=replace(about.certificate, dataset=name, purpose=name))
    for text in (render_markdown(changed), render_card(changed)):
        assert "<script>" not in text
        assert "[a]" not in text
        assert "\n# c" not in text
