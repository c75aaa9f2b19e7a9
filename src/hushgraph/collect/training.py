"""From an export to a trained LPGNN, or another local method: the last step of a collection.

People have drawn and sent their answers; nothing private is left to read. The ledger entry written here is the
server's record of what they spent, so that the model carries the same certificate as any other.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.collect.export import Export, estimate, feature_reports, read_export
from hushgraph.collect.task import Task
from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.graph.rows import SparseRows
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.project import default_ledger
from hushgraph.ledger.run import open_run
from hushgraph.methods.local import LocalMethod
from hushgraph.methods.lpgnn import LPGNN
from hushgraph.methods.model import Model
from hushgraph.methods.running import finished
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code, note
from hushgraph.privacy.plan import Plan
from hushgraph.privacy.units import Local
from hushgraph.vault import Collection

VALIDATION_SHARE = 1.0 / 3.0


def train_from_export(
    export: Export | str | os.PathLike[str],
    edge_index: Any,
    method: LocalMethod | None = None,
    *,
    public_labels: Any | None = None,
    class_names: tuple[str, ...] | None = None,
    ledger: Ledger | None = None,
    seed: int | None = None,
) -> Model:
    """A network from the reports of a task and the server's own edges (`[2, E]`, over the nodes of the task).

    Nodes that sent nothing take part through their neighbors and get a prediction too. A third of the reported labels
    is held out to choose how long to train. A task that did not ask for labels needs `public_labels`, one per node (-1:
    none), and `class_names`. `seed` fixes the split and the first weights; the answers were random before.
    """
    started = time.perf_counter()
    found = export if isinstance(export, Export) else read_export(Path(export))
    task = found.task
    reports: dict[str, Any] = {"features": feature_reports(found)}
    noise = NoiseSource.of(seed)
    if task.labels is not None:
        reports["labels"], class_names = torch.from_numpy(estimate(found).y), task.labels.classes
    elif public_labels is None or class_names is None:
        raise InputError("expected public_labels and class_names, since the task asked for no labels; got none")
    graph = _public_graph(task, edge_index, class_names, None if task.labels else public_labels)
    graph = _with_split(graph, reports.get("labels", graph.labels), noise.torch_generator("split"))
    method, plan = planned(task, graph.metadata, method or LPGNN())
    run = open_run(ledger if ledger is not None else default_ledger(), plan, task.id, seeded=False)
    for stage in plan:
        run.charge(stage)
    vault = Collection(plan, reports, graph, noise)
    network = method.network(plan, vault.generator("weights"))
    output = method.run(vault, network, train=True)
    ended = vault.end(output.scores)
    return finished(method, network, output, ended, run, graph, time.perf_counter() - started)


def planned(task: Task, metadata: Metadata, method: LocalMethod) -> tuple[LocalMethod, Plan]:
    """The method with the range of the task, and what people spent: the task's randomizers, not a budget to divide."""
    assert task.features is not None
    unit = Local(private_labels=task.labels is not None)
    method = replace(method, low=task.features.low, high=task.features.high)
    stages = [method.report("features", replace(task.features, low=0.0, high=1.0).build())]  # the report has the range
    if task.labels is not None:
        stages.append(method.report("labels", task.labels.build(), "labels"))
    public = [*method.public_notes(metadata, unit), note(Code.DEVICE_TASK, task=task.sha256[:16])]
    return method, Plan.make(method.name, metadata, unit, Budget(task.epsilon), stages, public=public)


def _public_graph(task: Task, edge_index: Any, names: tuple[str, ...], labels: Any | None) -> CheckedGraph:
    assert task.features is not None
    known = None if labels is None else torch.as_tensor(labels).long()
    edges = torch.as_tensor(np.asarray(edge_index)).long()
    data = Data(x=SparseRows.empty(task.nodes, task.features.dimensions), edge_index=edges, y=known, name=task.id)
    return check_graph(data, known_classes=tuple(names))


def _with_split(graph: CheckedGraph, answers: Tensor, generator: torch.Generator) -> CheckedGraph:
    """Train and validation nodes among those with an answer about their label."""
    labeled = (answers >= 0).nonzero().squeeze(1)
    if labeled.numel() < 2:
        raise InputError(f"expected at least 2 reported labels; got {labeled.numel()}; collect more before training")
    shuffled = labeled[torch.randperm(labeled.numel(), generator=generator)]
    held = max(1, int(VALIDATION_SHARE * labeled.numel()))
    train, val = shuffled[held:].sort().values, shuffled[:held].sort().values
    metadata = replace(graph.metadata, num_train=train.numel(), num_val=val.numel())
    return replace(graph, metadata=metadata, train=train, val=val)
