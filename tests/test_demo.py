"""The demo is one project: every run is in its ledger, and its report is checked against it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import hushgraph as hg
from charges import require_sound
from hushgraph.datasets.built_in import campus
from hushgraph.ledger.verify import verify_ledger

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"


def test_the_demo_writes_a_report_that_was_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    monkeypatch.setattr(hg.datasets, "load", lambda name: campus(600))
    folder = tmp_path / "demo"
    demo.main(folder)
    too_long = [line for line in capsys.readouterr().out.splitlines() if len(line) > 80 and "/" not in line]
    assert too_long == []
    page = (folder / "report.html").read_text()
    assert "Verified: the model, its certificate and the ledger agree." in page
    book = hg.Ledger(folder / ".hushgraph")
    require_sound(verify_ledger(book))
    total = book.total("campus", demo.UNIT)
    assert (total.private, total.runs, total.left_out) == (True, 4, 1)
    assert total.epsilon == pytest.approx(6.0, abs=1e-3)
