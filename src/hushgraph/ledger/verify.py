"""Whether a ledger is what it was: file, chain, running totals, prices, sign-offs, and heads kept elsewhere.

Sign-offs: a person approves or rejects a run, with a signature that anybody can check later.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from hushgraph.errors import HushgraphError, InputError, LedgerError
from hushgraph.ledger.accounts import RunningTotals, fold
from hushgraph.ledger.checking import Finding, Verification, bad, good, history_problems, missing
from hushgraph.ledger.datasets import KINDS
from hushgraph.ledger.entries import Entry, History, canonical
from hushgraph.ledger.keys import (
    HEAD,
    contradiction,
    find_heads,
    is_signed,
    make_person_key,
    person_key,
    public_of,
    read_private_key,
)
from hushgraph.ledger.ledger import Ledger
from hushgraph.text import counted

_MOST = 20
_OF_THE_CHAIN = ("entries", "sign-offs", "keys", "running totals", "datasets")


def verify_ledger(ledger: Ledger, heads: Sequence[str | os.PathLike[str]] = ()) -> Verification:
    """Check everything that can be checked from the ledger's folder, the models it knows, and `heads` kept elsewhere.

    Each of `heads` is a file that `hushgraph ledger head` wrote, or a folder with models in it.
    """
    pages = _file(ledger)
    try:
        history = ledger.history()
    except HushgraphError as error:
        rest = [missing(what, "cannot be checked without a sound chain") for what in _OF_THE_CHAIN]
        return Verification((pages, bad("chain", str(error)), *rest, *_heads_of_nothing(heads)))
    findings = [pages, good("chain", f"{len(history.entries)} entries, each follows from the one before")]
    findings += _listed("entries", history_problems(history), "every cost, charge and limit follows from the events")
    signed = counted(len(history.of_kind("signoff")), "signature")
    findings += _listed("sign-offs", signature_problems(history), f"{signed} checked, all fit")
    if not ledger.is_old:
        findings += _beside_the_chain(ledger, history)
    return Verification((*findings, *_head_findings(history, heads)))


def _file(ledger: Ledger) -> Finding:
    try:
        pages = [] if ledger.is_old else ledger.store.integrity_problems()
    except HushgraphError as error:
        return bad("file", str(error))
    if pages:
        return bad("file", f"was changed or damaged: {'; '.join(pages[:3])}")
    return good("file", "its pages and indexes fit together")


def _beside_the_chain(ledger: Ledger, history: History) -> list[Finding]:
    """Keys, and what is kept with their help: running totals and what recognizes datasets."""
    keys = _keys(ledger, history)
    if keys.status == "contradicted":
        return [keys]
    totals = _listed("running totals", _readable(_total_problems, ledger, history), "equal to those of the entries")
    sketches = _readable(_sketch_problems, ledger, history)
    return [keys, *totals, *_listed("datasets", sketches, "what recognizes them is unchanged")]


def _readable(problems: Callable[[Ledger, History], list[str]], ledger: Ledger, history: History) -> list[str]:
    """The problems of a table; one that cannot be read at all is a problem, too."""
    try:
        return problems(ledger, history)
    except LedgerError as error:
        return [str(error)]


def _keys(ledger: Ledger, history: History) -> Finding:
    first = history.entries[0].values
    try:
        keys = ledger.keys
    except LedgerError as error:
        return bad("keys", str(error))
    if (first["public_key"], first["secret_check"]) != (keys.public, keys.secret_check):
        return bad("keys", "those beside the ledger are not those it began with. Restore them")
    return good("keys", "those that the ledger began with")


def _listed(what: str, problems: list[str], otherwise: str) -> list[Finding]:
    if not problems:
        return [good(what, otherwise)]
    shown = [bad(what, problem) for problem in problems[:_MOST]]
    return shown if len(problems) <= _MOST else [*shown, bad(what, f"and {len(problems) - _MOST} more")]


def _total_problems(ledger: Ledger, history: History) -> list[str]:
    """Rows that are not what the entries give: changed, missing, or too many."""
    expected = fold(history).accounts
    with ledger.reading() as rows:
        running = RunningTotals(rows, ledger.keys)
        stored = {(row[0], row[1]): row for row in rows.accounts()}
    problems = []
    for key in expected.keys() | stored.keys():
        if key not in stored or key not in expected:
            problems.append(f"the running total of '{key[0]}' is {'missing' if key in expected else 'of no entry'}")
        elif not running.is_row_of(stored[key], expected[key]):
            problems.append(f"the running total of '{key[0]}' was changed: it is not that of the entries")
    return sorted(problems)


def _sketch_problems(ledger: Ledger, history: History) -> list[str]:
    named = {entry.values["sketch"] for kind in KINDS for entry in history.of_kind(kind) if entry.values.get("sketch")}
    with ledger.reading() as rows:
        stored = set(rows.sketches())
        changed = rows.changed_sketches()
    found = [f"the sketch {link[:12]}... was changed" for link in sorted(changed)]
    found += [f"the sketch {link[:12]}... is missing" for link in sorted(named - stored)]
    return found + [f"the sketch {link[:12]}... belongs to no dataset" for link in sorted(stored - named - changed)]


# Heads


def _head_findings(history: History, heads: Sequence[str | os.PathLike[str]]) -> list[Finding]:
    places = [Path(head) for head in heads]
    findings = [finding for place in places for finding in _heads_at(history, place)]
    checked = gone = 0
    for folder in _known_models(history):
        if not (folder / HEAD).is_file():
            gone += 1
            continue
        checked += 1
        findings += [one for one in _heads_at(history, folder) if one.status == "contradicted"]
    if checked or gone:
        moved = f"; {counted(gone, 'model')} no longer where the ledger knows it" if gone else ""
        findings.append(good("heads", f"{counted(checked, 'head')} kept with models looked at{moved}"))
    if not findings:
        findings.append(missing("heads", "none was given and no model is known: an older copy of the file would pass"))
    return findings


def _heads_at(history: History, place: Path) -> list[Finding]:
    try:
        found = find_heads(place)
    except HushgraphError as error:
        return [bad("heads", str(error))]
    shown = []
    for path, head in found:
        words = contradiction(head, history)
        shown.append(
            bad("heads", f"{path}: {words}") if words else good("heads", f"{path} agrees (entry {head.number})")
        )
    return shown


def _heads_of_nothing(heads: Sequence[str | os.PathLike[str]]) -> list[Finding]:
    """Heads against a ledger that cannot be read or is gone."""
    found = []
    for place in heads:
        try:
            found += [
                bad(
                    "heads",
                    f"{path}: there were {head.number + 1} entries at {head.time}; now there is no sound ledger",
                )
                for path, head in find_heads(place)
            ]
        except HushgraphError as error:
            found.append(bad("heads", str(error)))
    return found


def _known_models(history: History) -> list[Path]:
    return [Path(folder) for folder in dict.fromkeys(e.values["model_path"] for e in history.of_kind("model"))]


VERDICTS = ("approved", "rejected")


def register(ledger: Ledger, name: str, key: Path | None = None) -> str:
    """Make the key of a person (at `key`, or in the user's configuration folder); enter and return its public half."""
    if ledger.folder is None:
        raise InputError("expected a ledger in a folder; a key for a ledger in memory signs nothing that lasts")
    public = make_person_key(key if key is not None else person_key(name, ledger.folder))
    with ledger.transaction() as rows:
        known = _key_of(rows.of_kind("key"), name)
        if known not in (None, public):
            raise LedgerError(f"'{name}' has another key in this ledger. Use that one, or another name")
        if known is None:
            ledger.append("key", {"name": name, "public_key": public, **ledger.occasion.who})
    return public


def sign_off(
    ledger: Ledger, run: str, verdict: str, name: str, note: str = "", key: Path | None = None
) -> dict[str, Any]:
    """Enter that `name` approved or rejected a run, signed with that person's key; returns what was entered.

    The last word of a person counts; the same word again, without a new note, is not entered twice.
    """
    if verdict not in VERDICTS:
        raise InputError(f"verdict: expected one of {', '.join(VERDICTS)}; got {verdict!r}")
    if ledger.folder is None:
        raise InputError("expected a ledger in a folder; got one in memory")
    path = key if key is not None else person_key(name, ledger.folder)
    if not path.exists():
        raise InputError(f"expected a key of '{name}' at {path}; make it with `hushgraph init --as {name}`")
    signing = read_private_key(path)
    with ledger.transaction() as rows:
        if _key_of(rows.of_kind("key"), name) != public_of(signing):
            raise LedgerError(f"'{name}' has no such key in this ledger; enter it with `hushgraph init --as {name}`")
        whole = find_run([entry.values["run"] for entry in rows.of_kind("open")], run)
        opened = next(entry for entry in rows.of_run(whole) if entry.kind == "open")
        said = [one.values for one in standing(e for e in rows.of_run(whole) if e.kind == "signoff")]
        again = next((one for one in said if one["name"] == name and one["verdict"] == verdict), None)
        if again is not None and note in ("", again["note"]):
            return again
        last = rows.last()
        assert last is not None
        values = {"run": whole, "dataset": opened.dataset, "verdict": verdict, "name": name, "note": note}
        values["seen"] = last.hash
        values["signature"] = signing.sign(_text(values).encode()).hex()
        ledger.append("signoff", values)
    return values


def standing(entries: Iterable[Entry]) -> list[Entry]:
    """The sign-offs of a run that count: the last one of every person."""
    return list({entry.values["name"]: entry for entry in entries}.values())


def find_run(known: list[str], run: str) -> str:
    """The run with that id, or the only one that begins with it."""
    found = [one for one in known if one == run] or [one for one in known if run and one.startswith(run)]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(f"run: expected the beginning of one id; '{run}' begins {', '.join(found[:5])}")
    raise InputError(f"run: expected one of this ledger; it has no run '{run}'. See `hushgraph ledger show`")


def signature_problems(history: History) -> list[str]:
    """Sign-offs whose signature does not fit what they say."""
    keys: list[Entry] = []
    problems = []
    for entry in history.entries:
        if entry.kind == "key":
            keys.append(entry)
        elif entry.kind == "signoff":
            public = _key_of(keys, entry.values["name"])
            if public is None or not is_signed(_text(entry.values), entry.values["signature"], public):
                problems.append(f"entry {entry.number}: the signature of '{entry.values['name']}' does not fit")
    return problems


def _key_of(entries: list[Entry], name: str) -> str | None:
    return next((entry.values["public_key"] for entry in entries if entry.values["name"] == name), None)


def _text(values: dict[str, Any]) -> str:
    signed = {key: value for key, value in values.items() if key != "signature"}
    return canonical({"what": "hushgraph sign-off", **signed})
