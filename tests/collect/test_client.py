from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from hushgraph.collect import Client, FeatureQuestion, LabelQuestion, SendError, TaskMismatch
from hushgraph.collect import client as client_module
from hushgraph.collect.client import Answer, class_number
from hushgraph.errors import BudgetError, InputError

FEATURES = np.linspace(0, 1, 8)


def make_client(tmp_path, transport, lifetime=10.0, name="person"):
    return Client(tmp_path / name, lifetime, transport, wait=lambda seconds: None)


def participate(client, world, node, label):
    task = client.fetch("", "survey")
    client.answer(task, world.task.sha256, world.tokens[node], FEATURES, label)
    return client.send("", task)


def test_fetch_answer_send(world, tmp_path, transport):
    client = make_client(tmp_path, transport)
    sent = participate(client, world, 3, 2)
    assert (sent.status, sent.tries) == (201, 1)
    assert [node for node, _ in world.stored()] == [3]
    assert client.budget.spent == 5.0


def test_answer_is_drawn_once_and_repeated_byte_for_byte(world, tmp_path, transport):
    client = make_client(tmp_path, transport)
    bodies = {client.answer(world.task, world.task.sha256, world.tokens[0], FEATURES, 1) for _ in range(5)}
    again = make_client(tmp_path, transport).answer(world.task, world.task.sha256, world.tokens[0], 1 - FEATURES, 0)
    assert bodies == {again}
    assert client.budget.spent == 5.0


def test_retries_send_the_same_bytes_and_store_one_report(world, tmp_path, losing_transport):
    client = make_client(tmp_path, losing_transport)
    sent = participate(client, world, 0, 0)
    assert (sent.status, sent.tries) == (200, 3)
    assert len(losing_transport.sent) == 3
    assert len(set(losing_transport.sent)) == 1
    assert len(world.stored()) == 1


def test_a_changed_task_is_refused_before_anything_happens(world, tmp_path, transport):
    client = make_client(tmp_path, transport)
    changed = replace(world.task, features=FeatureQuestion(8, 8.0))
    with pytest.raises(TaskMismatch, match="agreed"):
        client.answer(changed, world.task.sha256, world.tokens[0], FEATURES, 0)
    with pytest.raises(TaskMismatch, match="64 hex"):
        client.answer(world.task, world.task.sha256[:40], world.tokens[0], FEATURES, 0)
    assert client.budget.spent == 0
    assert not (client.folder / "answers").exists()
    assert not transport.sent


@pytest.mark.parametrize("lie", ["hash", "task", "name", "nonsense"])
def test_a_lying_server_is_noticed_when_fetching(world, tmp_path, lie):
    text, sha256 = world.task.canonical_json(), world.task.sha256
    bodies = {
        "hash": {"task": text, "sha256": "0" * 64},
        "task": {"task": text.replace("4.0", "9.0"), "sha256": sha256},
        "name": {
            "task": replace(world.task, id="other").canonical_json(),
            "sha256": replace(world.task, id="other").sha256,
        },
        "nonsense": ["?"],
    }

    class Liar:
        def get(self, url):
            return Answer(200, json.dumps(bodies[lie]).encode())

    with pytest.raises(InputError):
        make_client(tmp_path, Liar()).fetch("", "survey")


def test_lifetime_budget_spans_tasks(world, tmp_path, transport, task_maker):
    client = make_client(tmp_path, transport, lifetime=8.0)
    client.answer(world.task, world.task.sha256, world.tokens[0], FEATURES, 0)
    second = task_maker(id="second")
    with pytest.raises(BudgetError):
        client.answer(second, second.sha256, world.tokens[0], FEATURES, 0)
    assert "more than you have left" in client.explain(second)
    assert not client._path(second.sha256).exists()
    cheaper = task_maker(id="third", labels=None, features=FeatureQuestion(8, 3.0))
    client.answer(cheaper, cheaper.sha256, world.tokens[0], FEATURES)
    assert client.budget.spent == 8.0


def test_crash_between_charge_and_memo_spends_once(world, tmp_path, transport, monkeypatch):
    client = make_client(tmp_path, transport, lifetime=5.0)

    def crash(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(client_module, "draw_payload", crash)
        with pytest.raises(KeyboardInterrupt):
            client.answer(world.task, world.task.sha256, world.tokens[0], FEATURES, 0)
    assert client.budget.spent == 5.0
    # Nothing was seen by anyone, so drawing now is the first release and needs no second charge.
    client.answer(world.task, world.task.sha256, world.tokens[0], FEATURES, 0)
    assert client.budget.spent == 5.0
    assert client.send("", world.task).status == 201


def test_crash_between_memo_and_send_repeats_the_memo(world, tmp_path, transport):
    class Dead:
        def post(self, url, content):
            raise KeyboardInterrupt

    first = make_client(tmp_path, Dead())
    stored = first.answer(world.task, world.task.sha256, world.tokens[0], FEATURES, 0)
    with pytest.raises(KeyboardInterrupt):
        first.send("", world.task)
    second = make_client(tmp_path, transport)
    assert second.send("", world.task).status == 201
    assert transport.sent == [stored]


def test_answer_is_on_disk_before_the_first_send(world, tmp_path):
    seen = []

    class Looking:
        def post(self, url, content):
            seen.append(next((tmp_path / "person" / "answers").glob("*.json")).read_bytes() == content)
            return Answer(201)

    client = make_client(tmp_path, Looking())
    client.answer(world.task, world.task.sha256, world.tokens[0], FEATURES, 0)
    client.send("", world.task)
    assert seen == [True]


def test_sending_needs_an_answer(world, tmp_path, transport):
    with pytest.raises(InputError, match="stored answer"):
        make_client(tmp_path, transport).send("", world.task)


@pytest.mark.parametrize("status", [403, 404, 409, 410, 413, 422])
def test_final_refusals_are_not_retried(world, tmp_path, status):
    class Refusing:
        calls = 0

        def post(self, url, content):
            self.calls += 1
            return Answer(status)

    transport = Refusing()
    client = make_client(tmp_path, transport)
    client.answer(world.task, world.task.sha256, world.tokens[0], FEATURES, 0)
    with pytest.raises(SendError):
        client.send("", world.task)
    assert transport.calls == 1


def test_wrong_values_are_refused_before_charging(world, tmp_path, transport):
    client = make_client(tmp_path, transport)
    agreed, token = world.task.sha256, world.tokens[0]
    for features, label in (
        (None, 0),
        (np.zeros(7), 0),
        (np.full(8, np.nan), 0),
        (np.zeros((2, 8)), 0),
        (FEATURES, 3),
        (FEATURES, -1),
        (FEATURES, 0.5),
    ):
        with pytest.raises(InputError):
            client.answer(world.task, agreed, token, features, label)
    assert client.budget.spent == 0


def test_a_label_may_be_named(world, tmp_path, transport):
    names = world.task.labels.classes
    assert [class_number(world.task, name) for name in names] == list(range(len(names)))
    assert class_number(world.task, None) is None
    client = make_client(tmp_path, transport)
    with pytest.raises(InputError, match="one of the classes"):
        client.answer(world.task, world.task.sha256, world.tokens[0], FEATURES, "nonsense")
    assert client.budget.spent == 0
    client.answer(world.task, world.task.sha256, world.tokens[0], FEATURES, names[1])
    assert client.budget.spent == 5.0


def test_a_label_may_be_left_out_only_if_optional(world, tmp_path, transport, task_maker):
    client = make_client(tmp_path, transport)
    body = json.loads(client.answer(world.task, world.task.sha256, world.tokens[0], FEATURES))
    assert body["y"] is None
    strict = task_maker(id="strict", labels=LabelQuestion(("a", "b"), 1.0))
    with pytest.raises(InputError, match="label"):
        client.answer(strict, strict.sha256, world.tokens[0], FEATURES)


def test_explain_says_what_leaves_and_what_it_costs(world, tmp_path, transport):
    client = make_client(tmp_path, transport)
    text = client.explain(world.task)
    for words in (
        "each of 2 of your 8 numbers",
        "one of 3 class names",
        "epsilon 5",
        world.task.sha256,
        "5 would be left",
    ):
        assert words in text
    client.answer(world.task, world.task.sha256, world.tokens[0], FEATURES, 0)
    assert "answered this task already" in client.explain(world.task)


def test_racing_processes_draw_one_answer(world, tmp_path):
    # Four processes race for the same folder; all must come back with the same bytes.
    code = (
        "import sys; from hushgraph.collect import Client, Task; t = Task.from_json(sys.argv[2]);"
        "sys.stdout.buffer.write(Client(sys.argv[1], 10.0).answer(t, t.sha256, 'x' * 43, [0.5] * 8, 1))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "shared"), world.task.canonical_json()]
    racing = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    answers = {process.communicate()[0] for process in racing}
    assert len(answers) == 1
    assert answers.pop()


def test_client_needs_only_numpy_and_the_standard_library():
    code = (
        "import sys, hushgraph.collect; "
        "print([m for m in ('torch', 'scipy', 'fastapi', 'pydantic', 'httpx', 'typer', 'sklearn') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
