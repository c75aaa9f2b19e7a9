"""Canaries for noisy sums of labels: friendships, single edges, or nodes with their own lists, each planted by a coin.

As in `canaries`, every canary moves rows that no other canary touches. Here the noise of a row and the loudness of a
message depend on whether a node is labelled, so a canary is made of the kinds of node for which the plan allows the
largest change, and every row it moves is weighted by that row's own noise. Messages are worked out here from what the
mechanism promises, not by the mechanism's own code.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.accounting.label_sum import LabelSumStage
from hushgraph.accounting.plan import Plan
from hushgraph.audit.canaries import BASE_NODES, LARGEST_GRAPH, base_edges
from hushgraph.errors import InputError
from hushgraph.intake import CheckedGraph, check_graph
from hushgraph.ledger import Ledger
from hushgraph.mechanisms.noise import NoiseSource
from hushgraph.nn.sparse import dense_rows
from hushgraph.run import open_run
from hushgraph.units import DirectedEdge, Node, Relation, UndirectedEdge, Unit
from hushgraph.vault import Vault

CLASSES = 8
SHARED_LIST = 4  # with shared messages any length of list costs the same; above 1, so that sharing is tested
_TWIN_LABELS = (0, 1)  # of a replaced record: if absent, if planted


@dataclass(frozen=True)
class LabelCanaries:
    """A graph with canaries. Canary `owner[i]` sends the label row of `sender[i]` to `receiver[i]`, if planted.

    `replaced` says that an absent canary is not missing: it sends the first of two labels where a planted one sends
    the second.
    """

    graph: CheckedGraph
    labelled: Tensor
    planted: np.ndarray
    owner: Tensor
    sender: Tensor
    receiver: Tensor
    replaced: bool = False


def plant_labels(plan: Plan, canaries: int, rng: np.random.Generator) -> LabelCanaries:
    """A graph with `canaries` canaries of the unit that `plan` is charged for (fewer where it would be too large)."""
    if canaries < 4:
        raise InputError(f"canaries: expected at least 4; got {canaries}")
    unit, stages = plan.charged_unit, label_stages(plan)
    if isinstance(unit, UndirectedEdge | DirectedEdge):
        return _edges(unit, stages, canaries, rng)
    if isinstance(unit, Node):
        return _nodes(unit, stages, canaries, rng)
    raise InputError(f"no canaries are known for sums of labels under the unit '{unit}'")


def observe_labels(plan: Plan, planted: LabelCanaries, noise: NoiseSource) -> np.ndarray:
    """One score per canary after all label sums of `plan`, run by a real vault on a ledger in memory.

    Under the noise that the plan states, scores have variance 1; their mean is 0 for absent canaries. Unlabelled nodes
    send guesses of full length from the first sum on; later guesses are made of the sums released before.
    """
    run = open_run(Ledger(), plan, "audit canaries", seeded=noise.seeded_run)
    vault = Vault(planted.graph, run, noise)
    guesses = _guesses(noise.stream("first guesses").gaussian((len(planted.labelled), CLASSES)))
    total = torch.zeros(len(planted.planted), dtype=torch.float64)
    information = torch.zeros_like(total)
    for stage in label_stages(plan):
        for _ in range(stage.count):
            handle = vault.label_rows(guesses)
            # An audit may look at what stays in its own vault.
            rows = dense_rows(vault._open(handle)).to(torch.float64)
            released = dense_rows(vault._open(vault.aggregate_labels(handle, stage))).to(torch.float64)
            absent, change = _messages(rows, planted, stage)
            weight = _noise_of(planted.labelled, stage)[planted.receiver] ** -2
            residual = released[planted.receiver] - absent
            total.index_add_(0, planted.owner, (residual * change).sum(dim=1) * weight)
            information.index_add_(0, planted.owner, (change * change).sum(dim=1) * weight)
            guesses = _guesses(released)
    return (total / information.clamp_min(1e-300).sqrt()).numpy()


def label_stages(plan: Plan) -> list[LabelSumStage]:
    """The label sums of `plan`."""
    return [stage for stage in plan.stages if isinstance(stage, LabelSumStage)]


def costliest_kinds(unit: Unit, stages: Sequence[LabelSumStage]) -> list[tuple[bool, bool]]:
    """The kinds of pair (is the first node labelled, is the second) whose edge the sums show most clearly."""
    both = isinstance(unit, UndirectedEdge)
    costs = {kind: _cost(kind, stages, both) for kind in itertools.product((True, False), (True, False))}
    largest = max(costs.values())
    return [kind for kind, cost in costs.items() if cost >= largest * (1.0 - 1e-9)]


def _cost(kind: tuple[bool, bool], stages: Sequence[LabelSumStage], both: bool) -> float:
    """The squared separation of one edge: message over the receiver's noise, in one direction or in both."""

    def one_way(stage: LabelSumStage, sends: bool, receives: bool) -> float:
        loudness = 1.0 if sends else stage.quiet
        return (loudness / (stage.std * (stage.labelled_noise if receives else 1.0))) ** 2

    first, second = kind
    forward = sum(stage.count * one_way(stage, first, second) for stage in stages)
    return forward + sum(stage.count * one_way(stage, second, first) for stage in stages) if both else forward


def _messages(rows: Tensor, planted: LabelCanaries, stage: LabelSumStage) -> tuple[Tensor, Tensor]:
    """What arrives from an absent canary along each of its pairs, and what a planted one changes about that."""
    loudness = torch.where(planted.labelled, 1.0, stage.quiet).to(torch.float64)[planted.sender]
    if stage.shared:
        loudness = loudness / math.sqrt(len(planted.owner) / len(planted.planted))
    if not planted.replaced:
        change = rows[planted.sender] * loudness.unsqueeze(1)
        return torch.zeros_like(change), change
    before, after = F.one_hot(torch.tensor(_TWIN_LABELS), CLASSES).to(torch.float64)
    return loudness.unsqueeze(1) * before, loudness.unsqueeze(1) * (after - before)


def _noise_of(labelled: Tensor, stage: LabelSumStage) -> Tensor:
    return stage.std * torch.where(labelled, stage.labelled_noise, 1.0).to(torch.float64)


def _guesses(rows: Tensor) -> Tensor:
    """Rows of length one without a negative entry, as roots of class probabilities are."""
    return F.normalize(rows.abs(), dim=1).to(torch.float32)


def _edges(unit: Unit, stages: Sequence[LabelSumStage], canaries: int, rng: np.random.Generator) -> LabelCanaries:
    both = isinstance(unit, UndirectedEdge)
    planted = rng.random(canaries) < 0.5
    left = BASE_NODES + 2 * torch.arange(canaries)
    right = left + 1
    sender = torch.cat([left, right]) if both else left
    receiver = torch.cat([right, left]) if both else right
    owner = torch.arange(canaries).repeat(2 if both else 1)
    kept = torch.from_numpy(planted)[owner]
    edges = torch.cat([base_edges(rng, both), torch.stack([sender[kept], receiver[kept]])], dim=1)

    kinds = torch.tensor(costliest_kinds(unit, stages))
    labelled = torch.ones(BASE_NODES + 2 * canaries, dtype=torch.bool)
    labelled[BASE_NODES:] = kinds[torch.arange(canaries) % len(kinds)].flatten()
    labels = torch.from_numpy(rng.integers(0, CLASSES, size=len(labelled)))
    return LabelCanaries(_graph(edges, labels, labelled), labelled, planted, owner, sender, receiver)


def _nodes(unit: Node, stages: Sequence[LabelSumStage], canaries: int, rng: np.random.Generator) -> LabelCanaries:
    """A labelled node with a list of unlabelled receivers, whose noise is the least."""
    length = SHARED_LIST if all(stage.shared for stage in stages) else unit.max_degree
    canaries = min(canaries, max(4, LARGEST_GRAPH // (length + 1)))
    planted = rng.random(canaries) < 0.5
    planted[:2], planted[2:4] = True, False
    first = (length + 1) * torch.arange(canaries)
    owner = torch.arange(canaries).repeat_interleave(length)
    sender = first[owner]
    receiver = sender + 1 + torch.arange(length).repeat(canaries)
    labelled = torch.zeros((length + 1) * canaries, dtype=torch.bool)
    labelled[first] = True

    labels = torch.from_numpy(rng.integers(0, CLASSES, size=len(labelled)))
    replaced = unit.relation is Relation.REPLACE
    present = torch.from_numpy(planted)
    if replaced:
        labels[first] = torch.tensor(_TWIN_LABELS)[present.long()]
    kept = torch.ones_like(owner, dtype=torch.bool) if replaced else present[owner]
    edges = torch.stack([sender[kept], receiver[kept]])
    return LabelCanaries(_graph(edges, labels, labelled), labelled, planted, owner, sender, receiver, replaced)


def _graph(edges: Tensor, labels: Tensor, labelled: Tensor) -> CheckedGraph:
    nodes = len(labels)
    data = Data(x=torch.zeros(nodes, 1), edge_index=edges, y=labels, train_mask=labelled, num_classes=CLASSES)
    return check_graph(data)
