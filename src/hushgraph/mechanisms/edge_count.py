"""A noisy count of edges, with whole-number noise sampled exactly. Proof: docs/proofs/count.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hushgraph.errors import InputError
from hushgraph.noise.discrete import discrete_laplace
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.mechanism import PureMechanism
from hushgraph.privacy.units import Unit


@dataclass(frozen=True)
class EdgeCount(PureMechanism):
    """How many entries all outgoing lists have together, of which each list adds at most `cap`. It may be negative.

    Bound: the unit's own list adds at most `cap` whatever it becomes, and every changed entry of another list adds one.
    Whole lists are counted, not those cut to the unit's cap. `scale` is whole, so the law is sampled exactly.
    """

    cap: int = 1

    name = "edge-count"
    proof = "count"
    reads = frozenset({"edges"})
    takes_edge_weights = True  # an edge counts, whatever its weight and its types are
    takes_edge_types = True
    released = "a count of edges"

    def __post_init__(self) -> None:
        if isinstance(self.cap, bool) or not isinstance(self.cap, int) or self.cap < 1:
            raise InputError(f"cap: expected a whole number of at least 1; got {self.cap!r}")

    def sensitivity(self, unit: Unit) -> float:
        """L1 change of the count."""
        f = unit.footprint
        return min(float(self.cap), f.own_list) + f.other_entries

    def query(self, data: Any) -> int:
        """The exact sum of min(length, cap)."""
        lengths = data.whole_lists.out_degree()
        return int(lengths.to(torch.int64).clamp(max=self.cap).sum())

    def release(self, data: Any, scale: float, noise: NoiseSource) -> int:
        """The count with noise."""
        return self.query(data) + discrete_laplace(self.whole_scale(scale), noise)

    @classmethod
    def variants(cls) -> Sequence[EdgeCount]:
        """Lists that are cut, and lists that hardly ever are."""
        return [cls(3), cls(100)]

    def to_tensors(self, value: int) -> dict[str, Any]:
        """One whole number."""
        return {"value": torch.tensor([value])}

    def from_tensors(self, tensors: dict[str, Any]) -> int:
        """The inverse of `to_tensors`."""
        return int(tensors["value"][0])
