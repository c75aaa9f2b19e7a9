"""Exports: all noisy reports of a task in one npz file, together with the task they answer.

Arrays: `task` (the canonical JSON as bytes), `node` [r], and, for what the task asks, `x_index` and `x_bit` [r, m]
(multi-bit), `x_bits` [r, d] (one-bit), `y` [r] with -1 for no label (randomized response), `y_bits` [r, k] and
`y_sent` [r] (unary). Nothing in it is more private than the reports themselves: what follows is post-processing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hushgraph.collect.task import LabelQuestion, Task
from hushgraph.errors import InputError
from hushgraph.local import unpack_bits


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
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        task = Task.from_json(arrays.pop("task").tobytes().decode("ascii"))
    except (OSError, ValueError, KeyError, UnicodeDecodeError) as error:
        raise InputError(f"expected an export of a collection task; got {path}; export it again") from error
    _check(task, arrays)
    return Export(task, arrays)


def _check(task: Task, arrays: dict[str, np.ndarray]) -> None:
    expected: dict[str, tuple[tuple[int, ...], int, int]] = {}
    node = arrays.get("node", np.empty((0, 0)))
    people = len(node)
    expected["node"] = ((people,), 0, task.nodes)
    if task.features is not None and task.features.mechanism == "one_bit":
        expected["x_bits"] = ((people, task.features.dimensions), 0, 2)
    elif task.features is not None:
        expected["x_index"] = ((people, task.features.sampled), 0, task.features.dimensions)
        expected["x_bit"] = ((people, task.features.sampled), 0, 2)
    if task.labels is not None and task.labels.mechanism == "randomized_response":
        expected["y"] = ((people,), -1, len(task.labels.classes))
    elif task.labels is not None:
        expected["y_bits"] = ((people, len(task.labels.classes)), 0, 2)
        expected["y_sent"] = ((people,), 0, 2)
    problems = [f"expected arrays {sorted(expected)}; got {sorted(arrays)}"] if expected.keys() != arrays.keys() else []
    for name in expected.keys() & arrays.keys():
        shape, low, high = expected[name]
        array = arrays[name]
        if array.shape != shape or array.dtype.kind not in "iub":
            problems.append(f"{name}: expected whole numbers of shape {shape}; got {array.dtype} {array.shape}")
        elif array.size and not (array.min() >= low and array.max() < high):
            problems.append(f"{name}: expected values in [{low}, {high}); got others")
    if not problems and len(np.unique(node)) != people:
        problems.append("node: expected each node once; got repetitions")
    InputError.collect(problems)
