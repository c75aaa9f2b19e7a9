"""Canaries for noisy sums of labels: friendships, single edges, or nodes with their own lists, each planted by a coin.

As in `canaries`, every canary moves rows that no other canary touches. Here the noise of a row and the loudness of a
message depend on whether a node is labeled, so a canary is made of the kinds of node for which the plan allows the
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

from hushgraph.audit.layout import BASE_NODES, Evidence, Layout, flip_coins, lay_out, most_canaries
from hushgraph.data.checks import CheckedGraph, check_graph
from hushgraph.data.rows import dense_rows
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.run import open_run
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.label_sum import LabelSumStage
from hushgraph.privacy.plan import Plan
from hushgraph.privacy.units import Node, Relation, UndirectedEdge, Unit
from hushgraph.vault import Vault

CLASSES = 2  # the fewest: centered labels of two classes are each other's opposites, as far apart as labels can be
SHARED_LIST = 4  # with shared messages any length of list costs the same; above 1, so that sharing is tested
_TWIN_LABELS = (0, 1)  # of a replaced record: if absent, if planted


@dataclass(frozen=True)
class LabelCanaries:
    """A graph with canaries that send the label rows of their nodes.

    `replaced` says that an absent canary is not missing: it sends the first of two labels where a planted one sends
    the second.
    """

    graph: CheckedGraph
    layout: Layout
    labeled: Tensor
    replaced: bool = False

    @property
    def planted(self) -> np.ndarray:
        """The coins."""
        return self.layout.coins


def plant_labels(plan: Plan, canaries: int, rng: np.random.Generator) -> LabelCanaries:
    """A graph with `canaries` canaries of the unit that `plan` is charged for (fewer where it would be too large)."""
    return plant_label_coins(plan, flip_coins(min(canaries, most_label_canaries(plan)), rng), rng)


def most_label_canaries(plan: Plan) -> int:
    """How many canaries fit in a graph."""
    return most_canaries(plan.charged_unit, _list_length(plan))


def plant_label_coins(plan: Plan, coins: np.ndarray, rng: np.random.Generator) -> LabelCanaries:
    """As `plant_labels`, with coins that were flipped before."""
    unit = plan.charged_unit
    layout = lay_out(unit, coins, rng, _list_length(plan))
    labeled = torch.ones(layout.num_nodes, dtype=torch.bool)
    labels = torch.from_numpy(rng.integers(0, CLASSES, size=layout.num_nodes))
    replaced = unit.relation is Relation.REPLACE
    if isinstance(unit, Node):  # a labeled node with a list of unlabeled receivers, whose noise is the least
        labeled[BASE_NODES:] = False
        labeled[layout.heads] = True
        if replaced:
            labels[layout.heads] = torch.tensor(_TWIN_LABELS)[layout.present().long()]
    else:
        kinds = torch.tensor(costliest_kinds(unit, label_stages(plan)))
        labeled[BASE_NODES:] = kinds[torch.arange(len(coins)) % len(kinds)].flatten()
    return LabelCanaries(_graph(layout.edges(everyone=replaced), labels, labeled), layout, labeled, replaced)


def observe_labels(plan: Plan, planted: LabelCanaries, noise: NoiseSource) -> np.ndarray:
    """One score per canary after all label sums of `plan`, run by a real vault on a ledger in memory.

    Under the noise that the plan states, scores have variance 1; their mean is 0 for absent canaries.
    """
    return observe_label_sums(plan, planted, noise).scores()


def observe_label_sums(plan: Plan, planted: LabelCanaries, noise: NoiseSource) -> Evidence:
    """What all label sums of `plan` say about every canary.

    Unlabeled nodes send guesses of full length from the first sum on; later guesses are made of the sums released
    before.
    """
    run = open_run(Ledger.in_memory(warn=False), plan, "audit canaries", seeded=noise.seeded_run)
    vault = Vault(planted.graph, run, noise)
    layout, evidence = planted.layout, Evidence(planted.layout)
    guesses = _guesses(noise.stream("first guesses").gaussian((layout.num_nodes, CLASSES)))
    for stage in label_stages(plan):
        for _ in range(stage.count):
            handle = vault.label_rows(guesses)
            # An audit may look at what stays in its own vault.
            rows = dense_rows(vault._open(handle)).to(torch.float64)
            released = dense_rows(vault._open(vault.aggregate_labels(handle, stage))).to(torch.float64)
            absent, change = _messages(rows, planted, stage)
            spread = _noise_of(planted.labeled, stage)[layout.receiver]
            evidence.add(released[layout.receiver] - absent, change, spread)
            guesses = _guesses(released)
    return evidence


def label_stages(plan: Plan) -> list[LabelSumStage]:
    """The label sums of `plan`."""
    return [stage for stage in plan.stages if isinstance(stage, LabelSumStage)]


def costliest_kinds(unit: Unit, stages: Sequence[LabelSumStage]) -> list[tuple[bool, bool]]:
    """The kinds of pair (is the first node labeled, is the second) whose edge the sums show most clearly."""
    both = isinstance(unit, UndirectedEdge)
    costs = {kind: _cost(kind, stages, both) for kind in itertools.product((True, False), (True, False))}
    largest = max(costs.values())
    return [kind for kind, cost in costs.items() if cost >= largest * (1.0 - 1e-9)]


def _cost(kind: tuple[bool, bool], stages: Sequence[LabelSumStage], both: bool) -> float:
    """The squared separation of one edge: message over the receiver's noise, in one direction or in both."""

    def one_way(stage: LabelSumStage, sends: bool, receives: bool) -> float:
        loudness = 1.0 if sends else stage.quiet
        return (loudness / (stage.std * (stage.labeled_noise if receives else 1.0))) ** 2

    first, second = kind
    forward = sum(stage.count * one_way(stage, first, second) for stage in stages)
    return forward + sum(stage.count * one_way(stage, second, first) for stage in stages) if both else forward


def _messages(rows: Tensor, planted: LabelCanaries, stage: LabelSumStage) -> tuple[Tensor, Tensor]:
    """What arrives from an absent canary along each of its pairs, and what a planted one changes about that."""
    sender = planted.layout.sender
    loudness = torch.where(planted.labeled, 1.0, stage.quiet).to(torch.float64)[sender]
    if stage.shared:
        loudness = loudness / math.sqrt(planted.layout.list_length)
    if not planted.replaced:
        change = _coded(rows[sender], stage) * loudness.unsqueeze(1)
        return torch.zeros_like(change), change
    before, after = _coded(F.one_hot(torch.tensor(_TWIN_LABELS), CLASSES).to(torch.float64), stage)
    return loudness.unsqueeze(1) * before, loudness.unsqueeze(1) * (after - before)


def _coded(rows: Tensor, stage: LabelSumStage) -> Tensor:
    """Rows as they are sent: as they are, or off their mean and lengthened."""
    if not stage.centered:
        return rows
    return (rows - rows.mean(dim=1, keepdim=True)) * math.sqrt(CLASSES / (CLASSES - 1))


def _noise_of(labeled: Tensor, stage: LabelSumStage) -> Tensor:
    return stage.std * torch.where(labeled, stage.labeled_noise, 1.0).to(torch.float64)


def _guesses(rows: Tensor) -> Tensor:
    """One-hot rows, as roots of class probabilities may be: full length however they are coded."""
    return F.one_hot(rows.argmax(dim=1), CLASSES).to(torch.float32)


def _list_length(plan: Plan) -> int | None:
    """With shared messages any length of list costs the same: a short one; otherwise as long as the unit allows."""
    return SHARED_LIST if all(stage.shared for stage in label_stages(plan)) else None


def _graph(edges: Tensor, labels: Tensor, labeled: Tensor) -> CheckedGraph:
    nodes = len(labels)
    data = Data(x=torch.zeros(nodes, 1), edge_index=edges, y=labels, train_mask=labeled, num_classes=CLASSES)
    return check_graph(data)
