"""The page in a real browser: clicks, a sign-off, live progress, dark mode, phone width, the keyboard, and print."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from browsing import DESKTOP, PHONE, browsing, cut_off, needs_browser, sheets
from hushgraph.ledger.ledger import Ledger
from hushgraph.study.store import Store
from hushgraph.ui.access import Access
from hushgraph.ui.app import create_app, listen
from hushgraph.ui.shell import Desk

from .conftest import make_project

pytestmark = [pytest.mark.slow, needs_browser]


@dataclass
class Served:
    home: Path
    access: Access
    run: str


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    home = tmp_path / "project"
    (run,) = make_project(home)
    bound = listen(0)
    access = Access(bound.getsockname()[1])
    app = create_app(Desk(home / ".hushgraph", (home,)), access)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.02)
        yield Served(home, access, run)
    finally:
        server.should_exit = True
        thread.join()


def test_an_officer_finds_a_run_reads_its_report_and_signs(served: Served) -> None:
    with browsing() as page:
        page.goto(served.access.address)
        page.get_by_role("heading", name="Datasets").wait_for()
        assert "token" not in page.url
        assert page.get_by_text("left", exact=False).first.is_visible()
        page.get_by_role("link", name="Runs on members").click()
        page.get_by_text("verified", exact=True).wait_for()  # the script checked the model
        page.get_by_role("link", name="report", exact=True).click()
        page.get_by_role("heading", name="What this run costs").or_(page.locator("#verdict")).first.wait_for()
        assert page.evaluate("origin") == "null"  # a sandbox of its own
        assert page.locator("#delta-words").inner_text().startswith("epsilon")
        page.go_back()
        page.get_by_role("link", name=served.run[:8]).click()
        page.get_by_label("Who signs").select_option("officer")
        page.get_by_label("approve").check()
        page.get_by_label("Reason").fill("plan and purpose read")
        page.get_by_role("button", name="Sign").click()
        page.get_by_text("approved", exact=True).wait_for()
        assert page.complaints == []
    (entry,) = Ledger(served.home / ".hushgraph").history().of_kind("signoff")
    assert (entry.values["name"], entry.values["note"]) == ("officer", "plan and purpose read")


def test_the_form_asks_for_a_name_and_a_reason(served: Served) -> None:
    with browsing() as page:
        enter(page, served, f"runs/{served.run}")
        page.get_by_role("button", name="Sign").click()
        assert page.evaluate("document.querySelector('.sign').checkValidity()") is False
        assert "signoff" not in page.url
    assert Ledger(served.home / ".hushgraph").history().of_kind("signoff") == []


def test_it_is_used_with_the_keyboard_alone(served: Served) -> None:
    with browsing() as page:
        enter(page, served, f"runs/{served.run}")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.locator("#name").focus()
        for key in ("o", "Tab", "Space", "Tab"):
            page.keyboard.press(key)
        page.keyboard.type("read")
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        page.get_by_text("approved", exact=True).wait_for()


def test_another_page_of_this_machine_sees_neither_page_nor_cookie(served: Served) -> None:
    """A page on another port asks for everything that a page may ask for."""
    import http.server

    told: list[str] = []

    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<h1>other</h1>")

        def log_message(self, *_: Any) -> None:
            pass

    other = http.server.HTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    try:
        with browsing() as page:
            enter(page, served, "")
            ours = page.url
            page.goto(f"http://127.0.0.1:{other.server_address[1]}/")
            asked = page.evaluate(
                """async ours => { const said = [];
                  for (const [mode, method] of [['no-cors', 'GET'], ['cors', 'GET'], ['no-cors', 'POST']])
                    try {
                      const answer = await fetch(ours, {mode, method, credentials: 'include'});
                      said.push(await answer.text());
                    } catch (error) { said.push('refused'); }
                  return said; }""",
                ours,
            )
            assert asked == ["refused", "refused", "refused"]
            form = "f => { document.body.innerHTML = f; document.forms[0].submit(); }"
            page.evaluate(form, f"<form method=post action='{ours}runs/{served.run}/signoff'><input name=name></form>")
            page.get_by_text("asked by another site").wait_for()
    finally:
        other.shutdown()
    assert told
    assert set(told) == {""}
    assert Ledger(served.home / ".hushgraph").history().of_kind("signoff") == []


def test_progress_of_a_study_is_live(served: Served) -> None:
    store = Store(served.home / "quick.sqlite")
    noted = {"privacy": "research", "file": None, "total": 4, "bad": 0, "likely": 9.0, "low": 8.0, "high": 12.0}
    store.note("quick", {**noted, "unknown": 0, "done": 1})
    with browsing() as page:
        enter(page, served, "studies")
        page.get_by_text("1 of 4 runs ended").wait_for()
        store.note("quick", {**noted, "unknown": 0, "done": 3})
        page.get_by_text("3 of 4 runs ended").wait_for()
        assert page.locator("[data-part=share]").get_attribute("width") == "75"
        assert page.complaints == []


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_nothing_is_cut_off(served: Served, size: dict[str, int]) -> None:
    Store(served.home / "quick.sqlite").note(
        "quick",
        {
            **dict.fromkeys(("likely", "low", "high", "done", "bad"), 0),
            "unknown": 0,
            "total": 2,
            "privacy": "research",
            "file": None,
        },
    )
    with browsing() as page:
        page.set_viewport_size(size)
        enter(page, served, "")
        for path in ("", "runs", f"runs/{served.run}", "studies", "check", "nothing"):
            page.goto(f"http://127.0.0.1:{served.access.port}/{served.access.room}/{path}")
            assert cut_off(page) == [], path


def test_dark_where_the_system_is_dark(served: Served) -> None:
    ask = "one => { const s = getComputedStyle(document.querySelector(one)); return [s.backgroundColor, s.color]; }"
    for scheme in ("light", "dark"):
        with browsing(color_scheme=scheme) as page:
            enter(page, served, "runs")
            for place in ("body", "section"):
                back, ink = (
                    brightness(color) for color in page.evaluate(ask, place)[:1] + page.evaluate(ask, "td")[1:]
                )
                assert abs(back - ink) > 120
                assert (back > ink) is (scheme == "light")


def test_it_prints_on_few_sheets_without_what_paper_cannot_do(served: Served) -> None:
    with browsing() as page:
        enter(page, served, f"runs/{served.run}")
        assert page.locator("form.sign").is_visible()
        assert 1 <= sheets(page.pdf(format="A4")) <= 2
        page.emulate_media(media="print")
        assert not page.locator("form.sign").is_visible()
        assert not page.get_by_role("navigation").is_visible()
        for words in (served.run, "recomputed from the ledger's events", "Sign-off"):
            assert page.get_by_text(words).first.is_visible()


def enter(page: Any, served: Served, path: str) -> None:
    page.goto(served.access.address)
    page.get_by_role("heading", name="Datasets").wait_for()
    if path:
        page.goto(page.url + path)


def brightness(color: str) -> float:
    """Of rgb(...): 0 to 255."""
    parts = [float(part) for part in color[color.index("(") + 1 : -1].split(",")[:3]]
    return sum(parts) / 3
