"""Students from noisy counts: the shares behind them are found by the law of the noise, and all public records help."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hushgraph.nn.pictures import KernelStudent, gaussian_kernel
from hushgraph.training import vote_shares
from hushgraph.training.vote_shares import CENTERS, coordinates, fit_shares, likeliest, likely_classes, surprise

NOISE = 2.5  # of a share; the class with the largest noisy count is then wrong more often than not


def blobs(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows about four corners of a square, in 8 columns, and their classes."""
    made = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (count,), generator=made)
    corners = 3.0 * torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    return torch.cat([corners[y], torch.zeros(count, 6)], dim=1) + 0.7 * torch.randn(count, 8, generator=made), y


def noisy_shares(y: Tensor, seed: int, noise: float = NOISE) -> Tensor:
    exact = functional.one_hot(y, 4).float()
    return exact + noise * torch.randn(exact.shape, generator=torch.Generator().manual_seed(seed))


def test_a_student_learns_from_counts_whose_maximum_is_mostly_wrong() -> None:
    rows, y = blobs(900, 0)
    labeled = torch.arange(600)
    shares = noisy_shares(y[:600], 1)
    assert float((shares.argmax(dim=1) == y[:600]).float().mean()) < 0.5
    student = KernelStudent(nn.Identity(), 8, CENTERS, 4)
    fit_shares(student, rows, labeled, shares, NOISE)
    others, truth = blobs(500, 2)
    assert float((student(others).argmax(dim=1) == truth).float().mean()) > 0.9


def test_taking_the_noise_for_none_costs_accuracy() -> None:
    rows, y = blobs(600, 0)
    labeled, right = torch.arange(600), []
    for told in (NOISE, 0.0):
        found = [likely_classes(rows, labeled, noisy_shares(y, seed), told) for seed in range(3)]
        right.append(float(torch.stack([(said == y).float().mean() for said in found]).mean()))
    assert right[0] > right[1] + 0.1


def test_coordinates_have_the_inner_products_of_the_kernel() -> None:
    rows, _ = blobs(40, 3)
    seen, turn = coordinates(rows, rows, 0.3)
    kernel = gaussian_kernel(rows, rows, 0.3)
    assert torch.allclose(seen @ seen.T, kernel, atol=1e-2)
    assert torch.allclose(kernel @ turn, seen)


def test_the_likeliest_weights_are_those_of_a_search_over_all() -> None:
    rows, shares = torch.ones(20, 1), torch.tensor([[0.8, 0.2]]).repeat(20, 1)
    found = likeliest(rows, torch.arange(20), shares, variance=0.5)
    steps = torch.linspace(-3.0, 3.0, 6001)
    first = torch.stack([steps, -steps], dim=1).softmax(dim=1)
    losses = 20.0 * (first - shares[0]).square().sum(dim=1) + 0.5 * 0.5 * 2.0 * steps.square()
    losses = losses + torch.stack([surprise(torch.stack([step, -step])[None]) for step in steps])
    best = float(steps[losses.argmin()])
    assert abs(float(found[0, 0]) - best) < 2e-2
    assert abs(float(found[0, 1]) + best) < 2e-2


def test_the_prior_is_that_of_clear_records_and_even_classes() -> None:
    clear = 20.0 * torch.eye(4)
    same = 20.0 * torch.eye(4)[[0, 0, 0, 0]]
    open_ = torch.zeros(4, 4)
    assert float(surprise(clear)) < float(surprise(open_)) < float(surprise(same))


def test_the_prior_helps_where_noise_dominates_and_gives_way_where_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, y = blobs(600, 0)
    few = torch.cat([(y == 0).nonzero()[:5, 0], (y != 0).nonzero()[:, 0]])  # one class is rare, as no prior says
    clean = functional.one_hot(y[few], 4).float()
    found = likely_classes(rows[few], torch.arange(len(few)), clean, 0.0)
    assert float((found == y[few]).float().mean()) > 0.99
    right = []
    for balance, certain in ((vote_shares._BALANCE, vote_shares._CLEAR), (0.0, 0.0)):
        monkeypatch.setattr(vote_shares, "_BALANCE", balance)
        monkeypatch.setattr(vote_shares, "_CLEAR", certain)
        said = [likely_classes(rows, torch.arange(600), noisy_shares(y, seed, 6.0), 6.0) for seed in range(4)]
        right.append(float(torch.stack([(one == y).float().mean() for one in said]).mean()))
    assert right[0] > right[1] + 0.03


def test_fewer_records_than_centers_and_records_that_are_all_equal() -> None:
    student = KernelStudent(nn.Identity(), 3, CENTERS, 2)
    fit_shares(student, torch.zeros(5, 3), torch.arange(4), torch.tensor([[1.0, 0.0]]).repeat(4, 1), 0.1)
    assert bool(student(torch.zeros(2, 3)).isfinite().all())
    assert student(torch.zeros(2, 3)).argmax(dim=1).tolist() == [0, 0]
