"""What all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch_geometric.data import Data

from hushgraph.ledger.ledger import Ledger
from small_graphs import random_graph

torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def no_ledger_of_the_user_for_fixtures_of_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """They are made before the one below."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HUSHGRAPH_LEDGER", str(tmp_path_factory.mktemp("ledger") / "home"))
        yield


@pytest.fixture(autouse=True)
def no_ledger_of_the_user(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands without --ledger write to a folder of the test, never to the project's or the user's."""
    monkeypatch.setenv("HUSHGRAPH_LEDGER", str(tmp_path_factory.mktemp("ledger") / "home"))
    monkeypatch.setenv("HUSHGRAPH_OPERATOR", "tester")


@pytest.fixture
def own_books(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run without a ledger keeps its own in memory: what neighboring graphs share needs no decision."""
    monkeypatch.setattr("hushgraph.methods.base.default_ledger", lambda: Ledger.in_memory(warn=False))


@pytest.fixture
def graph() -> Data:
    """One small symmetric graph."""
    return random_graph(0)
