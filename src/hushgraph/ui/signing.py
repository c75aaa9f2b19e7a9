"""An officer's sign-off: the name and the reason come from the form, the signature from that person's own key.

It is the same act as `hushgraph ledger approve`: the key has to be readable by whoever runs this page.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs

from hushgraph.errors import HushgraphError, InputError
from hushgraph.ledger.keys import person_key
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.verify import VERDICTS, sign_off
from hushgraph.ui.shell import Desk

LARGEST = 16 * 1024
_LONGEST = 2000


@dataclass(frozen=True)
class Form:
    """What the form holds. `seen` is the last entry of the run when the page was made."""

    name: str = ""
    verdict: str = ""
    note: str = ""
    seen: str = ""

    @classmethod
    def read(cls, body: bytes) -> Form:
        """The fields of a form that was sent."""
        try:
            given = parse_qs(body.decode("utf-8"), max_num_fields=8, errors="strict")
        except ValueError as error:
            raise InputError("sign-off: expected the fields of the form; got something else") from error
        return cls(**{key: given.get(key, [""])[0].strip() for key in ("name", "verdict", "note", "seen")})

    def problems(self) -> list[str]:
        """What is missing."""
        found = []
        if not self.name:
            found.append("name: choose who signs")
        if self.verdict not in VERDICTS:
            found.append("verdict: approve or reject")
        if not self.note:
            found.append("reason: say what was reviewed, or why it is rejected")
        if len(self.note) > _LONGEST:
            found.append(f"reason: expected at most {_LONGEST} characters; got {len(self.note)}")
        return found


def people_here(book: Ledger) -> list[str]:
    """Who has a key in the ledger, and the private half of it on this machine."""
    with book.readable().reading() as rows:
        names = [entry.values["name"] for entry in rows.of_kind("key")]
    return [name for name in dict.fromkeys(names) if _has_key(name, book)]


def _has_key(name: str, book: Ledger) -> bool:
    try:
        return person_key(name, book.folder).is_file()
    except (HushgraphError, OSError):
        return False


def state_of(book: Ledger, run: str) -> str:
    """The hash of the last entry of a run."""
    with book.readable().reading() as rows:
        return str(rows.of_run(run)[-1].hash)


def sign(desk: Desk, run: str, form: Form) -> None:
    """Sign what the form says; an error where it is not whole, or the run has moved on since the page was made."""
    if desk.read_only:
        raise InputError("sign-off: this page only shows; start it without --read-only to sign")
    InputError.collect(form.problems())
    book = desk.ledger
    if state_of(book, run) != form.seen:
        raise InputError("sign-off: the ledger has a new entry of this run since the page was made; read it again")
    sign_off(book, run, form.verdict, form.name, form.note)
