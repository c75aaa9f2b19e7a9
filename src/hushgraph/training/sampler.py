"""Poisson sampling: one object that draws the batches and tells the accountant their law.

A batch is put in uniformly random order, which bounds what rounding can add to the change that one example makes
(docs/proofs/gradient.md); null records are left out before anything is computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from hushgraph.errors import InputError

# Steps are drawn together up to about this many positions: each call for random numbers has a fixed cost.
_POSITIONS_AT_ONCE = 2**13


class Noise(Protocol):
    """What training needs from a source of randomness (`hushgraph.noise.source.NoiseSource` has it)."""

    def integer_gaussian(self, shape: tuple[int, ...], std: float) -> Tensor:
        """Independent samples of round(std * Z) with Z standard normal, int64."""
        ...

    def bernoulli_indices(self, n: int, p: float) -> Tensor:
        """The positions among `n` whose coin of probability `p` came up heads, ascending, as int64."""
        ...

    def shuffled(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Each part in uniformly random order."""
        ...


@dataclass(frozen=True)
class PoissonSampler:
    """Each example joins each batch with probability `rate`, independently of everything else.

    `num_examples` must be a public number. The accountant reads `rate`; the noisy sum of a batch is divided by
    `expected_batch_size`, never by the realized size, which is private. A batch may be empty: that step is noise only.
    """

    num_examples: int
    rate: float

    def __post_init__(self) -> None:
        problems = []
        if self.num_examples < 1:
            problems.append(f"expected num_examples >= 1; got {self.num_examples}; there is nothing to sample")
        if not (math.isfinite(self.rate) and 0.0 < self.rate <= 1.0):
            problems.append(f"expected a sampling rate in (0, 1]; got {self.rate}; use batch size / examples")
        InputError.collect(problems)

    @property
    def expected_batch_size(self) -> float:
        """The average number of examples in a batch."""
        return self.num_examples * self.rate

    def draw(self, noise: Noise) -> Tensor:
        """The positions of one batch (int64, ascending)."""
        return self.draw_several(noise, 1)[0]

    def draw_several(self, noise: Noise, count: int) -> tuple[Tensor, ...]:
        """The positions of `count` batches: the same coins, asked for at once because each call has a fixed cost."""
        if self.rate == 1.0:
            return (torch.arange(self.num_examples),) * count
        heads = noise.bernoulli_indices(self.num_examples * count, self.rate)
        ends = torch.searchsorted(heads, torch.arange(1, count + 1) * self.num_examples)
        sizes = ends.diff(prepend=ends.new_zeros(1)).tolist()
        return heads.remainder_(self.num_examples).split(sizes)

    def batches(self, noise: Noise, steps: int, present: Tensor) -> Iterator[list[Tensor]]:
        """The positions of the batches of `steps` steps, each in random order, for several steps at a time.

        Examples that are not `present` are left out.
        """
        at_once, complete = max(1, int(_POSITIONS_AT_ONCE / self.expected_batch_size)), bool(present.all())
        for done in range(0, steps, at_once):
            drawn = self.draw_several(noise, min(at_once, steps - done))
            yield noise.shuffled(drawn if complete else [batch[present[batch]] for batch in drawn])
