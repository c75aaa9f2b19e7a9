from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgraph.collect import BinnedQuestion, FeatureQuestion, LabelQuestion, Task
from hushgraph.collect.report import ReportError, check_report, draw_payload, parse_body


def tasks():
    features = st.builds(
        FeatureQuestion,
        dimensions=st.integers(1, 30),
        epsilon=st.floats(0.1, 20.0),
        mechanism=st.sampled_from(["multi_bit", "one_bit"]),
    )
    binned = st.builds(
        BinnedQuestion,
        scores=st.integers(1, 30).map(lambda d: (1.0 / d,) * d),
        epsilon=st.floats(0.1, 20.0),
        bins=st.integers(2, 20),
    )
    labels = st.builds(
        LabelQuestion,
        classes=st.integers(2, 6).map(lambda k: tuple("abcdef"[:k])),
        epsilon=st.floats(0.1, 5.0),
        mechanism=st.sampled_from(["randomized_response", "unary_symmetric", "unary_optimized"]),
    )
    both = st.tuples(st.none() | features | binned, st.none() | labels).filter(any)
    return both.map(lambda pair: Task("t", "T", 5, *pair))


@settings(max_examples=150, deadline=None)
@given(task=tasks(), seed=st.integers(0, 2**32))
def test_whatever_a_mechanism_draws_is_accepted(task, seed):
    rng = np.random.default_rng(seed)
    features = None if task.features is None else rng.uniform(-1, 2, task.features.dimensions)
    label = None if task.labels is None else int(rng.integers(len(task.labels.classes)))
    answer = draw_payload(task, features, label, rng)
    body = {**answer, "report_id": "ab" * 16, "node_token": "t" * 43, "task_hash": task.sha256}
    report = check_report(task, parse_body(json.dumps(body).encode()))
    assert json.loads(report.payload) == answer


def test_padding_bits_must_be_zero():
    task = Task("t", "T", 5, FeatureQuestion(9, 9.0, mechanism="one_bit"))
    body = {"report_id": "ab" * 16, "node_token": "t" * 43, "task_hash": task.sha256, "y": None}
    check_report(task, {**body, "x": "ff80"})
    for wrong in ("ff81", "FF80", "ff8", "ff8000", "zz80", 5, None, ["ff", "80"]):
        with pytest.raises(ReportError):
            check_report(task, {**body, "x": wrong})


def test_bins_are_those_of_the_task():
    task = Task("t", "T", 5, BinnedQuestion((0.5, 0.5), 1.0, bins=3))
    body = {"report_id": "ab" * 16, "node_token": "t" * 43, "task_hash": task.sha256, "y": None}
    check_report(task, {**body, "x": "0200"})
    for wrong in ("0300", "02", "020000", "0G00", [2, 0], None):
        with pytest.raises(ReportError):
            check_report(task, {**body, "x": wrong})


def test_unary_labels_are_bits():
    task = Task("t", "T", 5, labels=LabelQuestion(("a", "b", "c"), 1.0, "unary_optimized"))
    body = {"report_id": "ab" * 16, "node_token": "t" * 43, "task_hash": task.sha256, "x": None}
    check_report(task, {**body, "y": [0, 1, 1]})
    for wrong in ([0, 1], [0, 1, 2], [0, 1, True], 1, None, "011", [0, 1, 1.0]):
        with pytest.raises(ReportError):
            check_report(task, {**body, "y": wrong})
    with pytest.raises(ReportError):
        check_report(task, {**body, "y": [0, 1, 1], "x": [[0, 1]]})
