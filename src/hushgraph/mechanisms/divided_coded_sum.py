"""Sums of labels in the code of each receiver, where records are protected. Proof: docs/proofs/chorus-codes.md.

A sender speaks louder to receivers of larger public weight and divides all it says by the root of the sum of their
squared weights: whatever the length of its list, one record moves all numbers together by at most one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import HushgraphError, InputError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.codes import WHOLE, check_codes, decoded, messages
from hushgraph.graph.edges import Edges
from hushgraph.graph.rows import Rows, dense_rows
from hushgraph.mechanisms.canaries import BASE_NODES, Evidence, OpenVault, Tally, audit_graph, lay_out, room_for
from hushgraph.mechanisms.coded_sum import example_codes, example_guesses
from hushgraph.mechanisms.label_sum import known_classes
from hushgraph.noise.normal import in_steps
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.mechanism import GaussianMechanism
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit

MOST_WEIGHT = 7
_CANARY_CLASSES, _CANARY_LIST = 2, 4


@dataclass(frozen=True)
class DividedAnswer:
    """One number for every node, zero where the weight is zero; the codes and weights that were used."""

    numbers: Tensor
    codes: Tensor
    weights: Tensor


@dataclass(frozen=True)
class DividedCodedSum(GaussianMechanism):
    """One number per receiver in its own code; all that a record sends has norm at most one.

    Sender s tells receiver t its label (its guess, outside the training split) in the code of t, times
    weight[t] / sqrt(sum of squared weights over the list of s).
    """

    name = "divided-coded-sum"
    proof = "chorus-codes"
    reads = frozenset({"edges", "labels"})
    released = "a sum of neighbors' labels in a code"

    def sensitivity(self, unit: Unit) -> float:
        """One for an owned record, two where it may turn into its opposite."""
        f = unit.footprint
        return (2.0 if f.replaced else 1.0) if f.owned else math.inf

    def check(self, *inputs: Any) -> None:
        """Refuse codes and weights that do not follow from what is public."""
        check_codes(inputs[0])
        _check_weights(inputs[1])

    def query(self, data: Any, codes: Tensor, weights: Tensor, guesses: Rows | None = None) -> DividedAnswer:
        """Without noise. Labels of nodes outside the training split are never read; they send `guesses`, or nothing.

        Nodes of weight zero receive nothing, and entries that name them are not used.
        """
        return _answer(self._whole(data, codes, weights, guesses), codes, weights)

    def release(
        self,
        data: Any,
        scale: float,
        noise: NoiseSource,
        codes: Tensor,
        weights: Tensor,
        guesses: Rows | None = None,
    ) -> DividedAnswer:
        """With Gaussian noise on the grid of the numbers."""
        numbers = self._whole(data, codes, weights, guesses)
        numbers += noise.integer_gaussian(tuple(numbers.shape), in_steps(scale, 1.0 / WHOLE))
        return _answer(torch.where(weights > 0, numbers, 0), codes, weights)

    def _whole(self, data: Any, codes: Tensor, weights: Tensor, guesses: Rows | None) -> Tensor:
        """The numbers in whole steps."""
        self.check(codes, weights)
        lists: Edges = data.whole_lists.ending_at(weights > 0)
        classes, weights = known_classes(data), weights.to(torch.int64)
        shares = torch.where(data.trains_on & (classes < 0), 0, self.shares(lists, weights))
        sent = messages(classes, data.metadata.classes, shares, None if guesses is None else dense_rows(guesses))
        return weights * decoded(codes, lists.sum(sent))

    def shares(self, lists: Edges, weights: Tensor) -> Tensor:
        """What each sender multiplies the weights of its receivers by, in whole steps: 1 / root of their squares."""
        squares = lists.out_sums(weights * weights)
        shares = (WHOLE**2 / squares.clamp(min=1).double()).sqrt().to(torch.int64)
        shares -= (shares * shares * squares > WHOLE**2).to(torch.int64)  # where the root was rounded up
        if bool((shares * shares * squares > WHOLE**2).any()):
            raise HushgraphError("expected what a record sends within its bound; got more; please report this")
        return shares

    def to_tensors(self, value: DividedAnswer) -> dict[str, Tensor]:
        """The parts by name."""
        return {"numbers": value.numbers, "codes": value.codes, "weights": value.weights}

    def from_tensors(self, tensors: dict[str, Tensor]) -> DividedAnswer:
        """The inverse of `to_tensors`."""
        return DividedAnswer(**tensors)

    @classmethod
    def variants(cls) -> Sequence[DividedCodedSum]:
        """There is one."""
        return [cls()]

    def example_inputs(self, graph: CheckedGraph) -> tuple[Tensor, Tensor, Tensor]:
        """Codes and weights that follow from public sizes; guesses from the features."""
        nodes = torch.arange(graph.metadata.num_nodes)
        return example_codes(graph), (3 * nodes + 1) % (MOST_WEIGHT + 1), example_guesses(graph)

    def before_noise(self, data: Any, noise: Any, *inputs: Any) -> np.ndarray:
        """The numbers of those who receive."""
        exact: np.ndarray = self.query(data, *inputs).numbers[inputs[1] > 0].double().numpy()
        return exact

    def after_noise(self, data: Any, scale: float, noise: Any, *inputs: Any) -> np.ndarray:
        """The released numbers of those who receive."""
        found: np.ndarray = self.release(data, scale, noise, *inputs).numbers[inputs[1] > 0].double().numpy()
        return found

    # Canaries

    def most_canaries(self, stage: Stage, unit: Unit) -> int:
        """As many as fit in a graph."""
        return room_for(unit, _CANARY_LIST)

    def canary(
        self, stage: Stage, unit: Unit, coins: np.ndarray, open_vault: OpenVault, rng: np.random.Generator
    ) -> Evidence:
        """Training nodes with lists of receivers; every later code and weight follows earlier numbers.

        An absent record is empty, or has the other label under replacement.
        """
        replaced = unit.footprint.replaced
        layout = lay_out(unit, coins, rng, _CANARY_LIST)
        labels = torch.zeros(layout.num_nodes, dtype=torch.int64)
        if replaced:
            labels[layout.heads] = layout.present().long()
        labeled = torch.zeros(layout.num_nodes, dtype=torch.bool).index_fill_(0, layout.heads, True)
        labeled[:BASE_NODES] = True
        edges = layout.edges(everyone=replaced)
        vault = open_vault(audit_graph(torch.zeros(layout.num_nodes, 1), edges, labels, labeled, _CANARY_CLASSES))
        tally, found = Tally(layout), torch.from_numpy(rng.standard_normal(layout.num_nodes))
        for _ in range(stage.count):
            sign = torch.where(found < 0, -1, 1)
            weights = (1 + (7.0 * found.abs()).long() % MOST_WEIGHT) * ~labeled
            released = vault.release(stage.name, torch.stack([sign, -sign], dim=1), weights, None)
            found = released.numbers.double()
            said = (weights * sign).double()[layout.receiver]
            squares = torch.zeros(len(coins), dtype=torch.float64).index_add_(0, layout.owner, said.square())
            said = said / squares.sqrt()[layout.owner]
            absent, change = (said, -2.0 * said) if replaced else (torch.zeros_like(said), said)
            tally.add((found[layout.receiver] - absent).unsqueeze(1), change.unsqueeze(1), stage.scale or 1.0)
        return tally.evidence("node")


def _answer(numbers: Tensor, codes: Tensor, weights: Tensor) -> DividedAnswer:
    return DividedAnswer(
        (numbers.to(torch.float64) / WHOLE).to(torch.float32), codes.to(torch.int8), weights.to(torch.int8)
    )


def _check_weights(weights: Any) -> None:
    if not isinstance(weights, Tensor):
        raise InputError(
            "weights: expected a tensor that follows from public or released values; got a handle to private rows"
        )
    if weights.dim() != 1 or weights.is_floating_point() or bool(((weights < 0) | (weights > MOST_WEIGHT)).any()):
        raise InputError(
            f"weights: expected a whole number from 0 to {MOST_WEIGHT} for every node; got {weights.dtype} "
            f"{list(weights.shape)}"
        )
