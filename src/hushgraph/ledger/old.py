"""Ledgers of format 1: a folder with one file of JSON lines for one dataset and one unit. Read for ever, never written.

What such a file says is replayed into a ledger in memory to be shown, added up and verified, or into another ledger to
be carried on (`hushgraph ledger import`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgraph.errors import LedgerError
from hushgraph.privacy.notes import Code, note

if TYPE_CHECKING:
    from hushgraph.ledger.ledger import Ledger

FILE = "ledger.jsonl"
_FIRST_LINK = "0" * 64
_VERSION = 1
_UNKNOWN = "unknown (imported)"
_OF_THE_FILE = ("number", "previous", "hash", "time", "kind")
_LAWS = {"noisy count": "discrete-laplace", "noisy count of pairs": "discrete-laplace", "unprotected": "none"}
"""The mechanisms of then whose noise was neither Gaussian nor that of reports of a given epsilon."""


@dataclass(frozen=True)
class OldLedger:
    """The entries of a file of format 1, checked; `torn` is what a crash left of a last line."""

    entries: tuple[dict[str, Any], ...]
    torn: bytes

    @property
    def dataset(self) -> str:
        """The name of its dataset."""
        return str(self.entries[0]["dataset"])


def is_there(folder: Path | None) -> bool:
    """Whether a folder holds a ledger of format 1."""
    return folder is not None and (folder / FILE).is_file()


def read_only(folder: Path) -> LedgerError:
    """What to say to whoever wants to write into one."""
    return LedgerError(
        f"the ledger in {folder} has format {_VERSION} and is only read. Carry it on in a new one: "
        f"`hushgraph ledger import {folder} --ledger NEW_FOLDER`"
    )


def replayed(folder: Path) -> Ledger:
    """What a ledger of format 1 says, as a ledger of today, in memory."""
    from hushgraph.ledger.ledger import Ledger
    from hushgraph.ledger.transfer import replay_old

    book = Ledger.in_memory(warn=False)
    replay_old(book, read_old(folder / FILE), str(folder))
    return book


def read_old(path: Path) -> OldLedger:
    """The entries of a file of format 1; an error where it was changed or damaged."""
    *lines, torn = path.read_bytes().split(b"\n")
    where, entries = str(path), list[dict[str, Any]]()
    link, pending = _FIRST_LINK, b""
    for number, line in enumerate(lines, start=1):
        entry = _parse(line)
        if entry is None:
            if pending or not entries:
                raise LedgerError(f"{where}: line {number} is not a ledger entry; the file was damaged")
            pending = line
            continue
        if pending:
            sealed = hashlib.sha256(pending).hexdigest()
            if entry["kind"] != "recovered" or entry.get("torn_sha256") != sealed:
                raise LedgerError(f"{where}: line {number - 1} was changed or damaged")
            pending = b""
        link = _check_link(entry, link, len(entries), f"{where}: line {number}")
        entries.append(entry)
    if pending:
        raise LedgerError(f"{where}: the last line was changed or damaged")
    last = _parse(torn)
    if last is not None:  # whole, only its end of line is missing
        _check_link(last, link, len(entries), f"{where}: the last line")
        entries, torn = [*entries, last], b""
    if not entries or entries[0]["kind"] != "ledger":
        raise LedgerError(f"{where}: expected a ledger's first entry; the file was damaged")
    if entries[0]["version"] != _VERSION:
        raise LedgerError(f"{where}: written by another version ({entries[0]['version']})")
    return OldLedger(tuple(entries), torn)


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        values = json.loads(line)
        return values if isinstance(values["kind"], str) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _check_link(entry: dict[str, Any], link: str, number: int, where: str) -> str:
    values = {key: value for key, value in entry.items() if key != "hash"}
    if values.get("previous") != link or values.get("number") != number:
        raise LedgerError(f"{where} does not follow the line before it: entries were removed, added or reordered")
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=True).encode()
    if hashlib.sha256(text).hexdigest() != entry.get("hash"):
        raise LedgerError(f"{where} was changed after it was written")
    return str(entry["hash"])


# In the words of today


def modernized(entries: Sequence[dict[str, Any]], unit: dict[str, Any]) -> list[dict[str, Any]]:
    """Entries of format 1 as entries of today say it."""
    planned: dict[tuple[str, str], dict[str, Any]] = {}
    found = []
    for entry in entries:
        kept = {key: value for key, value in entry.items() if key not in _OF_THE_FILE}
        if entry["kind"] == "open":
            kept = _opened(kept, unit)
            stages = [*kept["stages"], *(stage for branch in kept["branches"] for stage in branch["stages"])]
            planned |= {(kept["run"], stage["name"]): stage for stage in stages}
        elif entry["kind"] == "charge":
            kept = _charged(kept, planned.get((kept["run"], kept["stage"])))
        elif entry["kind"] == "choice":
            kept["reason"] = _in_earlier_words(kept["reason"])
        imported = {"time": entry["time"], "hash": entry["hash"]}
        found.append({**kept, "kind": entry["kind"], "imported": imported, "unit": unit})
    return found


def _opened(kept: dict[str, Any], unit: dict[str, Any]) -> dict[str, Any]:
    branches = [{"method": one["method"], **_parts(one)} for one in kept.pop("options", [])]
    ways = kept.pop("ways", None) or [kept.pop("event")]
    kept |= {**_parts(kept), "unit": unit, "branches": branches, "ways": ways, "plan": {}}
    return kept | {"unpublished": False, "group": None, "operator": _UNKNOWN, "purpose": "", "command": ""}


def _parts(described: dict[str, Any]) -> dict[str, Any]:
    return {
        "stages": [_stage(stage) for stage in described["stages"]],
        "public": [_in_earlier_words(words) for words in described.pop("assumed_public", [])],
        "unprotected": [_in_earlier_words(words) for words in described.pop("not_protected", [])],
    }


def _stage(facts: dict[str, Any]) -> dict[str, Any]:
    """Law, sampling and scale of a stage; whole-number noise had a scale beside its standard deviation."""
    law = _LAWS.get(facts["mechanism"], "randomizer" if "epsilon" in facts else "gaussian")
    sampling = "poisson" if "sample_rate" in facts else None
    return {**facts, "law": law, "sampling": sampling, "scale": facts.get("scale", facts["std"])}


def _charged(kept: dict[str, Any], stage: dict[str, Any] | None) -> dict[str, Any]:
    """A charge knew its standard deviation alone: it has the scale of its stage where that is the planned one."""
    if stage is None or stage["std"] != kept["std"]:
        return {**kept, "law": "unknown", "sampling": None, "scale": kept["std"]}
    return {**kept, **{key: stage[key] for key in ("law", "sampling", "scale")}}


def _in_earlier_words(words: str) -> dict[str, Any]:
    return note(Code.EARLIER_WORDS, words=words).as_dict()
