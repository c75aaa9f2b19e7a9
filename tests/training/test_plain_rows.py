from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.graph.rows import Rows
from hushgraph.nn import MLP, Encoder, HopClassifier, SparseRows
from hushgraph.training import BestEpoch, Training, train
from hushgraph.training.losses import share_correct
from hushgraph.training.plain_rows import merge_repeats


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def train_plainly(
    module: nn.Module, rows: Rows, labels: Tensor, index: Tensor | None = None, **options: Any
) -> BestEpoch[float] | None:
    """`train`, with the fields of `Training` among the options."""
    others = {key: options.pop(key) for key in ("val", "loss", "generator", "on_epoch") if key in options}
    return train(module, rows, labels, index, Training(**options), **others)


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def reference_path(module: nn.Module, rows: Tensor, labels: Tensor, epochs: int, lr: float) -> list[dict[str, Tensor]]:
    """Full-batch Adam with autograd; the state after every epoch."""
    adam = torch.optim.Adam(module.parameters(), lr=lr)
    states = []
    for _ in range(epochs):
        module.train()
        adam.zero_grad()
        nn.functional.cross_entropy(module(rows), labels).backward()
        adam.step()
        states.append(state(module))
    return states


def data(n: int) -> tuple[Tensor, Tensor, Tensor]:
    x = torch.randn(n, 6, generator=generator(1))
    return x, torch.stack([x, 0.3 * x.flip(1)], 1), x[:, :3].argmax(1)


MAKERS = {
    "mlp": lambda: MLP(6, 8, 3, 2, norm="batch", generator=generator()),
    "progap": lambda: MLP(6, 8, 3, 3, norm="batch", order="activation-first", generator=generator()),
    "relu": lambda: MLP(6, 8, 3, 3, norm="group", activation="relu", generator=generator()),
    "tanh": lambda: MLP(6, 8, 3, 3, activation="tanh", plain_last=False, generator=generator()),
    "gelu": lambda: MLP(6, 8, 3, 2, activation="gelu", norm="batch", generator=generator()),
    "encoder": lambda: Encoder(6, 8, 3, norm="batch", generator=generator()),
    "hops": lambda: HopClassifier(1, 6, 8, 3, norm="batch", base_layers=2, generator=generator()),
    "hops-sum": lambda: HopClassifier(1, 6, 8, 3, norm="batch", combine="sum", base_layers=2, generator=generator()),
    "hops-max": lambda: HopClassifier(1, 6, 8, 3, norm="batch", combine="max", generator=generator()),
}


@pytest.mark.parametrize("n", [50, 6000])  # small: ordinary memory; large: reused memory
@pytest.mark.parametrize("name", MAKERS)
def test_same_path_as_autograd_and_torch_adam(name: str, n: int) -> None:
    flat_rows, hop_rows, labels = data(n)
    rows = hop_rows if name.startswith("hops") else flat_rows
    module = MAKERS[name]()
    twin = copy.deepcopy(module)
    reference_path(twin, rows, labels, epochs=6, lr=0.01)
    result = train_plainly(module, rows, labels, epochs=6, lr=0.01)
    assert result is None
    assert not module.training
    assert_alike(module, twin, rows)


def assert_alike(module: nn.Module, twin: nn.Module, rows: Tensor) -> None:
    """Same scores and running variances. (A bias just before batch norm has gradient zero and may drift freely.)"""
    for name, buffer in module.named_buffers():
        if not name.endswith("running_mean"):
            torch.testing.assert_close(buffer, twin.get_buffer(name), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(module.train()(rows), twin.train()(rows), rtol=1e-3, atol=5e-4)


@pytest.mark.parametrize("name", ["encoder", "hops", "gelu"])
def test_the_best_epoch_is_restored(name: str) -> None:
    flat_rows, hop_rows, labels = data(120)
    rows = hop_rows if name == "hops" else flat_rows
    train, val = torch.arange(80), torch.arange(80, 120)
    module = MAKERS[name]()
    states = reference_path(copy.deepcopy(module), rows[train], labels[train], epochs=40, lr=0.05)
    accuracies = []
    probe = MAKERS[name]().eval()
    for kept in states:
        probe.load_state_dict(kept)
        accuracies.append(float((probe(rows[val]).argmax(1) == labels[val]).float().mean()))
    mask = torch.zeros(120, dtype=torch.bool)
    mask[train] = True
    best = train_plainly(module, rows, labels, mask, epochs=40, lr=0.05, val=val, select_best=True)
    assert best is not None
    assert best.verdict == pytest.approx(max(accuracies), abs=0.026)  # one row of 40, for rounding along the way
    reached = float((module(rows[val]).argmax(1) == labels[val]).float().mean())
    assert reached == pytest.approx(best.verdict)
    assert accuracies[0] < best.verdict


def test_the_best_epoch_can_be_told_by_the_loss() -> None:
    rows, _, labels = data(120)
    labels = torch.where(torch.rand(120, generator=generator(6)) < 0.3, torch.zeros_like(labels), labels)
    module, val, losses = MAKERS["encoder"](), torch.arange(80, 120), []

    def loss_now() -> float:
        module.eval()
        with torch.no_grad():
            return float(torch.nn.functional.cross_entropy(module(rows[val]), labels[val]))

    def look(done: int, total: int) -> None:
        losses.append(loss_now())
        module.train()

    options = {"epochs": 60, "lr": 0.05, "val": val, "select_best": True, "on_epoch": look}
    best = train_plainly(module, rows, labels, torch.arange(80), best_by="loss", **options)
    assert best is not None
    assert loss_now() == pytest.approx(min(losses), rel=1e-4)
    assert -best.verdict == pytest.approx(min(losses), rel=1e-4)
    assert min(losses) < 0.9 * min(losses[0], losses[-1])


def test_sparse_rows_and_minibatches() -> None:
    dense = (torch.rand(90, 30, generator=generator(4)) < 0.2).float()
    labels = torch.randint(3, (90,), generator=generator(5))
    for batch_size in (None, 32):
        results = []
        for rows in (dense, SparseRows.from_tensor(dense)):
            module = Encoder(30, 8, 3, norm="batch", generator=generator())
            train_plainly(
                module, rows, labels, torch.arange(70), epochs=4, lr=0.01, batch_size=batch_size, generator=generator(3)
            )
            results.append(module)
        assert_alike(results[0], results[1], dense)


def test_minibatches_come_from_the_generator() -> None:
    rows, _, labels = data(60)
    ends = []
    for seed in (1, 1, 2):
        module = MAKERS["relu"]()
        before = torch.get_rng_state()
        train_plainly(module, rows, labels, epochs=2, lr=0.01, batch_size=16, generator=generator(seed))
        assert torch.equal(torch.get_rng_state(), before)
        ends.append(module(rows))
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])


def test_it_learns_with_dropout_and_reports_progress() -> None:
    rows, _, labels = data(300)
    module = MLP(6, 32, 3, 2, dropout=0.2, generator=generator())
    calls: list[tuple[int, int]] = []
    train_plainly(module, rows, labels, epochs=80, lr=0.05, on_epoch=lambda done, total: calls.append((done, total)))
    assert float((module(rows).argmax(1) == labels).float().mean()) > 0.9
    assert calls[-1] == (80, 80)
    assert len(calls) == 80


def test_weight_decay_and_sgd_and_own_losses() -> None:
    rows, _, labels = data(50)
    for optimizer, weight_decay in (("sgd", 0.0), ("adam", 0.1)):
        module = MAKERS["relu"]()
        twin = copy.deepcopy(module)
        kind = torch.optim.SGD if optimizer == "sgd" else torch.optim.Adam
        step = kind(twin.parameters(), lr=0.02, weight_decay=weight_decay)
        for _ in range(5):
            step.zero_grad()
            (2.0 * nn.functional.cross_entropy(twin(rows), labels)).backward()
            step.step()
        train_plainly(
            module,
            rows,
            labels,
            epochs=5,
            lr=0.02,
            optimizer=optimizer,
            weight_decay=weight_decay,
            loss=lambda scores, y: 2.0 * nn.functional.cross_entropy(scores, y, reduction="none"),
        )
        torch.testing.assert_close(state(module), state(twin), rtol=1e-4, atol=1e-5)


def test_wrong_settings_are_refused() -> None:
    rows, _, labels = data(20)
    with pytest.raises(InputError, match="val="):
        train_plainly(MAKERS["mlp"](), rows, labels, epochs=1, lr=0.1, select_best=True)
    with pytest.raises(InputError, match="training row"):
        train_plainly(MAKERS["mlp"](), rows, labels, torch.zeros(20, dtype=torch.bool), epochs=1, lr=0.1)
    with pytest.raises(InputError, match="class numbers"):
        train_plainly(MAKERS["mlp"](), rows, labels - 1, epochs=1, lr=0.1)
    with pytest.raises(InputError, match="two rows"):
        train_plainly(MAKERS["mlp"](), rows[:1], labels[:1], epochs=1, lr=0.1)


def test_a_row_is_correct_if_its_own_class_beats_all_others() -> None:
    scores = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 3.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert share_correct(scores, torch.tensor([0, 2, 1, 0])) == 0.5  # a tie is not counted
    many, labels = torch.randn(500, 7), torch.randint(0, 7, (500,))
    assert share_correct(many, labels) == pytest.approx(float((many.argmax(1) == labels).float().mean()))


# One row for all its copies gives the same training as all the copies.


def few_kinds(n: int, kinds: int, width: int = 12, values: bool = False) -> tuple[Tensor, Tensor]:
    patterns = (torch.rand(kinds, width, generator=generator(1)) < 0.3).float()
    patterns[0] = 0.0  # an empty row
    if values:
        patterns *= torch.rand(kinds, width, generator=generator(2))
    rows = patterns[torch.randint(kinds, (n,), generator=generator(3))]
    return rows, torch.randint(3, (n,), generator=generator(4))


@given(n=st.integers(1, 60), kinds=st.integers(1, 8), values=st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_copies_add_up_to_the_rows(n: int, kinds: int, values: bool) -> None:
    dense, labels = few_kinds(n, kinds, values=values)
    merged = merge_repeats(SparseRows.from_tensor(dense), labels, 3)
    distinct = torch.unique(dense, dim=0)
    if merged is None:
        assert len(distinct) > 0.8 * n
        return
    assert len(merged.rows) == len(distinct)
    for row, shares, count in zip(merged.rows.to_dense(), merged.labels, merged.copies):
        same = (dense == row).all(dim=1)
        assert int(count) == int(same.sum())
        expected = torch.bincount(labels[same], minlength=3) / same.sum()
        torch.testing.assert_close(shares, expected.to(shares.dtype))


@pytest.mark.parametrize("make", [lambda: Encoder(12, 8, 3, norm="batch"), lambda: MLP(12, 8, 3, 3)])
@pytest.mark.parametrize("n", [80, 9000])  # small: ordinary memory; large: reused memory
def test_training_on_distinct_rows_is_training_on_all(make: object, n: int) -> None:
    dense, labels = few_kinds(n, n // 4)
    module = make()  # type: ignore[operator]
    twin = copy.deepcopy(module)
    train_plainly(module, SparseRows.from_tensor(dense), labels, epochs=6, lr=0.01)
    train_plainly(twin, dense, labels, epochs=6, lr=0.01)
    torch.testing.assert_close(module.train()(dense), twin.train()(dense), rtol=1e-3, atol=5e-4)
    for name, buffer in module.named_buffers():
        if not name.endswith("running_mean"):  # a bias just before batch norm has gradient zero and may drift freely
            torch.testing.assert_close(buffer, twin.get_buffer(name), rtol=1e-3, atol=1e-4)


def test_rows_that_are_all_different_are_left_alone() -> None:
    rows = SparseRows.from_tensor(torch.eye(10))
    assert merge_repeats(rows, torch.zeros(10, dtype=torch.int64), 2) is None


def test_equal_fingerprints_are_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = SparseRows.from_tensor(torch.eye(4)[torch.tensor([0, 1, 2, 2])])
    monkeypatch.setattr("hushgraph.training.plain_rows._fingerprints", lambda rows: torch.zeros(len(rows)).numpy())
    assert merge_repeats(rows, torch.zeros(4, dtype=torch.int64), 2) is None
