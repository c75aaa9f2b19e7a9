from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hushgraph.errors import HushgraphError, InputError, UnprovenError
from hushgraph.nn import MLP, Encoder, HopClassifier, SparseRows
from hushgraph.noise import grid_of, perturb
from hushgraph.training import (
    BestEpoch,
    ClippedGradient,
    NoisySteps,
    RowExamples,
    Training,
    train_epochs,
    train_private,
)
from hushgraph.training.loop import Progress
from hushgraph.training.sampler import PoissonSampler


class FakeNoise:
    """Random numbers from numpy, with a record of what was asked for; given batches stay in their order."""

    def __init__(self, seed: int = 0, batches: list[Tensor] | None = None) -> None:
        self.generator = np.random.default_rng(seed)
        self.batches, self.asked = batches, []

    def gaussian(self, shape: tuple[int, ...], std: float) -> Tensor:
        raise AssertionError("expected noise on a grid")

    def integer_gaussian(self, shape: tuple[int, ...], std: float) -> Tensor:
        self.asked.append((shape, std))
        return torch.from_numpy(np.rint(self.generator.normal(0.0, std, shape)).astype(np.int64))

    def bernoulli_indices(self, n: int, p: float) -> Tensor:
        if self.batches is not None:
            size = round(n / len(self.batches))  # all the steps of these small problems are drawn at once
            return torch.cat([batch + k * size for k, batch in enumerate(self.batches)])
        return torch.from_numpy(np.flatnonzero(self.generator.random(n) < p))

    def shuffled(self, parts: Sequence[Tensor]) -> list[Tensor]:
        return list(parts)


class Silent(FakeNoise):
    """Noise that is asked for but comes out zero, to see the rest of the step."""

    def integer_gaussian(self, shape: tuple[int, ...], std: float) -> Tensor:
        self.asked.append((shape, std))
        return torch.zeros(shape, dtype=torch.int64)


def train_rows(
    module: nn.Module,
    rows: Tensor | SparseRows,
    labels: Tensor,
    *,
    sampler: PoissonSampler,
    steps: int,
    max_grad_norm: float,
    noise_std: float,
    noise: FakeNoise,
    lr: float,
    allow_no_noise: bool = False,
    microbatch: int | None = None,
    on_step: Progress | None = None,
    **training: object,
) -> None:
    """Private training on rows."""
    noisy_steps = NoisySteps(sampler, steps, max_grad_norm, noise_std, allow_no_noise)
    examples = RowExamples(module, rows, labels, noisy_steps, microbatch=microbatch)
    train_private(examples, Training(1, lr, **training), noise, on_step=on_step)  # type: ignore[arg-type]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def flat(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def problem(n: int = 40) -> tuple[MLP, Tensor, Tensor]:
    rows = torch.randn(n, 6, generator=generator(1))
    return MLP(6, 5, 3, 2, generator=generator()), rows, (rows[:, :3].argmax(1))


def test_each_step_is_the_noisy_clipped_sum_over_the_expected_batch_size() -> None:
    module, rows, labels = problem()
    batches = [torch.tensor([0, 3, 9]), torch.empty(0, dtype=torch.int64), torch.arange(40)]
    reference, expected_noise = problem()[0], FakeNoise(7)
    vector = flat(reference)
    for batch in batches:
        nn.utils.vector_to_parameters(vector, reference.parameters())
        engine = ClippedGradient(reference, max_grad_norm=0.5, grid=grid_of(0.3), expected_rows=4)
        total = perturb(engine.sum(rows[batch], labels[batch]), 0.3, expected_noise)
        vector = vector - 0.1 * total.float() / 4.0
    noise = FakeNoise(7, list(batches))
    train_rows(
        module,
        rows,
        labels,
        sampler=PoissonSampler(40, 0.1),
        steps=3,
        max_grad_norm=0.5,
        noise_std=0.3,
        noise=noise,
        lr=0.1,
        optimizer="sgd",
    )
    torch.testing.assert_close(flat(module), vector, rtol=1e-5, atol=1e-6)
    assert noise.asked == [((3, len(vector)), 0.3 / grid_of(0.3))]


def test_noise_drawn_for_several_steps_is_that_of_one_step_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = []
    for numbers in (1, 150, 10**6):
        monkeypatch.setattr("hushgraph.training.loop._NUMBERS_AT_ONCE", numbers)
        module, rows, labels = problem()
        noise = FakeNoise(3, [torch.arange(40)] * 7)
        train_rows(module, rows, labels, **settings(steps=7, noise=noise))  # type: ignore[arg-type]
        assert sum(math.prod(shape) for shape, _ in noise.asked) == 7 * len(flat(module))
        ends.append(flat(module))
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])


def test_an_empty_batch_is_a_step_with_noise_only() -> None:
    module, rows, labels = problem()
    before = flat(module)
    train_rows(
        module,
        rows,
        labels,
        sampler=PoissonSampler(40, 0.5),
        steps=1,
        max_grad_norm=1.0,
        noise_std=2.0,
        noise=FakeNoise(3, [torch.empty(0, dtype=torch.int64)]),
        lr=1.0,
        optimizer="sgd",
    )
    noise = perturb(torch.zeros(len(before)), 2.0, FakeNoise(3)).float()
    torch.testing.assert_close(flat(module), before - noise / 20.0, rtol=1e-5, atol=1e-6)


def test_the_noise_has_the_stated_scale() -> None:
    """Two-sided on 4,000 samples at a fixed seed: 5 sigma of the estimated scale is 5.6 percent."""
    module = MLP(500, 8, 3, 1, generator=generator())
    rows, labels = torch.zeros(4, 500), torch.tensor([0, 1, 2, 0])
    before = flat(module)
    empty = [torch.empty(0, dtype=torch.int64)] * 3
    train_rows(
        module,
        rows,
        labels,
        sampler=PoissonSampler(4, 0.25),
        steps=3,
        max_grad_norm=1.0,
        noise_std=1.5,
        noise=FakeNoise(5, empty),
        lr=1.0,
        optimizer="sgd",
    )
    scale = float((flat(module) - before).std()) / math.sqrt(3)
    assert abs(scale / 1.5 - 1) < 0.056
    assert not any(abs(scale / (1.5 * wrong) - 1) < 0.056 for wrong in (2 / 3, 3 / 2))


def test_adam_equals_torch_adam_on_the_same_sums() -> None:
    module, rows, labels = problem()
    reference = problem()[0]
    adam = torch.optim.Adam(reference.parameters(), lr=0.05, weight_decay=0.01)
    batches = [torch.arange(k, 40, 3) for k in (0, 1, 2)] * 3
    for batch in batches:
        engine = ClippedGradient(reference, max_grad_norm=0.7, grid=grid_of(1.0), expected_rows=10)
        total = engine.sum(rows[batch], labels[batch]).float() / 10.0
        for p, g in zip(reference.parameters(), total.split([p.numel() for p in reference.parameters()])):
            p.grad = g.view_as(p)
        adam.step()
    train_rows(
        module,
        rows,
        labels,
        sampler=PoissonSampler(40, 0.25),
        steps=9,
        max_grad_norm=0.7,
        noise_std=1.0,
        noise=Silent(0, list(batches)),
        lr=0.05,
        weight_decay=0.01,
    )
    torch.testing.assert_close(flat(module), flat(reference), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["mlp", "encoder", "hops", "attention"])
def test_it_learns(kind: str) -> None:
    g = generator(2)
    x = torch.randn(600, 6, generator=g)
    labels = x[:, :3].argmax(1)
    rows = torch.stack([x, x * 0.5], 1) if kind in ("hops", "attention") else x
    module: nn.Module = MLP(6, 8, 3, 2, norm="group", order="activation-first", generator=g)
    if kind == "encoder":
        module = Encoder(6, 8, 3, generator=g)
    elif kind in ("hops", "attention"):
        module = HopClassifier(1, 6, 8, 3, combine="cat" if kind == "hops" else "attention", generator=g)
    calls: list[tuple[int, int]] = []
    train_rows(
        module,
        rows,
        labels,
        sampler=PoissonSampler(600, 0.2),
        steps=150,
        max_grad_norm=1.0,
        noise_std=1.0,
        noise=FakeNoise(1),
        lr=0.03,
        microbatch=50,
        on_step=lambda step, steps: calls.append((step, steps)),
    )
    assert float((module(rows).argmax(1) == labels).float().mean()) > 0.8
    assert calls == [(k + 1, 150) for k in range(150)]


def test_sparse_and_dense_rows_train_alike() -> None:
    dense = (torch.rand(60, 30, generator=generator(4)) < 0.1).float()
    labels = torch.randint(3, (60,), generator=generator(5))
    results = []
    for rows in (dense, SparseRows.from_tensor(dense)):
        module = Encoder(30, 5, 3, generator=generator())
        train_rows(
            module,
            rows,
            labels,
            sampler=PoissonSampler(60, 0.3),
            steps=10,
            max_grad_norm=0.5,
            noise_std=0.1,
            noise=FakeNoise(2),
            lr=0.1,
            optimizer="sgd",
        )
        results.append(flat(module))
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)


def settings(**changes: object) -> dict[str, object]:
    usual: dict[str, object] = {
        "sampler": PoissonSampler(40, 0.1),
        "steps": 2,
        "max_grad_norm": 1.0,
        "noise_std": 1.0,
        "noise": FakeNoise(),
        "lr": 0.1,
    }
    return usual | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise_std": 0.0}, "allow_no_noise"),
        ({"noise_std": -1.0}, "noise_std > 0"),
        ({"noise_std": float("nan")}, "noise_std > 0"),
        ({"noise_std": float("inf"), "allow_no_noise": True}, "noise_std > 0"),
        ({"sampler": PoissonSampler(41, 0.1)}, "41 rows"),
        ({"steps": -1}, "steps"),
        ({"max_grad_norm": float("inf")}, "max_grad_norm"),
        ({"noise_std": 1e6}, "rounding"),
        ({"noise_std": 1e-9}, "tiny"),
        ({"lr": 0.0}, "lr"),
    ],
)
def test_wrong_settings_are_refused(changes: dict[str, object], message: str) -> None:
    module, rows, labels = problem()
    before = flat(module)
    with pytest.raises(InputError, match=message):
        train_rows(module, rows, labels, **settings(**changes))  # type: ignore[arg-type]
    assert torch.equal(flat(module), before)


def test_batch_norm_and_bad_labels_are_refused() -> None:
    module, rows, labels = problem()
    with pytest.raises(UnprovenError, match="BatchNorm1d"):
        train_rows(MLP(6, 5, 3, 2, norm="batch"), rows, labels, **settings())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="class numbers"):
        train_rows(module, rows, labels - 2, **settings())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="one label per row"):
        train_rows(module, rows, labels[1:], **settings())  # type: ignore[arg-type]


def test_no_noise_only_on_request_and_mode_is_kept() -> None:
    module, rows, labels = problem()
    noise = FakeNoise()
    module.eval()
    train_rows(module, rows, labels, **settings(noise_std=0.0, allow_no_noise=True, noise=noise))  # type: ignore[arg-type]
    assert noise.asked == []
    assert not module.training


def test_weights_that_blow_up_are_an_error() -> None:
    module, rows, labels = problem()
    with pytest.raises(HushgraphError, match="finite weights"):
        train_rows(module, rows, labels, **settings(noise_std=1e3, lr=1e30, optimizer="sgd", weight_decay=1.0))  # type: ignore[arg-type]


def test_a_poisoned_row_does_not_poison_the_model() -> None:
    module, rows, labels = problem()
    rows[5] = float("nan")
    train_rows(module, rows, labels, **settings(sampler=PoissonSampler(40, 1.0), noise=Silent()))  # type: ignore[arg-type]
    assert bool(torch.isfinite(flat(module)).all())


def test_the_last_weights_are_averaged_on_request() -> None:
    """The same noise step by step: the mean of the last two of four is worked out from runs that stop earlier."""

    def after(steps: int, share: float) -> Tensor:
        module, rows, labels = problem()
        train_rows(
            module,
            rows,
            labels,
            sampler=PoissonSampler(40, 1.0),
            steps=steps,
            max_grad_norm=1.0,
            noise_std=1.0,
            noise=Silent(3),
            lr=0.1,
            average_last=share,
        )
        return flat(module)

    expected = (after(3, 0.0) + after(4, 0.0)) / 2
    torch.testing.assert_close(after(4, 0.5), expected)
    assert not torch.allclose(after(4, 0.0), expected)


def run(values: list[float], epochs: int = 8, **rules: int) -> tuple[BestEpoch[float], nn.Linear, list[int]]:
    """Train a line while the merit follows `values`."""
    line, left, done = nn.Linear(1, 1), iter(values), list[int]()
    with torch.no_grad():
        line.weight.zero_()
    best = BestEpoch(line, lambda: next(left), **rules)

    @torch.no_grad()
    def epoch() -> None:
        line.weight += 1.0

    train_epochs(epoch, epochs, best=best, on_epoch=lambda epoch, total: done.append(epoch))
    return best, line, done


def test_it_stops_when_nothing_improves_and_goes_back_to_the_best_epoch() -> None:
    best, line, done = run([-3.0, -2.0, -2.5, -2.5, -9.0, -9.0, -9.0, -9.0], patience=2)
    assert (best.verdict, best.epoch, done) == (-2.0, 2, [1, 2, 3, 4])
    assert line.weight.item() == 2.0


def test_the_first_of_equals_is_kept_and_without_patience_all_epochs_run() -> None:
    best, line, done = run([1.0, 5.0, 5.0, 0.0, 0.0, 0.0, 5.0, 5.0])
    assert (best.epoch, line.weight.item(), len(done)) == (2, 2.0, 8)


def test_it_does_not_stop_before_the_least_epoch_and_looks_as_often_as_told() -> None:
    _, _, done = run([-1.0, -2.0, -2.0, -2.0, -2.0, -2.0, -2.0, -2.0], patience=1, least=5)
    assert done[-1] == 5
    best, _, done = run([-1.0, -0.5, -2.0, -2.0], patience=2, every=2)
    assert (best.epoch, done[-1]) == (4, 8)
    best, line, _ = run([9.0, *[1.0] * 8], first=0)
    assert (best.epoch, line.weight.item()) == (0, 0.0)


def test_a_value_that_is_not_a_number_is_never_the_best() -> None:
    best, _, _ = run([math.nan, 2.0, math.nan, 3.0, 1.0, 1.0, 1.0, 1.0])
    assert (best.verdict, best.epoch) == (3.0, 4)


def test_what_is_better_can_be_said() -> None:
    left = iter([(1, "a"), (3, "b"), (2, "c")])
    best = BestEpoch(nn.Linear(1, 1), lambda: next(left), lambda new, kept: new[0] < kept[0] + 2)
    train_epochs(lambda: None, 3, best=best)
    assert best.verdict == (2, "c")


def test_without_anybody_looking_the_last_state_stays() -> None:
    count: list[int] = []
    train_epochs(lambda: count.append(1), 5)
    assert len(count) == 5
