from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.training.sampler import PoissonSampler


class FakeNoise:
    def __init__(self, seed: int = 0) -> None:
        self.generator = np.random.default_rng(seed)

    def gaussian(self, shape: tuple[int, ...], std: float) -> Tensor:
        return torch.from_numpy(self.generator.normal(0.0, std, shape))

    def bernoulli_indices(self, n: int, p: float) -> Tensor:
        return torch.from_numpy(np.flatnonzero(self.generator.random(n) < p))

    def shuffled(self, parts: Sequence[Tensor]) -> list[Tensor]:
        return [part[torch.from_numpy(self.generator.permutation(len(part)))] for part in parts]

    integer_gaussian = gaussian


def test_batches_have_that_law() -> None:
    sampler, noise = PoissonSampler(2000, 0.1), FakeNoise()
    batches = [sampler.draw(noise) for _ in range(200)]
    counts = torch.zeros(2000).index_add_(0, torch.cat(batches), torch.ones(sum(map(len, batches))))
    # 400,000 coins of probability 0.1, fixed seed. Mean within 4 sigma (0.0019); 2/3 and 3/2 of it are far outside.
    mean = float(counts.mean()) / 200
    assert abs(mean - 0.1) < 0.0019
    assert not any(abs(mean - wrong * 0.1) < 0.0019 for wrong in (2 / 3, 3 / 2))
    # Independent coins: the batch sizes vary as a binomial (variance 180), not less; 4 sigma of 200 draws is 72.
    sizes = torch.tensor([float(len(batch)) for batch in batches])
    assert abs(float(sizes.var()) - 180) < 72
    for batch in batches:
        assert batch.dtype == torch.int64
        assert bool((batch.diff() > 0).all())


def test_several_batches_at_once_have_the_same_law() -> None:
    sampler = PoissonSampler(50, 0.3)
    several = sampler.draw_several(FakeNoise(3), 4)
    coins = np.random.default_rng(3).random(200) < 0.3
    assert [batch.tolist() for batch in several] == [np.flatnonzero(part).tolist() for part in coins.reshape(4, 50)]
    assert [len(batch) for batch in PoissonSampler(50, 1e-9).draw_several(FakeNoise(3), 3)] == [0, 0, 0]


def test_everything_is_drawn_at_rate_one() -> None:
    assert PoissonSampler(5, 1.0).draw(FakeNoise()).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("n", "rate"), [(0, 0.5), (5, 0.0), (5, 1.1), (5, float("nan")), (5, -0.1)])
def test_wrong_settings_are_refused(n: int, rate: float) -> None:
    with pytest.raises(InputError, match="expected"):
        PoissonSampler(n, rate)


def test_null_examples_are_left_out() -> None:
    present = torch.tensor([True, False, True, True])
    (drawn,) = PoissonSampler(4, 1.0).batches(FakeNoise(), 2, present)
    assert [sorted(batch.tolist()) for batch in drawn] == [[0, 2, 3]] * 2


def test_batches_are_those_drawn_several_steps_at_a_time_without_null_examples() -> None:
    sampler, present = PoissonSampler(6000, 0.5), torch.arange(6000) % 7 > 0
    parts = list(sampler.batches(FakeNoise(2), 5, present))
    assert [len(part) for part in parts] == [2, 2, 1]
    noise = FakeNoise(2)
    first = noise.shuffled([batch[present[batch]] for batch in sampler.draw_several(noise, 2)])
    assert all(torch.equal(one, other) for one, other in zip(parts[0], first, strict=True))
    assert all(bool(present[batch].all()) for part in parts for batch in part)
