"""The site builds without a warning, has every page it should have, and asks no other host for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hushgraph
from docsite import api, methods
from documentation.pages import ROOT
from hushgraph import registry

pytest.importorskip("mkdocs", reason="the site needs mkdocs: pip install 'hushgraph[docs]'")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does. Strict: a dead link or anchor is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_method_mechanism_and_command_has_a_page(site: Path) -> None:
    for kind in ("methods", "mechanisms"):
        assert {page.stem for page in (site / kind).glob("*.html")} >= set(registry.names(kind))
    assert (site / "commands" / "train.html").is_file()
    assert (site / "index.html").is_file()


def test_no_page_asks_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 100
    for page in pages:
        text = page.read_text(encoding="utf-8")
        asked = re.findall(r'(?:src|srcset)="(?:https?:)?//[^"]*"|<link[^>]*href="(?:https?:)?//[^"]*"', text)
        assert asked == [], page.name
    styles = "".join(style.read_text(encoding="utf-8") for style in site.rglob("*.css"))
    assert "url(http" not in styles
    assert "url(//" not in styles


def test_every_public_name_is_in_the_reference() -> None:
    listed = [name for group in api.names() for name in api.listed(group)]
    assert sorted({*listed} - {"torch"}) == sorted({*hushgraph.__all__} - {"__version__"})


@pytest.mark.parametrize("name", methods.names())
def test_every_method_has_its_prose_with_all_generated_parts(name: str) -> None:
    text = (ROOT / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
    for part in methods.PARTS:
        assert text.count(f"<!-- {part} -->") == 1, part
    filled = methods.filled(name, text)
    assert "<!--" not in filled
    for heading in ("## Idea", "## Guarantee", "## When to use it", "## Settings", "## Figures"):
        assert f"\n{heading}\n" in filled, heading


def test_no_page_is_about_a_method_that_is_not_there() -> None:
    written = {page.stem for page in (ROOT / "docs" / "methods").glob("*.md")}
    assert written == {*methods.names(), "index"}
