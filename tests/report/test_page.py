from __future__ import annotations

import dataclasses
import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

import hushgraph as hg
from browsing import DESKTOP, PHONE, browsing, cut_off, needs_browser
from hushgraph.errors import InputError
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.released import release_graph
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.units import UndirectedEdge
from hushgraph.report import words, write_report
from hushgraph.report.context import read_context
from reports import context, fitted
from small_graphs import random_graph

VOID = {"meta", "link", "br", "input", "img", "line", "circle", "polyline", "rect"}
ROC = {"fpr": [0.0, 0.001, 0.01, 1.0], "tpr": [0.0, 0.01, 0.1, 1.0]}
ATTACK = {
    "name": "LinkTeller",
    "target": "<b>gap</b>",
    "assumes": "sends features",
    "auc": 0.51,
    "auc_low": 0.5,
    "auc_high": 0.52,
    "balanced_accuracy": 0.505,
    "tpr_at": {"0.01": {"value": 0.1, "low": 0.08, "high": 0.12}, "0.001": None},
    "roc": ROC,
}


class Reader(HTMLParser):
    """Checks that elements nest, and collects ids and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids += [values["id"]] if values.get("id") else []
        self.addresses += [values[key] or "" for key in ("src", "href", "xlink:href") if key in values]
        self.addresses = [one for one in self.addresses if one != "data:,"]  # no picture for the tab
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()


def read(path: Path) -> tuple[str, Reader]:
    page = path.read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    return page, reader


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for epsilon in (1.0, 4.0):
        fitted("gap", "undirected-edge", epsilon).save(folder / f"edge_{epsilon:g}")
    return folder


def test_the_page_is_whole_offline_and_says_what_the_certificate_says(home: Path) -> None:
    path = write_report(home / "edge_1", compare=[home / "edge_4"], attacks=[ATTACK])
    page, reader = read(path)
    certificate = read_context(home / "edge_1").certificate
    assert path == home / "edge_1" / "report.html"
    assert all(address.startswith("#") for address in reader.addresses)
    assert {address.removeprefix("#") for address in reader.addresses} <= set(reader.ids)
    assert not re.search(r"https?://", page)
    assert "default-src 'none'" in page
    for part in (certificate.ledger_hash, certificate.run, words.claim(certificate), "Not private: evaluation"):
        assert part in unescape(page)
    assert page.count("<svg") == 3
    assert (path.stat().st_mode & 0o777) == 0o600


def test_the_first_things_are_the_verdict_and_whether_it_was_verified(home: Path) -> None:
    _, reader = read(write_report(home / "edge_1"))
    sections = [one for one in reader.ids if one not in ("delta", "delta-words", "delta-curve", "tip")]
    assert sections == [
        "verdict",
        "verification",
        "claim",
        "accuracy",
        "budget",
        "dataset",
        "attacks",
        "audit",
        "scope",
        "reporting",
        "nist",
        "provenance",
    ]


def test_what_comes_from_outside_is_escaped(home: Path, tmp_path: Path) -> None:
    path = write_report(home / "edge_1", tmp_path / "x.html", attacks=[ATTACK], title="<script>alert(1)</script>")
    page, _ = read(path)
    assert "<b>gap" not in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_epsilon_at_other_deltas_falls_as_delta_grows(home: Path, tmp_path: Path) -> None:
    page, _ = read(write_report(home / "edge_1", tmp_path / "d.html"))
    found = re.search(r'id="delta-curve">(.*?)</script>', page)
    assert found is not None
    curve = [(float(delta), float(epsilon)) for delta, epsilon in json.loads(found[1])]
    assert [delta for delta, _ in curve] == sorted((delta for delta, _ in curve), reverse=True)
    assert [eps for _, eps in curve] == sorted(eps for _, eps in curve)
    assert any(eps == pytest.approx(1.0, abs=1e-3) for _, eps in curve)


def test_a_model_writes_its_own_report_and_needs_a_place(home: Path, tmp_path: Path) -> None:
    model = fitted("mlp", "undirected-edge", 1.0)
    assert model.report(tmp_path / "m.html") == tmp_path / "m.html"
    assert "does not read what is protected" in (tmp_path / "m.html").read_text()
    assert model.report(tmp_path) == tmp_path / "report.html"
    with pytest.raises(InputError, match="say where to write"):
        write_report(model)


def test_a_model_explains_its_certificate() -> None:
    model = fitted("auto", "undirected-edge", 1.0)
    assert str(model) == model.explain() == words.explain(model.certificate, model.reason)
    assert "on public validation labels" in " ".join(str(model).split())


def test_a_released_graph_has_a_page_without_accuracy(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "ledger")
    budget = Budget(2.0, 1e-3)
    release_graph(hg.ARR(), random_graph(1), UndirectedEdge(), budget, ledger=book).save(tmp_path / "graph")
    page, reader = read(write_report(tmp_path / "graph", ledger=tmp_path / "ledger"))
    assert "accuracy" not in reader.ids
    assert "Verified: the graph, its certificate and the ledger agree" in page
    assert "from everybody who sees the graph" in page
    assert "Training and inference" not in page
    for form in ("markdown", "card", "json", "deployment"):
        text = write_report(tmp_path / "graph", ledger=tmp_path / "ledger", form=form).read_text()
        assert "trained" not in text.lower().split("settings")[0].replace("a trained model", "")


def test_a_second_promise_of_a_released_graph_is_shown(tmp_path: Path) -> None:
    from hushgraph.report.sections.verdict import verdict_of

    plain = context("arr")
    rows = dict(verdict_of(dataclasses.replace(plain, what="graph", features=plain.certificate)).rows)
    assert rows["Also"].startswith("A second promise, about features: The output of arr")
    assert "Also" not in dict(verdict_of(plain).rows)


def test_what_is_guessed_depends_on_the_unit() -> None:
    from hushgraph.report.sections.verdict import verdict_of

    local = dict(verdict_of(read_context(fitted("lpgnn", "local", 4.0))).rows)
    assert "between one version and another" in local["How well"]
    assert local["What is protected"].count("everybody") == 1
    edge = dict(verdict_of(read_context(fitted("gap", "undirected-edge", 4.0))).rows)
    assert "between with and without" in edge["How well"]


@pytest.mark.slow
@needs_browser
def test_a_browser_draws_it_without_a_complaint(home: Path, tmp_path: Path) -> None:
    path = write_report(home / "edge_1", tmp_path / "b.html", compare=[home / "edge_4"], attacks=[ATTACK])
    with browsing() as page:
        page.goto(path.as_uri())
        assert re.match(r"epsilon [\d.]+ at delta", page.locator("#delta-words").inner_text())
        slider = page.locator("#delta")
        before = page.locator("#delta-words").inner_text()
        slider.focus()
        page.keyboard.press("End" if slider.input_value() == slider.get_attribute("min") else "Home")
        assert page.locator("#delta-words").inner_text() != before
        for size in (DESKTOP, PHONE):
            page.set_viewport_size(size)
            assert cut_off(page) == []
        assert page.complaints == []
