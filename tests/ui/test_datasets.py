from __future__ import annotations

import re

import pytest

import hushgraph as hg
from hushgraph.ledger.statement import statement
from hushgraph.ui.datasets import show_check, show_datasets, unit_total
from hushgraph.ui.shell import Desk

from .conftest import Team


def test_what_is_left_is_the_limit_less_what_is_used(team: Team) -> None:
    (total,) = statement(team.book)["datasets"][0]["totals"]
    shown = unit_total(total)
    assert shown.left == pytest.approx(4.0 - total["used"])
    assert 0.0 < shown.left < 4.0
    assert shown.share == pytest.approx(total["used"] / 4.0)
    page = team.get("")
    found = re.search(r"epsilon ([\d.]+) left</span> of 4 at delta 0.001; ([\d.]+) used", page)
    assert found is not None
    assert float(found[1]) <= shown.left  # rounded down
    assert float(found[2]) >= total["used"]  # rounded up
    assert "the limit would be exceeded" in page


def test_a_dataset_that_is_not_private_has_nothing_left(team: Team) -> None:
    (total,) = statement(team.book)["datasets"][0]["totals"]
    shown = unit_total({**total, "used": float("inf"), "private": False})
    assert (shown.left, shown.kind) == (0.0, "bad")


def test_without_a_limit_nothing_is_said_to_be_left(team: Team) -> None:
    total = statement(team.book)["datasets"][0]["totals"][0]
    shown = unit_total({**total, "limit": None})
    assert (shown.left, shown.kind) == (None, "plain")
    assert unit_total({**total, "used": 3.9}).kind == "warn"


def test_an_empty_project_says_what_to_do(tmp_path) -> None:  # type: ignore[no-untyped-def]
    desk = Desk(tmp_path / ".hushgraph")
    assert "hushgraph ledger limit" in bytes(show_datasets(desk).body).decode()
    assert "hushgraph init" in bytes(show_check(desk).body).decode()


def test_the_check_says_what_verify_says(team: Team) -> None:
    assert "VERIFIED" in team.get("check")
    path = team.book.path
    assert path is not None
    content = bytearray(path.read_bytes())
    place = content.find(b'"operator":"ann"')
    content[place + 12 : place + 15] = b"bob"
    path.write_bytes(content)
    answer = team.web.get(f"{team.root}check")
    assert "CONTRADICTED" in answer.text


def test_hostile_names_are_escaped(tmp_path) -> None:  # type: ignore[no-untyped-def]
    desk = Desk(tmp_path / ".hushgraph")
    name = "<img src=x onerror=alert(1)>"
    desk.ledger.set_limit(1.0, 1e-5, dataset=name, unit=hg.units.UndirectedEdge())
    page = bytes(show_datasets(desk).body).decode()
    assert "<img" not in page
    assert "pending" in page
