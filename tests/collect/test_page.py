from __future__ import annotations

import re
import socket
import threading
import time

import pytest

from browsing import browsing, needs_browser
from hushgraph.collect import FeatureQuestion, LabelQuestion, admin
from hushgraph.collect.admin import SCRIPT, SECURITY_HEADERS, STYLE, _source, index_page, task_page

STATUS = {"state": "open", "reports_at_least": 20, "enrolled_at_least": 40, "rounded_to": 10}


def test_nothing_comes_from_elsewhere(task_maker):
    page = task_page(task_maker(), STATUS) + index_page([(task_maker(), STATUS)])
    assert "http://" not in page
    assert "https://" not in page
    assert not re.search(r"(src|@import|url\()", page)
    assert not re.search(r"<[^>]+\s(style|on\w+)=", page)


def test_the_policy_names_exactly_the_style_and_script(task_maker):
    page = task_page(task_maker(), STATUS)
    style = re.search(r"<style>(.*?)</style>", page, re.S).group(1)
    script = re.search(r"<script>(.*?)</script>", page, re.S).group(1)
    assert (style, script) == (STYLE, SCRIPT)
    policy = SECURITY_HEADERS["Content-Security-Policy"]
    assert _source(style) in policy
    assert _source(script) in policy
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'")


def test_text_of_the_task_is_escaped(task_maker):
    evil = "<script>alert(1)</script>'\">"
    task = task_maker(title=evil, purpose=evil, contact=evil, labels=LabelQuestion((evil, "b"), 1.0))
    for page in (task_page(task, STATUS), index_page([(task, STATUS)])):
        assert "<script>alert" not in page
        assert page.count("<script>") == 1


def test_what_is_shown(task_maker):
    page = task_page(task_maker(), STATUS)
    for words in (
        "20+",
        "about 50% of the nodes",
        task_maker().sha256,
        "Close this task",
        "someone@example.org",
        "148×",
    ):
        assert words in page
    assert "under 10" in task_page(task_maker(), {**STATUS, "reports_at_least": 0})
    closed = task_page(task_maker(features=FeatureQuestion(8, 1.0, mechanism="one_bit")), {**STATUS, "state": "closed"})
    assert "<button id='stop' disabled>" in closed
    assert "No task yet" in index_page([])


@pytest.mark.slow
@needs_browser
def test_the_page_lives_in_a_browser(world, tmp_path):
    import uvicorn

    from hushgraph.collect.server import create_app

    for node in range(25):
        world.post(world.body(node))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = uvicorn.Config(create_app(world.store), port=port, access_log=False, log_level="error")
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.02)
        with browsing() as page:
            page.goto(f"http://127.0.0.1:{port}/tasks/survey")
            page.locator("[data-live=yes]").wait_for()  # set by the script after it has fetched the status
            before = page.content()
            admin.require_task(world.store, "survey")
            world.store.close_task("survey")
            page.reload()
            page.locator("[data-live=yes]").wait_for()
            closed = page.content()
            complaints = [one for one in page.complaints if "favicon" not in one and "404" not in one]
    finally:
        server.should_exit = True
        thread.join()
    assert complaints == []
    assert ">20+</b>" in before
    assert ">open</span>" in before
    assert ">closed</span>" in closed
    assert 'id="stop" disabled' in closed
