"""The page: everything known about a run, in one HTML file that opens offline.

The file carries its own style and script and asks the browser not to fetch anything (a content security policy).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hushgraph.errors import InputError, did_you_mean
from hushgraph.files.reading import damage_named
from hushgraph.files.writing import write_whole
from hushgraph.report.context import RunContext, read_context, with_ledger
from hushgraph.report.sections import Section, sections_of

FILES = {
    "html": "report.html",
    "markdown": "report.md",
    "card": "README.md",
    "json": "privacy.json",
    "deployment": "deployment.yaml",
}
"""The forms of a report, and the file of each in the model's folder."""
FOOTER = (
    "This file is complete in itself and fetches nothing. Epsilon is an upper bound on privacy loss; audits give lower "
    "bounds; neither attacks nor audits can prove privacy."
)


def write_report(
    source: Any,
    out: str | os.PathLike[str] | None = None,
    *,
    compare: Sequence[Any] = (),
    audit: Any | None = None,
    attacks: Any | None = None,
    ledger: str | os.PathLike[str] | None = None,
    title: str | None = None,
    form: str = "html",
) -> Path:
    """Write the report of a model (its folder, or the model itself) and return the file's path.

    `form` is html (one page that opens offline), markdown, card (a model card), json (the facts alone) or deployment
    (an entry for the registry of deployments).

    `compare` are further models for the plot of accuracy against epsilon. `audit` and `attacks` are what `hushgraph
    audit` and `hushgraph attack` wrote: values, or paths of JSON files; files called audit.json and attacks.json in
    the model's folder are found without being named. `ledger` is the folder of the ledger, to check the certificate
    against. The file is `out`, or one in the model's folder (`FILES`).
    """
    if not isinstance(source, str | os.PathLike):
        context = with_ledger(read_context(source, audit=audit, attacks=attacks, compare=compare), ledger)
        return write_page(context, out, title=title, form=form)
    with damage_named(source, do="Restore the folder from a copy, or train again"):
        context = with_ledger(read_context(source, audit=audit, attacks=attacks, compare=compare), ledger)
        return write_page(context, out, title=title, form=form)


def write_page(
    context: RunContext,
    out: str | os.PathLike[str] | None = None,
    *,
    title: str | None = None,
    form: str = "html",
) -> Path:
    """Write what is known about a context in one of the forms (`FILES`)."""
    if form not in FILES:
        raise InputError(f"unknown form of report '{form}'; {did_you_mean(form, FILES)}")
    target = _target(out, context, FILES[form])
    text = render(context, title=title) if form == "html" else render_form(context, form)
    target.parent.mkdir(parents=True, exist_ok=True)
    return write_whole(target, text)


def render_form(context: RunContext, form: str) -> str:
    """One of the forms other than the page, as text."""
    from hushgraph.report import deployments, facts, markdown

    renderers = {
        "markdown": markdown.render_markdown,
        "card": markdown.render_card,
        "json": facts.render_facts,
        "deployment": deployments.render_deployment,
    }
    return renderers[form](context)


def render(context: RunContext, *, title: str | None = None) -> str:
    """The page as text."""
    made = [(one.name, one.title, render_section(one, context)) for one in sections_of(context)]
    lead = Markup('Run <span class="hash">{}</span>, unit {}').format(context.certificate.run, context.unit.name)
    heading = title or f"{context.label} on {context.certificate.dataset}"
    return fill_page(heading, lead, made, brand="hushgraph privacy report", footer=FOOTER)


def fill_page(
    heading: str, lead: str | Markup, sections: Sequence[tuple[str, str, Markup]], *, brand: str, footer: str
) -> str:
    """A page of sections (name, title, inside), with its own style and script."""
    return (
        _environment()
        .get_template("page.html")
        .render(
            heading=heading,
            brand=brand,
            lead=lead,
            sections=[{"name": name, "title": words, "body": body} for name, words, body in sections],
            footer=footer,
            written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            style=_asset("style.css"),
            script=_asset("page.js"),
        )
    )


def render_section(one: Section, context: RunContext) -> Markup:
    """The inside of one section."""
    return render_text(one.template, **one.values(context))


def render_text(template: str, **values: Any) -> Markup:
    """A template with the pieces that sections share (`ui`), filled in."""
    return Markup(_environment().from_string(template).render(**values))


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("hushgraph.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["ui"] = environment.get_template("macros.html").module
    return environment


def _asset(name: str) -> Markup:
    return Markup(files("hushgraph.report").joinpath(name).read_text(encoding="utf-8"))


def _target(out: str | os.PathLike[str] | None, context: RunContext, name: str) -> Path:
    if out is not None:
        path = Path(out)
        return path / name if path.is_dir() else path
    if context.folder is None:
        raise InputError("report: a model that was not saved has no folder; say where to write (out=...)")
    return context.folder / name
