"""The files around the library say the same as the library, and nothing about any one machine."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCES = [
    path
    for part in ("src", "examples", "benchmarks")
    for path in (ROOT / part).rglob("*")
    if path.suffix in (".py", ".in")
]


def test_the_citation_agrees_with_the_package() -> None:
    stated = dict(re.findall(r"^([\w-]+): \"?([^\"\n]+)\"?$", (ROOT / "CITATION.cff").read_text(), flags=re.MULTILINE))
    assert stated["version"] == PROJECT["version"]
    assert stated["license"] == PROJECT["license"] == "Apache-2.0"
    assert PROJECT["authors"][0]["name"] in (ROOT / "CITATION.cff").read_text()
    assert stated["cff-version"] == "1.2.0"


def test_the_license_is_the_whole_text_and_ships_with_the_package() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert PROJECT["license-files"] == ["LICENSE"]
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


@pytest.mark.parametrize("name", ["SECURITY.md", "CODE_OF_CONDUCT.md", "CITATION.cff", "LICENSE", "CHANGELOG.md"])
def test_the_readme_leads_to_every_project_file(name: str) -> None:
    assert f"({name})" in (ROOT / "README.md").read_text()


def test_no_source_names_a_folder_of_one_machine() -> None:
    assert len(SOURCES) > 150
    places = re.compile(r"shared/data|/home/\w|/work/|/root/")
    assert [str(path) for path in SOURCES if places.search(path.read_text())] == []
