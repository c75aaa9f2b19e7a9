from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hushgraph.errors import HushgraphError, InputError
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.mlp import DPMLP
from hushgraph.torch import make_private_with_epsilon
from small_graphs import random_graph


def table(count: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 5, generator=generator)
    return x, (x[:, 0] > 0).long()


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2))


def made(**changed: Any) -> Any:
    module = changed.pop("module", None) or net()
    given: dict[str, Any] = {"module": module, "data": table(), "target_epsilon": 8.0, "target_delta": 1e-3}
    given |= {"epochs": 3, "batch_size": 16, "optimizer": torch.optim.SGD(module.parameters(), lr=0.1)}
    return make_private_with_epsilon(**(given | changed))


def test_a_loop_of_ones_own_is_charged_before_its_first_step(tmp_path: Path) -> None:
    module, ledger = net(), Ledger(tmp_path / "book")
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    private = made(module=module, optimizer=optimizer, ledger=ledger)
    before = nn.utils.parameters_to_vector(module.parameters()).detach().clone()
    seen = []
    for step in private:
        if step == 1:
            assert [charge.stage for charge in private._run.certificate().charges] == ["training"]
        schedule.step()
        seen.append(step)
    assert seen == list(range(1, len(private) + 1))
    assert not torch.equal(before, nn.utils.parameters_to_vector(module.parameters()))
    assert private.certificate.epsilon <= 8.0
    assert private.certificate.is_private
    assert private.get_epsilon(1e-5) > private.certificate.epsilon


def test_the_noise_is_that_of_the_method_with_the_same_steps() -> None:
    graph = random_graph(1)
    method = DPMLP(epochs=3, batch_size=16)
    from hushgraph.graph.checks import check_graph
    from hushgraph.privacy.budget import Budget
    from hushgraph.privacy.units import Record

    graph.train_mask[:] = True
    graph.val_mask[:] = graph.test_mask[:] = False
    plan = method.plan(check_graph(graph).metadata, Record(), Budget(8.0, 1e-3))
    own = made(data=(graph.x, graph.y % 2))
    assert own.plan[own.plan.stages[0].name].scale == plan["classifier"].scale


def test_a_seeded_run_says_so_and_repeats() -> None:
    weights = []
    for _ in range(2):
        private = made(module=(module := net()), seed=3)
        for _ in private:
            pass
        weights.append(nn.utils.parameters_to_vector(module.parameters()).detach())
    assert torch.equal(*weights)
    assert not private.certificate.is_private


def test_a_step_is_the_clipped_sum_with_noise_over_the_expected_batch() -> None:
    """With so large a budget that noise is small, one full batch of plain SGD is the clipped mean."""
    from hushgraph.training import ClippedGradient

    x, y = table()
    module = net()
    expected = ClippedGradient(net(), max_grad_norm=1.0).sum(x, y) / len(y)
    before = nn.utils.parameters_to_vector(module.parameters()).detach().double()
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    private = made(module=module, optimizer=optimizer, target_epsilon=200.0, epochs=1, batch_size=60, seed=0)
    for _ in private:
        pass
    moved = before - nn.utils.parameters_to_vector(module.parameters()).detach().double()
    assert float((moved - expected).norm()) < 0.5 * float(expected.norm())


class Mixing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "batch norm": (lambda: made(module=Mixing()), "batch norm, which mixes the rows"),
    "a loader": (lambda: made(data=DataLoader(TensorDataset(*table()))), "expected the whole data.*DataLoader"),
    "other parameters": (
        lambda: made(optimizer=torch.optim.SGD(net().parameters(), lr=1.0)),
        "exactly the trainable parameters of the module",
    ),
    "LBFGS": (
        lambda: made(module=(m := net()), optimizer=torch.optim.LBFGS(m.parameters())),
        "asks for the loss again",
    ),
    "a large delta": (lambda: made(target_delta=0.5), "delta: expected less than"),
    "no noise": (lambda: made(target_epsilon=float("inf")), "would add no noise"),
    "labels without rows": (lambda: made(data=table()[1]), r"expected \(rows, labels\)"),
    "labels of other classes": (lambda: made(data=(table()[0], table()[1] + 5)), "labels: expected classes 0 to 1"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_breaks_the_promise_is_refused(kind: str) -> None:
    make, told = REFUSED[kind]
    with pytest.raises(HushgraphError, match=told):
        make()


def test_steps_are_taken_once() -> None:
    private = made(seed=0)
    with pytest.raises(InputError, match="all steps to be done"):
        _ = private.certificate
    for _ in private:
        break
    with pytest.raises(InputError, match="got a second"):
        next(iter(private))


@pytest.mark.parametrize("wrong", [{"max_grad_norm": 0}, {"epochs": 0}, {"batch_size": -1}])
def test_a_setting_that_is_no_number_above_zero_is_told_by_name(wrong: dict[str, float]) -> None:
    net = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    data, options = (torch.randn(60, 4), torch.randint(0, 3, (60,))), {"epochs": 1, "batch_size": 8, **wrong}
    with pytest.raises(InputError, match=f"{next(iter(wrong))}: expected a finite number above 0"):
        make_private_with_epsilon(module=net, optimizer=optimizer, data=data, target_epsilon=4.0, **options)
