"""Minibatches: by rule where rows are many, ended by what the validation rows say, and as good as full batches."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from hushgraph.graph.rows import JoinedRows
from hushgraph.nn.chorus import Ensemble
from hushgraph.training import minibatches
from hushgraph.training.config import Training
from hushgraph.training.ensemble import train_ensemble, train_ensemble_in_minibatches
from hushgraph.training.loop import BestEpoch
from hushgraph.training.minibatches import MANY_ROWS, Minibatches
from hushgraph.training.optimizers import FlatSGD
from hushgraph.training.plain_rows import train_in_minibatches

QUICK = Minibatches(size=64, steps_between_looks=10, patience=3, rows_looked_at=300)


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_rule_asks_for_many_rows_and_something_to_look_at() -> None:
    assert Minibatches.by_rule(MANY_ROWS - 1, 10) is None
    assert Minibatches.by_rule(MANY_ROWS, 0) is None
    assert Minibatches.by_rule(MANY_ROWS, 10) == Minibatches()


def test_a_pass_gives_every_row_at_most_once_in_batches_of_one_size() -> None:
    index = torch.arange(100, 400)
    found = list(Minibatches(size=64).batches(index, 2, draw()))
    assert [len(batch) for batch in found] == [64] * 8
    for one in (found[:4], found[4:]):
        assert torch.cat(one).unique().numel() == 256
    assert not torch.equal(found[0], found[4])
    assert [len(batch) for batch in Minibatches(size=999).batches(index, 1, draw())] == [300]


def test_steps_get_smaller_from_the_best_state_and_end() -> None:
    """Judged by a count that never improves after the second look, each rate waits for its patience."""
    weights = torch.zeros(1)
    module = torch.nn.Linear(1, 1, bias=False)
    module.weight.data = weights.view(1, 1)
    optimizer, seen = FlatSGD(weights, 1.0), list[float]()

    def step(batch: Tensor) -> None:
        seen.append(optimizer.lr)
        weights.add_(1.0)

    best = BestEpoch(module, lambda: -abs(module.weight.item() - 4.0))
    plan = Minibatches(size=1, steps_between_looks=2, patience=2, rates=(1.0, 0.5))
    taken = plan.train(step, plan.batches(torch.arange(10), 100, draw()), optimizer, best)
    assert seen == [1.0] * 8 + [0.5] * 4
    assert taken == 12
    assert module.weight.item() == 4.0


def test_all_passes_are_an_end_too() -> None:
    module = torch.nn.Linear(1, 1, bias=False)
    best, rising = BestEpoch(module, iter(range(99)).__next__), list[int]()
    plan = Minibatches(size=5, steps_between_looks=2)
    optimizer = FlatSGD(module.weight.data.view(-1), 1.0)
    taken = plan.train(lambda batch: rising.append(1), plan.batches(torch.arange(10), 3, draw()), optimizer, best)
    assert taken == len(rising) == 6


def xor(n: int) -> tuple[JoinedRows, Tensor]:
    features = torch.randn(n, 4, generator=draw(1))
    signs = (features > 0).long()
    return JoinedRows([features, torch.randn(n, 2, generator=draw(2))]), signs[:, 0] ^ signs[:, 1]


def test_no_accuracy_is_lost_where_columns_say_something_together_only() -> None:
    rows, labels = xor(6_000)
    train_rows, val, test = torch.arange(6_000).split([4_000, 1_000, 1_000])
    first = Ensemble([4, 2], 16, 2, generator=draw(3))
    found = {}
    for name in ("full", "mini"):
        network = copy.deepcopy(first)
        given = (network, rows, labels, train_rows, val)
        if name == "full":
            train_ensemble(*given, epochs=100, lr=0.03, generator=draw(4))
        else:
            train_ensemble_in_minibatches(*given, Minibatches(size=256), epochs=100, lr=0.03, generator=draw(4))
        with torch.no_grad():
            found[name] = float((network(rows.rows(test)).argmax(1) == labels[test]).float().mean())
    assert found["full"] > 0.8
    assert found["mini"] > found["full"] - 0.02


@pytest.mark.parametrize("norm", [True, False])
def test_other_modules_are_trained_so_as_well(norm: bool) -> None:
    x = torch.randn(3_000, 5, generator=draw(1))
    y = (x[:, 0] > 0).long()
    layers = [torch.nn.Linear(5, 8), *([torch.nn.BatchNorm1d(8)] if norm else []), torch.nn.SELU()]
    torch.manual_seed(0)
    module = torch.nn.Sequential(*layers, torch.nn.Linear(8, 2))
    index = torch.arange(3_000)
    best = train_in_minibatches(
        module, x, y, index[:2_000], index[2_000:], Training(50, 0.02), QUICK, generator=draw(2)
    )
    assert best.verdict is not None
    assert best.verdict > 0.95
    assert not module.training


def test_what_the_rule_decided_is_in_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    import hushgraph as hg
    from small_graphs import random_graph

    monkeypatch.setattr(minibatches, "MANY_ROWS", 10)
    model = hg.Chorus(epochs=3).fit(random_graph(1), "undirected-edge", 1.0, ledger=hg.Ledger(), seed=1)
    assert model.settings["minibatches"]["stage_0"] == Minibatches().as_dict()
