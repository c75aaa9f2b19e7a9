"""A ledger's statement as lines for a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from typing import Any

from hushgraph.ledger.limits import cause_in_words
from hushgraph.ledger.statement import limit_words, pending_words, sign_off_words
from hushgraph.text import rounded_up

WIDTH = 80


def lines(found: dict[str, Any]) -> list[str]:
    """Totals of every dataset, then the runs, then what was refused."""
    shown = [line for dataset in found["datasets"] for line in _dataset(dataset)]
    if found["runs"]:
        shown += [
            "",
            f"runs (the last {len(found['runs'])} of {found['runs_in_all']}, newest last)",
            *_run_table(found),
        ]
    if found["refused"]:
        shown += ["", f"refused (the last {len(found['refused'])} of {found['refused_in_all']})"]
        shown += [line for one in found["refused"] for line in _refusal(one)]
    place = found["folder"] or "in memory"
    return [*shown, "", *_wrapped(f"ledger {place}: {found['entries']} entries, last hash {found['hash'][:16]}...")]


def _dataset(dataset: dict[str, Any]) -> list[str]:
    others = [name for name in dataset["names"] if name != dataset["dataset"]]
    shown = _wrapped(f"dataset {dataset['dataset']}" + (f" (also called {', '.join(others)})" if others else ""))
    shown += _wrapped(pending_words(dataset), "  ")
    for total in dataset["totals"]:
        parameters = ", ".join(f"{key} {value}" for key, value in total["unit"].items() if key != "name")
        unit = total["unit"]["name"] + (f" ({parameters})" if parameters else "")
        shown += _wrapped(f"total per {unit}: {total['words']}", "  ")
        shown += _wrapped(total["reason"], "    ")
        shown += _wrapped(_limit(total["limit"]), "    ")
        for limit in total["limits"][1:]:
            shown += _wrapped(f"limit {limit_words(limit)}", "      ")
    return shown


def _limit(limit: dict[str, Any] | None) -> str:
    if limit is None:
        return "no limit declared"
    why = f": {limit['purpose']}" if limit["purpose"] else ""
    return f"limit {limit['epsilon']:g} at delta {limit['delta']:g}, set by {limit['operator']}{why}"


def _run_table(found: dict[str, Any]) -> list[str]:
    columns = "{:<9}{:<12}{:<13}{:<17}{:>8}  {:<}"
    shown = [columns.format("run", "when", "method", "unit", "epsilon", "state")]
    for run in found["runs"]:
        method = run["method"] if run["chosen"] is None else run["chosen"]
        when = run["time"][5:16].replace("T", " ")
        epsilon = rounded_up(float(run["epsilon"]))
        cells = (run["run"][:8], when, method[:12], run["unit"]["name"][:16], epsilon, _state(run))
        shown.append(columns.format(*cells))
        shown += _wrapped(_who(run), "         ")
    return shown


def _who(run: dict[str, Any]) -> str:
    words = f"{run['dataset']}, by {run['operator']}" + (f": {run['purpose']}" if run["purpose"] else "")
    if run["model_path"]:
        words += f"; model {run['model_path']}"
    if run["group"]:
        words += f"; group {run['group']}"
    return words + (f"; {signed}" if (signed := sign_off_words(run)) else "")


def _state(run: dict[str, Any]) -> str:
    if run["counts"] == "left out":
        return "left out"
    if run["seeded"]:
        return "NOT PRIVATE: seeded"
    if run["counts"] == "unproved":
        return "NO GUARANTEE"
    return "closed" if run["closed"] else "open (all counts)"


def _refusal(one: dict[str, Any]) -> list[str]:
    words = f"{one['time'][5:16].replace('T', ' ')}  {one['method']} on {one['dataset']}, by {one['operator']}: "
    asked = f"epsilon {rounded_up(float(one['epsilon']))} for '{one['unit']['name']}', {cause_in_words(one['cause'])}"
    return _wrapped(words + asked, "  ")


def _wrapped(words: str, indent: str = "") -> list[str]:
    return textwrap.wrap(words, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ", break_on_hyphens=False)
