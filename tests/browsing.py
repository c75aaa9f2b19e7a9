"""A real browser for tests: the installed Chromium, driven by Playwright. It fetches nothing by itself."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@contextmanager
def browsing(**options: Any) -> Iterator[Any]:
    """A page of a fresh profile; what the console complains about is in `page.complaints`."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        try:
            page = browser.new_context(viewport=DESKTOP, **options).new_page()
            page.complaints = complaints = []
            page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            yield page
        finally:
            browser.close()


_WIDER = """() => {
  const scrolls = one => {
    for (let box = one; box && box !== document.body; box = box.parentElement)
      if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(box).overflowX)) return true;
    return false;
  };
  const wide = document.documentElement.clientWidth + 1;
  return [...document.querySelectorAll('body *')]
    .filter(one => { const box = one.getBoundingClientRect(); return box.width > 0 && box.right > wide; })
    .filter(one => !scrolls(one))
    .map(one => one.tagName + '.' + one.className + ': ' + one.textContent.slice(0, 40));
}"""


def cut_off(page: Any) -> list[str]:
    """What is wider than the window, but for boxes that scroll by themselves."""
    found: list[str] = page.evaluate(_WIDER)
    return found


def sheets(pdf: bytes) -> int:
    """How many pages a PDF of the browser has."""
    return len(re.findall(rb"/Type\s*/Page\b", pdf))
