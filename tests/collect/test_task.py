from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgraph.collect import BinnedQuestion, FeatureQuestion, LabelQuestion, Task
from hushgraph.errors import InputError
from hushgraph.local import MultiBit, PerFeature, RandomizedResponse, UnaryEncoding


def test_hash_is_stable_and_known(task_maker):
    task = Task("t", "T", 3, FeatureQuestion(2, 1))
    assert task.canonical_json() == (
        '{"closes":"","contact":"","features":{"dimensions":2,"epsilon":1.0,"high":1.0,"low":0.0,'
        '"mechanism":"multi_bit","sampled":1},"format":"hushgraph-task/1","id":"t","labels":null,"nodes":3,'
        '"opens":"","purpose":"","title":"T"}'
    )
    assert task.sha256 == hashlib.sha256(task.canonical_json().encode()).hexdigest()
    assert task_maker().sha256 == task_maker().sha256


def test_every_change_changes_the_hash(task_maker):
    task = task_maker()
    variants = [
        replace(task, title="Other"),
        replace(task, nodes=41),
        replace(task, contact="other@example.org"),
        replace(task, purpose="other"),
        replace(task, closes="2027-01-01"),
        replace(task, features=FeatureQuestion(8, 4.1)),
        replace(task, features=FeatureQuestion(8, 4.0, high=2.0)),
        replace(task, features=FeatureQuestion(8, 4.0, mechanism="one_bit")),
        replace(task, labels=None),
        replace(task, labels=LabelQuestion(("red", "blue", "green"), 1.0, optional=True)),
    ]
    assert len({task.sha256, *(variant.sha256 for variant in variants)}) == len(variants) + 1


def test_scores_are_part_of_what_is_agreed_to(task_maker):
    task = task_maker(features=BinnedQuestion((0.25, 0.75), 2.0, bins=4))
    assert Task.from_json(task.canonical_json()) == task
    assert task.features.dimensions == 2
    assert task.features.build().epsilons == (0.5, 1.5)
    others = [BinnedQuestion((0.75, 0.25), 2.0, bins=4), BinnedQuestion((0.25, 0.75), 2.0, bins=5)]
    assert len({task.sha256, *(task_maker(features=other).sha256 for other in others)}) == 3
    with pytest.raises(InputError, match="sum to 1"):
        BinnedQuestion((0.5, 0.6), 1.0)
    with pytest.raises(InputError, match="feature_rr"):
        BinnedQuestion((0.5, 0.5), 1.0, mechanism="one_bit")


def test_round_trip_and_strict_reading(task_maker):
    task = task_maker(title='Ünïcode "quoted"', opens="2026-01-01")
    text = task.canonical_json()
    assert Task.from_json(text) == task
    assert text.isascii()
    for other in (
        text + " ",
        json.dumps(json.loads(text)),
        text.replace('"nodes":40', '"nodes":4e1'),
        "[]",
        "{",
        "nul",
    ):
        with pytest.raises(InputError):
            Task.from_json(other)


@given(position=st.integers(0, 600), character=st.characters(min_codepoint=32, max_codepoint=126))
def test_a_changed_character_never_keeps_the_hash(position, character):
    task = Task("t", "T", 3, FeatureQuestion(2, 1), LabelQuestion(("a", "b"), 1))
    text = task.canonical_json()
    position %= len(text)
    changed = text[:position] + character + text[position + 1 :]
    if changed != text:
        with contextlib.suppress(InputError):
            assert Task.from_json(changed).sha256 != task.sha256


def test_total_is_the_sum_and_bits_are_written_down(task_maker):
    task = task_maker()
    assert task.epsilon == 5.0
    assert task.features.sampled == MultiBit(4.0, 8).bits == 2
    assert FeatureQuestion(8, 4.0, mechanism="one_bit").sampled == 8


def test_mechanisms_are_built_from_the_question():
    assert isinstance(FeatureQuestion(8, 4.0).build(), MultiBit)
    per_feature = FeatureQuestion(8, 4.0, mechanism="one_bit").build()
    assert isinstance(per_feature, PerFeature)
    assert per_feature.epsilon == pytest.approx(4.0)
    assert isinstance(LabelQuestion(("a", "b"), 1).build(), RandomizedResponse)
    assert LabelQuestion(("a", "b"), 1, "unary_symmetric").build() == UnaryEncoding(1.0, 2, "symmetric")


def test_days():
    task = Task("t", "T", 3, FeatureQuestion(2, 1), opens="2026-02-01", closes="2026-02-03")
    asked = [date(2026, 1, 31), date(2026, 2, 1), date(2026, 2, 3), date(2026, 2, 4)]
    assert [task.is_open_on(day) for day in asked] == [False, True, True, False]


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "Bad Name"},
        {"id": "../x"},
        {"nodes": 0},
        {"nodes": True},
        {"features": None, "labels": None},
        {"opens": "yesterday"},
        {"closes": "2026-1-1"},
        {"title": 5},
    ],
)
def test_wrong_tasks_are_refused(task_maker, changes):
    with pytest.raises(InputError):
        task_maker(**changes)


@pytest.mark.parametrize(
    "make",
    [
        lambda: FeatureQuestion(8, 0.0),
        lambda: FeatureQuestion(8, 1.0, 1.0, 1.0),
        lambda: FeatureQuestion(8, 1.0, mechanism="laplace"),
        lambda: FeatureQuestion(8, 1.0, sampled=5, mechanism="one_bit"),
        lambda: LabelQuestion(("a",), 1.0),
        lambda: LabelQuestion(("a", "a"), 1.0),
        lambda: LabelQuestion(("a", "b"), -1.0),
        lambda: LabelQuestion(("a", "b"), 1.0, "other"),
    ],
)
def test_wrong_questions_are_refused(make):
    with pytest.raises(InputError):
        make()


def test_unknown_entries_get_a_suggestion():
    with pytest.raises(InputError, match="did you mean 'epsilon'"):
        Task.from_dict({"id": "t", "title": "T", "nodes": 3, "features": {"dimensions": 2, "epsilom": 1.0}})
    with pytest.raises(InputError, match="required"):
        Task.from_dict({"id": "t"})
