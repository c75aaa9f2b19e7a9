"""Measures of a classifier that look behind the average. All of them read private labels: evaluation, not release."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

EVALUATION = "not private: evaluation"
"""The mark of every figure that was computed on private data outside the guarantee."""


def by_class(predicted: Tensor, labels: Tensor, nodes: Tensor, train: Tensor, num_classes: int) -> list[dict[str, Any]]:
    """Accuracy on `nodes` for every class, in percent, most frequent class among the `train` nodes first.

    Private training loses most on rare classes, which an average over nodes hides. A class without nodes to test on
    has accuracy None.
    """
    seen = torch.bincount(labels[train], minlength=num_classes)
    tested = torch.bincount(labels[nodes], minlength=num_classes)
    hits = torch.bincount(labels[nodes][predicted[nodes] == labels[nodes]], minlength=num_classes)
    return [
        {
            "class": c,
            "train": int(seen[c]),
            "tested": int(tested[c]),
            "accuracy": 100.0 * int(hits[c]) / int(tested[c]) if int(tested[c]) else None,
        }
        for c in torch.argsort(seen, descending=True, stable=True).tolist()
    ]


def balanced_accuracy(rows: list[dict[str, Any]]) -> float | None:
    """The mean of the class accuracies of `by_class`, every class counting the same."""
    found = [row["accuracy"] for row in rows if row["accuracy"] is not None]
    return sum(found) / len(found) if found else None
