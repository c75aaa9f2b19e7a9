"""What all tests share."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from small_graphs import random_graph

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_ledger_of_the_user(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands without --ledger write to a folder of the test, never to the project's or the user's."""
    monkeypatch.setenv("HUSHGRAPH_LEDGER", str(tmp_path_factory.mktemp("ledger") / "home"))
    monkeypatch.setenv("HUSHGRAPH_OPERATOR", "tester")


@pytest.fixture
def graph() -> Data:
    """One small symmetric graph."""
    return random_graph(0)
