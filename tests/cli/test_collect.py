from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from commands import run as run_command
from hushgraph.cli import collect as cli
from hushgraph.collect import client
from hushgraph.collect.client import Answer
from hushgraph.collect.store import SqliteStore

TASK = """
id = "survey"
title = "A survey"
nodes = 30
[features]
dimensions = 4
epsilon = 1.0
[labels]
classes = ["red", "green"]
epsilon = 0.5
"""


class InProcess:
    """Stands in for the network: the commands speak with the test's own server."""

    web = None

    def __init__(self, timeout=30.0, allow_plain=False):
        pass

    def get(self, url):
        return self._answer(self.web.get(url))

    def post(self, url, content, token=None):
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return self._answer(self.web.post(url, content=content, headers=headers))

    def get_with_token(self, url, token):
        return self._answer(self.web.get(url, headers={"Authorization": f"Bearer {token}"}))

    @staticmethod
    def _answer(answer):
        return Answer(answer.status_code, answer.content)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*words, code=0):
        result = CliRunner().invoke(cli.app, [str(word) for word in words])
        assert result.exit_code == code, result.output
        return result

    return call


@pytest.fixture
def prepared(run, tmp_path):
    (tmp_path / "task.toml").write_text(TASK)
    created = json.loads(run("create", "task.toml", "--json").stdout)
    run("enroll", "survey", "--tokens", "tokens.csv")
    return created


@pytest.fixture
def served(prepared, tmp_path, monkeypatch):
    from fastapi.testclient import TestClient

    from hushgraph.collect.server import create_app

    with TestClient(create_app(SqliteStore(tmp_path / "collect.db"))) as web:
        monkeypatch.setattr(InProcess, "web", web)
        monkeypatch.setattr(client, "HttpTransport", InProcess)
        yield prepared


def answer_words(prepared, tmp_path, node=0):
    token = (tmp_path / "tokens.csv").read_text().splitlines()[node + 1].split(",")[1]
    (tmp_path / "token").write_text(token)
    (tmp_path / "x.json").write_text("[0, 0.5, 1, 0.25]")
    words = ["answer", "survey", "--server", "http://testserver", "--state", tmp_path / f"state{node}"]
    words += ["--lifetime-epsilon", "2", "--agreed", prepared["sha256"], "--token-file", "token"]
    return [*words, "--features", "x.json", "--label", "green"]


def test_create_writes_secrets_once(run, prepared, tmp_path):
    assert prepared["epsilon"] == 1.5
    for name in ("operator.token", "tokens.csv", "collect.db"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0
    assert "operator_token_file" not in json.loads(run("create", "task.toml", "--json").stdout)
    run("enroll", "survey", "--tokens", "tokens.csv", code=2)
    run("enroll", "survey", "--tokens", "more.csv", code=2)
    assert not (tmp_path / "more.csv").exists()


def test_whole_life_of_a_task(run, served, tmp_path):
    assert (
        "epsilon 1.5"
        in run(
            "explain", "survey", "--server", "http://testserver", "--state", "state0", "--lifetime-epsilon", "2"
        ).stdout
    )
    words = answer_words(served, tmp_path)
    assert json.loads(run(*words, "--json").stdout)["status"] == 201
    assert json.loads(run(*words, "--json").stdout)["status"] == 200
    status = json.loads(run("status", "survey", "--server", "http://testserver", "--json").stdout)
    assert (status["state"], status["reports_at_least"]) == ("open", 0)
    operator = ["--server", "http://testserver", "--operator-token-file", "operator.token"]
    run("close", "survey", *operator)
    exported = json.loads(run("export", "survey", *operator, "--json").stdout)
    assert exported["reports"] == 1
    with np.load(tmp_path / "survey.npz", allow_pickle=False) as arrays:
        assert arrays["node"].tolist() == [0]


def test_wrong_usage_is_exit_code_two(run, served, tmp_path):
    words = answer_words(served, tmp_path, node=1)
    wrong_hash = [word if word != served["sha256"] else "0" * 64 for word in words]
    failure = json.loads(run(*wrong_hash, "--json", code=2).stdout)
    assert failure["kind"] == "TaskMismatch"
    run(*[word if word != "green" else "yellow" for word in words], code=2)
    run("close", "survey", "--server", "http://testserver", "--operator-token-file", "token", code=2)
    run("status", "none", "--server", "http://testserver", code=2)
    run("create", "missing.toml", code=2)
    (tmp_path / "bad.toml").write_text(TASK.replace("dimensions", "dimension"))
    assert "did you mean 'dimensions'" in run("create", "bad.toml", code=2).stderr
    run("enroll", "survey", "--tokens", "t.csv", "--nodes", "1-x", code=2)
    run("nonsense", code=2)


def test_over_the_lifetime_budget_is_exit_code_three(run, served, tmp_path):
    words = [word if word != "2" else "1" for word in answer_words(served, tmp_path)]
    assert "in a lifetime" in run(*words, code=3).stderr


def test_serving_to_the_world_needs_tls(run, prepared):
    assert "TLS" in run("serve", "--host", "0.0.0.0", code=2).stderr


def test_importing_the_commands_is_light():
    code = (
        "import sys, hushgraph.cli.collect; "
        "print([m for m in ('torch', 'scipy', 'fastapi', 'uvicorn', 'sklearn', 'numpy') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout.replace("'", '"')) == []


def test_tokens_are_not_lost_beside_files_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator's token of another store is in the way: nothing is made, and another name makes it whole."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task.toml").write_text(TASK)
    (tmp_path / "operator.token").write_text("of another store")
    assert run_command("collect", "create", "task.toml").exit_code == 2
    assert (tmp_path / "operator.token").read_text() == "of another store"
    made = run_command("collect", "create", "task.toml", "--operator-token-file", "second.token")
    assert made.exit_code == 0
    assert len((tmp_path / "second.token").read_text().strip()) == 43
    name = made.stdout.split()[1]
    assert run_command("collect", "enroll", name, "--tokens", "missing/folder/tokens.csv").exit_code == 0
    listed = (tmp_path / "missing/folder/tokens.csv").read_text().splitlines()
    assert run_command("collect", "enroll", name, "--tokens", "again.csv").exit_code == 2
    assert run_command("collect", "reissue", name, "--nodes", "0", "--tokens", "new.csv").exit_code == 0
    assert (tmp_path / "new.csv").read_text().splitlines()[1] != listed[1]
    assert run_command("collect", "revoke", name, "--nodes", "0-1").stdout.startswith("2 tokens revoked")
    assert run_command("collect", "rotate-operator", "--operator-token-file", "third.token").exit_code == 0
