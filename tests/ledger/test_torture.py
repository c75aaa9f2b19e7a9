"""The torture of benchmarks/ledger_torture.py, scaled to seconds."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "ledger_torture.py"


@pytest.fixture(scope="module")
def torture() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ledger_torture", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_killed_runs_have_charged_what_they_released(torture: ModuleType, tmp_path: Path) -> None:
    found = torture.kills(tmp_path, count=12)
    assert found["after a release"] >= 6


@pytest.mark.parametrize("seed", range(3))
def test_cuts_and_flipped_bits_are_found_or_change_nothing(torture: ModuleType, tmp_path: Path, seed: int) -> None:
    found = torture.damages(tmp_path, count=40, seed=seed)
    assert sum(number for outcome, number in found.items() if outcome.endswith("found")) >= 10
    assert found["recovered whole"] >= 1


def test_a_disk_that_is_full_loses_nothing(torture: ModuleType, tmp_path: Path) -> None:
    found = torture.limited_size(tmp_path)
    assert found["charged"] >= 1
    assert "nothing was charged and nothing is released" in found["message"]


def test_racing_processes_share_one_limit(torture: ModuleType, tmp_path: Path) -> None:
    found = torture.races(tmp_path, processes=4, each=14)
    assert 0 < found["let in"] < found["attempts"]


def test_many_runs_are_made_shown_and_verified(torture: ModuleType, tmp_path: Path) -> None:
    found = torture.scale(tmp_path, runs=60)
    assert found["entries"] == 4 + 3 * 60
