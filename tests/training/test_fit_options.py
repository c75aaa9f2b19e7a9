"""A user's optimizer, schedule, callbacks, early stopping, class weights and device change no promise."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn

import hushgraph as hg
from hushgraph.errors import InputError
from hushgraph.ledger.ledger import Ledger
from hushgraph.nn import Linear
from hushgraph.training import ClippedGradient, plain_rows
from hushgraph.training.config import Training
from hushgraph.training.fit_options import TrainingStep
from hushgraph.training.losses import cross_entropy, weighted_labels
from hushgraph.training.optimizers import SCHEDULES, make_optimizer
from small_graphs import random_graph

NODE = hg.units.Node(max_degree=5)
BUDGET = (8.0, 1e-4)


@pytest.fixture
def graph() -> Any:
    return random_graph(1, 60)


def fitted(method: hg.Method, graph: Any, unit: hg.Unit = NODE, **options: Any) -> hg.Model:
    return method.fit(graph, unit, BUDGET, ledger=Ledger.in_memory(), seed=0, **options)


def weights(model: hg.Model) -> torch.Tensor:
    return nn.utils.parameters_to_vector(model.network.parameters())


@pytest.mark.parametrize("kind", [torch.optim.SGD, functools.partial(torch.optim.SGD)])
def test_an_optimizer_of_torch_is_the_one_by_its_name(graph, kind):
    named, own = (fitted(hg.DPMLP(epochs=2), graph, optimizer=one) for one in ("sgd", kind))
    torch.testing.assert_close(weights(own), weights(named), rtol=1e-5, atol=1e-6)
    assert own.certificate.epsilon == named.certificate.epsilon
    assert not torch.allclose(weights(own), weights(fitted(hg.DPMLP(epochs=2), graph)))


@pytest.mark.parametrize("unit", [NODE, hg.units.UndirectedEdge()])
@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, lambda ps: torch.optim.RMSprop(ps, lr=0.02)])
def test_any_optimizer_leaves_the_price_as_it_is(graph, unit, optimizer):
    usual, own = (fitted(hg.GAP(epochs=2), graph, unit, **more) for more in ({}, {"optimizer": optimizer}))
    assert own.certificate.epsilon == usual.certificate.epsilon
    assert not torch.equal(weights(own), weights(usual))
    assert "optimizer" in own.settings["fit"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"optimizer": torch.optim.LBFGS}, "asks for the loss again"),
        ({"optimizer": torch.optim.Adam([nn.Parameter(torch.ones(1))])}, "optimizer=torch.optim.Adam"),
        ({"optimizer": "adamm"}, "adam"),
        ({"optimizer": lambda parameters: 3}, "expected one of torch.optim"),
        ({"schedule": "cosin"}, "cosine"),
        ({"schedule": lambda done: float("nan")}, "finite factor"),
        ({"schedule": lambda done: -1.0}, "where nothing is done yet"),
        ({"schedule": torch.optim.lr_scheduler.StepLR}, "got the class StepLR"),
        ({"callbacks": [3]}, "expected functions"),
        ({"callbacks": 3}, "expected functions"),
        ({"early_stopping": 0}, "at least 1"),
        ({"early_stopping": 5}, "each look at them would have to be charged"),
        ({"class_weights": "balanced"}, "from public knowledge"),
        ({"class_weights": [1.0]}, "one per class"),
        ({"class_weights": [1.0, 0.0, 1.0]}, "above 0"),
        ({"device": "tpu"}, "expected cpu, cuda or mps"),
    ],
)
def test_what_cannot_be_followed_is_refused(graph, wrong, words):
    with pytest.raises(InputError, match=words):
        fitted(hg.DPMLP(epochs=1), graph, **wrong)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_named(graph):
    with pytest.raises(InputError, match=r"'cuda'.*device='cpu'"):
        fitted(hg.GAP(), graph, device="cuda")
    assert fitted(hg.GAP(epochs=1), graph, device="cpu").certificate.epsilon <= 8.0


def test_a_schedule_is_a_name_or_a_function_of_what_is_done(graph):
    named = fitted(hg.DPMLP(epochs=2), graph, schedule="cosine")
    own = fitted(hg.DPMLP(epochs=2), graph, schedule=SCHEDULES["cosine"])
    assert torch.equal(weights(named), weights(own))
    assert torch.equal(
        weights(fitted(hg.DPMLP(epochs=2), graph, schedule=lambda done: 1.0)),
        weights(fitted(hg.DPMLP(epochs=2), graph)),
    )


@pytest.mark.parametrize("optimizer", ["sgd", torch.optim.SGD])
def test_a_linear_schedule_ends_near_zero(optimizer):
    vector = torch.zeros(1)
    update = make_optimizer(optimizer, vector, 0.5, schedule="linear", steps=4)
    seen = []
    for _ in range(4):
        before = vector.clone()
        update.step(torch.ones(1))
        seen.append(float(before - vector))
    assert seen == pytest.approx([0.5, 0.375, 0.25, 0.125])


def test_callbacks_see_every_step_and_may_end_a_training_that_is_paid_for(graph):
    seen: list[TrainingStep] = []
    usual = fitted(hg.DPMLP(epochs=3), graph, callbacks=seen.append)
    steps = usual.plan["classifier"].mechanism.steps
    assert [one.step for one in seen] == list(range(1, steps + 1))
    assert {one.stage for one in seen} == {"classifier"}
    copies = []

    def second(one: TrainingStep) -> bool:
        copies.append(nn.utils.parameters_to_vector(one.module.parameters()).clone())
        return one.step == 2

    stopped = fitted(hg.DPMLP(epochs=3), graph, callbacks=[second])
    assert len(copies) == 2
    assert torch.equal(weights(stopped), copies[-1])
    assert stopped.certificate.epsilon == usual.certificate.epsilon


def test_early_stopping_is_free_where_validation_labels_are_public(graph):
    graph.val_mask = ~graph.train_mask
    graph.test_mask = torch.zeros_like(graph.val_mask)
    epochs: list[int] = []
    fitted(
        hg.MLP(epochs=400),
        graph,
        hg.units.UndirectedEdge(),
        early_stopping=3,
        callbacks=lambda one: epochs.append(one.step),
    )
    assert 3 <= max(epochs) < 400


def test_a_checkpoint_refuses_code_that_could_change(graph, tmp_path):
    with pytest.raises(InputError, match="without code of your own"):
        hg.GAP().fit(graph, NODE, BUDGET, ledger=tmp_path / "ledger", checkpoint=tmp_path / "at", callbacks=print)


# Weights of classes


def test_weights_multiply_the_loss_and_leave_a_null_record_out():
    scores, labels = torch.randn(5, 3), torch.tensor([0, 1, 2, 1, -1])
    found = cross_entropy(scores, weighted_labels(labels, (2.0, 0.5, 1.0)))
    usual = cross_entropy(scores[:4], labels[:4]) * torch.tensor([2.0, 0.5, 1.0, 0.5])
    torch.testing.assert_close(found[:4], usual)
    assert found[4] == 0.0


@pytest.mark.parametrize("unit", [NODE, hg.units.UndirectedEdge()])
def test_equal_weights_change_nothing_and_others_do(graph, unit):
    method = hg.GAP(epochs=3)
    usual, equal, other = (
        fitted(method, graph, unit, **more)
        for more in ({}, {"class_weights": [1.0, 1.0, 1.0]}, {"class_weights": {"a": 9.0, "b": 1.0, "c": 0.1}})
    )
    torch.testing.assert_close(weights(equal), weights(usual), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(weights(other), weights(usual), rtol=1e-2)
    assert other.certificate.epsilon == usual.certificate.epsilon


def test_a_weighted_record_moves_a_sum_by_no_more_than_the_clip_norm():
    torch.manual_seed(0)
    module, rows, labels = Linear(4, 3), 50.0 * torch.randn(8, 4), torch.randint(0, 3, (8,))
    clipped = ClippedGradient(module, max_grad_norm=1.0)
    soft = weighted_labels(labels, (1000.0, 1.0, 0.001))
    for left_out in range(8):
        others = torch.arange(8) != left_out
        moved = clipped.sum(rows, soft) - clipped.sum(rows[others], soft[others])
        assert float(moved.norm()) <= 1.0


def test_methods_that_weigh_nothing_say_so(graph):
    with pytest.raises(InputError, match=r"weighs classes .*; got noisy-moments"):
        fitted(hg.NoisyMoments(), graph, class_weights=[1.0, 1.0, 1.0])


# Devices


def test_plain_training_elsewhere_is_the_same_training(monkeypatch):
    """No other device is here: the code for it runs on this one."""
    torch.manual_seed(0)
    rows, labels = torch.randn(40, 4), torch.randint(0, 3, (40,))
    made = [nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)) for _ in range(2)]
    made[1].load_state_dict(made[0].state_dict())
    index = torch.arange(30)
    for module, elsewhere in zip(made, (False, True)):
        monkeypatch.setattr(plain_rows, "_is_elsewhere", lambda device, found=elsewhere: found)
        plain_rows.train(
            module, rows, labels, index, Training(epochs=5, batch_size=10), generator=torch.Generator().manual_seed(1)
        )
    torch.testing.assert_close(made[0](rows), made[1](rows), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "wish",
    [
        {"optimizer": "adam"},
        {"schedule": "linear"},
        {"class_weights": [9.0, 1.0, 1.0]},
        {"callbacks": lambda step: True},
    ],
    ids=["optimizer", "schedule", "weights", "callback"],
)
def test_steps_that_something_is_read_off_stay_as_they_are(graph, wish):
    usual, wished = (fitted(hg.ChorusCodes(epochs=2), graph, **more).network for more in ({}, wish))
    assert torch.equal(usual.shares, wished.shares)


def test_plain_dp_appr_follows_the_optimizer_and_callbacks_and_says_where_it_cannot(graph):
    graph.val_mask = ~graph.train_mask
    graph.test_mask = torch.zeros_like(graph.val_mask)
    unit, steps = hg.units.UndirectedEdge(), []
    usual = fitted(hg.DPAPPR(epochs=3), graph, unit)
    own = fitted(hg.DPAPPR(epochs=3), graph, unit, optimizer="sgd", callbacks=lambda step: steps.append(step.step))
    assert not torch.allclose(weights(own), weights(usual))
    assert steps == [1, 2, 3]
    with pytest.raises(InputError, match="expected a method that looks at validation nodes while it trains"):
        fitted(hg.DPAPPR(epochs=3), graph, unit, early_stopping=2)
