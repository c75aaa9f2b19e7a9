from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from commands import run

pytest.importorskip("fastapi")


@pytest.mark.slow
def test_it_serves_this_machine_until_it_is_stopped(tmp_path: Path) -> None:
    environment = {**os.environ, "HUSHGRAPH_LEDGER": str(tmp_path / ".hushgraph"), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "hushgraph", "ui", "--json", "--read-only"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path) as process:
        assert process.stdout is not None
        try:
            lines = []
            while not lines or lines[-1] != "}\n":
                lines.append(process.stdout.readline())
            shown = json.loads("".join(lines))
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{20,}/\?token=[\w-]{40,}", shown["address"])
            assert shown["studies"] == [str(tmp_path), str(tmp_path / "studies")]
            with urllib.request.urlopen(shown["address"], timeout=30) as answer:
                assert answer.status == 200
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(shown["address"].split("?")[0], timeout=30)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=30)
    assert not (tmp_path / ".hushgraph").exists()


def test_folders_that_are_not_there_are_said(tmp_path: Path) -> None:
    result = run("ui", tmp_path / "none")
    assert result.exit_code == 2
    assert "hushgraph init" in " ".join(result.output.split())
    result = run("ui", "--studies", tmp_path / "none")
    assert result.exit_code == 2
    assert "--studies" in result.output
