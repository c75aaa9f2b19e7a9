"""For every class, the sum of its rows, less the average over the classes. Proof: docs/proofs/class-sums.md."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.quantized import quantize
from hushgraph.graph.rows import Rows, SparseRows, dense_rows, take_rows
from hushgraph.mechanisms.canaries import SCALES, Evidence, OpenVault, audit_graph
from hushgraph.mechanisms.neighbor_sum import in_steps
from hushgraph.nn.rowwise import require_rowwise
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.mechanism import GaussianMechanism
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit
from hushgraph.training.alike import one_thread

_BITS = 14
_AT_ONCE = 1_000
_MOST_CANARIES = 3_000


@dataclass(frozen=True)
class ClassSums(GaussianMechanism):
    """`sum x (e_y - 1/C)^T + N(0, scale^2)` over the training records, x of norm at most `row_norm`; no labels add 0.

    Rows are brought to whole multiples of a grid, with their norm bounded after that, and added in exact integers; a
    release is in multiples of grid / C, as its noise is.

    Bound: each of `footprint.records` adds a matrix of norm at most `row_norm` sqrt(1 - 1/C), and takes one as large
    away where it is replaced. Proof: docs/proofs/class-sums.md.
    """

    classes: int = 2
    row_norm: float = 1.0

    name = "class-sums"
    proof = "class-sums"
    reads = frozenset({"labels"})
    trains = True
    released = "sums of the rows of every class"

    def __post_init__(self) -> None:
        if isinstance(self.classes, bool) or not isinstance(self.classes, int) or self.classes < 2:
            raise InputError(f"classes: expected a whole number of at least 2; got {self.classes!r}")

    def sensitivity(self, unit: Unit) -> float:
        """One matrix for every record, two where it is replaced."""
        f = unit.footprint
        one = math.nextafter(self.row_norm * math.sqrt(1.0 - 1.0 / self.classes), math.inf)
        return one * f.records * (2.0 if f.replaced else 1.0)

    def check(self, *inputs: Any) -> None:
        """Each row must follow from one record: modules that mix rows are refused."""
        require_rowwise(inputs[1])

    def query(self, data: Any, head: nn.Linear, module: nn.Module, rows: Rows) -> None:
        """Write the sums of `module(rows)` to the weight of `head`."""
        self._write(head, self._sums(data, module, rows))

    def release(
        self, data: Any, scale: float, noise: NoiseSource, head: nn.Linear, module: nn.Module, rows: Rows
    ) -> None:
        """The same with noise."""
        sums = self._sums(data, module, rows)
        sums += noise.integer_gaussian(tuple(sums.shape), in_steps(scale, self._grid))
        self._write(head, sums)

    @property
    def _grid(self) -> float:
        """What one whole number stands for in the sums."""
        return self.row_norm / 2**_BITS / self.classes

    def _sums(self, data: Any, module: nn.Module, rows: Rows) -> Tensor:
        """`[classes, columns]` in multiples of the grid: C times the sum of a class, less the sum of all."""
        if data.metadata.classes != self.classes:
            raise InputError(f"class-sums: expected {self.classes} classes; got {data.metadata.classes}")
        by_class: Tensor | None = None
        for found, labels in self._whole(data, module, rows):
            if by_class is None:
                by_class = torch.zeros(self.classes, found.shape[1], dtype=torch.int64)
            for label in range(self.classes):
                by_class[label] += found[labels == label].sum(dim=0, dtype=torch.int64)
        assert by_class is not None, "a plan has training records"
        return self.classes * by_class - by_class.sum(dim=0)

    def _whole(self, data: Any, module: nn.Module, rows: Rows) -> Iterator[tuple[Tensor, Tensor]]:
        """Whole-number rows and labels, a piece of the training records at a time.

        A record has its place in its piece by its number alone, so what is computed for it does not depend on others.
        """
        labels = data.labels
        with one_thread(), torch.no_grad():
            for nodes in data.train.split(_AT_ONCE):
                found = module(dense_rows(take_rows(rows, nodes)))
                yield quantize(found, self.row_norm, bits=_BITS).values, labels[nodes]

    def _write(self, head: nn.Linear, sums: Tensor) -> None:
        with torch.no_grad():
            head.weight.copy_(sums.to(torch.float64) * self._grid)

    # Tests

    @classmethod
    def variants(cls) -> Sequence[ClassSums]:
        """Rows of length one, and of another length."""
        return [cls(), cls(row_norm=2.5)]

    def example_inputs(self, graph: CheckedGraph) -> tuple[Any, ...]:
        """The features as they are."""
        metadata = graph.metadata
        return nn.Linear(metadata.features, metadata.classes, bias=False), nn.Identity(), graph.features

    def before_noise(self, data: Any, noise: NoiseSource, *inputs: Any) -> np.ndarray:
        """The sums."""
        _, module, rows = inputs
        return self._sums(data, module, rows).double().numpy() * self._grid

    def after_noise(self, data: Any, scale: float, noise: NoiseSource, *inputs: Any) -> np.ndarray:
        """The noisy sums, as the weight has them."""
        self.release(data, scale, noise, *inputs)
        weight: np.ndarray = inputs[0].weight.detach().double().numpy()
        return weight

    # Canaries

    def most_canaries(self, stage: Stage, unit: Unit) -> int:
        """As many as can have a column of their own."""
        return _MOST_CANARIES

    def canary(
        self, stage: Stage, unit: Unit, coins: np.ndarray, open_vault: OpenVault, rng: np.random.Generator
    ) -> Evidence:
        """Records of class 0, each with a row in a column of its own; an absent one is empty, or the opposite row."""
        replaced, canaries = unit.footprint.replaced, len(coins)
        present = torch.from_numpy(coins)
        labels = torch.zeros(canaries, dtype=torch.int64)
        if not replaced:
            labels[~present] = -1
        rows = SparseRows(
            torch.arange(canaries + 1),
            torch.arange(canaries),
            torch.where(present, 2.0, -2.0) * self.row_norm,
            (canaries, canaries),
        )
        everyone = torch.ones(canaries, dtype=torch.bool)
        vault = open_vault(audit_graph(rows, torch.empty((2, 0), dtype=torch.int64), labels, everyone, self.classes))
        head = nn.Linear(canaries, self.classes, bias=False)
        vault.release(stage.name, head, nn.Identity(), vault.features)
        change = torch.full((self.classes, 1), -1.0 / self.classes, dtype=torch.float64)
        change[0] += 1.0
        change *= self.row_norm
        seen = head.weight.detach().double()
        seen, change = (seen + change, 2.0 * change) if replaced else (seen, change)
        precision = (stage.scale or 1.0) ** -2
        information = float(change.square().sum()) * precision
        ratio = (seen * change).sum(dim=0) * precision - information / 2.0
        ratios = np.stack([(ratio / scale**2).numpy() for scale in SCALES])
        return Evidence(ratios, "record", information=np.full(canaries, information))
