"""What all views share: the project they look at, and the frame of a page."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from hushgraph import __version__
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.project import FOLDER
from hushgraph.text import rounded_down, rounded_up, to_the_minute


@dataclass(frozen=True)
class Desk:
    """One project as the page sees it. `root` is the path under which everything is served, with its slashes."""

    ledger_folder: Path
    studies: tuple[Path, ...] = ()
    root: str = "/"
    read_only: bool = False

    @property
    def ledger(self) -> Ledger:
        """The project's ledger, opened anew: requests run side by side."""
        return Ledger(self.ledger_folder)

    @property
    def project(self) -> str:
        """What the project is called: its folder."""
        folder = self.ledger_folder.absolute()
        return folder.parent.name if folder.name == FOLDER else folder.name

    def page(self, template: str, title: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        """A page of the template, in the frame."""
        frame = {"root": self.root, "title": title, "project": self.project, "read_only": self.read_only}
        found = _environment().get_template(f"{template}.html")
        return HTMLResponse(found.render(**frame, here=template, version=__version__, **values), status)

    def message(self, title: str, words: str, status: int) -> HTMLResponse:
        """A page that says one thing."""
        return self.page("message", title, status=status, words=words)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("hushgraph.ui"), PackageLoader("hushgraph.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["ui"] = environment.get_template("macros.html").module
    environment.filters |= {"up": lambda value: rounded_up(float(value)), "down": rounded_down, "when": to_the_minute}
    return environment


ASSETS = {"style.css": "text/css", "ui.js": "text/javascript"}


@lru_cache(maxsize=8)
def asset(name: str) -> str:
    """A style or script; the style of reports comes first, so that both look alike."""
    if name == "style.css":
        parts = [files("hushgraph.report").joinpath("style.css"), files("hushgraph.ui").joinpath("ui.css")]
    else:
        parts = [files("hushgraph.ui").joinpath("ui.js")]
    return "\n".join(part.read_text(encoding="utf-8") for part in parts)


def short_hash(text: str) -> str:
    """A name for something that is asked for by address: what is asked is looked up, never opened."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
