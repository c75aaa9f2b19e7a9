"""Noisy sums by class: a naive sum, deletion, replacement, refusals, canaries."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from hushgraph.errors import InputError, UnprovenError
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.mechanisms.class_sums import ClassSums
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import units
from matrix_graphs import view_of

CLASSES, COLUMNS, RECORDS = 3, 5, 2500


def table(seed: int = 0) -> CheckedGraph:
    made = torch.Generator().manual_seed(seed)
    y = torch.randint(-1, CLASSES, (RECORDS,), generator=made)
    x = 0.6 * torch.randn(RECORDS, COLUMNS, generator=made)
    train = torch.arange(RECORDS) % 7 != 0
    return check_graph(Data(x=x, y=y, train_mask=train, num_classes=CLASSES), needs_edges=False)


def sums(graph: CheckedGraph, mechanism: ClassSums) -> np.ndarray:
    head = nn.Linear(COLUMNS, CLASSES, bias=False)
    inputs = (head, nn.Identity(), graph.features)
    return mechanism.before_noise(view_of(graph, mechanism, None), NoiseSource.seeded(0), *inputs)


def test_it_is_the_sum_of_clipped_rows_times_centered_labels() -> None:
    graph = table()
    expected = np.zeros((CLASSES, COLUMNS))
    for node in graph.train.tolist():
        row, label = graph.features[node].double().numpy(), int(graph.labels[node])
        if label >= 0:
            target = (np.arange(CLASSES) == label) - 1.0 / CLASSES
            expected += np.outer(target, row / max(1.0, np.linalg.norm(row)))
    np.testing.assert_allclose(sums(graph, ClassSums(CLASSES)), expected, atol=RECORDS * 2.0**-14)


@pytest.mark.parametrize("place", [1, 1201, 2498])
def test_an_empty_record_and_a_replaced_one_move_the_sums_by_their_own_term_alone(place: int) -> None:
    mechanism, graph = ClassSums(CLASSES), table()
    features, labels = graph.features.clone(), graph.labels.clone()
    features[place], labels[place] = torch.tensor([9.0, 0, 0, 0, 0]), 1
    whole = sums(_with(graph, features, labels), mechanism)
    gone, turned = labels.clone(), features.clone()
    gone[place], turned[place] = -1, -features[place]
    removed = np.linalg.norm(whole - sums(_with(graph, features, gone), mechanism))
    replaced = np.linalg.norm(whole - sums(_with(graph, turned, labels), mechanism))
    roots = 1.0 + 1e-12  # sums are whole numbers; norms here are roots in double precision
    assert 0.99 * math.sqrt(2 / 3) < removed <= roots * mechanism.sensitivity(units.Record())
    assert 1.99 * math.sqrt(2 / 3) < replaced <= roots * mechanism.sensitivity(units.NodeReplace())


def _with(graph: CheckedGraph, features: torch.Tensor, labels: torch.Tensor) -> CheckedGraph:
    return replace(graph, features=features, labels=labels)


def test_modules_that_mix_rows_other_classes_and_units_without_a_bound_are_refused() -> None:
    head = nn.Linear(COLUMNS, CLASSES, bias=False)
    with pytest.raises(UnprovenError, match="batch norm"):
        ClassSums(CLASSES).check(head, nn.BatchNorm1d(COLUMNS), torch.zeros(2, COLUMNS))
    with pytest.raises(InputError, match="expected 4 classes"):
        sums(table(), ClassSums(4))
    with pytest.raises(UnprovenError, match="class-sums"):
        ClassSums(CLASSES).require(units.Class())
    with pytest.raises(InputError, match="at least 2"):
        ClassSums(1)
