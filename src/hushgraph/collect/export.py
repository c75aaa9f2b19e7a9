"""Exports: all noisy reports of a task in one npz file, together with the task they answer.

Arrays: `task` (the canonical JSON as bytes), `node` [r], and, for what the task asks, `x_index` and `x_bit` [r, m]
(multi-bit), `x_bits` [r, d] (one-bit), `x_bins` [r, d] (FeatureRR), `y` [r] with -1 for no label (randomized response),
`y_bits` [r, k] and `y_sent` [r] (unary). Nothing in it is more private than the reports themselves: what
follows is post-processing.

From an export to arrays a model can be trained on: unbiased estimates, numpy only.

This is post-processing of reports that are already private; it costs nothing and may be repeated.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hushgraph.collect.task import LARGEST_TASK, BinnedQuestion, LabelQuestion, Task
from hushgraph.errors import InputError
from hushgraph.files.npz import NpzFile
from hushgraph.files.reading import damage_named
from hushgraph.files.writing import written_whole
from hushgraph.local import RandomizedResponse, SampledReport, UnaryEncoding, unpack_bits


@dataclass(frozen=True)
class Export:
    """A task and the arrays of its reports."""

    task: Task
    arrays: dict[str, np.ndarray]

    @property
    def node(self) -> np.ndarray:
        """Nodes that reported, in order."""
        return self.arrays["node"]

    @property
    def reported(self) -> np.ndarray:
        """Mask over all nodes of the task."""
        mask = np.zeros(self.task.nodes, dtype=bool)
        mask[self.node] = True
        return mask


def export_arrays(task: Task, reports: Sequence[tuple[int, bytes]]) -> dict[str, np.ndarray]:
    """The arrays of an export from stored (node, payload) pairs."""
    answers = [json.loads(payload) for _, payload in reports]
    arrays: dict[str, np.ndarray] = {
        "task": np.frombuffer(task.canonical_json().encode("ascii"), dtype=np.uint8),
        "node": np.array([node for node, _ in reports], dtype=np.int64),
    }
    arrays.update(_feature_arrays(task, [answer["x"] for answer in answers]))
    if task.labels is not None:
        arrays.update(_label_arrays(task.labels, [answer["y"] for answer in answers]))
    return arrays


def _feature_arrays(task: Task, sent: list[Any]) -> dict[str, np.ndarray]:
    question = task.features
    if question is None:
        return {}
    if isinstance(question, BinnedQuestion):
        sent_bins = np.frombuffer(bytes.fromhex("".join(sent)), dtype=np.uint8)
        return {"x_bins": sent_bins.reshape(len(sent), question.dimensions)}
    if question.mechanism == "one_bit":
        width = (question.dimensions + 7) // 8
        packed = np.frombuffer(bytes.fromhex("".join(sent)), dtype=np.uint8).reshape(len(sent), width)
        return {"x_bits": unpack_bits(packed, question.dimensions)}
    pairs = np.array(sent, dtype=np.int64).reshape(len(sent), question.sampled, 2)
    return {"x_index": pairs[:, :, 0].astype(np.int32), "x_bit": pairs[:, :, 1].astype(np.uint8)}


def _label_arrays(question: LabelQuestion, sent: list[Any]) -> dict[str, np.ndarray]:
    if question.mechanism == "randomized_response":
        return {"y": np.array([-1 if label is None else label for label in sent], dtype=np.int64)}
    nothing = [0] * len(question.classes)
    bits = np.array([nothing if row is None else row for row in sent], dtype=np.uint8)
    present = np.array([row is not None for row in sent], dtype=bool)
    return {"y_bits": bits.reshape(len(sent), len(question.classes)), "y_sent": present}


def read_export(path: str | Path) -> Export:
    """Read an export; every array is checked against the task inside it. No pickle is ever loaded."""
    with NpzFile(path, of="an export of a collection task") as archive, damage_named(path, do="Export it again"):
        shape, kind = archive.header("task")
        if kind != np.uint8 or len(shape) != 1 or shape[0] > LARGEST_TASK:
            raise InputError(f"{path}: expected an export of a collection task; its task is no text; export it again")
        task = Task.from_json(archive.read("task").tobytes().decode("ascii"))
        _check(task, {name: archive.header(name) for name in archive.names if name != "task"}, str(path))
        arrays = {name: archive.read(name) for name in archive.names if name != "task"}
        _check_values(task, arrays, str(path))
    return Export(task, arrays)


def _forms(task: Task, people: int) -> dict[str, tuple[tuple[int, ...], int, int]]:
    """The arrays of an export of this task with so many reports: shape, and the range of values."""
    forms: dict[str, tuple[tuple[int, ...], int, int]] = {"node": ((people,), 0, task.nodes)}
    if isinstance(task.features, BinnedQuestion):
        forms["x_bins"] = ((people, task.features.dimensions), 0, task.features.bins)
    elif task.features is not None and task.features.mechanism == "one_bit":
        forms["x_bits"] = ((people, task.features.dimensions), 0, 2)
    elif task.features is not None:
        forms["x_index"] = ((people, task.features.sampled), 0, task.features.dimensions)
        forms["x_bit"] = ((people, task.features.sampled), 0, 2)
    if task.labels is not None and task.labels.mechanism == "randomized_response":
        forms["y"] = ((people,), -1 if task.labels.optional else 0, len(task.labels.classes))
    elif task.labels is not None:
        forms["y_bits"] = ((people, len(task.labels.classes)), 0, 2)
        forms["y_sent"] = ((people,), 0, 2)
    return forms


def _check(task: Task, found: dict[str, tuple[tuple[int, ...], np.dtype[Any]]], where: str) -> None:
    """Names, shapes and kinds, before any of it is read."""
    shape = found.get("node", ((), None))[0]
    expected = _forms(task, shape[0] if shape else 0)
    if expected.keys() != found.keys():
        raise InputError(f"{where}: expected arrays {sorted(expected)}; got {sorted(found)}; export it again")
    InputError.collect(
        f"{where}: {name}: expected whole numbers of shape {expected[name][0]}; got {kind} {shape}"
        for name, (shape, kind) in found.items()
        if shape != expected[name][0] or kind.kind not in "iub"
    )


def _check_values(task: Task, arrays: dict[str, np.ndarray], where: str) -> None:
    node = arrays["node"]
    problems = [
        f"{where}: {name}: expected values in [{low}, {high}); got others"
        for name, (_, low, high) in _forms(task, len(node)).items()
        if arrays[name].size and not (arrays[name].min() >= low and arrays[name].max() < high)
    ]
    if len(np.unique(node)) != len(node):
        problems.append(f"{where}: node: expected each node once; got repetitions")
    InputError.collect(problems)


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

    It has signs of zero, or bits halfway between 0 and 1, or the middle of all bins: their estimate is the middle of
    the range.
    """
    question, nodes = export.task.features, export.task.nodes
    if question is None:
        raise InputError("expected an export with features; got only labels; ask for features in the task")
    if isinstance(question, BinnedQuestion):
        bins = np.full((nodes, question.dimensions), (question.bins - 1) / 2, dtype=np.float32)
        bins[export.node] = export.arrays["x_bins"]
        return bins
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
    with written_whole(path) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    return Path(path)
