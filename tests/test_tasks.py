from __future__ import annotations

import torch

from hushgraph.tasks import balanced_accuracy, by_class


def test_classes_come_by_frequency_in_training_with_their_accuracy() -> None:
    labels = torch.tensor([0, 0, 1, 1, 1, 2, 1, 0])
    predicted = torch.tensor([0, 1, 1, 1, 1, 0, 0, 0])
    rows = by_class(predicted, labels, torch.tensor([0, 1, 5, 6]), torch.tensor([2, 3, 4, 7]), 4)
    assert [row["class"] for row in rows] == [1, 0, 2, 3]
    assert [row["train"] for row in rows] == [3, 1, 0, 0]
    assert [row["accuracy"] for row in rows] == [0.0, 50.0, 0.0, None]
    assert balanced_accuracy(rows) == 50.0 / 3
    assert balanced_accuracy(rows[3:]) is None
