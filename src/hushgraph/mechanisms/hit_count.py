"""How many validation nodes a model is right about: the score that private selection goes by.

Proof: docs/proofs/selection.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hushgraph.graph.rows import dense_rows
from hushgraph.noise.discrete import discrete_laplace
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.mechanism import PureMechanism
from hushgraph.privacy.units import Unit


@dataclass(frozen=True)
class HitCount(PureMechanism):
    """The number of validation nodes whose highest score is that of their label. It may be negative.

    Bound: a row of scores follows from its node's own record and what was released, so a unit of one record decides one
    hit. A node without a label is no hit.
    """

    name = "hit-count"
    proof = "selection"
    reads = frozenset({"labels"})
    released = "a count of right answers"

    def sensitivity(self, unit: Unit) -> float:
        """One hit for each record that changes."""
        return unit.footprint.records if unit.footprint.records <= 1 else math.inf

    def query(self, data: Any, scores: Tensor) -> int:
        """The exact count."""
        predicted = dense_rows(scores).argmax(dim=1)
        return int((predicted[data.val] == data.labels[data.val]).sum())

    def release(self, data: Any, scale: float, noise: NoiseSource, scores: Tensor) -> int:
        """The count with noise."""
        return self.query(data, scores) + discrete_laplace(self.whole_scale(scale), noise)

    def example_inputs(self, graph: Any) -> tuple[Any, ...]:
        """The first features as scores of the classes."""
        return (dense_rows(graph.features)[:, : graph.metadata.classes],)

    def to_tensors(self, value: int) -> dict[str, Any]:
        """One whole number."""
        return {"value": torch.tensor([value])}

    def from_tensors(self, tensors: dict[str, Any]) -> int:
        """The inverse of `to_tensors`."""
        return int(tensors["value"][0])
