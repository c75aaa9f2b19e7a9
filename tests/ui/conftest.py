"""A small project: one dataset with a limit, a model, a refused run, an officer with a key; and a page over it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from fastapi.testclient import TestClient

import hushgraph as hg
from hushgraph.errors import BudgetError
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.occasion import Occasion
from hushgraph.ledger.verify import register
from hushgraph.privacy.units import UndirectedEdge
from hushgraph.ui.access import Access
from hushgraph.ui.app import create_app
from hushgraph.ui.shell import Desk
from small_graphs import random_graph

PORT = 4321
EVIL = "<script>alert(1)</script>\"'"


@dataclass
class Team:
    """A project and what a browser would see of it."""

    home: Path
    desk: Desk
    access: Access
    web: TestClient
    runs: list[str]

    @property
    def root(self) -> str:
        return f"/{self.access.room}/"

    @property
    def book(self) -> Ledger:
        return Ledger(self.home / ".hushgraph")

    def get(self, path: str) -> str:
        """The text of a page that is there."""
        answer = self.web.get(self.root + path)
        assert answer.status_code == 200, answer.text
        return answer.text

    def sign(self, run: str, **changes: str):  # type: ignore[no-untyped-def]
        """Send the form of a run as the page would."""
        seen = self.get(f"runs/{run}").split('name="seen" value="')[1].split('"')[0]
        form = {"name": "officer", "verdict": "approved", "note": "plan read", "seen": seen, **changes}
        headers = {"Origin": f"http://127.0.0.1:{PORT}"}
        return self.web.post(f"{self.root}runs/{run}/signoff", data=form, headers=headers, follow_redirects=False)


def make_project(home: Path) -> list[str]:
    """The ledger with a limit of 4, a run of 2 with its model, a refused one, and an officer; the runs."""
    home.mkdir(parents=True, exist_ok=True)
    book = Ledger(home / ".hushgraph").on(Occasion(operator="ann", purpose=f"first {EVIL}"))
    graph = random_graph(1)
    book.set_limit(4.0, 1e-3, dataset="members", unit=UndirectedEdge())
    graph.name = "members"
    method = hg.GAP(hidden_channels=4, epochs=2)
    model = method.fit(graph, UndirectedEdge(), hg.Budget(2.0, 1e-3), ledger=book)
    model.save(home / "model")
    with pytest.raises(BudgetError):
        method.fit(graph, UndirectedEdge(), hg.Budget(9.0, 1e-3), ledger=book)
    register(book, "officer")
    return [model.certificate.run]


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    home = tmp_path / "members-project"
    runs = make_project(home)
    desk, access = Desk(home / ".hushgraph", (home, home / "studies")), Access(PORT)
    with TestClient(create_app(desk, access), base_url=f"http://127.0.0.1:{PORT}") as web:
        assert web.get(f"/{access.room}/?token={access.token}").status_code == 200
        yield Team(home, desk, access, web, runs)
