"""What a model is for, and how well it does: measures that read private labels are an evaluation, not a release."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph, is_labeled
from hushgraph.graph.targets import NumberRange
from hushgraph.training.losses import micro_f1

EVALUATION = "not private: evaluation"
"""The mark of every figure that was computed on private data outside the guarantee."""


def class_metrics(
    scores: Tensor, graph: CheckedGraph, nodes: dict[str, Tensor], numbers: NumberRange | None
) -> dict[str, Any]:
    """How well class scores do on the labeled nodes of every split, and the numbers that the classes are parts of."""
    known = is_labeled(graph.labels)
    splits = {name: found[known[found]] for name, found in nodes.items()}
    if graph.metadata.multilabel:
        return evaluate_labels(scores, graph.labels, splits)
    found = evaluate_classes(scores, graph.labels, splits, len(graph.class_names))
    if graph.targets is None or numbers is None:
        return found
    return found | evaluate_numbers(numbers.expected(scores.softmax(dim=1)), graph.targets, splits)


def score(predicted: Tensor, graph: CheckedGraph, split: str, *, are_numbers: bool) -> float:
    """The share of right predictions among the labeled nodes of a split, micro-F1 of several classes, or R^2."""
    nodes = graph.split(split)
    nodes = nodes[is_labeled(graph.labels)[nodes]]
    if not nodes.numel():
        raise InputError(f"score: expected labeled nodes in the split '{split}'; got none")
    if are_numbers and graph.targets is not None:
        return r_squared(predicted[nodes], graph.targets[nodes])
    if graph.metadata.multilabel:
        return micro_f1(predicted[nodes], graph.labels[nodes])
    return float((predicted[nodes] == graph.labels[nodes]).double().mean())


def evaluate_classes(scores: Tensor, labels: Tensor, splits: dict[str, Tensor], num_classes: int) -> dict[str, Any]:
    """Accuracy on train, val and test nodes, in percent, and on the test nodes of every class."""
    predicted = scores.argmax(dim=1)
    hits = (predicted == labels).to(torch.float64)
    accuracy = {name: 100.0 * float(hits[nodes].mean()) if nodes.numel() else None for name, nodes in splits.items()}
    rows = by_class(predicted, labels, splits["test"], splits["train"], num_classes)
    return {
        "accuracy": accuracy,
        "test_by_class": rows,
        "test_balanced_accuracy": balanced_accuracy(rows),
        "note": EVALUATION,
    }


def evaluate_labels(scores: Tensor, labels: Tensor, splits: dict[str, Tensor]) -> dict[str, Any]:
    """Micro-F1 on train, val and test nodes, in percent, where a node may have several classes."""
    found = {
        name: 100.0 * micro_f1(scores[nodes] > 0, labels[nodes]) if nodes.numel() else None
        for name, nodes in splits.items()
    }
    return {"micro_f1": found, "note": EVALUATION}


def evaluate_numbers(predicted: Tensor, targets: Tensor, splits: dict[str, Tensor]) -> dict[str, Any]:
    """How far off predicted numbers are on train, val and test nodes, on average."""
    off = (predicted - targets).abs().double()
    found = {name: float(off[nodes].mean()) if nodes.numel() else None for name, nodes in splits.items()}
    return {"mean_absolute_error": found}


def r_squared(predicted: Tensor, targets: Tensor) -> float:
    """The share of the variance that is explained; 0 is what the mean of the targets would do."""
    left = (predicted - targets).double().square().sum()
    whole = (targets - targets.double().mean()).double().square().sum()
    return float(1.0 - left / whole) if float(whole) else 0.0


def main_measure(metrics: dict[str, Any]) -> tuple[str, dict[str, float | None]]:
    """The name of the measure that a model was judged by, and its values on the splits."""
    if "micro_f1" in metrics:
        return "micro-F1", metrics["micro_f1"]
    return "accuracy", metrics.get("accuracy") or {}


def by_class(predicted: Tensor, labels: Tensor, nodes: Tensor, train: Tensor, num_classes: int) -> list[dict[str, Any]]:
    """Accuracy on `nodes` for every class, in percent, most frequent class among the `train` nodes first.

    Private training loses most on rare classes, which an average over nodes hides. A class without nodes to test on
    has accuracy None.
    """

    def count(of: Tensor) -> Tensor:
        return torch.bincount(of[of >= 0], minlength=num_classes)

    seen, tested = count(labels[train]), count(labels[nodes])
    hits = count(labels[nodes][predicted[nodes] == labels[nodes]])
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
