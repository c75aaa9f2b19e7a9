"""Sums of labels in the code of each receiver, where edges are protected. Proof: docs/proofs/chorus-codes.md.

A node outside the training split gets one number: the sum over its neighbors of its own code times their labels (of
training nodes) or guesses (of the others). Edges between training nodes move none of these numbers. They are counted by
class and shown in the sums of training nodes instead, which teach what neighborhoods look like: every edge is of one
kind and pays for one of the parts only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.codes import WHOLE, check_codes, decoded, messages
from hushgraph.graph.edges import Edges
from hushgraph.graph.labels import quantize_labels
from hushgraph.graph.rows import Rows, dense_rows
from hushgraph.mechanisms.canaries import BASE_NODES, Evidence, Layout, OpenVault, Tally, audit_graph, lay_out, room_for
from hushgraph.mechanisms.label_sum import known_classes
from hushgraph.noise.normal import in_steps
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.mechanism import GaussianMechanism
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit

_CANARY_CLASSES = 2
_ROW_BITS = 12


@dataclass(frozen=True)
class CodedAnswer:
    """What one release tells.

    numbers: one for every node, zero for training nodes.
    rows: for the training nodes that read, the sums of one-hot labels of training neighbors.
    pairs: edges between training nodes, by the classes at their ends; symmetric.
    codes: the codes that were used.
    """

    numbers: Tensor
    rows: Tensor
    pairs: Tensor
    codes: Tensor


@dataclass(frozen=True)
class CodedSum(GaussianMechanism):
    """One number per receiver in its own code, beside sums and counts of the training nodes among themselves.

    A label is worth one, a guess `guess_norm` in sum. `scale` is the noise of a number; that of rows and pairs is
    `rows_noise` and `pairs_noise` times as large.
    """

    guess_norm: float = math.sqrt(0.5)
    rows_noise: float = math.sqrt(2.5)
    pairs_noise: float = math.sqrt(5.0)

    name = "coded-sum"
    proof = "chorus-codes"
    reads = frozenset({"edges", "labels"})
    released = "a sum of neighbors' labels in a code"

    def __post_init__(self) -> None:
        problems = []
        if not 0.0 <= self.guess_norm <= 1.0:
            problems.append(f"guess_norm: expected a norm from 0 to 1; got {self.guess_norm!r}")
        for name in ("rows_noise", "pairs_noise"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0.0):
                problems.append(f"{name}: expected a positive, finite number; got {getattr(self, name)!r}")
        InputError.collect(problems)

    @classmethod
    def balanced(cls, unit: Unit, pairs_share: float = 0.05) -> CodedSum:
        """The form in which edges of all kinds cost the same; those of training nodes pay `pairs_share` for counts."""
        entries = unit.footprint.receivers if unit.footprint.records == 0 else 1.0
        return cls(
            min(1.0, math.sqrt(1.0 / entries)),
            math.sqrt(entries / (1.0 - pairs_share)),
            0.5 * entries / math.sqrt(pairs_share),
        )

    def sensitivity(self, unit: Unit) -> float:
        """L2 change over one edge, each number in multiples of its own noise over `scale`: the costliest kind."""
        f = unit.footprint
        if f.records != 0:
            return math.inf
        both_train = f.receivers / self.rows_noise**2 + (0.5 * f.receivers / self.pairs_noise) ** 2
        return math.sqrt(max(both_train, *self._costs(unit)))

    def _costs(self, unit: Unit) -> tuple[float, float]:
        """The squared change over an edge with one end in the training split, and over one with none."""
        f = unit.footprint
        one_train = 1.0 if f.mirrored else f.receivers  # what the other sends to a training node is not used
        return one_train, f.receivers * self.guess_norm**2

    def check(self, *inputs: Any) -> None:
        """Refuse codes that do not follow from what is public."""
        check_codes(inputs[0])

    def query(
        self, data: Any, codes: Tensor, guesses: Rows | None = None, readers: Tensor | None = None
    ) -> CodedAnswer:
        """Without noise. Labels of nodes outside the training split are never read; all of them may send `guesses`.

        `readers` are the training nodes whose rows are wanted (None: all of them).
        """
        return self._answer(data, codes, readers, self._whole(data, codes, guesses, readers))

    def release(
        self,
        data: Any,
        scale: float,
        noise: NoiseSource,
        codes: Tensor,
        guesses: Rows | None = None,
        readers: Tensor | None = None,
    ) -> CodedAnswer:
        """With Gaussian noise on the grids of the three parts."""
        numbers, rows, pairs = self._whole(data, codes, guesses, readers)
        grids = ((numbers, 1.0, 1.0 / WHOLE), (rows, self.rows_noise, 2.0**-_ROW_BITS), (pairs, self.pairs_noise, 0.5))
        for part, multiple, step in grids:
            part += noise.integer_gaussian(tuple(part.shape), in_steps(scale * multiple, step))
        return self._answer(data, codes, readers, (numbers, rows, pairs))

    def _whole(
        self, data: Any, codes: Tensor, guesses: Rows | None, readers: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The three parts in whole steps: numbers of the nodes outside the split, rows of readers, pairs of classes."""
        check_codes(codes, data.metadata.classes)
        edges: Edges = data.edges
        classes, columns, labeled = known_classes(data), data.metadata.classes, data.trains_on
        # The largest whole sum whose square, with what `guess_norm` promises, is not exceeded.
        norm = torch.where(labeled, WHOLE, math.floor(self.guess_norm * WHOLE))
        told = torch.where(labeled & (classes < 0), 0, norm)  # a training node without a label sends nothing
        sent = messages(classes, columns, told, None if guesses is None else dense_rows(guesses))
        numbers = decoded(codes, edges.ending_at(~labeled).sum(sent))[~labeled]
        rows = edges.ending_at(labeled).sum(quantize_labels(classes, columns, bits=_ROW_BITS))
        pairs = _pairs(rows >> _ROW_BITS, classes)
        return numbers, rows[data.train if readers is None else readers], pairs

    def _answer(
        self, data: Any, codes: Tensor, readers: Tensor | None, whole: tuple[Tensor, Tensor, Tensor]
    ) -> CodedAnswer:
        numbers, rows, pairs = (part.to(torch.float64) for part in whole)
        columns = data.metadata.classes
        everyone = torch.zeros(data.metadata.num_nodes, dtype=torch.float32)
        everyone[~data.trains_on] = (numbers / WHOLE).to(torch.float32)
        square = torch.zeros((columns, columns), dtype=torch.float32)
        upper = torch.triu_indices(columns, columns)
        square[upper[0], upper[1]] = (0.5 * pairs).to(torch.float32)
        square = square + square.triu(1).t()
        return CodedAnswer(everyone, (rows * 2.0**-_ROW_BITS).to(torch.float32), square, codes.to(torch.int8))

    def to_tensors(self, value: CodedAnswer) -> dict[str, Tensor]:
        """The parts by name."""
        return {"numbers": value.numbers, "rows": value.rows, "pairs": value.pairs, "codes": value.codes}

    def from_tensors(self, tensors: dict[str, Tensor]) -> CodedAnswer:
        """The inverse of `to_tensors`."""
        return CodedAnswer(**tensors)

    @classmethod
    def variants(cls) -> Sequence[CodedSum]:
        """For one entry and for two, without guesses, and with all the cost of training pairs on counts or on rows."""
        return [
            cls(1.0, math.sqrt(1.0 / 0.95), 0.5 / math.sqrt(0.05)),
            cls(math.sqrt(0.5), math.sqrt(2.0 / 0.95), 1.0 / math.sqrt(0.05)),
            cls(0.0, 2.0, 2.0),
            cls(0.5, 10.0, 1.0),
        ]

    def example_inputs(self, graph: CheckedGraph) -> tuple[Tensor, Tensor]:
        """Codes that follow from public sizes; guesses from the features."""
        return example_codes(graph), example_guesses(graph)

    def before_noise(self, data: Any, noise: Any, *inputs: Any) -> np.ndarray:
        """All parts, each divided by its multiple of the noise."""
        return self._scaled(self._whole(data, inputs[0], inputs[1], None))

    def after_noise(self, data: Any, scale: float, noise: Any, *inputs: Any) -> np.ndarray:
        """The same of what is released."""
        found = self.release(data, scale, noise, *inputs)
        upper = torch.triu_indices(*found.pairs.shape)
        numbers = (found.numbers[~data.trains_on].double() * WHOLE, found.rows.double() * 2.0**_ROW_BITS)
        return self._scaled((*numbers, 2.0 * found.pairs[upper[0], upper[1]].double()))

    def _scaled(self, whole: tuple[Tensor, Tensor, Tensor]) -> np.ndarray:
        numbers, rows, pairs = (part.double().flatten().numpy() for part in whole)
        parts = [numbers / WHOLE, rows * 2.0**-_ROW_BITS / self.rows_noise, 0.5 * pairs / self.pairs_noise]
        return np.concatenate(parts)

    # Canaries

    def most_canaries(self, stage: Stage, unit: Unit) -> int:
        """As many as fit in a graph."""
        return room_for(unit)

    def canary(
        self, stage: Stage, unit: Unit, coins: np.ndarray, open_vault: OpenVault, rng: np.random.Generator
    ) -> Evidence:
        """Edges of a training node with another and between two others, in turn where both cost the same.

        Every later code follows earlier numbers.
        """
        layout = lay_out(unit, coins, rng)
        labeled = torch.ones(layout.num_nodes, dtype=torch.bool)
        labeled[BASE_NODES:] = False
        one_train, neither = self._costs(unit)
        if one_train >= neither * (1.0 - 1e-9):
            labeled[layout.heads[:: 2 if neither >= one_train * (1.0 - 1e-9) else 1]] = True
        labels = torch.from_numpy(rng.integers(0, _CANARY_CLASSES, size=layout.num_nodes))
        graph = audit_graph(torch.zeros(layout.num_nodes, 1), layout.edges(), labels, labeled, _CANARY_CLASSES)
        vault, tally = open_vault(graph), Tally(layout)
        sign = torch.from_numpy(rng.choice([-1, 1], size=layout.num_nodes))
        guesses = torch.nn.functional.one_hot(labels, _CANARY_CLASSES).float()  # certain ones: the loudest there are
        readers = torch.arange(1)
        for _ in range(stage.count):
            codes = torch.stack([sign, -sign], dim=1)
            found = vault.release(stage.name, codes, guesses, readers).numbers.double()
            change = self._moved(layout, labeled, labels, codes)
            tally.add(found[layout.receiver].unsqueeze(1), change.unsqueeze(1), stage.scale or 1.0)
            sign = torch.where(found < 0, -sign, sign)
        return tally.evidence("edge")

    def _moved(self, layout: Layout, labeled: Tensor, labels: Tensor, codes: Tensor) -> Tensor:
        """What a planted edge adds to the number at its end; nothing where that is a training node."""
        size = torch.where(labeled[layout.sender], 1.0, self.guess_norm).double()
        arrives = codes[layout.receiver, labels[layout.sender]] * size
        return torch.where(labeled[layout.receiver], 0.0, arrives)


def _pairs(rows: Tensor, classes: Tensor) -> Tensor:
    """Entries between training nodes by the two classes, the upper triangle: each undirected edge counts for two."""
    columns = rows.shape[1]
    counts = torch.zeros((columns, columns), dtype=torch.int64)
    known = classes >= 0
    counts.index_add_(0, classes[known], rows[known])
    both = counts + counts.t() - torch.diag(counts.diagonal())
    upper = torch.triu_indices(columns, columns)
    return both[upper[0], upper[1]]


def example_codes(graph: CheckedGraph) -> Tensor:
    """Signs that follow from the sizes of a graph alone."""
    nodes, classes = graph.metadata.num_nodes, graph.metadata.classes
    return 1 - 2 * ((torch.arange(nodes).unsqueeze(1) + torch.arange(classes)) % 2)


def example_guesses(graph: CheckedGraph) -> Tensor:
    """Class probabilities that follow from each node's own features; nearly certain ones are the loudest."""
    features = dense_rows(graph.features)
    weights = torch.linspace(-20.0, 20.0, features.shape[1] * graph.metadata.classes).reshape(features.shape[1], -1)
    return (features @ weights).softmax(dim=1)
