"""Commands and ledgers write to a folder of the test."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def ledger_of_the_test(
    no_ledger_of_the_user: None, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not told which ledger to use finds this one."""
    monkeypatch.setenv("HUSHGRAPH_LEDGER", str(tmp_path_factory.mktemp("ledger") / "home"))
