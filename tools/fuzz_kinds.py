"""The kinds of files that hushgraph writes and reads again: how each is made, altered and read."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

import hushgraph as hg
from fuzz_alter import export_altered, json_altered, npz_altered
from hushgraph.collect import FeatureQuestion, LabelQuestion, Task, read_export
from hushgraph.collect.export import export_arrays
from hushgraph.collect.report import draw_payload, encode_payload
from hushgraph.datasets import read_npz, write_npz
from hushgraph.errors import HushgraphError
from hushgraph.ledger.checking import Status
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.statement import statement
from hushgraph.ledger.transfer import export as export_ledger
from hushgraph.ledger.transfer import import_into
from hushgraph.ledger.transfer import read_export as read_ledger_export
from hushgraph.ledger.verify import verify_ledger
from hushgraph.methods.model import load
from hushgraph.report import write_report


@dataclass
class Kind:
    """How a kind of file is made and read: `read` returns all that somebody would go by.

    `whole` is whether the format itself tells an altered file from its original: then another reading of altered bytes
    is a silent change. Alterations of the values (`inside`) make another file, which may well say something else.
    """

    name: str
    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    inside: Callable[[bytes, np.random.Generator], bytes] | None = None
    whole: bool = True
    inside_whole: bool = False
    files: tuple[str, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0


def small_graph() -> Data:
    """Sixty nodes, three classes, with masks and class names."""
    rng = np.random.default_rng(0)
    pairs = np.unique(np.sort(rng.integers(0, 60, (200, 2)), axis=1), axis=0)
    pairs = torch.from_numpy(pairs[pairs[:, 0] != pairs[:, 1]].T)
    masks = torch.zeros(3, 60, dtype=torch.bool)
    masks[0, :36], masks[1, 36:44], masks[2, 44:] = True, True, True
    return Data(
        x=torch.from_numpy(rng.random((60, 8), dtype=np.float32)),
        edge_index=torch.cat([pairs, pairs.flip(0)], dim=1),
        y=torch.from_numpy(rng.integers(0, 3, 60)),
        train_mask=masks[0],
        val_mask=masks[1],
        test_mask=masks[2],
        class_names=["red", "green", "blue"],
    )


def _make_model(folder: Path) -> None:
    budget = hg.Budget(4.0, 1e-4)
    model = hg.GAP(epochs=2).fit(small_graph(), hg.units.UndirectedEdge(), budget, ledger=Ledger.in_memory(warn=False))
    model.save(folder)


def _make_chorus(folder: Path) -> None:
    budget = hg.Budget(4.0, 1e-4)
    model = hg.Chorus(epochs=2).fit(small_graph(), hg.units.Node(4), budget, ledger=Ledger.in_memory(warn=False))
    model.save(folder)


def _make_bare(folder: Path) -> None:
    _make_chorus(folder)
    (folder / "manifest.json").unlink()


def _read_model(folder: Path) -> Any:
    model = load(folder)
    certificate = json.dumps(model.certificate.as_dict(), sort_keys=True)
    return model.predict(small_graph()).tolist(), certificate, model.class_names, model.method


def _make_ledger(folder: Path) -> None:
    ledger = Ledger(folder)
    for epsilon in (1.0, 2.0):
        hg.MLP(epochs=1).fit(small_graph(), hg.units.UndirectedEdge(), hg.Budget(epsilon, 1e-4), ledger=ledger)
        hg.GAP(epochs=1).fit(small_graph(), hg.units.UndirectedEdge(), hg.Budget(epsilon, 1e-4), ledger=ledger)


def _read_ledger(folder: Path) -> Any:
    ledger = Ledger(folder)
    status = verify_ledger(ledger).status
    if status in (Status.CONTRADICTED, Status.REJECTED):
        raise HushgraphError("verification said so")
    said = statement(ledger)
    return status, said["hash"], said["datasets"], said["runs"]


def _make_ledger_export(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as other:
        _make_ledger(Path(other) / "ledger")
        export_ledger(Ledger(Path(other) / "ledger"), folder / "export.jsonl")


def _read_ledger_export(folder: Path) -> Any:
    found = read_ledger_export(folder / "export.jsonl").last_hash
    import_into(Ledger.in_memory(warn=False), folder / "export.jsonl", "imported")
    return found


def task() -> Task:
    """A small task with features and labels."""
    return Task(
        "survey", "A survey", 40, FeatureQuestion(8, 4.0), LabelQuestion(("red", "green", "blue"), 1.0, optional=True)
    )


def _make_collected(folder: Path) -> None:
    rng = np.random.default_rng(0)
    answers = [draw_payload(task(), np.full(8, 0.5), node % 3, rng) for node in range(20)]
    reports = [(node, encode_payload(**answer)) for node, answer in enumerate(answers)]
    np.savez_compressed(folder / "export.npz", **export_arrays(task(), reports))


def _read_collected(folder: Path) -> Any:
    found = read_export(folder / "export.npz")
    return found.task.sha256, {name: array.tolist() for name, array in found.arrays.items()}


def _read_task(folder: Path) -> Any:
    from hushgraph.cli.collect import _read_task as read

    return read(folder / "task.json").sha256


def _read_graph(folder: Path) -> Any:
    data = read_npz(folder / "graph.npz")
    return {key: value.tolist() if torch.is_tensor(value) else value for key, value in data.to_dict().items()}


def _read_report(folder: Path) -> Any:
    return write_report(folder, folder.parent / "page.html").read_text() and None


def model_kinds() -> list[Kind]:
    """Graphs, models, ledgers and collected reports."""
    of_model = ("config.json", "certificate.json", "metrics.json", "model.safetensors", "manifest.json")
    return [
        Kind("graph", lambda folder: write_npz(small_graph(), folder / "graph.npz") and None, _read_graph, npz_altered),
        Kind("model", _make_model, _read_model, json_altered, inside_whole=True, files=of_model),
        Kind("bare model", _make_bare, _read_model, json_altered, whole=False, files=of_model[:-1]),
        Kind("report", _make_bare, _read_report, json_altered, whole=False, files=of_model[:3]),
        Kind("ledger", _make_ledger, _read_ledger, files=("ledger.db",)),
        Kind("ledger export", _make_ledger_export, _read_ledger_export, export_altered),
        Kind("collected reports", _make_collected, _read_collected, npz_altered),
        Kind(
            "task",
            lambda folder: (folder / "task.json").write_text(task().canonical_json()) and None,
            _read_task,
            json_altered,
            whole=False,
        ),
    ]
