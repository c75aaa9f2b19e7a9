from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from hushgraph.ui.access import COOKIE, HEADERS, Access
from hushgraph.ui.app import create_app

from .conftest import PORT, Team

HERE = f"http://127.0.0.1:{PORT}"


@pytest.fixture
def stranger(team: Team) -> TestClient:
    """Somebody on this machine who has not opened the address."""
    return TestClient(create_app(team.desk, team.access), base_url=HERE)


def test_without_the_token_there_is_nothing(team: Team, stranger: TestClient) -> None:
    assert stranger.get("/").status_code == 404
    assert stranger.get("/docs").status_code == 404
    assert stranger.get(f"/{'x' * len(team.access.room)}/").status_code == 404
    for path in ("", "runs", f"runs/{team.runs[0]}", f"runs/{team.runs[0]}/report", "studies/state", "static/ui.js"):
        answer = stranger.get(team.root + path)
        assert answer.status_code == 403
        assert "members" not in answer.text
        assert team.access.token not in answer.text


def test_a_wrong_token_is_none(team: Team, stranger: TestClient) -> None:
    for token in ("", "x", team.access.token[:-1], team.access.cookie):
        answer = stranger.get(team.root, params={"token": token})
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
    stranger.cookies.set(COOKIE, team.access.token, path=team.root)
    assert stranger.get(team.root).status_code == 403


def test_the_token_becomes_a_cookie_of_this_path_alone(team: Team, stranger: TestClient) -> None:
    answer = stranger.get(team.root, params={"token": team.access.token}, follow_redirects=False)
    cookie = answer.headers["set-cookie"]
    assert answer.status_code == 200
    assert team.access.token not in answer.text
    assert team.access.token not in cookie
    words = {word.strip().lower() for word in cookie.split(";")[1:]}
    assert words == {"httponly", "samesite=strict", f"path={team.root}".lower()}
    assert "members" in stranger.get(team.root).text


def test_secrets_are_new_every_time_and_long() -> None:
    one, two = Access(1), Access(1)
    secrets = [one.room, one.token, one.cookie, two.room, two.token, two.cookie]
    assert len(set(secrets)) == 6
    assert all(len(secret) >= 21 for secret in secrets)  # 128 bits and more
    assert one.token not in repr(one)


def test_another_cookie_of_that_name_does_no_harm(team: Team) -> None:
    assert team.access.has_cookie(f"{COOKIE}=bad; {COOKIE}={team.access.cookie}")
    assert not team.access.has_cookie(f"{COOKIE}=; {COOKIE}x={team.access.cookie}")


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", "", "localhost"])
def test_a_name_that_was_made_to_point_here_is_refused(team: Team, host: str) -> None:
    answer = team.web.get(team.root, headers={"Host": host})
    assert answer.status_code == 421
    assert "members" not in answer.text


def test_its_own_names_are_let_in(team: Team) -> None:
    for host in (f"127.0.0.1:{PORT}", f"localhost:{PORT}"):
        assert team.access.address.startswith("http://127.0.0.1")
        answer = team.web.get(team.root, headers={"Host": host, "Cookie": f"{COOKIE}={team.access.cookie}"})
        assert answer.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "null"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": f"https://127.0.0.1:{PORT}"},
        {"Origin": HERE, "Sec-Fetch-Site": "same-site"},
        {"Origin": HERE, "Sec-Fetch-Site": "cross-site"},
    ],
)
def test_another_site_cannot_sign(team: Team, headers: dict[str, str]) -> None:
    run = team.runs[0]
    form = {"name": "officer", "verdict": "approved", "note": "forged", "seen": ""}
    answer = team.web.post(f"{team.root}runs/{run}/signoff", data=form, headers=headers)
    assert answer.status_code == 403
    assert team.book.history().of_kind("signoff") == []


def test_another_site_cannot_read(team: Team) -> None:
    for site in ("cross-site", "same-site"):
        asked = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
        assert team.web.get(team.root, headers=asked).status_code == 403
        assert team.web.get(team.root, headers={**asked, "Sec-Fetch-Mode": "navigate"}).status_code == 200
    assert team.web.get(team.root, headers={"Origin": "http://127.0.0.1:9999"}).status_code == 403


def test_other_methods_are_refused(team: Team) -> None:
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        assert team.web.request(method, team.root).status_code == 405
    assert team.web.post(team.root, headers={"Origin": HERE}).status_code == 405


def test_every_answer_has_the_headers(team: Team, stranger: TestClient) -> None:
    pages = [team.web.get(team.root + path) for path in ("", "runs", "studies", "nothing", "static/style.css")]
    for answer in (*pages, stranger.get("/"), stranger.get(team.root)):
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    assert (
        team.web.get(f"{team.root}runs/{team.runs[0]}/report")
        .headers["Content-Security-Policy"]
        .endswith("sandbox allow-scripts")
    )
