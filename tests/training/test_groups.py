"""Groups of records as examples: against a naive loop, exactness, and what a group's vector depends on."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.noise.source import NoiseSource
from hushgraph.training.examples import NoisySteps, RowExamples
from hushgraph.training.groups import GroupExamples
from hushgraph.training.sampler import PoissonSampler

ROWS, COLUMNS, GROUPS, BOUND = 40, 6, 8, 0.4


def data(seed: int = 0) -> tuple[nn.Linear, Tensor, Tensor, Tensor]:
    made = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = nn.Linear(COLUMNS, 3)
    rows, labels = torch.randn(ROWS, COLUMNS, generator=made), torch.randint(0, 3, (ROWS,), generator=made)
    return module, rows, labels, torch.randint(-1, GROUPS - 1, (ROWS,), generator=made)  # the last group is empty


def steps(count: int = GROUPS, rate: float = 1.0, std: float = 1e-3) -> NoisySteps:
    return NoisySteps(PoissonSampler(count, rate), 1, BOUND, std)


def naive(module: nn.Linear, rows: Tensor, labels: Tensor, groups: Tensor) -> Tensor:
    total = torch.zeros(sum(p.numel() for p in module.parameters()), dtype=torch.float64)
    for group in range(GROUPS):
        members = (groups == group).nonzero().squeeze(1)
        if len(members):
            loss = nn.functional.cross_entropy(module(rows[members]), labels[members])
            vector = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(module.parameters()))]).double()
            total += vector * min(1.0, BOUND / float(vector.norm()))
    return total


def test_the_sum_is_that_of_clipped_means_of_groups() -> None:
    module, rows, labels, groups = data()
    found = next(GroupExamples(module, rows, labels, groups, steps()).sums(NoiseSource.seeded(0)))
    torch.testing.assert_close(found, naive(module, rows, labels, groups), atol=1e-6, rtol=0)


def test_one_record_per_group_is_dp_sgd_on_records() -> None:
    module, rows, labels, _ = data()
    each = steps(ROWS)
    found = next(GroupExamples(module, rows, labels, torch.arange(ROWS), each).sums(NoiseSource.seeded(0)))
    records = next(RowExamples(module, rows, labels, each).sums(NoiseSource.seeded(0)))
    # Examples of DP-SGD are clipped to a little less than the bound, for what rounding may add to their sums.
    torch.testing.assert_close(found, records, atol=1e-6, rtol=1e-3)


def test_vectors_of_groups_are_short_on_the_grid_and_follow_from_their_own_records() -> None:
    module, rows, labels, groups = data()
    rows[groups == 2] *= 1e6
    noisy = steps()
    examples = GroupExamples(module, rows, labels, groups, noisy)
    for members in examples.members:
        if len(members):
            vector = examples.clipped(members)
            whole = [round(value / noisy.grid) for value in vector.tolist()]
            assert [value * noisy.grid for value in whole] == vector.tolist()
            assert math.isqrt(sum(value * value for value in whole)) * noisy.grid <= BOUND
    changed = rows.clone()
    changed[groups == 2] = 0.5
    others = GroupExamples(module, changed, labels, groups, noisy)
    assert torch.equal(others.clipped(others.members[1]), examples.clipped(examples.members[1]))


def test_a_gradient_that_is_not_finite_adds_nothing_and_groups_that_do_not_exist_are_refused() -> None:
    module, rows, labels, groups = data()
    rows[groups == 1] = 1e38
    examples = GroupExamples(module, rows * 10.0, labels, groups, steps())
    assert not examples.clipped(examples.members[1]).any()
    with pytest.raises(InputError, match="below 3"):
        GroupExamples(module, rows, labels, groups, steps(3))
