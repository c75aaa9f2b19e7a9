"""From an export to a trained LPGNN: the last step of a collection.

People have drawn and sent their answers; nothing private is left to read. The ledger entry written here is the
server's record of what they spent, so that the model carries the same certificate as any other.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hushgraph.collect.estimates import estimate, sampled_report
from hushgraph.collect.export import Export, read_export
from hushgraph.collect.task import FeatureQuestion, Task
from hushgraph.data.metadata import PublicFacts
from hushgraph.data.rows import SparseRows
from hushgraph.errors import InputError
from hushgraph.graph.edges import MemoryEdges
from hushgraph.ledger.certificate import certify
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.run import open_run
from hushgraph.local import MultiBit, RandomizedResponse
from hushgraph.methods.lpgnn import LPGNN, FeatureReports, LpgnnModel, transition_of
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.plan import LocalStage, Plan, Stage
from hushgraph.privacy.units import Local
from hushgraph.training.noisy_labels import NoisyLabels

VALIDATION_SHARE = 1.0 / 3.0


def train_from_export(
    export: Export | str | os.PathLike[str],
    edge_index: Any,
    method: LPGNN | None = None,
    *,
    public_labels: Any | None = None,
    class_names: tuple[str, ...] | None = None,
    ledger: Ledger | None = None,
    seed: int | None = None,
) -> LpgnnModel:
    """A network from the reports of a task and the server's own edges (`[2, E]`, over the nodes of the task).

    Nodes that sent nothing take part through their neighbors and get a prediction too. A third of the reported labels
    is held out to choose how long to train. A task that did not ask for labels needs `public_labels`, one per node (-1:
    none), and `class_names`. `seed` fixes the split and the first weights; the answers were random before.
    """
    found = export if isinstance(export, Export) else read_export(Path(export))
    task = found.task
    if task.features is None:
        raise InputError("expected an export with features; got only labels; ask for features in the task")
    noise = NoiseSource.from_os() if seed is None else NoiseSource.seeded(seed)
    features = feature_reports(found)
    edges = _edges(edge_index, task.nodes)
    labels, names = _labels(found, public_labels, class_names, noise.torch_generator("split"))
    facts = PublicFacts(
        num_nodes=task.nodes,
        num_edges=edges.num_edges,
        num_train=labels.train.numel(),
        num_val=labels.val.numel(),
        num_features=task.features.dimensions,
        num_classes=labels.classes,
        name=task.id,
    )
    method = dataclasses.replace(method or LPGNN(), low=task.features.low, high=task.features.high)
    unit = Local(private_labels=task.labels is not None)
    plan = _plan(method, task, facts, unit)
    run = open_run(ledger if ledger is not None else Ledger(), plan, task.id, seeded=False)
    for stage in plan.stages:
        run.charge(stage)
    model = method.train_on(features, labels, edges, facts, unit, noise.torch_generator)
    run.close()
    model._certificate = certify(run.ledger.history(), run.identity)
    model.class_names = names
    return model


def feature_reports(export: Export) -> FeatureReports:
    """The feature reports of an export, one row per node of the task; empty where nothing was sent."""
    question = export.task.features
    if question is None:
        raise InputError("expected an export with features; got only labels; ask for features in the task")
    mechanism = question.build()
    if isinstance(mechanism, MultiBit):
        return _sparse_reports(export, question, mechanism)
    scale = mechanism.mechanism.half_width
    found = estimate(export).x
    assert found is not None
    # Signs times the step of one bit; people who sent nothing have the center, hence zero.
    rows = torch.from_numpy(found - mechanism.mechanism.center) / scale
    return FeatureReports(rows, scale, mechanism.mechanism.center, noisy=True)


def _sparse_reports(export: Export, question: FeatureQuestion, mechanism: MultiBit) -> FeatureReports:
    report = sampled_report(export)
    order = np.argsort(export.node)
    sent = np.zeros(export.task.nodes, dtype=np.int64)
    sent[export.node] = report.index.shape[1]
    reports = SparseRows(
        torch.from_numpy(np.concatenate([[0], np.cumsum(sent)])),
        torch.from_numpy(report.index[order].reshape(-1).astype(np.int64)),
        torch.from_numpy(report.value[order].reshape(-1).astype(np.float32)),
        (export.task.nodes, question.dimensions),
    )
    return FeatureReports(reports, mechanism.step, mechanism.center, noisy=True)


def _labels(
    export: Export, public: Any | None, names: tuple[str, ...] | None, generator: torch.Generator
) -> tuple[NoisyLabels, tuple[str, ...]]:
    question = export.task.labels
    if question is None:
        if public is None or names is None:
            raise InputError("expected public_labels and class_names, since the task asked for no labels; got none")
        reports, epsilon, transition = torch.as_tensor(public).long(), float("inf"), torch.eye(len(names))
        if reports.shape != (export.task.nodes,) or int(reports.max()) >= len(names):
            raise InputError(f"public_labels: expected {export.task.nodes} of classes 0 to {len(names) - 1}, -1: none")
    else:
        found = estimate(export).y
        assert found is not None
        # A unary report with exactly one bit has the law of randomized response at the same epsilon; others are -1.
        reports, epsilon, names = torch.from_numpy(found), question.epsilon, question.classes
        transition = transition_of(RandomizedResponse(epsilon, len(names)))
    train, val = _split(reports, generator)
    return NoisyLabels(reports, train, val, transition, epsilon), names


def _split(reports: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Train and validation nodes among those with a report about their label."""
    labeled = (reports >= 0).nonzero().squeeze(1)
    if labeled.numel() < 2:
        raise InputError(f"expected at least 2 reported labels; got {labeled.numel()}; collect more before training")
    shuffled = labeled[torch.randperm(labeled.numel(), generator=generator)]
    held = max(1, int(VALIDATION_SHARE * labeled.numel()))
    return shuffled[held:].sort().values, shuffled[:held].sort().values


def _plan(method: LPGNN, task: Task, facts: PublicFacts, unit: Local) -> Plan:
    """What people spent, as a plan: the epsilons of the task, not a budget to divide."""
    asked = {"features": task.features, "labels": task.labels}
    stages: tuple[Stage, ...] = tuple(
        LocalStage(name, 1, 0.0, part.epsilon, f"{part.mechanism} on the device, task {task.sha256[:16]}")
        for name, part in asked.items()
        if part is not None
    )
    return Plan(
        method=method.name,
        unit=unit,
        budget=Budget(task.epsilon).for_units(task.nodes),
        stages=stages,
        charged_unit=unit,
        assumptions=method.assumptions(facts, unit),
    )


def _edges(edge_index: Any, nodes: int) -> MemoryEdges:
    edges = torch.as_tensor(np.asarray(edge_index)).long()
    checked = MemoryEdges.from_edge_index(edges[:, edges[0] != edges[1]] if edges.dim() == 2 else edges, nodes)
    return checked.coalesce()
