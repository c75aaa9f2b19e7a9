from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from hushgraph.errors import InputError
from hushgraph.ui.app import listen

from .conftest import Team


def test_every_link_of_every_page_leads_somewhere(team: Team) -> None:
    waiting, seen = [team.root], set()
    while waiting:
        address = waiting.pop()
        if address in seen:
            continue
        seen.add(address)
        answer = team.web.get(address)
        assert answer.status_code == 200, address
        if answer.headers["content-type"].startswith("text/html") and not address.endswith("/report"):
            found = re.findall(r'(?:href|src|action)="([^"#]+)', answer.text)
            assert all(one.startswith((team.root, "data:,")) for one in found), found
            waiting += [one.replace("&amp;", "&") for one in found if one.startswith("/") and "signoff" not in one]
    run = f"{team.root}runs/{team.runs[0]}"
    assert {team.root, run, f"{run}/report", f"{run}/report?form=json", f"{team.root}check"} <= seen


def test_pages_have_no_style_or_script_of_their_own(team: Team) -> None:
    for path in ("", "runs", f"runs/{team.runs[0]}", "studies", "check"):
        page = team.get(path)
        assert not re.search(r"<style|<script>|\sstyle=|\son\w+=", page)
        assert "http://" not in page
        assert "https://" not in page


@pytest.mark.parametrize(
    "path",
    [
        "static/../app.py",
        "static/%2e%2e%2fapp.py",
        "static/..%5capp.py",
        "runs/../../../../etc/passwd",
        "runs/%2e%2e%2f%2e%2e%2fetc%2fpasswd/report",
        "runs/..%2f..%2fmodel/report",
        "studies/..%2fquick/report",
        "studies/quick.sqlite",
        "runs/none",
        "runs/none/verification",
        "nothing",
    ],
)
def test_paths_are_looked_up_and_never_opened(team: Team, path: str) -> None:
    answer = team.web.get(team.root + path)
    assert answer.status_code == 404
    assert "root:" not in answer.text
    assert "import" not in answer.text


def test_wrong_forms_and_pages_are_said(team: Team) -> None:
    run = team.runs[0]
    assert "did you mean" in team.web.get(f"{team.root}runs/{run}/report?form=markdwn").text
    assert team.web.get(f"{team.root}runs?page=x").status_code == 422
    assert team.web.get(f"{team.root}runs?page=99").status_code == 200


def test_a_port_that_is_taken_is_said() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(InputError, match="free port"):
            listen(other.getsockname()[1])
    with listen(0) as bound:
        assert bound.getsockname()[0] == "127.0.0.1"


def test_nothing_is_written_by_looking(team: Team) -> None:
    def state() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in team.home.rglob("*") if path.is_file() and path.suffix != ".lock"}

    before = state()
    for path in ("", "runs", f"runs/{team.runs[0]}", f"runs/{team.runs[0]}/report", "studies", "check"):
        team.get(path)
    assert state() == before
