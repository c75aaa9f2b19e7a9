"""Rows are treated alike: the check, what it finds, and what happens then."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from hushgraph.graph.rows import JoinedRows, SparseRows
from hushgraph.nn import MLP, Linear, rowwise
from hushgraph.nn.layers import linear_input
from hushgraph.nn.rowwise import register_rowwise
from hushgraph.training import ClippedGradient
from hushgraph.training.alike import EvenLinear, one_thread, treats_rows_alike
from hushgraph.training.rounding import rows_together


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class Uneven(nn.Module):
    """A row-wise layer whose last bit depends on the place of a row, as that of some kernels does."""

    def forward(self, x: Tensor) -> Tensor:
        odd = (torch.arange(len(x)) % 4 == 3).unsqueeze(1)
        return torch.where(odd, (x / 3.0) * 3.0 + 1e-3, x + 1e-3)


@pytest.fixture
def uneven(monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    monkeypatch.setattr(rowwise, "_ROWWISE", dict(rowwise._ROWWISE))
    register_rowwise(Uneven, "Rows by themselves, up to the last bit.")
    return nn.Sequential(Linear(5, 16, generator=generator()), Uneven(), Linear(16, 3, generator=generator(1)))


def test_a_module_in_which_places_matter_takes_examples_one_at_a_time(uneven: nn.Module) -> None:
    rows, labels = torch.randn(40, 5, generator=generator(2)), torch.randint(3, (40,), generator=generator(3))
    engine = ClippedGradient(uneven, max_grad_norm=0.5)
    with pytest.warns(UserWarning, match="one at a time"):
        assert engine.piece_rows(rows, labels) == 1
    order = torch.randperm(40, generator=generator(4))
    both = engine.sum(rows, labels), engine.sum(rows[order], labels[order])
    torch.testing.assert_close(*both, rtol=0, atol=1e-13)  # only the order of additions in double precision differs
    broken = ClippedGradient(uneven, max_grad_norm=0.5)
    broken._piece_rows = 64
    both = broken.sum(rows, labels), broken.sum(rows[order], labels[order])
    assert float((both[0] - both[1]).abs().max()) > 1e-9


def test_the_check_leaves_the_module_as_it_was() -> None:
    module = MLP(11, 8, 5, 2, dropout=0.5, generator=generator()).train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    engine = ClippedGradient(module, max_grad_norm=0.5)
    assert engine.piece_rows(torch.empty(1, 11), torch.zeros(1, dtype=torch.int64)) == 288
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(layer.training for layer in module.modules())


@pytest.mark.parametrize("weighted", [False, True])
def test_all_kinds_of_rows_can_be_checked(weighted: bool) -> None:
    sparse = SparseRows.from_tensor(torch.eye(9) * (2.0 if weighted else 1.0))
    found: list[object] = []

    def compute(rows: object, labels: Tensor) -> list[Tensor]:
        found.append(rows)
        return [labels]

    joined = JoinedRows([sparse, torch.empty(9, 2, 3)])
    assert treats_rows_alike(nn.Identity(), joined, torch.empty(9, 4), 64, compute)
    made = found[0]
    assert isinstance(made, JoinedRows)
    first, second = made.parts
    assert isinstance(first, SparseRows)
    assert isinstance(second, Tensor)
    assert (first.values is not None) == weighted
    assert first.shape == (64, 9)
    assert second.shape == (64, 2, 3)
    assert all(torch.equal(part, part[:1].expand_as(part)) for part in (first.to_dense(), second))


def test_one_thread_is_for_a_while(two_threads: None) -> None:
    with one_thread():
        assert torch.get_num_threads() == 1
        with one_thread():
            assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("columns", [1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 17, 30, 33, 50, 63, 70])
def test_adversarial_widths_and_batches(columns: int, two_threads: None) -> None:
    """Whatever the widths, the batch and the threads: a row's gradient and factor are the same in every place."""
    for hidden, classes, expected in ((5, 2, 9), (11, 7, 150), (32, 13, 300), (50, 3, 64)):
        module = MLP(columns, hidden, classes, 3, generator=generator(columns))
        engine = ClippedGradient(module, max_grad_norm=0.5, expected_rows=expected)
        rows = torch.randn(600, columns, generator=generator(1))
        labels = torch.randint(classes, (600,), generator=generator(2))
        assert engine.piece_rows(rows, labels) > 1
        usual = norms_by_place(engine, rows, labels)
        for size in (1, 31, 97, 599):
            batch = torch.randperm(600, generator=generator(size))[:size]
            found = norms_by_place(engine, rows[batch], labels[batch])
            assert all(torch.equal(old[batch], new) for old, new in zip(usual, found))


def norms_by_place(engine: ClippedGradient, rows: Tensor, labels: Tensor) -> list[Tensor]:
    """All that is computed per row, for a batch that is filled up to whole pieces."""
    length, found = engine.piece_rows(rows, labels), []
    places = torch.arange(-(-len(rows) // length) * length).clamp(max=len(rows) - 1)
    with one_thread(), torch.no_grad():
        for piece in places.split(length):
            found.append([part.clone() for part in engine._per_row(rows[piece], labels[piece])])
    return [torch.cat(parts)[: len(rows)] for parts in zip(*found)]


@pytest.mark.parametrize(("columns", "outputs"), [(5, 3), (3, 50), (50, 3), (50, 32)])
def test_narrow_products_are_the_product(columns: int, outputs: int) -> None:
    weight, bias = torch.randn(outputs, columns, generator=generator()), torch.randn(outputs, generator=generator(1))
    for shape in ((7, columns), (7, 4, columns)):
        x = torch.randn(shape, generator=generator(2), requires_grad=True)
        found, expected = linear_input(x, weight, bias), nn.functional.linear(x, weight, bias)
        torch.testing.assert_close(found, expected)
        grads = [torch.autograd.grad(result.square().sum(), x)[0] for result in (found, expected)]
        torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-5)
    with EvenLinear():
        assert torch.equal(nn.functional.linear(x, weight, bias), linear_input(x, weight, bias))


@pytest.mark.parametrize(
    ("expected", "block", "together"),
    [(1.0, 32, 32), (10.0, 32, 32), (256.0, 32, 288), (4096.0, 128, 4224), (8100.0, 128, 4224), (20_000.0, 128, 6784)],
)
def test_pieces_hold_a_usual_batch(expected: float, block: int, together: int) -> None:
    assert rows_together(expected, block) == together
