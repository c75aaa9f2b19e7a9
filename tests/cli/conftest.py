from __future__ import annotations

from pathlib import Path

import pytest

from hushgraph.datasets import write_npz
from small_graphs import random_graph


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A small graph as a file."""
    return write_npz(random_graph(1), tmp_path / "toy.npz")


@pytest.fixture(autouse=True)
def ledger_of_the_test(
    no_ledger_of_the_user: None, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not told which ledger to use finds this one."""
    monkeypatch.setenv("HUSHGRAPH_LEDGER", str(tmp_path_factory.mktemp("ledger") / "home"))
