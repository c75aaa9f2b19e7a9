from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import hushgraph as hg
from hushgraph import datasets
from hushgraph.cli.report import report
from hushgraph.errors import InputError
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.gap import GAP
from hushgraph.methods.mlp import MLP
from hushgraph.methods.saving import save_model
from hushgraph.privacy.units import DirectedEdge, Node, UndirectedEdge
from hushgraph.report import write_report

SECTIONS = ("claim", "accuracy", "budget", "attacks", "audit", "scope", "reporting", "nist", "provenance")
VOID = {"meta", "br", "input", "img", "line", "circle", "polyline", "rect"}


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
    data = datasets.load("campus", num_nodes=300)
    for epsilon in (1.0, 4.0):
        ledger = Ledger(folder / f"ledger_{epsilon:g}")
        model = GAP(epochs=1).fit(data, UndirectedEdge(), hg.Budget(epsilon, 1e-5), ledger=ledger)
        save_model(model, folder / f"edge_{epsilon:g}")
    save_model(GAP(epochs=1).fit(data, DirectedEdge(), hg.Budget(1.0, 1e-5), paper_mode=True), folder / "paper")
    save_model(GAP(epochs=1).fit(data, UndirectedEdge(), hg.Budget(math.inf, 1e-5)), folder / "free")
    save_model(GAP(epochs=1).fit(data, Node(max_degree=5), hg.Budget(8.0, 1e-5), seed=1), folder / "node")
    save_model(MLP(epochs=1).fit(data, UndirectedEdge(), hg.Budget(1.0, 1e-5)), folder / "mlp")
    return folder


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
AUDIT = {
    "verdict": "contradicted",
    "confidence": 0.95,
    "ran_on": "On data made for the audit.",
    "findings": [
        {
            "name": "edge canaries",
            "method": "Gaussian trade-off",
            "canaries": 10_000,
            "claimed": 1.0,
            "lower_bound": 1.31,
            "contradicts": True,
        }
    ],
}


def test_the_page_is_whole_offline_and_says_what_the_certificate_says(home: Path) -> None:
    path = write_report(
        home / "edge_1",
        compare=[home / "edge_4", home / "free"],
        audit=AUDIT,
        attacks=[ATTACK],
        ledger=home / "ledger_1",
    )
    page, reader = read(path)
    certificate = json.loads((home / "edge_1" / "certificate.json").read_text())
    assert path == home / "edge_1" / "report.html"
    assert set(SECTIONS) <= set(reader.ids)
    assert all(address.startswith("#") for address in reader.addresses)
    assert not re.search(r"https?://", page)
    assert "default-src &#x27;none&#x27;" in page
    for words in (certificate["ledger_hash"], certificate["run"], "not private: evaluation", "1.31", "CONTRADICTED"):
        assert words in page
    assert certificate["sentence"].replace("'", "&#x27;") in page
    assert "gives the same epsilon" in page
    assert page.count("<svg") >= 4


def test_what_comes_from_outside_is_escaped(home: Path, tmp_path: Path) -> None:
    path = write_report(home / "edge_1", tmp_path / "x.html", attacks=[ATTACK], title="<script>alert(1)</script>")
    page, _ = read(path)
    assert "<b>gap" not in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_pictures_are_shown_only_when_they_are_inside_the_page(home: Path, tmp_path: Path) -> None:
    shown = {"name": "model inversion", "target": "m", "figures": {"classes closer": "10 of 10"}}
    pictures = {"inside": "data:image/png;base64,AAAA", "outside": "file:///etc/hostname"}
    grids = {"classes 0 to 1": {"original": "data:image/png;base64,BBBB", "enhanced": "file:///etc/hostname"}}
    distances = {"ssim": {"original": [0.91, 0.82], "enhanced": [0.43, 0.34]}}
    attack = {**shown, "pictures": pictures, "grids": grids, "distances": distances}
    page, reader = read(write_report(home / "edge_1", tmp_path / "p.html", attacks=[attack]))
    assert {"data:image/png;base64,AAAA", "data:image/png;base64,BBBB"} <= set(reader.addresses)
    assert "classes 0 to 1" in page
    assert "0.43" in page
    assert "hostname" not in page
    assert "10 of 10" in page


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("paper", "Paper mode"),
        ("free", "NO differential privacy"),
        ("node", "seeded run: not private"),
        ("mlp", "does not read what is protected"),
    ],
)
def test_every_kind_of_run_has_a_page_that_names_its_weakness(home: Path, tmp_path: Path, run: str, words: str) -> None:
    page, reader = read(write_report(home / run, tmp_path / "r.html"))
    assert words in page
    assert set(SECTIONS) <= set(reader.ids)


def test_epsilon_at_other_deltas_falls_as_delta_grows(home: Path, tmp_path: Path) -> None:
    page, _ = read(write_report(home / "edge_1", tmp_path / "d.html"))
    found = re.search(r'id="delta-curve">(.*?)</script>', page)
    assert found is not None
    curve = [(float(delta), float(epsilon)) for delta, epsilon in json.loads(found[1])]
    assert [delta for delta, _ in curve] == sorted((delta for delta, _ in curve), reverse=True)
    assert [eps for _, eps in curve] == sorted(eps for _, eps in curve)
    assert any(eps == pytest.approx(1.0, abs=1e-3) for _, eps in curve)


def test_an_unsaved_model_needs_a_place_and_another_ledger_is_refused(home: Path, tmp_path: Path) -> None:
    model = MLP(epochs=1).fit(datasets.load("campus", num_nodes=300), UndirectedEdge(), hg.Budget(1.0, 1e-5))
    assert write_report(model, tmp_path / "m.html").exists()
    with pytest.raises(InputError, match="say where to write"):
        write_report(model)
    with pytest.raises(InputError, match="expected a ledger that holds the run"):
        write_report(home / "edge_1", tmp_path / "l.html", ledger=home / "ledger_4")


def test_a_certificate_that_differs_from_its_ledger_is_refused(home: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(home / "edge_1", tmp_path / "copy")
    certificate = json.loads((copy / "certificate.json").read_text())
    certificate["epsilon"] = 0.1
    (copy / "certificate.json").write_text(json.dumps(certificate))
    with pytest.raises(InputError, match="One of the two was changed"):
        write_report(copy, ledger=home / "ledger_1")


def test_the_command_writes_where_it_says(home: Path, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(report)
    out = tmp_path / "command.html"
    shown = CliRunner().invoke(
        app, [str(home / "edge_1"), "--out", str(out), "--compare", str(home / "edge_4"), "--json"]
    )
    assert json.loads(shown.output) == {"report": str(out)}
    assert "Test accuracy against epsilon" in out.read_text()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_a_browser_draws_it_without_a_complaint(home: Path, tmp_path: Path) -> None:
    path = write_report(home / "edge_1", tmp_path / "b.html", compare=[home / "edge_4"], audit=AUDIT, attacks=[ATTACK])
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = ["chromium", *flags, profile, "--enable-logging=stderr", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr
    assert re.search(r'id="delta-words"[^>]*>epsilon [\d.]+ at delta', done.stdout)
