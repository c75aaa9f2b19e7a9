"""Kernel ridge regression: leaving one out in closed form is leaving one out, and the best ridge is chosen by it."""

from __future__ import annotations

import torch

from hushgraph.nn.pictures import gaussian_kernel
from hushgraph.training.kernel_ridge import best_weights, solve
from hushgraph.training.teachers import central_rows

MADE = torch.Generator().manual_seed(0)
ROWS = torch.rand(30, 2, generator=MADE, dtype=torch.float64)
CLEAN = torch.stack([torch.sin(6.0 * ROWS[:, 0]), ROWS[:, 1]], dim=1)
TARGETS = CLEAN + 0.3 * torch.randn(30, 2, generator=MADE, dtype=torch.float64)
RIDGES = (0.001, 0.1, 1.0, 10.0)


def left_out(ridge: float) -> float:
    kernel, errors = gaussian_kernel(ROWS, ROWS, 4.0), []
    for row in range(30):
        rest = torch.arange(30) != row
        weights = solve(kernel[rest][:, rest], TARGETS[rest], ridge)
        errors.append((kernel[row, rest] @ weights - TARGETS[row]).square().mean())
    return float(torch.stack(errors).mean())


def test_the_ridge_is_the_one_that_naive_leaving_out_finds() -> None:
    kernel = gaussian_kernel(ROWS, ROWS, 4.0)
    weights, ridge = best_weights(kernel, TARGETS, RIDGES)
    assert ridge == min(RIDGES, key=left_out)
    assert torch.allclose(weights, solve(kernel, TARGETS, ridge), atol=1e-6)


def test_central_rows_are_distinct_even_where_rows_are_equal() -> None:
    middles = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    rows = middles.repeat_interleave(20, dim=0) + 0.1 * torch.randn(60, 2, generator=MADE)
    found = central_rows(rows, 6, torch.Generator().manual_seed(3))
    assert found.unique().numel() == 6
    assert central_rows(torch.zeros(5, 2), 4, torch.Generator()).unique().numel() == 4
