"""From an export to arrays a model can be trained on: unbiased estimates, numpy only.

This is post-processing of reports that are already private; it costs nothing and may be repeated.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hushgraph.collect.export import Export
from hushgraph.errors import InputError
from hushgraph.local import RandomizedResponse, SampledReport, UnaryEncoding


@dataclass(frozen=True)
class Estimates:
    """Arrays over all nodes of the task.

    `x`: unbiased feature estimates [n, d] (the middle of the range for nodes that sent nothing), or None.
    `y`: the reported, noisy class [n], -1 where none was sent, or None.
    `y_one_hot`: unbiased one-hot estimates [n, k] (zeros where no label was sent), or None.
    `reported`: which nodes sent a report [n].
    """

    x: np.ndarray | None
    y: np.ndarray | None
    y_one_hot: np.ndarray | None
    reported: np.ndarray


def estimate(export: Export) -> Estimates:
    """Unbiased estimates from the reports of an export."""
    y, y_one_hot = _labels(export)
    return Estimates(_features(export), y, y_one_hot, export.reported)


def _features(export: Export) -> np.ndarray | None:
    if export.task.features is None:
        return None
    mechanism: Any = export.task.features.build()
    found: np.ndarray = mechanism.estimate(feature_reports(export)).astype(np.float32)
    return found


def feature_reports(export: Export) -> SampledReport | np.ndarray:
    """One report for every node of the task, as the randomizer draws them; one that was not sent says nothing.

    It has signs of zero, or bits halfway between 0 and 1: their estimate is the middle of the range.
    """
    question, nodes = export.task.features, export.task.nodes
    if question is None:
        raise InputError("expected an export with features; got only labels; ask for features in the task")
    if question.mechanism == "one_bit":
        bits = np.full((nodes, question.dimensions), 0.5, dtype=np.float32)
        bits[export.node] = export.arrays["x_bits"]
        return bits
    index = np.tile(np.arange(question.sampled, dtype=np.int32), (nodes, 1))
    signs = np.zeros((nodes, question.sampled), dtype=np.int8)
    index[export.node] = export.arrays["x_index"]
    signs[export.node] = 2 * export.arrays["x_bit"].astype(np.int8) - 1
    return SampledReport(index, signs, question.dimensions)


def _labels(export: Export) -> tuple[np.ndarray | None, np.ndarray | None]:
    question = export.task.labels
    if question is None:
        return None, None
    mechanism = question.build()
    y = np.full(export.task.nodes, -1, dtype=np.int64)
    one_hot = np.zeros((export.task.nodes, len(question.classes)))
    if isinstance(mechanism, RandomizedResponse):
        sent = export.arrays["y"] >= 0
        labels = export.arrays["y"][sent]
        y[export.node[sent]] = labels
        one_hot[export.node[sent]] = mechanism.estimate(labels)
        return y, one_hot
    return _unary_labels(export, mechanism, y, one_hot)


def _unary_labels(
    export: Export, mechanism: UnaryEncoding, y: np.ndarray, one_hot: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A unary report names a class only if exactly one bit is set; its one-hot estimate always exists."""
    sent = export.arrays["y_sent"].astype(bool)
    bits = export.arrays["y_bits"][sent]
    nodes = export.node[sent]
    single = bits.sum(axis=1) == 1
    y[nodes[single]] = bits[single].argmax(axis=1)
    one_hot[nodes] = mechanism.estimate(bits)
    return y, one_hot


def write_graph(export: Export, edge_index: np.ndarray, path: str | Path) -> Path:
    """Join the estimates with the server's own graph, in the npz format of `hushgraph.datasets.read_npz`.

    `edge_index` is [2, E] over the nodes of the task. `x` holds the estimates, `y` the noisy labels (-1 for none).
    """
    edges = np.asarray(edge_index)
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        raise InputError(f"expected edge_index [2, E] of whole numbers; got {edges.dtype} {edges.shape}; check it")
    if edges.size and not (edges.min() >= 0 and edges.max() < export.task.nodes):
        raise InputError(f"expected nodes in 0..{export.task.nodes - 1}; got others; is this the graph of the task?")
    found = estimate(export)
    if found.x is None:
        raise InputError("expected an export with features; got only labels; join them with your own features")
    arrays = {"edge_index": edges.astype(np.int64), "x": found.x, "reported": found.reported}
    arrays["y"] = np.full(export.task.nodes, -1, dtype=np.int64) if found.y is None else found.y
    if export.task.labels is not None:
        arrays["class_names"] = np.array(export.task.labels.classes, dtype=np.str_)
    target = Path(path)
    unfinished = target.with_name(f"{target.name}.{os.getpid()}.part")
    with unfinished.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    os.replace(unfinished, target)
    return target
