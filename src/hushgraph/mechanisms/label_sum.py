"""Sums of neighbors' labels, with noise and norm by kind of node: the release of Chorus. Proof: docs/proofs/chorus.md.

Nodes are of two public kinds: those with a known label (training nodes) and the others. The kinds may send rows of
different norm and receive noise of different size, so the cost of an edge depends on the kinds at its ends.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.edges import Edges
from hushgraph.graph.labels import QuantizedLabels, quantize_labels
from hushgraph.graph.quantized import QuantizedRows, RowsInParts, quantize
from hushgraph.graph.rows import Rows, dense_rows
from hushgraph.graph.sums import Quantized
from hushgraph.graph.types import parts
from hushgraph.graph.weights import LEVELS
from hushgraph.mechanisms.canaries import (
    BASE_NODES,
    Evidence,
    Layout,
    OpenVault,
    Tally,
    audit_graph,
    lay_out,
    of_one_type,
    room_for,
)
from hushgraph.noise.normal import in_steps
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.mechanism import GaussianMechanism
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.relations import noise_factors
from hushgraph.privacy.units import Unit

_BITS, _DIVIDED_BITS = 12, 14  # divided messages are short: a finer grid keeps as much of them
_ROWS_AT_ONCE = 1 << 17
_LEAST_NORM = 2.0**-20  # rows of norm zero are zero whatever the bound says
_CANARY_CLASSES = 2  # the fewest: centered labels of two classes are each other's opposites, as far apart as can be
_CANARY_LIST = 4  # with divided messages any length of list costs the same; above 1, so that dividing is tested
_TWIN_LABELS = (0, 1)  # of a replaced record: if absent, if planted


@dataclass(frozen=True)
class LabelSum(GaussianMechanism):
    """Sums over in-neighbors of label rows: norm at most 1 from labeled nodes, `unlabeled_norm` from the others.

    `scale` is the noise of a row that belongs to an unlabeled node; rows of labeled nodes get `labeled_noise` times as
    much. With `divided`, every node divides its row by the root of the length of its own list, so that all it sends
    together has norm at most 1 whatever that length is. With `centered`, a row is sent without its mean and
    lengthened to make up for it: no longer than before, but the messages of two classes lie further apart. The mean may
    keep `mean_share` of the squared length, at most 1 / classes: how many messages arrive can then be read.

    Edges with weights count by their share of the declared bound, at most one. Where edges have types, the sums over
    each stand side by side, those of type t with `noise_factors[t]` (at least 1) times the noise; a list is then that
    of all types together.
    """

    unlabeled_norm: float = 1.0
    labeled_noise: float = 1.0
    divided: bool = False
    centered: bool = False
    mean_share: float = 0.0
    noise_factors: tuple[float, ...] = ()

    name = "label-sum"
    proof = "chorus"
    reads = frozenset({"edges", "labels"})
    sums_by_node = True
    takes_edge_weights = True
    takes_edge_types = True
    released = "a sum of neighbors' labels"

    def __post_init__(self) -> None:
        problems = []
        if not 0.0 <= self.unlabeled_norm <= 1.0:
            problems.append(f"unlabeled_norm: expected a norm from 0 to 1; got {self.unlabeled_norm!r}")
        if not (math.isfinite(self.labeled_noise) and self.labeled_noise >= 1.0):
            problems.append(f"labeled_noise: expected at least 1; got {self.labeled_noise!r}")
        if not 0.0 <= self.mean_share <= 1.0 or (self.mean_share > 0.0 and not self.centered):
            problems.append(f"mean_share: expected from 0 to 1 / classes, of centered rows; got {self.mean_share!r}")
        if any(not (math.isfinite(factor) and factor >= 1.0) for factor in self.noise_factors):
            problems.append(f"noise_factors: expected numbers of at least 1; got {self.noise_factors}")
        InputError.collect(problems)

    def for_types(self, metadata: Metadata, unit: Unit, budget: Budget) -> LabelSum:
        """The sums of a graph; where edges have types, each type with noise by its own budget, if it has one."""
        if not metadata.edge_types and not budget.relations:
            return self
        return replace(self, noise_factors=noise_factors(metadata.edge_types, budget, unit))

    def sensitivity(self, unit: Unit) -> float:
        """L2 change of one release over one unit, each row measured in multiples of its own noise over `scale`."""
        f = unit.footprint
        if self.divided:  # two records without negative entries differ by sqrt(2), centered ones by 2
            replaced = 2.0 if self.centered else math.sqrt(2.0)
            return (replaced if f.replaced else 1.0) if f.owned else math.inf
        if f.mirrored and f.records == 0:  # the costliest of three kinds of edge: both ends labeled, one of them, none
            low, quiet = self.labeled_noise**-2, self.unlabeled_norm**2
            return math.sqrt(max(2.0 * low, 1.0 + quiet * low, 2.0 * quiet) * f.receivers / 2.0)
        return math.sqrt(f.receivers) * (2.0 if f.replaced else 1.0)  # noise is never below `scale`

    def check(self, *inputs: Any) -> None:
        """Pseudo-labels must be a matrix; their entries are looked at where they are sent."""
        if inputs and inputs[0] is not None and len(inputs[0].shape) != 2:
            raise InputError(f"label sum: expected a matrix of pseudo-labels, one row a node; got {inputs[0].shape}")

    def query(self, data: Any, pseudo_labels: Rows | None = None, receivers: Tensor | None = None) -> Tensor:
        """The sums. Nodes without a label send their row of `pseudo_labels`, or nothing.

        Labels of nodes outside the training split are never read. With a public mask of `receivers`, all other nodes
        get zeros and entries that name them are not used.
        """
        sums, step = self._whole_sums(data, pseudo_labels, receivers)
        return (sums.to(torch.float64) * step).to(torch.float32)

    def release(
        self,
        data: Any,
        scale: float,
        noise: NoiseSource,
        pseudo_labels: Rows | None = None,
        receivers: Tensor | None = None,
    ) -> Tensor:
        """The sums with noise on the same grid; rows of labeled nodes get `labeled_noise` times as much."""
        labeled: Tensor = data.trains_on
        sums, step = self._whole_sums(data, pseudo_labels, receivers, narrow=True)
        # The noisy rows take the place of the exact ones, where both have as many bits.
        noisy = sums.view(torch.float32) if sums.dtype is torch.int32 else torch.empty(sums.shape, dtype=torch.float32)
        blocks = [part.chunk(len(self._factors), dim=1) for part in (sums, noisy)]
        kinds = ((~labeled, 1.0), (labeled, self.labeled_noise))
        for (exact, block, factor), (kind, multiple) in itertools.product(zip(*blocks, self._factors), kinds):
            size = in_steps(scale * multiple * factor, step)
            for where in kind.nonzero().squeeze(1).split(_ROWS_AT_ONCE):
                drawn = noise.integer_gaussian((where.numel(), block.shape[1]), size)
                block[where] = (drawn.add_(exact[where]).to(torch.float64) * step).to(torch.float32)
        if receivers is not None:
            noisy[~receivers] = 0.0
        return noisy

    def _whole_sums(
        self, data: Any, pseudo_labels: Rows | None, receivers: Tensor | None, *, narrow: bool = False
    ) -> tuple[Tensor, float]:
        """The exact sums in whole steps of the grid, and the step."""
        edges, weights = self._edges(data, receivers), data.edge_weights
        sent = self._sent(data, edges, pseudo_labels)
        if self.noise_factors:
            return torch.cat([part.sum(sent) for part in parts(edges, len(self.noise_factors))], dim=1), sent.step
        if weights is None:
            return edges.sum(sent, narrow=narrow), sent.step
        rows = sent.dense() if isinstance(sent, QuantizedLabels) else sent
        return weights.sum(edges, rows), sent.step / LEVELS

    def _edges(self, data: Any, receivers: Tensor | None) -> Edges:
        """The edges that are used: between nodes, or to the mailboxes of each type."""
        types = len(self._factors)
        edges: Edges = data.whole_lists if self.divided else data.edges
        if self.noise_factors:
            edges = data.mailboxes(types, whole=self.divided)
        return edges if receivers is None else edges.ending_at(receivers.repeat(types))

    def _sent(self, data: Any, edges: Edges, pseudo_labels: Rows | None) -> Quantized:
        """What is sent along the edges."""
        if pseudo_labels is None:
            return self.label_messages(edges, known_classes(data), data.metadata.classes)
        return self.messages(edges, self._rows_in_parts(data, pseudo_labels), data.trains_on)

    @property
    def _factors(self) -> tuple[float, ...]:
        return self.noise_factors or (1.0,)

    def rows(self, data: Any, pseudo_labels: Rows) -> Tensor:
        """One-hot labels of the training nodes (zeros where there is none); for all others their `pseudo_labels`."""
        return self._rows_in_parts(data, pseudo_labels).part(slice(None))

    def _rows_in_parts(self, data: Any, pseudo_labels: Rows) -> RowsInParts:
        classes, labeled, guesses = known_classes(data), data.trains_on, dense_rows(pseudo_labels)

        def part(where: slice) -> Tensor:
            rows = guesses[where].to(torch.float32, copy=True)
            rows[labeled[where]] = 0.0
            known = (classes[where] >= 0).nonzero().squeeze(1)
            rows[known, classes[where][known]] = 1.0
            return rows

        return RowsInParts((len(classes), guesses.shape[1]), part)

    def label_messages(self, edges: Edges, classes: Tensor, columns: int) -> QuantizedLabels:
        """What each node sends along each entry of its list where only labels are sent."""
        return quantize_labels(
            classes,
            columns,
            bits=_DIVIDED_BITS if self.divided else _BITS,
            lengths=edges.out_degree()[: len(classes)] if self.divided else None,
            centered=self.centered,
            mean_share=self.mean_share,
        )

    def messages(self, edges: Edges, rows: Tensor | RowsInParts, labeled: Tensor) -> QuantizedRows:
        """What each node sends along each entry of its list, in whole steps of a grid and within its bound."""
        part_of = rows.part if isinstance(rows, RowsInParts) else rows.__getitem__

        def bounded(where: slice) -> Tensor:
            return self._bounded(part_of(where), torch.where(labeled[where], 1.0, self.unlabeled_norm))

        return quantize(
            RowsInParts((rows.shape[0], rows.shape[1]), bounded),
            torch.where(labeled, 1.0, max(self.unlabeled_norm, _LEAST_NORM)),
            bits=_DIVIDED_BITS if self.divided else _BITS,
            lengths=edges.out_degree()[: len(labeled)] if self.divided else None,
        )

    def _bounded(self, rows: Tensor, norms: Tensor) -> Tensor:
        """Rows as they are sent, of at most the given norms."""
        if rows.dim() != 2 or bool((rows < 0).any()):
            raise InputError("label sum: expected a matrix without a negative entry; got another")
        rows = torch.where(torch.isfinite(rows).all(dim=1, keepdim=True), rows, 0.0)  # one record must not stop a run
        shrink = rows.norm(dim=1).clamp(min=1.0).reciprocal() * norms
        return self.coded(rows.to(torch.float32) * shrink.unsqueeze(1))

    def coded(self, rows: Tensor) -> Tensor:
        """Rows as they are sent: as they are, or without their mean, times sqrt(C / (C - 1)), or with a smaller one.

        One-hot rows become the corners of a regular simplex. A row without negative entries gets no longer: its mean
        holds at least 1/C of its squared length.
        """
        if not self.centered:
            return rows
        columns, mean = rows.shape[1], rows.mean(dim=1, keepdim=True)
        if self.mean_share * columns > 1.0:
            raise InputError(f"mean_share: expected at most 1 / {columns} for {columns} classes; got {self.mean_share}")
        apart = (rows - mean) * math.sqrt((1.0 - self.mean_share) * columns / max(1, columns - 1))
        return apart + mean * math.sqrt(self.mean_share * columns) if self.mean_share else apart

    def noise_multiples(self, labeled: Tensor) -> Tensor:
        """The noise of every row as a multiple of `scale`, with a column for each type of edge; float64."""
        of_rows = torch.where(labeled, self.labeled_noise, torch.ones((), dtype=torch.float64)).unsqueeze(1)
        return of_rows * torch.tensor(self._factors, dtype=torch.float64)

    def in_multiples(self, sums: Tensor, labeled: Tensor, scale: float = 1.0) -> Tensor:
        """Sums divided by their noise, where that of an unlabeled node is `scale`."""
        noise = (scale * self.noise_multiples(labeled)).to(sums.dtype)
        return (sums.unflatten(1, (noise.shape[1], -1)) / noise.unsqueeze(2)).flatten(1)

    @classmethod
    def variants(cls) -> Sequence[LabelSum]:
        """As used for directed edges, undirected edges and records."""
        quieter = [cls(0.5, math.sqrt(1.75), centered=centered) for centered in (False, True)]
        divided = [cls(divided=True, centered=True, mean_share=share) for share in (0.0, 0.25)]
        typed = [cls(noise_factors=(1.0, 2.0)), cls(divided=True, centered=True, noise_factors=(1.0, 1.0))]
        return [cls(), *quieter, cls(1.0, 2.0), cls(divided=True), *divided, *typed]

    def example_inputs(self, graph: CheckedGraph) -> tuple[Tensor]:
        """Pseudo-labels: roots of class probabilities, from the features."""
        features = dense_rows(graph.features)
        weights = torch.linspace(-2.0, 2.0, features.shape[1] * graph.metadata.classes).reshape(features.shape[1], -1)
        return ((features @ weights).softmax(dim=1).sqrt(),)

    def before_noise(self, data: Any, noise: Any, *inputs: Any) -> np.ndarray:
        """The sums, every row divided by its multiple of the noise."""
        return self.in_multiples(self.query(data, *inputs).double(), data.trains_on).numpy()

    def after_noise(self, data: Any, scale: float, noise: Any, *inputs: Any) -> np.ndarray:
        """The released sums, every row divided by its multiple of the noise."""
        return self.in_multiples(self.release(data, scale, noise, *inputs).double(), data.trains_on).numpy()

    # Canaries

    def most_canaries(self, stage: Stage, unit: Unit) -> int:
        """As many as fit in a graph."""
        return room_for(unit, self._list_length())

    def _list_length(self) -> int | None:
        return _CANARY_LIST if self.divided else None

    def canary(
        self, stage: Stage, unit: Unit, coins: np.ndarray, open_vault: OpenVault, rng: np.random.Generator
    ) -> Evidence:
        """Edges or records of the kinds for which the plan allows the largest change.

        Messages are worked out here from what the mechanism promises. Unlabeled nodes send pseudo-labels of full length
        from the first sum on; later ones are made of the sums released before.
        """
        layout = lay_out(unit, coins, rng, self._list_length())
        labeled, labels = self._cast(unit, layout, rng)
        graph = audit_graph(
            torch.zeros(layout.num_nodes, 1),
            layout.edges(everyone=unit.footprint.replaced),
            labels,
            labeled,
            _CANARY_CLASSES,
        )
        number = self._factors.index(min(self._factors))
        vault = open_vault(of_one_type(graph, number, len(self._factors)) if self.noise_factors else graph)
        guesses = _one_hot(torch.from_numpy(rng.standard_normal((layout.num_nodes, _CANARY_CLASSES))))
        tally = Tally(layout)
        for _ in range(stage.count):
            rows = torch.where(labeled.unsqueeze(1), F.one_hot(labels, _CANARY_CLASSES).float(), guesses)
            whole = vault.hand_over(vault.release(stage.name, guesses)).to(torch.float64)
            released = whole.chunk(len(self._factors), dim=1)[number]
            absent, change = self._moved(rows.to(torch.float64), layout, labeled, unit.footprint.replaced)
            spread = (stage.scale or 1.0) * self.noise_multiples(labeled)[:, number]
            tally.add(released[layout.receiver] - absent, change, spread[layout.receiver])
            guesses = _one_hot(released)
        return tally.evidence("node" if unit.footprint.records else "edge")

    def _cast(self, unit: Unit, layout: Layout, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Who is labeled, and how: the kinds of node between which the sums show an edge most clearly."""
        labeled = torch.ones(layout.num_nodes, dtype=torch.bool)
        labels = torch.from_numpy(rng.integers(0, _CANARY_CLASSES, size=layout.num_nodes))
        if unit.footprint.records:  # a labeled node with a list of unlabeled receivers, whose noise is the least
            labeled[BASE_NODES:] = False
            labeled[layout.heads] = True
            if unit.footprint.replaced:
                labels[layout.heads] = torch.tensor(_TWIN_LABELS)[layout.present().long()]
        else:
            kinds = torch.tensor(self.costliest_kinds(unit))
            labeled[BASE_NODES:] = kinds[torch.arange(len(layout.coins)) % len(kinds)].flatten()
        return labeled, labels

    def costliest_kinds(self, unit: Unit) -> list[tuple[bool, bool]]:
        """The kinds of pair (is the first node labeled, is the second) whose edge the sums show most clearly."""

        def one_way(sends: bool, receives: bool) -> float:
            return ((1.0 if sends else self.unlabeled_norm) / (self.labeled_noise if receives else 1.0)) ** 2

        kinds = list(itertools.product((True, False), (True, False)))
        costs = [one_way(a, b) + (one_way(b, a) if unit.footprint.mirrored else 0.0) for a, b in kinds]
        return [kind for kind, cost in zip(kinds, costs, strict=True) if cost >= max(costs) * (1.0 - 1e-9)]

    def _moved(self, rows: Tensor, layout: Layout, labeled: Tensor, replaced: bool) -> tuple[Tensor, Tensor]:
        """What arrives from an absent canary along each of its pairs, and what a planted one changes about that."""
        norm = torch.where(labeled, 1.0, self.unlabeled_norm).to(torch.float64)[layout.sender].unsqueeze(1)
        if self.divided:
            norm = norm / math.sqrt(layout.list_length)
        if not replaced:
            change = self.coded(rows[layout.sender]) * norm
            return torch.zeros_like(change), change
        before, after = self.coded(F.one_hot(torch.tensor(_TWIN_LABELS), _CANARY_CLASSES).to(torch.float64))
        return norm * before, norm * (after - before)


def known_classes(data: Any) -> Tensor:
    """The labels of the training nodes; -1 for all others and where there is none."""
    known = torch.full((data.metadata.num_nodes,), -1)
    known[data.train] = data.labels[data.train].clamp(min=-1)
    return known


def centered_rows(rows: Tensor) -> Tensor:
    """Rows without their mean, times sqrt(C / (C - 1)): rows without negative entries get no longer."""
    columns = rows.shape[1]
    return (rows - rows.mean(dim=1, keepdim=True)) * math.sqrt(columns / max(1, columns - 1))


def _one_hot(rows: Tensor) -> Tensor:
    """Pseudo-labels as the roots of class probabilities may be: full length however they are coded."""
    return F.one_hot(rows.argmax(dim=1), _CANARY_CLASSES).to(torch.float32)
