"""The code in the README runs, its commands exist, and links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hushgraph import registry
from hushgraph.cli import app
from importing.tables_of_people import write_people

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def _blocks(page: Path, language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [block for found, block in fenced if found == language]


def test_the_readme_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = _blocks(ROOT / "README.md", "python")
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert "differentially private for the unit 'undirected-edge'" in " ".join(capsys.readouterr().out.split())


def test_the_readme_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HUSHGRAPH_LEDGER")  # the project's own, which `hushgraph init` makes here
    write_people(tmp_path, count=300)
    commands = [
        line.split("#")[0].strip()
        for block in _blocks(ROOT / "README.md", "")
        for line in block.splitlines()
        if line.startswith("hushgraph ")
    ]
    assert len(commands) >= 4
    for command in commands:
        result = CliRunner().invoke(app, shlex.split(command)[1:])
        assert result.exit_code == 0, f"{command}\n{result.output}"


def test_the_readme_lists_every_method_and_unit_and_no_other() -> None:
    listed = set(re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "README.md").read_text(), flags=re.MULTILINE))
    assert listed == {*registry.names("methods"), *registry.names("units")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_named_files_exist(page: Path) -> None:
    text = page.read_text()
    for link in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        assert (page.parent / link).exists(), link
    for name in re.findall(r"`((?:src|tests|docs|benchmarks|examples)/[\w/.-]+\.(?:py|md|json))`", text):
        assert (ROOT / name).exists(), name
    for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
        assert re.search(rf"^def {name}\b", (ROOT / file).read_text(), flags=re.MULTILINE), f"{file}::{name}"
    for name in re.findall(r"\b(docs/proofs/[\w-]+\.md)", text):
        assert (ROOT / name).exists(), name


def test_the_readme_plans_exactly_what_it_trains() -> None:
    from hushgraph.datasets import load

    commands = [line.split() for block in _blocks(ROOT / "README.md", "") for line in block.splitlines()]
    planned, trained = (
        next(line for line in commands if line[:3] == ["hushgraph", verb, "gap"]) for verb in ("plan", "train")
    )

    def given(words: list[str], option: str) -> str | None:
        return words[words.index(option) + 1] if option in words else None

    for option in ("--unit", "--epsilon", "--delta", "--edges"):
        assert given(planned, option) == given(trained, option), option
    nodes = int(given(planned, "--nodes") or 0)
    assert nodes == load("campus").num_nodes
