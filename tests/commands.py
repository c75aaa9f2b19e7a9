"""Commands as a user runs them, for tests."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from hushgraph.cli import app

TRAIN = ["--epsilon", "4", "--delta", "1e-3", "--set", "hidden=4", "--set", "epochs=2"]


def run(*words: object) -> Any:
    """Run `hushgraph WORDS`."""
    return CliRunner().invoke(app, [str(word) for word in words])


def run_json(*words: object) -> dict[str, Any]:
    """Run a command that has to succeed, and read what it prints with --json."""
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    values: dict[str, Any] = json.loads(result.stdout)
    return values


def flat(result: Any) -> str:
    """What a command printed, without its line breaks. Lines fit 80 columns, but for paths, which are never cut."""
    too_long = [line for line in result.stdout.splitlines() if len(line) > 80 and "/" not in line]
    assert too_long == []
    return " ".join(result.stdout.split())
