"""The ends of a run: a plan is entered in the ledger and the graph put in a vault; then it is closed and certified."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from torch import nn

from hushgraph.graph.checks import CheckedGraph
from hushgraph.ledger.identity import digest_of
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.resuming import enter_plan
from hushgraph.ledger.run import Run
from hushgraph.methods.folder import hash_of
from hushgraph.methods.model import Model
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plan import Plan
from hushgraph.vault import Ended, Progress, Vault

if TYPE_CHECKING:
    from hushgraph.methods.base import Method, Output


def enter(
    graph: CheckedGraph, plan: Plan, ledger: Ledger | str | os.PathLike[str] | None, seed: int | None
) -> tuple[Run, NoiseSource]:
    """Enter `plan` in the ledger, which may refuse it; the run to charge, and its source of noise."""
    return enter_plan(graph, plan, ledger, seeded=seed is not None), NoiseSource.of(seed)


def open_vault(
    graph: CheckedGraph, plan: Plan, ledger: Ledger | None, seed: int | None, progress: Progress | None
) -> tuple[Vault, Run]:
    """Enter `plan` in the ledger and put the graph in a vault that charges to it."""
    run, noise = enter(graph, plan, ledger, seed)
    return Vault(graph, plan, run, noise, progress), run


def finished(
    method: Method,
    network: nn.Module,
    output: Output,
    ended: Ended,
    run: Run,
    graph: CheckedGraph,
    seconds: float,
) -> Model:
    """Close the run, certify it, and measure how well the model does; `ended` is what its vault left."""
    plan, network = ended.plan, (output.network or network).eval()
    ended_with = None
    if run.ledger.folder is not None:
        scores = None if ended.scores_are_private else ended.scores
        ended_with = hash_of(plan, network, ended.released, output.kept, ended.nodes, scores=scores)
    run.close(tensors_hash=ended_with)
    model = Model(
        method=output.method or method,
        plan=plan,
        run_plan=run.plan if run.plan is not plan else None,
        network=network,
        released=ended.released,
        kept=output.kept,
        scores=ended.scores,
        scores_are_private=ended.scores_are_private,
        settings={**output.settings, **({"minibatches": ended.trained_how} if ended.trained_how else {})},
        reason=output.reason,
        class_names=graph.class_names,
        nodes=ended.nodes,
        features_digest=digest_of(graph.features),
        seconds={**ended.seconds, "total": seconds},
        certificate=run.certificate(),
        ledger=run.ledger,
        ended_with=ended_with,
    )
    model.metrics = model.method.evaluate(model, graph)
    return model
