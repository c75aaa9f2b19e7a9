"""Sign-offs: a person approves or rejects a run, with a signature that anybody can check later."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hushgraph.errors import InputError, LedgerError
from hushgraph.ledger.entries import Entry, History, canonical
from hushgraph.ledger.keys import is_signed, make_person_key, person_key, public_of, read_private_key
from hushgraph.ledger.ledger import Ledger

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
