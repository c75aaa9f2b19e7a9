from __future__ import annotations

import io
import json
import subprocess
import sys
import time

import pytest
import typer

from commands import run
from hushgraph.cli.console import command, progress_bar, show_table, show_words, words
from hushgraph.errors import InputError


def test_lines_fit_80_columns_and_go_on_indented(capsys: pytest.CaptureFixture[str]) -> None:
    show_words("name  " + "word " * 40, indent=6)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(len(line) <= 80 for line in lines)
    assert all(line.startswith("      word") for line in lines[1:])


def test_tables_align_numbers_right(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(["name", "n"], [["a", "1"], ["longer", "100"]], numeric=(1,))
    assert capsys.readouterr().out == "  name      n\n  a         1\n  longer  100\n\n"


def test_settings_are_read_and_all_problems_told() -> None:
    assert words(["a=1", " b = x=y "]) == {"a": "1", "b": "x=y"}
    with pytest.raises(InputError) as error:
        words(["a", "b=1", "b=2"])
    assert len(error.value.problems) == 2


def test_help_is_fast_because_it_imports_no_torch() -> None:
    code = "import sys; import hushgraph.cli; assert not {'torch', 'dp_accounting', 'jinja2'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    for asked in (["--help"], ["plan", "--help"], ["train", "--help"], ["report", "--help"]):
        assert run(*asked).exit_code == 0
    assert run("--version").stdout.startswith("hushgraph ")


def test_plans_and_methods_need_no_graph_library() -> None:
    plan = ["plan", "gap", "--unit", "node", "--nodes", "500", "--epsilon", "4"]
    for asked in (["methods"], plan):
        code = (
            "import sys; from hushgraph.cli import app\n"
            f"app({asked!r}, standalone_mode=False)\n"
            "assert 'torch_geometric' not in sys.modules"
        )
        assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


def test_a_command_that_is_stopped_says_so_as_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    @command
    def stopped(as_json: bool = False) -> None:
        raise KeyboardInterrupt

    with pytest.raises(typer.Exit) as left:
        stopped(as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert left.value.exit_code == shown["exit_code"] == 130
    assert "What was charged stays charged" in shown["error"]


def test_errors_and_summaries_fit_80_columns_and_are_not_cut() -> None:
    refused = run("train", "sage", "--data", "campus", "--epsilon", 4, "--out", "x", "--unit", "x", "--set", "y=1")
    assert refused.exit_code == 2
    assert max(len(line) for line in refused.stderr.splitlines()) <= 80
    assert not [line for line in run("--help").stdout.splitlines()[1:] if line.endswith("...")]


def test_what_steers_a_terminal_is_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    show_words("class \x1b[31mred\x1b[0m\x07")
    show_table(["name"], [["a\x1b]0;title\x07"]])
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(13, "Permission denied", "/a/file"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 14400000000 bytes"),
    ],
)
def test_what_the_system_refuses_is_said_with_where_things_stand(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    @command
    def failing() -> None:
        raise error

    with pytest.raises(typer.Exit) as stopped:
        failing()
    assert stopped.value.exit_code == 2
    said = capsys.readouterr().err
    assert "what was charged stays charged" in " ".join(said.split())
    assert "/a/file" in said or "out of memory" in said


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_of_an_unknown_length_shows_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", terminal := _Terminal())
    monkeypatch.setenv("COLUMNS", "80")
    with progress_bar(False, "reading") as report:
        assert report is not None
        time.sleep(0.3)
        assert "reading" in terminal.getvalue(), "something moves before the first stage"
        report("edges read", 4_194_304, 0)
        time.sleep(0.3)
        report("edges put in order", 3, 147)
        time.sleep(0.3)
    shown = terminal.getvalue()
    assert "4,194,304" in shown
    assert "3/147" in shown
    assert "None" not in shown
