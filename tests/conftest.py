"""What all tests share."""

from __future__ import annotations

import os

import pytest
import torch
from torch_geometric.data import Data

from skipped import skipped_lines
from small_graphs import random_graph

torch.set_num_threads(1)
os.environ["HUSHGRAPH_LEDGER"] = ":memory:"  # for fixtures that live longer than a test


@pytest.fixture(autouse=True)
def no_ledger_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing is written to the project's or the user's ledger: it is in memory, and a folder for commands."""
    own = tmp_path_factory.getbasetemp() / "config" / os.urandom(8).hex()
    monkeypatch.setattr("platformdirs.user_config_dir", lambda name: str(own / name))
    monkeypatch.setenv("HUSHGRAPH_LEDGER", ":memory:")
    monkeypatch.setenv("HUSHGRAPH_OPERATOR", "tester")


@pytest.fixture
def graph() -> Data:
    """One small symmetric graph."""
    return random_graph(0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was skipped and how to get it."""
    reports = terminalreporter.stats.get("skipped", [])
    if lines := skipped_lines(str(report.longrepr[2]) for report in reports if isinstance(report.longrepr, tuple)):
        terminalreporter.section("skipped, and how to get it")
        for line in lines:
            terminalreporter.write_line(line)
