from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from hushgraph.training.neighborhoods import QuietLesson, steadied


def agreeing(classes: int, agreement: float) -> tuple[Tensor, Tensor, Tensor]:
    """Mean histograms of size 10 with one share of agreement, their mean over nodes, and the shares of classes."""
    shares = torch.arange(1.0, classes + 1.0)
    shares = shares / shares.sum()
    mix = 10.0 * (agreement * torch.eye(classes) + (1.0 - agreement) * shares)
    return mix, 10.0 * shares, shares


@pytest.mark.parametrize("agreement", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("classes", [2, 6, 15])
def test_noise_is_taken_out_where_one_share_of_agreement_explains_all(classes: int, agreement: float) -> None:
    """Twenty draws: the mean squared error falls to less than half (C^2 entries, about one number is learned)."""
    mix, overall, shares = agreeing(classes, agreement)
    generator, before, after = torch.Generator().manual_seed(0), 0.0, 0.0
    for _ in range(20):
        noisy = mix + torch.randn(mix.shape, generator=generator)
        found = steadied(noisy, torch.ones_like(mix), overall, shares)
        before += float((noisy - mix).square().mean())
        after += float((found - mix).square().mean())
    assert after < 0.5 * before


def test_what_stands_out_of_the_noise_is_kept() -> None:
    """Classes that prefer the next class, which no share of agreement explains."""
    shares = torch.full((6,), 1.0 / 6)
    mix = 2.0 * torch.ones(6, 6) + 8.0 * torch.eye(6).roll(1, dims=1)
    overall = mix.mean(dim=0)
    quiet, loud = (steadied(mix, torch.full_like(mix, variance), overall, shares) for variance in (1e-4, 100.0))
    assert torch.allclose(quiet, mix, atol=0.01)
    # Where nothing stands out of the noise, all that is left is that neighbors agree less than chance.
    own = torch.eye(6, dtype=torch.bool)
    assert torch.allclose(loud[~own], loud[0, 1].expand(30), atol=1e-4)
    assert bool((loud[own] < overall).all())


def test_a_class_of_few_is_believed_less_than_one_of_many() -> None:
    mix, overall, shares = agreeing(4, 0.5)
    generator = torch.Generator().manual_seed(1)
    variances = torch.tensor([25.0, 0.01, 0.01, 0.01]).unsqueeze(1).expand(4, 4)
    noisy = mix + variances.sqrt() * torch.randn(4, 4, generator=generator)
    moved = (steadied(noisy, variances, overall, shares) - noisy).abs().mean(dim=1)
    assert float(moved[0]) > 10.0 * float(moved[1:].max())


@pytest.mark.parametrize("overall", [0.0, -3.0])
def test_noise_alone_gives_no_broken_number(overall: float) -> None:
    shares = torch.tensor([0.2, 0.8])
    for variance in (0.0, 1.0):
        found = steadied(torch.randn(2, 2), torch.full((2, 2), variance), torch.full((2,), overall), shares)
        assert bool(torch.isfinite(found).all())


def test_the_deviation_of_a_lesson_is_that_of_its_sums() -> None:
    """Steps of noise alone: what `sums` makes of the weights deviates as `deviation` says (4000 draws, 5 sigma)."""
    classes, steps, noise, rate, learners = 4, 25, 3.0, 0.2, 1000
    lesson = QuietLesson(classes, steps)
    rows = torch.zeros(learners, classes + 1)
    generator = torch.Generator().manual_seed(2)
    found = []
    for _ in range(250):
        gradients = noise * torch.randn(steps, classes, classes + 1, generator=generator) / (rate * learners)
        found.append(lesson.sums(-lesson.training.lr * gradients.sum(dim=0), rows)[0])
    measured, expected = float(torch.stack(found).std()), lesson.deviation(noise, rate)
    assert abs(measured / expected - 1.0) < 5.0 / math.sqrt(2.0 * 250 * classes * classes)
