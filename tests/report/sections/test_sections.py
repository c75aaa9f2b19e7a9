"""Sections register themselves, in one file each, and follow each other as they say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hushgraph.errors import InputError
from hushgraph.report import sections
from hushgraph.report.context import RunContext
from hushgraph.report.page import render
from hushgraph.report.sections import all_sections, section
from reports import context


@pytest.fixture(autouse=True)
def _forget_new_ones() -> Iterator[None]:
    all_sections()
    before = dict(sections._known)
    yield
    sections._known.clear()
    sections._known.update(before)


def test_every_file_of_the_folder_holds_one_section() -> None:
    files = {path.stem for path in Path(sections.__path__[0]).glob("*.py")} - {"__init__"}
    assert files == {one.name for one in all_sections()}
    assert all(one.values.__module__.endswith(one.name) for one in all_sections())


def test_a_new_section_needs_nothing_but_itself_and_is_escaped() -> None:
    @section("risk", "Risk", after="claim", template="<p>{{ words }}</p>")
    def risk(about: RunContext) -> dict[str, Any]:
        return {"words": f"<{about.method}>"}

    names = [one.name for one in all_sections()]
    assert names.index("risk") > names.index("claim")
    page = render(context())
    assert "<p>&lt;gap&gt;</p>" in page
    assert '<a href="#risk">Risk</a>' in page


def test_places_that_do_not_exist_and_circles_are_refused() -> None:
    section("lost", "Lost", after="clam", template="")(dict)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="did you mean 'claim'"):
        all_sections()
    section("lost", "Lost", after="lost", template="")(dict)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="in a circle: lost"):
        all_sections()


def test_a_taken_name_is_refused() -> None:
    with pytest.raises(InputError, match="'claim' exists already"):
        section("claim", "Mine", template="")(lambda about: {})
