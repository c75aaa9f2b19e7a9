"""Every page of results is what its study file, its text and the results that are kept beside it give, today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hushgraph.study.document import write_document
from hushgraph.study.kept import kept_file, read_contents
from hushgraph.study.results import Results
from hushgraph.study.spec import Study
from hushgraph.study.store import Store

ROOT = Path(__file__).resolve().parents[2]
STUDIES = ROOT / "studies"
TEMPLATES = sorted(STUDIES.glob("*.md.in"))
COMMAND = re.compile(r"#\s+hushgraph study page (studies/\S+) --any-code --out (docs/\S+)")


def page_of(template: Path) -> Path:
    """The page that the study file says its command writes."""
    file = template.with_name(template.name.removesuffix(".md.in") + ".yaml")
    found = COMMAND.search(file.read_text())
    assert found is not None, f"{file.name} begins without the command that writes its page from what is kept"
    assert found[1] == f"studies/{file.name}"
    return ROOT / found[2]


def test_every_page_of_results_has_one_study_file() -> None:
    pages = [page_of(template) for template in TEMPLATES]
    assert sorted(pages) == sorted((ROOT / "docs").glob("results*.md"))


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name.removesuffix(".md.in"))
def test_a_page_is_what_its_command_gives(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without data and store. Pictures are drawn by a library that changes: that they are there is enough."""
    monkeypatch.delenv("HUSHGRAPH_DATA", raising=False)
    monkeypatch.setattr("hushgraph.study.plots.draw", lambda results, view, out: out)
    page = page_of(template)
    file = template.with_name(template.name.removesuffix(".md.in") + ".yaml")
    declared = Study.read(file, contents=read_contents(STUDIES))
    assert kept_file(declared).is_file(), f"hushgraph study keep studies/{file.name}"
    results = Results(declared, Store(tmp_path / "none.sqlite"), any_code=True)
    written, *pictures = write_document(results, template, tmp_path / page.name)
    command = f"hushgraph study page studies/{file.name} --any-code --out docs/{page.name}"
    assert written.read_text() == page.read_text(), f"docs/{page.name} is stale: {command}"
    assert all((page.parent / "pictures" / one.name).is_file() for one in pictures), f"pictures are missing: {command}"
