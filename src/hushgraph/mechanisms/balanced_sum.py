"""Sums of neighbors' labels along balanced weights, for nodes with all their edges. Proof: docs/proofs/balance.md.

A sum over neighbors has no bound where a node goes with all its edges: every neighbor loses one message, and a message
that is divided by the length of a list changes for everybody on that list. Here every entry has a weight made of a
number of the sender and one of the receiver (`hushgraph.graph.balance`), which give way to each other so slowly that
the sums of all other nodes together move by at most 0.57 times the root of a capacity, whatever the degrees are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.balance import Balance, balance
from hushgraph.graph.rows import Rows
from hushgraph.mechanisms.canaries import BASE_NODES, Evidence, OpenVault, Tally, audit_graph, lay_out, room_for
from hushgraph.mechanisms.label_sum import centered_rows, known_classes
from hushgraph.noise.normal import in_steps
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.mechanism import GaussianMechanism
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit

_RECEIVE = math.sqrt(5.0)  # receiving over sending capacity: a sender and a receiver that go then cost the same
_ROUNDING = 1.02  # room for what differs from real numbers: the proof adds it up
_GRID_BITS = 20
_MOST_NUMBERS, _MOST_CAPACITY = 1 << 25, 1 << 16
_CANARY_CLASSES = 2


@dataclass(frozen=True)
class BalancedSum(GaussianMechanism):
    """Sums of label rows of norm at most 1 over the training nodes that send to a node, weighted by `balance`.

    Nodes that receive do not send: with a public mask of `receivers`, training nodes outside of it send; without,
    all training nodes send and all others receive. A sender's weights add up to less than `capacity`.

    Bound: (sqrt(5)/4) sqrt(capacity) for a node that goes with all its edges, plus terms of the order 1/capacity. The
    row of the node itself is part of its own record.
    """

    capacity: float = 16.0
    centered: bool = True

    name = "balanced-sum"
    proof = "balance"
    reads = frozenset({"edges", "labels"})
    sums_by_node = True
    released = "a sum of neighbors' labels"

    def __post_init__(self) -> None:
        if not 1.0 <= self.capacity <= _MOST_CAPACITY:
            raise InputError(f"capacity: expected a number from 1 to {_MOST_CAPACITY}; got {self.capacity!r}")

    def sensitivity(self, unit: Unit) -> float:
        """For a record that becomes empty, its list with it, and the entries that name it too or not at all."""
        f = unit.footprint
        if not (f.incident and f.records == 1):
            return math.inf
        growth = 2.0 * self.capacity * math.expm1(0.5 / self.capacity)
        empty = _ROUNDING * _RECEIVE / 4.0 * math.sqrt(self.capacity) * growth
        return empty * (2.0 if f.replaced else 1.0)

    def query(self, data: Any, pseudo_labels: None = None, receivers: Tensor | None = None) -> Tensor:
        """The sums."""
        return self._values(self._whole_sums(data, pseudo_labels, receivers))

    def release(
        self,
        data: Any,
        scale: float,
        noise: NoiseSource,
        pseudo_labels: None = None,
        receivers: Tensor | None = None,
    ) -> Tensor:
        """The sums with noise on the same grid."""
        sums = self._whole_sums(data, pseudo_labels, receivers)
        sums += noise.integer_gaussian(tuple(sums.shape), in_steps(scale, self._step))
        if receivers is not None:
            sums[~receivers] = 0
        return self._values(sums)

    @property
    def _step(self) -> float:
        """2^-20 times the largest power of two that is at most the root of the capacity."""
        return math.ldexp(1.0, math.frexp(math.sqrt(self.capacity))[1] - 1 - _GRID_BITS)

    def _values(self, whole: Tensor) -> Tensor:
        return (whole.to(torch.float64) * self._step).to(torch.float32)

    def _whole_sums(self, data: Any, pseudo_labels: Rows | None, receivers: Tensor | None) -> Tensor:
        """The sums in whole steps of the grid."""
        if pseudo_labels is not None:
            raise InputError("balanced sum: expected one sum, of labels alone; got pseudo-labels. Set hops to 1")
        sums = self.weights(data, receivers).sums(self.rows(data))
        if sums.size > _MOST_NUMBERS:
            raise InputError(f"balanced sum: expected at most {_MOST_NUMBERS} nodes x classes; got {sums.size}")
        return torch.from_numpy(np.rint(sums / self._step).astype(np.int64))

    def weights(self, data: Any, receivers: Tensor | None = None) -> Balance:
        """The balanced weights of the entries from those who send to those who receive."""
        receiving = ~data.trains_on if receivers is None else receivers
        sending = data.trains_on & ~receiving
        return balance(data.whole_lists, sending, receiving, self.capacity, _RECEIVE * self.capacity)

    def rows(self, data: Any) -> np.ndarray:
        """What is sent: one-hot labels of the training nodes, centered where so set; zeros where there is no label."""
        classes, columns = known_classes(data), data.metadata.classes
        rows = F.one_hot(classes.clamp(min=0), columns).to(torch.float64)
        rows = centered_rows(rows) if self.centered else rows
        return (rows * (classes >= 0).unsqueeze(1)).numpy()

    @classmethod
    def variants(cls) -> Sequence[BalancedSum]:
        """With a capacity that small graphs reach, and with the usual one."""
        return [cls(capacity=3.0), cls(capacity=3.0, centered=False), cls()]

    # Canaries

    def most_canaries(self, stage: Stage, unit: Unit) -> int:
        """As many as fit in a graph."""
        return room_for(unit, self._list_length())

    def _list_length(self) -> int:
        """The length of a list that moves sums the most: the sender then keeps about half of its weight."""
        return math.ceil(self.capacity)

    def canary(
        self, stage: Stage, unit: Unit, coins: np.ndarray, open_vault: OpenVault, rng: np.random.Generator
    ) -> Evidence:
        """Labeled nodes with a list of receivers that nobody else sends to.

        A replaced canary sends another label instead of nothing.
        """
        layout = lay_out(unit, coins, rng, self._list_length())
        replaced = unit.footprint.replaced
        labeled = torch.arange(layout.num_nodes) < BASE_NODES
        labeled[layout.heads] = True
        labels = torch.zeros(layout.num_nodes, dtype=torch.int64)
        if replaced:
            labels[layout.heads] = layout.present().long()
        edges = layout.edges(everyone=replaced)
        vault = open_vault(audit_graph(torch.zeros(layout.num_nodes, 1), edges, labels, labeled, _CANARY_CLASSES))
        before, change = self._moved(replaced)
        tally = Tally(layout)
        for _ in range(stage.count):
            released = vault.hand_over(vault.release(stage.name)).to(torch.float64)[layout.receiver]
            tally.add(released - before, change.expand_as(released), stage.scale or 1.0)
        return tally.evidence("node")

    def _moved(self, replaced: bool) -> tuple[Tensor, Tensor]:
        """What an absent canary sends to each of its receivers, and what a planted one changes about that."""
        weight = self._canary_weight()
        corners = torch.eye(_CANARY_CLASSES, dtype=torch.float64)
        first, second = weight * (centered_rows(corners) if self.centered else corners)
        return (first, second - first) if replaced else (torch.zeros_like(first), first)

    def _canary_weight(self) -> float:
        """u r for a sender of a full list to receivers that nobody else sends to: u + c u r = r + c' u r = 1."""
        length, send, receive = self._list_length(), 1.0, 1.0
        for _ in range(200):
            receive = 1.0 / (1.0 + send / (_RECEIVE * self.capacity))
            send = 1.0 / (1.0 + length * receive / self.capacity)
        return send * receive
