from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.graph.rows import JoinedRows, SparseRows
from hushgraph.nn.chorus import Ensemble
from hushgraph.training.ensemble import DropoutStep, EnsembleGradient, train_ensemble
from hushgraph.training.optimizers import FlatParameters


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def problem(n: int = 60, *, sparse: bool = True) -> tuple[JoinedRows, Tensor]:
    """Features of 0 and 1 next to two dense parts, one of which tells the class."""
    features = (torch.rand(n, 7, generator=generator(1)) < 0.3).float()
    labels = torch.randint(3, (n,), generator=generator(2))
    telling = torch.nn.functional.one_hot(labels, 3) + 0.3 * torch.randn(n, 3, generator=generator(3))
    rows = SparseRows.from_tensor(features) if sparse else features
    return JoinedRows([rows, telling, torch.randn(n, 3, generator=generator(4))]), labels


def network(members: int, dropout: float = 0.0) -> Ensemble:
    return Ensemble([7, 3, 3], 5, 3, members=members, dropout=dropout, generator=generator(5))


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("members", [1, 3])
def test_the_gradient_is_that_of_the_members_losses(members: int, sparse: bool) -> None:
    rows, labels = problem(sparse=sparse)
    ours, theirs = network(members), network(members)
    losses = [torch.nn.functional.cross_entropy(scores, labels) for scores in theirs.member_scores(rows)]
    torch.stack(losses).sum().backward()
    expected = torch.cat([p.grad.reshape(-1) for p in theirs.parameters() if p.grad is not None])
    with FlatParameters(ours) as flat, torch.no_grad():
        EnsembleGradient(ours, flat, generator()).write(rows, labels)
        torch.testing.assert_close(flat.gradient, expected, rtol=1e-4, atol=1e-6)
    for mine, other in zip(ours.buffers(), theirs.buffers()):  # running means and variances
        torch.testing.assert_close(mine, other)


def test_members_train_as_if_alone() -> None:
    """Two members side by side take the steps that each takes by itself from the same start."""
    rows, labels = problem()
    both = network(2)
    alone = Ensemble([7, 3, 3], 5, 3, generator=generator())
    with torch.no_grad():
        for mine, theirs in zip(alone.maps, both.maps):
            mine.weight.copy_(theirs.weight[:5])
        alone.maps[0].bias.copy_(both.maps[0].bias[:5])
        alone.heads[0].load_state_dict(both.heads[0].state_dict())
    for model in (both, alone):
        train_ensemble(model, rows, labels, torch.arange(60), epochs=10, lr=0.05)
    torch.testing.assert_close(both.member_scores(rows)[0], alone.member_scores(rows)[0], rtol=1e-3, atol=1e-4)


def test_it_learns_and_keeps_the_best_epoch() -> None:
    rows, labels = problem(200)
    train, val = torch.arange(150), torch.arange(150, 200)
    model, seen = network(2, dropout=0.3), []

    def look(epoch: int, epochs: int) -> None:
        frozen = copy.deepcopy(model).eval()
        seen.append(float((frozen(rows.rows(val)).argmax(1) == labels[val]).double().mean()))

    train_ensemble(model, rows, labels, train, val, epochs=40, lr=0.05, generator=generator(), on_epoch=look)
    kept = float((model(rows.rows(val)).argmax(1) == labels[val]).double().mean())
    assert kept == max(seen) > 0.85
    assert not model.training
    assert seen[0] < kept


def test_it_stops_when_validation_no_longer_improves() -> None:
    rows, labels = problem(200)
    train, val = torch.arange(150), torch.arange(150, 200)

    def epochs_run(patience: int | None) -> int:
        seen: list[int] = []
        train_ensemble(
            network(1),
            rows,
            labels,
            train,
            val,
            epochs=60,
            lr=0.05,
            patience=patience,
            on_epoch=lambda epoch, epochs: seen.append(epoch),
        )
        return len(seen)

    assert epochs_run(None) == 60
    assert 6 <= epochs_run(5) < 60


def test_without_validation_rows_the_last_epoch_is_kept() -> None:
    rows, labels = problem()
    given, none = network(1), network(1)
    train_ensemble(given, rows, labels, torch.arange(60), torch.empty(0, dtype=torch.int64), epochs=5, lr=0.05)
    train_ensemble(none, rows, labels, torch.arange(60), epochs=5, lr=0.05)
    assert torch.equal(given.heads[0].weight, none.heads[0].weight)


@pytest.mark.parametrize(("stated", "right"), [(0.3, True), (0.2, False), (0.45, False)])
def test_dropout_has_the_stated_law(stated: float, right: bool) -> None:
    """40,000 coins: the share that is dropped is off by 0.0023; by 0.014 less than 1 time in 10^8."""
    step = DropoutStep(0.3, generator(7))
    out = step.forward(torch.ones(200, 200))
    dropped = float((out == 0).double().mean())
    assert (abs(dropped - stated) < 0.014) == right
    assert out.unique().tolist() == pytest.approx([0.0, 1 / 0.7], rel=1e-4)
    assert torch.equal(step.backward(torch.ones(200, 200)), out)
    assert not torch.equal(step.forward(torch.ones(200, 200)), out)


def test_no_dropout_changes_nothing() -> None:
    x = torch.randn(4, 4, generator=generator())
    step = DropoutStep(0.0, generator())
    assert torch.equal(step.forward(x.clone()), x)
    assert torch.equal(step.backward(x.clone()), x)


def test_too_few_rows_are_refused() -> None:
    rows, labels = problem()
    with pytest.raises(InputError, match="two training rows"):
        train_ensemble(network(1), rows, labels, torch.tensor([3]), epochs=1, lr=0.1)
