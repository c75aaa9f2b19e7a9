"""Numbers to predict, within a range that is public knowledge: every method learns which part of it a number is in.

The range is cut into equal parts, and a node's class is the part that its number falls into, or the nearest one where
it lies outside. That is a public function of one record, so whatever is proved of a method for classes holds for
numbers, in every unit and without another bound. A predicted number is the mean of the middles of all parts, weighed by
their probabilities; it is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import InputError

PARTS, MOST_PARTS = 10, 1000


@dataclass(frozen=True)
class NumberRange:
    """From `low` to `high`, in so many equal parts. More parts are finer, and leave fewer examples of each."""

    low: float
    high: float
    parts: int = PARTS

    def __post_init__(self) -> None:
        finite = all(isinstance(end, int | float) and math.isfinite(end) for end in (self.low, self.high))
        problems = []
        if not finite or self.low >= self.high:
            problems.append(f"range: expected two finite numbers, low below high; got {self.low!r} and {self.high!r}")
        if isinstance(self.parts, bool) or not isinstance(self.parts, int) or not 2 <= self.parts <= MOST_PARTS:
            problems.append(f"range: expected 2 to {MOST_PARTS} parts; got {self.parts!r}")
        InputError.collect(problems)

    @classmethod
    def of(cls, data: Any) -> NumberRange | None:
        """The range that a graph declares (`data.target_range`, `data.target_parts`), if any."""
        declared = getattr(data, "target_range", None)
        if declared is None:
            return None
        if isinstance(declared, cls):
            return declared
        if not isinstance(declared, tuple | list) or len(declared) != 2:
            raise InputError(f"target_range: expected (low, high) from public knowledge; got {declared!r}")
        low, high = map(float, declared)
        return cls(low, high, int(getattr(data, "target_parts", None) or PARTS))

    def __iter__(self) -> Iterator[str]:
        """The names of the parts, so that a range can stand where a list of classes does."""
        return iter(self.names)

    @property
    def names(self) -> list[str]:
        """What the parts are called."""
        ends = np.linspace(self.low, self.high, self.parts + 1)
        return [f"{start:.6g} to {end:.6g}" for start, end in pairwise(ends)]

    @property
    def middles(self) -> Tensor:
        """The middle of every part."""
        width = (self.high - self.low) / self.parts
        return self.low + width * (torch.arange(self.parts, dtype=torch.float64) + 0.5)

    def classes_of(self, values: Tensor) -> Tensor:
        """The part of every number; -1 for one that is missing (NaN)."""
        share = (values.double() - self.low) / (self.high - self.low) * self.parts
        inside = share.nan_to_num(0.0, posinf=self.parts, neginf=0.0).floor().clamp(0, self.parts - 1)
        return torch.where(values.isnan(), -1, inside.long())

    def expected(self, probabilities: Tensor) -> Tensor:
        """A number for each row of probabilities of the parts."""
        return (probabilities.double() @ self.middles).to(torch.float32)
