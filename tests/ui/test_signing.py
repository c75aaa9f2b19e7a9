from __future__ import annotations

from dataclasses import replace

import pytest

from hushgraph.errors import InputError
from hushgraph.ledger.keys import person_key
from hushgraph.ledger.manifest import verify_model
from hushgraph.ledger.verify import register, sign_off, signature_problems
from hushgraph.ui.signing import Form, people_here, sign, state_of

from .conftest import PORT, Team


def test_a_sign_off_is_signed_as_the_command_signs(team: Team) -> None:
    run = team.runs[0]
    answer = team.sign(run, note="plan <b>read</b>")
    assert answer.status_code == 303
    assert answer.headers["location"] == f"{team.root}runs/{run}#signed"
    (entry,) = team.book.history().of_kind("signoff")
    assert entry.values["verdict"] == "approved"
    assert entry.values["note"] == "plan <b>read</b>"
    assert signature_problems(team.book.history()) == []
    page = team.get(f"runs/{run}")
    assert "plan &lt;b&gt;read&lt;/b&gt;" in page
    assert "approved by officer" in team.get("runs")
    again = sign_off(team.book, run, "approved", "officer", "plan <b>read</b>")  # the command finds the same word
    assert again["signature"] == entry.values["signature"]


def test_a_rejection_is_seen_by_everybody(team: Team) -> None:
    run = team.runs[0]
    assert team.sign(run, verdict="rejected", note="purpose is missing").status_code == 303
    assert verify_model(team.home / "model", team.book).status == "rejected"
    assert "rejected" in team.get(f"runs/{run}")
    assert "REJECTED" in team.get(f"runs/{run}/report").upper()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": ""}, "choose who signs"),
        ({"name": "nobody"}, "expected a key of &#39;nobody&#39;"),
        ({"name": "../../ledger"}, "expected letters"),
        ({"verdict": "maybe"}, "approve or reject"),
        ({"note": "  "}, "say what was reviewed"),
        ({"note": "x" * 2001}, "at most 2000"),
        ({"note": "x" * 20000}, "at most 16384 bytes"),
        ({"seen": "0" * 64}, "read it again"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_entered(team: Team, changes: dict[str, str], words: str) -> None:
    answer = team.sign(team.runs[0], **changes)
    assert answer.status_code == 400
    assert words in answer.text
    assert team.book.history().of_kind("signoff") == []


def test_without_the_private_key_nobody_signs(team: Team) -> None:
    book = team.book
    register(book, "absent")
    person_key("absent", book.folder).unlink()
    assert people_here(book) == ["officer"]
    assert team.sign(team.runs[0], name="absent").status_code == 400
    key = person_key("officer", book.folder)
    key.write_bytes(b"not a key")
    assert team.sign(team.runs[0]).status_code == 400
    key.unlink()
    assert people_here(book) == []
    assert "hushgraph init --as NAME" in team.get(f"runs/{team.runs[0]}")
    assert book.history().of_kind("signoff") == []


def test_a_key_of_another_does_not_sign(team: Team) -> None:
    """A file in the right place with a key that the ledger does not know by that name."""
    book = team.book
    register(book, "mallory")
    person_key("officer", book.folder).write_bytes(person_key("mallory", book.folder).read_bytes())
    answer = team.sign(team.runs[0])
    assert answer.status_code == 400
    assert "has no such key" in answer.text
    assert book.history().of_kind("signoff") == []


def test_a_page_that_only_shows_does_not_sign(team: Team) -> None:
    desk = replace(team.desk, read_only=True)
    form = Form("officer", "approved", "read", state_of(team.book, team.runs[0]))
    with pytest.raises(InputError, match="read-only"):
        sign(desk, team.runs[0], form)
    sign(team.desk, team.runs[0], form)
    assert len(team.book.history().of_kind("signoff")) == 1


def test_only_forms_are_read(team: Team) -> None:
    address, headers = f"{team.root}runs/{team.runs[0]}/signoff", {"Origin": f"http://127.0.0.1:{PORT}"}
    assert team.web.post(address, json={"name": "officer"}, headers=headers).status_code == 400
    kind = {"Content-Type": "application/x-www-form-urlencoded", **headers}
    assert team.web.post(address, content=b"\xff\xfe=1", headers=kind).status_code == 400
    assert team.web.post(address, content="&".join(f"a{n}=1" for n in range(50)), headers=kind).status_code == 400
    unknown = f"{team.root}runs/none/signoff"
    assert team.web.post(unknown, data={"name": "officer"}, headers=headers).status_code == 404
