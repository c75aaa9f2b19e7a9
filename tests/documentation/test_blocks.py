"""Every block of code in the documentation runs, in the order of its page, in an empty folder."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from documentation.pages import PAGES, ROOT, Block, blocks
from hushgraph.cli import app

WITH_BLOCKS = [page for page in PAGES if page.name not in ("README.md", "CONTRIBUTING.md") and blocks(page)]
"""Those two have tests of their own: tests/test_docs.py, tests/test_outsiders.py."""
SHOWN = {"text", "json", "math"}
"""Blocks that show something: output, or the form of a file."""


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_all_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("HUSHGRAPH_LEDGER", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    words: dict[str, str] = {}
    names: dict[str, Any] = {"__name__": page.stem, "monkeypatch": monkeypatch, "stands_for": words.__setitem__}
    for block in blocks(page):
        if block.runner is not None:
            assert (ROOT / block.runner).is_file(), block.runner
        else:
            _run(block, names, words, page)


def _run(block: Block, names: dict[str, Any], stands_for: dict[str, str], page: Path) -> None:
    if block.title is not None:
        Path(block.title).write_text(block.text, encoding="utf-8")
    elif block.language == "python":
        exec(compile(block.text, str(page), "exec"), names)
    for command in block.commands:
        _run_command(command, stands_for)
    if block.language == "yaml":
        yaml.safe_load(block.text)
    elif block.language == "toml":
        tomllib.loads(block.text)
    else:
        assert block.language in {"python", "console", "", "csv", *SHOWN}, f"{page.name}: {block.language}"


def _run_command(line: str, stands_for: dict[str, str]) -> None:
    """A command of hushgraph runs, and ends with the exit code that the line says; others are looked up.

    RUN is the run of the newest model; what other words in capitals stand for, the page's setup says.
    """
    command, _, remark = line.partition("#")
    words = shlex.split(command)
    if not words:
        return
    expected = re.search(r"exit code (\d+)", remark)
    if words[:2] == ["hushgraph", "study"] and words[3].startswith("studies/"):
        _check_study(words[2], words[3])
    elif words[0] == "hushgraph":
        if "RUN" in words:
            newest = max(Path().glob("*/certificate.json"), key=lambda path: path.stat().st_mtime)
            stands_for = {**stands_for, "RUN": json.loads(newest.read_text())["run"]}
        result = CliRunner().invoke(app, [stands_for.get(word, word) for word in words[1:]])
        assert result.exit_code == int(expected[1] if expected else 0), f"{line}\n{result.output}"
    elif words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE), line
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file() or words[1] == "-m", line
    elif words[:2] == ["pip", "install"]:
        extras = re.findall(r"\[([\w,]+)\]", line)
        known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert {one for some in extras for one in some.split(",")} <= known.keys(), line
    else:
        pytest.fail(f"nothing runs this: {line}")


def _check_study(verb: str, file: str) -> None:
    """A study of the project takes hours and data: the command is one that there is, and its file can be read."""
    study = typer.main.get_command(app).commands["study"]  # type: ignore[attr-defined]
    assert verb in study.commands
    assert {"name", "privacy"} <= yaml.safe_load((ROOT / file).read_text(encoding="utf-8")).keys()


def test_blocks_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- setup\nx = 1\n-->\n```python\nassert x\n```\n<!-- run by tests/a.py -->\n```\nhushgraph a \\\n  b\n```\n"
        '```yaml title="a.yaml"\nk: 1\n```\n```console\n$ hushgraph c  # exit code 3\nout\n```\n'
    )
    found = blocks(page)
    assert [block.language for block in found] == ["python", "python", "", "yaml", "console"]
    assert found[2].runner == "tests/a.py"
    assert found[2].commands == ["hushgraph a    b"]
    assert found[3].title == "a.yaml"
    assert found[4].commands == ["hushgraph c  # exit code 3"]
    with pytest.raises(AssertionError):
        _run(Block("python", "assert False"), {}, {}, page)
    with pytest.raises(AssertionError):
        _run_command("hushgraph no-such-command", {})
    with pytest.raises(AssertionError):
        _run_command("make no-such-target", {})
