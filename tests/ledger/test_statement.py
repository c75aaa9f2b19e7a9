from __future__ import annotations

import html.parser
from pathlib import Path

import pytest

from hushgraph.cli.ledger import WIDTH, lines
from hushgraph.errors import BudgetError
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.run import open_run
from hushgraph.ledger.statement import render, statement
from hushgraph.ledger.verify import register, sign_off
from hushgraph.privacy.notes import Code, note
from toy_plans import COUNT, DELTA, EDGE, NODE, carry_out, choice, sums_of, training


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    book = Ledger(tmp_path / "book")
    run = carry_out(book, sums_of(1.0), operator="ann@university-of-somewhere.example", purpose="a <b>first</b> trial")
    carry_out(book, training(), seeded=True, unpublished=True)
    book.set_limit(2.0, 1e-5, dataset="data", unit=EDGE)
    with pytest.raises(BudgetError):
        carry_out(book, sums_of(1.9), operator="ben")
    chosen = open_run(book, choice(), "other", seeded=False)
    chosen.charge(COUNT)
    chosen.choose("dear", note(Code.SETTINGS))
    carry_out(book, sums_of(0.5), "other", seeded=True)
    register(book, "officer")
    sign_off(book, run.identity, "approved", "officer")
    return book


def test_it_says_who_when_why_and_what_counts(ledger: Ledger) -> None:
    found = statement(ledger)
    assert [dataset["dataset"] for dataset in found["datasets"]] == ["data", "other"]
    first, left_out, chosen, seeded = found["runs"]
    assert first["operator"].startswith("ann@")
    assert first["epsilon"] == pytest.approx(1.0)
    assert first["signoffs"][0]["verdict"] == "approved"
    assert (left_out["counts"], left_out["seeded"]) == ("left out", True)
    assert (chosen["chosen"], chosen["closed"]) == ("dear", False)
    assert seeded["counts"] == "seeded"
    (refused,) = found["refused"]
    assert (refused["operator"], refused["cause"]) == ("ben", "full")
    assert found["runs_in_all"] == 4
    edge = next(total for total in found["datasets"][0]["totals"] if total["unit"] == EDGE.as_dict())
    assert edge["limit"]["operator"] == "tester"
    assert edge["reason"].endswith("1 run declared unpublished is left out.")


def test_one_dataset_one_unit_and_the_last_runs_can_be_asked_for(ledger: Ledger) -> None:
    found = statement(ledger, dataset="other", unit=NODE, last=1)
    assert [run["method"] for run in found["runs"]] == ["toy"]
    assert found["runs_in_all"] == 2
    (dataset,) = found["datasets"]
    assert [total["unit"] for total in dataset["totals"]] == [NODE.as_dict()]
    assert not statement(ledger, last=0)["runs"]


def test_the_words_fit_a_terminal_of_80_columns(ledger: Ledger) -> None:
    shown = lines(statement(ledger))
    assert max(map(len, shown)) <= WIDTH
    text = "\n".join(shown)
    for words in (
        "total per undirected-edge",
        "set by tester",
        "by ann@",
        "left out",
        "NOT PRIVATE: seeded",
        "approved by",
    ):
        assert words in text, words
    assert "open (all counts)" in text
    assert "ben: epsilon 1.9" in text


class Reader(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for key, value in attrs if key in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_nests_fetches_nothing_and_escapes_what_people_wrote(ledger: Ledger) -> None:
    page = render(statement(ledger))
    reader = Reader()
    reader.feed(page)
    assert not reader.open
    assert not reader.addresses
    assert "http" not in page.replace("http-equiv", "")
    assert "&lt;b&gt;first&lt;/b&gt;" in page
    assert "<b>first" not in page
    for words in (
        "open: all of it counts",
        "Content-Security-Policy",
        "approved by officer",
        "the limit would be exceeded",
        "does not|not verified",
    ):
        assert any(word in page for word in words.split("|")), words


def test_showing_reads_the_same_number_of_rows_however_many_runs_there_are() -> None:
    ledger = Ledger()
    ledger.create("data", EDGE.as_dict())
    ledger.set_limit(1e6, DELTA)

    def rows_shown() -> int:
        before = ledger.rows_read
        statement(ledger, last=5)
        return ledger.rows_read - before

    for _ in range(10):
        carry_out(ledger, sums_of(0.01))
    first = rows_shown()
    for _ in range(40):
        carry_out(ledger, sums_of(0.01))
    assert rows_shown() == first < 60


def test_what_a_reader_does_with_a_statement_does_not_change_what_is_read_next(ledger: Ledger) -> None:
    found, before = statement(ledger), statement(ledger)
    for run in found["runs"]:
        run["unit"].clear()
    for entry in ledger.history().entries:
        entry.values.clear()
    assert statement(ledger) == before


def test_a_unit_that_is_known_from_refused_runs_alone_has_no_total(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "book")
    carry_out(book, sums_of(1.0))
    book.set_limit(1.0, 1e-5, dataset="data", unit=EDGE)
    with pytest.raises(BudgetError):
        carry_out(book, sums_of(2.0, unit=NODE))
    (dataset,) = statement(book)["datasets"]
    assert [total["unit"] for total in dataset["totals"]] == [EDGE.as_dict()]
    assert "NOT PRIVATE" not in "\n".join(lines(statement(book)))
    (asked,) = statement(book, unit=NODE)["datasets"][0]["totals"]
    assert "NOT PRIVATE" in asked["words"]
