from __future__ import annotations

import getpass

import pytest

from hushgraph.ledger.occasion import Occasion, default_operator


def test_the_operator_is_named_by_the_environment_or_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUSHGRAPH_OPERATOR", "ann")
    assert Occasion().operator == "ann"
    monkeypatch.delenv("HUSHGRAPH_OPERATOR")
    monkeypatch.setattr(getpass, "getuser", lambda: "ben")
    assert default_operator().startswith("ben@")

    def nobody() -> str:
        raise KeyError("no such user")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert default_operator().startswith("unknown@")


def test_an_entry_holds_what_was_declared_and_not_the_data() -> None:
    values = Occasion(operator="ann", purpose="why", unpublished=True, group="study").as_dict()
    assert values.pop("command")
    assert values == {"operator": "ann", "purpose": "why", "unpublished": True, "group": "study"}
