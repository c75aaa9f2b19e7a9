from __future__ import annotations

from pathlib import Path

import pytest

from commands import run, run_json


def test_a_healthy_machine_is_told_so() -> None:
    report = run_json("doctor")
    assert report["healthy"] is True
    assert {"entropy", "noise", "accountant", "ledger"} <= {check["what"] for check in report["checks"]}
    assert "all that is needed is here" in run("doctor").stdout


def test_it_says_whether_there_is_a_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer() -> tuple[bool, str]:
        found = next(check for check in run_json("doctor")["checks"] if check["what"] == "HUSHGRAPH_DATA")
        return found["ok"], found["detail"]

    monkeypatch.setenv("HUSHGRAPH_DATA", str(tmp_path))
    assert answer() == (True, f"{tmp_path} (found)")
    monkeypatch.setenv("HUSHGRAPH_DATA", str(tmp_path / "gone"))
    assert answer()[0] is False
    monkeypatch.delenv("HUSHGRAPH_DATA")
    assert answer() == (False, "not set; only studies and benchmarks need it")


def test_a_missing_package_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushgraph.cli.doctor.CORE", ("no-such-package",))
    result = run("doctor")
    assert result.exit_code == 1
    assert "FAIL no-such-package" in result.stdout
