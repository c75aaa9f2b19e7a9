from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.rows import take_rows
from hushgraph.nn import MLP, SparseRows
from hushgraph.noise import grid_of
from hushgraph.training import NoisySteps, RowExamples
from hushgraph.training.examples import filled_up, whole_pieces
from hushgraph.training.sampler import PoissonSampler


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Fixed:
    """Batches that are given, left in their order."""

    def __init__(self, *batches: list[int]) -> None:
        self.batches = batches

    def bernoulli_indices(self, n: int, p: float) -> Tensor:
        size = n // len(self.batches)
        return torch.tensor([k * size + i for k, batch in enumerate(self.batches) for i in batch], dtype=torch.int64)

    def shuffled(self, parts: Sequence[Tensor]) -> list[Tensor]:
        return list(parts)

    def gaussian(self, shape: tuple[int, ...], std: float) -> Tensor:
        raise AssertionError("sums are asked for without noise")

    integer_gaussian = gaussian


def problem(n: int = 50) -> tuple[MLP, Tensor, Tensor]:
    rows = torch.randn(n, 16, generator=generator(1))
    return MLP(16, 16, 4, 2, generator=generator()), rows, torch.randint(4, (n,), generator=generator(2))


def steps(n: int = 50, count: int = 1, noise_std: float = 1.0) -> NoisySteps:
    return NoisySteps(PoissonSampler(n, 0.4), count, 1.0, noise_std)


@pytest.mark.parametrize("sparse", [False, True])
def test_each_sum_is_that_of_its_batch(sparse: bool) -> None:
    module, rows, labels = problem()
    batches = [[3, 4, 9], [], list(range(40)), [49]]
    given = SparseRows.from_tensor(rows) if sparse else rows
    examples = RowExamples(module, given, labels, steps(count=4))
    for batch, total in zip(batches, examples.sums(Fixed(*batches))):
        index = torch.tensor(batch, dtype=torch.int64)
        expected = examples.engine.sum(take_rows(given, index), labels[index])
        torch.testing.assert_close(total, expected, rtol=1e-5, atol=1e-6)  # norms are known, or computed again
    assert examples.engine.clip_norm < 1.0 - grid_of(1.0) * examples.engine.num_parameters**0.5


def test_a_null_record_is_as_if_it_had_not_been_drawn() -> None:
    """Bit by bit, and whatever else the record holds."""
    module, rows, labels = problem()
    (without,) = RowExamples(module, rows, labels, steps()).sums(Fixed([1, 2, 20, 33]))
    null, other = labels.clone(), rows.clone()
    null[7], other[7] = -1, torch.nan
    (total,) = RowExamples(module, other, null, steps()).sums(Fixed([1, 2, 7, 20, 33]))
    assert torch.equal(total, without)
    soft = torch.nn.functional.one_hot(labels, 4).float()
    (without,) = RowExamples(module, rows, soft, steps()).sums(Fixed([1, 2, 20, 33]))
    soft[7] = 0.0
    (total,) = RowExamples(module, rows, soft, steps()).sums(Fixed([1, 2, 7, 20, 33]))
    assert torch.equal(total, without)


def test_a_record_that_is_there_counts() -> None:
    module, rows, labels = problem()
    examples = RowExamples(module, rows, labels, steps())
    (without,), (total,) = examples.sums(Fixed([1, 2, 20])), examples.sums(Fixed([1, 2, 7, 20]))
    assert 0.01 < float((total - without).norm()) <= 1.0


def test_batches_are_filled_up_to_whole_pieces() -> None:
    index = filled_up([torch.arange(5), torch.empty(0, dtype=torch.int64), torch.arange(32), torch.arange(40, 73)], 32)
    assert index.tolist() == [*range(5), *[0] * 27, *range(32), *range(40, 73), *[40] * 31]
    assert [whole_pieces(size, 32) for size in (0, 1, 32, 33)] == [0, 32, 32, 64]


def test_what_does_not_fit_is_refused() -> None:
    module, rows, labels = problem()
    with pytest.raises(InputError, match="51 rows"):
        RowExamples(module, rows, labels, steps(51))
    with pytest.raises(InputError, match="class numbers"):
        RowExamples(module, rows, labels - 2, steps())
    with pytest.raises(InputError, match="3 problems"):
        NoisySteps(PoissonSampler(5, 0.5), -1, float("nan"), 0.0)
    with pytest.raises(InputError, match="less noise"):
        RowExamples(module, rows, labels, steps(noise_std=1e5))
