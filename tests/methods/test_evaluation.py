from __future__ import annotations

import torch

from hushgraph.methods.evaluation import EVALUATION, balanced_accuracy, by_class, evaluate_classes


def test_classes_come_by_frequency_in_training_with_their_accuracy() -> None:
    labels = torch.tensor([0, 0, 1, 1, 1, 2, 1, 0])
    predicted = torch.tensor([0, 1, 1, 1, 1, 0, 0, 0])
    rows = by_class(predicted, labels, torch.tensor([0, 1, 5, 6]), torch.tensor([2, 3, 4, 7]), 4)
    assert [row["class"] for row in rows] == [1, 0, 2, 3]
    assert [row["train"] for row in rows] == [3, 1, 0, 0]
    assert [row["accuracy"] for row in rows] == [0.0, 50.0, 0.0, None]
    assert balanced_accuracy(rows) == 50.0 / 3
    assert balanced_accuracy(rows[3:]) is None


def test_an_evaluation_covers_all_splits_and_says_that_it_is_not_private() -> None:
    scores = torch.eye(3)[torch.tensor([0, 1, 2, 0])]
    splits = {"train": torch.tensor([0, 1]), "val": torch.tensor([], dtype=torch.int64), "test": torch.tensor([2, 3])}
    found = evaluate_classes(scores, torch.tensor([0, 1, 2, 1]), splits, 3)
    assert found["accuracy"] == {"train": 100.0, "val": None, "test": 50.0}
    assert found["test_balanced_accuracy"] == 50.0
    assert found["note"] == EVALUATION
