"""The notebooks run, in an empty folder, and hold what they showed when they were last run."""

from __future__ import annotations

from pathlib import Path

import pytest

import notebooks


@pytest.mark.parametrize("path", notebooks.NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path) -> None:
    kept = notebooks.read(path)
    with notebooks.empty_folder():
        done = notebooks.run(kept)
    for before, after in zip(kept["cells"], done["cells"], strict=True):
        assert len(before.get("outputs", [])) == len(after.get("outputs", [])), "run make notebooks"
    assert sum(len(cell.get("outputs", [])) for cell in done["cells"]) >= 4


def test_there_are_three() -> None:
    assert {path.stem for path in notebooks.NOTEBOOKS} == {"compare", "officer", "quickstart"}


def test_what_a_cell_shows() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title"]},
        {"cell_type": "code", "source": ["x = 2\n", "print('hello')\n", "x + 1"]},
        {"cell_type": "code", "source": ["y = x"]},
    ]
    first, second, third = notebooks.run({"cells": cells})["cells"]
    assert first == cells[0]
    assert [output.get("text") or output["data"]["text/plain"] for output in second["outputs"]] == [["hello\n"], ["3"]]
    assert third["outputs"] == []
    with pytest.raises(ZeroDivisionError):
        notebooks.run({"cells": [{"cell_type": "code", "source": ["1 / 0"]}]})
