from __future__ import annotations

import math

from hushgraph.collect import BinnedQuestion, FeatureQuestion, LabelQuestion
from hushgraph.collect.task import explain_task


def test_the_numbers_are_those_of_the_mechanisms(task_maker):
    task = task_maker(features=FeatureQuestion(64, 1.0), labels=LabelQuestion(("a", "b", "c", "d"), 1.0))
    text = explain_task(task, 0.0, 5.0)
    assert f"{100 / (math.e + 1):.3g}%" in text  # the opposite bit
    assert f"{100 * math.e / (math.e + 3):.3g}%" in text  # the true class
    assert f"at most {math.exp(2):.3g}" in text
    assert "one random bit about one of your 64 numbers" in text
    assert "You may send no label" not in text


def test_every_mechanism_is_put_in_words(task_maker):
    one_bit = explain_task(task_maker(features=FeatureQuestion(8, 4.0, mechanism="one_bit"), labels=None), 0, 5)
    assert "about each of your 8 numbers" in one_bit
    assert "the label" not in one_bit.rpartition("Cost")[2]
    unary = explain_task(task_maker(labels=LabelQuestion(("a", "b"), 1.0, "unary_optimized")), 0, 5)
    assert "the bit of your class is 1 with probability 50%" in unary


def test_budget_words(task_maker):
    task = task_maker()
    assert "5 would be left" in explain_task(task, 0.0, 10.0)
    assert "will refuse" in explain_task(task, 6.0, 10.0)
    again = explain_task(task, 5.0, 10.0, answered=True)
    assert "costs nothing more" in again
    assert "would be left" not in again


def test_bins_and_the_price_of_the_dearest_number_are_told(task_maker):
    text = explain_task(task_maker(features=BinnedQuestion((0.25, 0.75), 2.0, bins=4), labels=None), 0, 5)
    assert "each of your 2 numbers one of 4 bins" in text
    assert "at most epsilon 1.5" in text
    assert "epsilon 2 (2 for the numbers)" in text
