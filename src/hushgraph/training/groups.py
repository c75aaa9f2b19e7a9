"""Private examples that are groups of records: the mean gradient of each group, clipped as one.

Formal guarantee: `GroupExamples.sums` are exact sums of vectors, one per drawn group, each of which follows from the
records of its own group and the weights alone and has a norm of at most `max_grad_norm` in exact arithmetic. Proof:
docs/proofs/group-gradient.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.graph.rows import Rows, take_rows
from hushgraph.training.examples import Noise, NoisySteps
from hushgraph.training.losses import cross_entropy
from hushgraph.training.optimizers import trainable

_MOST_PARAMETERS = 1 << 22
_SHORTER = 1.0 - 2.0**-30
"""More than rounding in double precision adds to the norm of a gradient of so many parameters."""


class GroupExamples:
    """One example per group: `groups` has the group of every row, -1 for rows in none (null records).

    A group without records adds nothing. A group whose gradient is not finite adds nothing either.
    """

    without_autograd = False

    def __init__(self, module: nn.Module, rows: Rows, labels: Tensor, groups: Tensor, noisy_steps: NoisySteps) -> None:
        count = noisy_steps.sampler.num_examples
        if groups.shape != labels.shape or int(groups.max()) >= count:
            raise InputError(f"expected one group below {count} for each of {len(labels)} rows; got others")
        self.module, self.rows, self.labels, self.noisy_steps = module, rows, labels, noisy_steps
        self.parameters = trainable(module)
        if sum(p.numel() for p in self.parameters) > _MOST_PARAMETERS:
            raise InputError(f"expected at most {_MOST_PARAMETERS} parameters; got more; take a smaller network")
        order = torch.argsort(groups, stable=True)
        sizes = torch.bincount(groups + 1, minlength=count + 1).tolist()
        self.members = order.split(sizes)[1:]

    def sums(self, noise: Noise, done: int = 0) -> Iterator[Tensor | None]:
        """The sum over each step's Poisson batch of groups."""
        size = sum(p.numel() for p in self.parameters)
        for step in range(self.noisy_steps.steps):
            total = torch.zeros(size, dtype=torch.float64)
            drawn = self.noisy_steps.sampler.draw(noise).tolist()
            if step < done:
                yield None
                continue
            for group in drawn:
                if len(self.members[group]):
                    total += self.clipped(self.members[group])
            yield total

    def clipped(self, members: Tensor) -> Tensor:
        """The mean gradient of these records, clipped, cut toward zero to whole multiples of the grid; float64."""
        with torch.enable_grad():
            scores = self.module(take_rows(self.rows, members))
            loss = cross_entropy(scores, self.labels[members]).mean()
            parts = torch.autograd.grad(loss, self.parameters)
        gradient = torch.cat([part.reshape(-1) for part in parts]).double()
        norm, bound, grid = float(gradient.norm()), self.noisy_steps.max_grad_norm, self.noisy_steps.grid
        if not norm < float("inf"):
            return torch.zeros_like(gradient)
        if norm > bound * _SHORTER:
            gradient *= bound * _SHORTER / norm
        return gradient.div_(grid).trunc_().mul_(grid) if grid else gradient
