"""The files of `studies/`: experiments can be imported, and each study says which command writes its page."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

STUDIES = Path(__file__).parents[1] / "studies"


@pytest.mark.parametrize("name", sorted(path.stem for path in STUDIES.glob("*.py")))
def test_experiments_can_be_imported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(STUDIES))
    assert importlib.import_module(name).__doc__


@pytest.mark.parametrize("name", sorted(path.name.removesuffix(".md.in") for path in STUDIES.glob("*.md.in")))
def test_a_page_names_the_command_that_writes_it_and_is_there(name: str) -> None:
    command = rf"hushgraph study page studies/{re.escape(name)}\.yaml(?: --any-code)? --out (docs/[\w.-]+\.md)"
    named = re.search(command, (STUDIES / f"{name}.yaml").read_text())
    assert named is not None
    page = (STUDIES.parent / named.group(1)).read_text()
    assert f"studies/{name}.yaml" in page
