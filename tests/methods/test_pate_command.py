"""The command of docs/results-pate.md in a form of seconds: it is killed, and goes on with what is missing."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "pate.py"
SMALL = ["--public", "80", "--teachers", "6", "--queries", "40", "--epochs", "2", "--width", "2"]
CELLS = 7
DEADLINE = 300.0


@pytest.fixture
def data_folder(tmp_path: Path) -> Path:
    """Bars at one of three places, in a file like that of Fashion-MNIST."""
    rng = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", 240), ("test", 120)):
        y = rng.integers(0, 3, count)
        x = rng.integers(0, 60, (count, 12, 12))
        x[np.arange(count), :, 4 * y + 1] += 180
        arrays |= {f"x_{part}": x.astype(np.uint8), f"y_{part}": y}
    (tmp_path / "fashion_mnist").mkdir()
    np.savez(tmp_path / "fashion_mnist" / "fashion_mnist.npz", **arrays)
    return tmp_path


def test_a_killed_command_goes_on_with_the_cells_that_are_missing(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells, page = data_folder / "cells.jsonl", data_folder / "page.md"
    command = [str(SCRIPT), "quick", *SMALL, "--cells", str(cells), "--page", str(page)]
    command += ["--scratch", str(data_folder / "scratch")]
    monkeypatch.setenv("HUSHGRAPH_DATA", str(data_folder))
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL) as killed:
        until = time.monotonic() + DEADLINE
        while _lines(cells) < 2 and killed.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        killed.kill()
    before = cells.read_text().splitlines()
    assert 2 <= len(before) < CELLS
    cells.write_text("\n".join(before)[:-20])  # a kill in the middle of a line
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    runpy.run_path(str(SCRIPT), run_name="__main__")
    after = cells.read_text().splitlines()
    whole = [json.loads(line) for line in (*after[: len(before) - 1], *after[len(before) :])]
    assert after[: len(before) - 1] == before[:-1]
    assert len({cell["key"] for cell in whole}) == len(whole) == CELLS
    assert "| pate++ |" in page.read_text()


def _lines(path: Path) -> int:
    return path.read_text().count("\n") if path.is_file() else 0
