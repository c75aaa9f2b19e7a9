"""Known failures about batches and training steps: P2, P9, P10, P12, P33, P35.

Who was in which batch is read off the weights after every step: each example has a feature column of its own and a
gradient far above the clip norm, so a step moves the column of every example in its batch by the same known amount.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hushgraph.errors import BudgetError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.rows import dense_rows
from hushgraph.ledger.ledger import Ledger
from hushgraph.mechanisms.gradient import Gradient
from hushgraph.mechanisms.neighbor_sum import NeighborSum
from hushgraph.mechanisms.rooted_gradient import RootedGradient
from hushgraph.methods.base import Method
from hushgraph.methods.gap import GAP
from hushgraph.methods.mlp import DPMLP
from hushgraph.methods.running import open_vault
from hushgraph.nn import Linear
from hushgraph.nn.rooted import RootedNetwork
from hushgraph.privacy import events
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Node, UndirectedEdge
from hushgraph.testing import Variations
from hushgraph.training.config import Training
from hushgraph.training.sampler import PoissonSampler
from hushgraph.vault import Vault
from known_failures.common import BUDGET, STAGE, proven_methods, small_graph, stage_vault, table
from small_graphs import random_graph

EXAMPLES, RATE, STEPS = 100, 0.1, 300
LOUD, TINY = 1e4, 1e-8
UNIT = Node(1)


def columns(loudness: float = LOUD) -> CheckedGraph:
    """One example per column; all but the first may be quieter."""
    x = loudness * torch.eye(EXAMPLES)
    x[0, 0] = LOUD
    return table(x, torch.zeros(EXAMPLES, dtype=torch.int64))


def shares(mechanism: Gradient, graph: CheckedGraph | None = None) -> np.ndarray:
    """`[steps, examples]`: how much every example weighed in every step, in clip norms."""
    if isinstance(mechanism, RootedGradient):
        module, weight, rows = _rooted()
    else:
        module = Linear(EXAMPLES, 2, bias=False)
        nn.init.zeros_(module.weight)
        weight, rows = module.weight, True
    graph = columns() if graph is None else graph
    seen, found = weight.detach().clone(), []

    def watch(*_: Any) -> None:
        change = (weight.detach() - seen).to(torch.float64)
        along = (change[0] - change[1]) / math.sqrt(2.0) if len(change) == 2 else change[0]
        found.append((along / TINY / mechanism.max_grad_norm).numpy())
        seen.copy_(weight.detach())

    vault = stage_vault(graph, mechanism, UNIT, progress=watch)
    training = Training(epochs=1, lr=TINY * mechanism.sample_rate * EXAMPLES, optimizer="sgd")
    vault.release(STAGE, module, *([vault.features] if rows else []), training)
    return np.stack(found)


def _rooted() -> tuple[nn.Module, Tensor, bool]:
    """One hidden number, in the linear range of the activation."""
    network = RootedNetwork(EXAMPLES, 1, 2, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.fill_(1.0 if name.startswith("convolutions") and name.endswith("weight") else 0.0)
        network.decoder[0].weight.copy_(torch.tensor([[1.0], [-1.0]]))
    return network, network.encoder[0].weight, False


def law_problems(found: np.ndarray, mechanism: Gradient) -> set[str]:
    """Where batches do not follow the law that the mechanism is charged for: Poisson sampling at the rate it states.

    Every statistic is compared with its exact mean; the limits are at least six standard deviations away.
    """
    [(leaf, steps)] = events.flatten(mechanism.event(UNIT, 1.0))
    rate, counts = leaf.sampling_probability, np.round(found)
    period = round(1.0 / rate)
    blocks = counts[: steps // period * period].reshape(-1, period, EXAMPLES).sum(axis=1)
    again = (counts[period:] * counts[:-period]).sum(axis=1).mean() / (EXAMPLES * rate**2)
    checks = {
        "steps": len(counts) == steps,
        "rate": abs(counts.mean() / rate - 1.0) < 0.12,
        "twice in one batch": counts.max() <= 1,
        "fixed size": 0.5 < counts.sum(axis=1).var() / (EXAMPLES * rate * (1.0 - rate)) < 1.5,
        "once per pass": 0.8 < blocks.var() / (period * rate * (1.0 - rate)) < 1.2,
        "the same again": again < 1.5,
    }
    return {problem for problem, holds in checks.items() if not holds}


Draw = Callable[[PoissonSampler, Any, int], tuple[Tensor, ...]]


def broken_sampler(monkeypatch: pytest.MonkeyPatch, draw: Draw) -> None:
    monkeypatch.setattr(PoissonSampler, "draw_several", draw)
    monkeypatch.setattr(PoissonSampler, "draw", lambda self, noise: draw(self, noise, 1)[0])


MECHANISMS = [Gradient(1.0, RATE, STEPS), RootedGradient(1.0, RATE, STEPS, max_degree=1)]
over_mechanisms = pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda one: one.name)


@over_mechanisms
def test_p02_batches_are_drawn_anew_for_every_step(mechanism: Gradient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert law_problems(shares(mechanism), mechanism) == set()
    cache: list[Tensor] = []
    step = 0

    def cached(self: PoissonSampler, noise: Any, count: int) -> tuple[Tensor, ...]:
        """Batches are kept by their position in a pass and come back in the next one."""
        nonlocal step
        while len(cache) < 10:
            cache.append(noise.bernoulli_indices(self.num_examples, self.rate))
        step += count
        return tuple(cache[at % 10].clone() for at in range(step - count, step))

    broken_sampler(monkeypatch, cached)
    assert "the same again" in law_problems(shares(mechanism), mechanism)


@over_mechanisms
def test_p09_batches_follow_the_law_that_is_charged(mechanism: Gradient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert law_problems(shares(mechanism), mechanism) == set()

    class HalfRate(type(mechanism)):  # type: ignore[misc]
        def event(self, unit: Any, scale: float) -> Any:
            return events.sampled_gaussian(self.sample_rate / 2, scale, self.steps)

    broken = HalfRate(1.0, RATE, STEPS)
    assert "rate" in law_problems(shares(broken), broken)

    rng = np.random.default_rng(0)

    def with_replacement(self: PoissonSampler, noise: Any, count: int) -> tuple[Tensor, ...]:
        return tuple(
            torch.from_numpy(rng.integers(0, self.num_examples, round(self.expected_batch_size))) for _ in range(count)
        )

    broken_sampler(monkeypatch, with_replacement)
    assert {"fixed size", "twice in one batch"} <= law_problems(shares(mechanism), mechanism)


@over_mechanisms
def test_p10_slices_of_a_shuffle_do_not_pass_for_poisson_batches(
    mechanism: Gradient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert law_problems(shares(mechanism), mechanism) == set()
    left: list[Tensor] = []
    rng = np.random.default_rng(0)

    def shuffled(self: PoissonSampler, noise: Any, count: int) -> tuple[Tensor, ...]:
        while len(left) < count:
            order = torch.from_numpy(rng.permutation(self.num_examples))
            left.extend(order.split(round(self.expected_batch_size)))
        return tuple(left.pop(0) for _ in range(count))

    broken_sampler(monkeypatch, shuffled)
    assert {"fixed size", "once per pass"} <= law_problems(shares(mechanism), mechanism)


# P12, P33: thresholds and divisors are public constants


class OwnLoop(Gradient):
    """A training loop written out, right as it stands; subclasses change one line of it."""

    def release(
        self, data: Any, scale: float, noise: Any, module: nn.Module, rows: Any, training: Training, **_: Any
    ) -> None:
        x, y = dense_rows(rows)[data.train], data.labels[data.train]
        sampler, weight = PoissonSampler(len(x), self.sample_rate), next(module.parameters())
        for step in range(self.steps):
            batch = sampler.draw(noise)
            with torch.no_grad():
                errors = module(x[batch]).softmax(dim=1) - F.one_hot(y[batch], 2)
                gradients = errors.unsqueeze(2) * x[batch].unsqueeze(1)
                norms = gradients.flatten(1).norm(dim=1)
                factors = (self.threshold(norms) / norms).clamp(max=1.0)
                total = (gradients * factors[:, None, None]).sum(0)
                weight -= training.lr * total / self.divisor(sampler, len(batch))
            data.report(step + 1, self.steps)

    def threshold(self, norms: Tensor) -> float:
        return self.max_grad_norm

    def divisor(self, sampler: PoissonSampler, size: int) -> float:
        return sampler.expected_batch_size


class MedianClip(OwnLoop):
    """The clip norm is what half of the private gradients keep to."""

    def threshold(self, norms: Tensor) -> float:
        return float(norms.median()) if len(norms) else self.max_grad_norm


class RealizedSize(OwnLoop):
    """The mean over the examples that happened to be drawn."""

    def divisor(self, sampler: PoissonSampler, size: int) -> float:
        return max(size, 1)


def weighs_one(mechanism: Gradient) -> bool:
    """Whether an example that is in a batch counts exactly one clip norm, whoever else is in it."""
    found = [shares(mechanism, columns(loudness)) for loudness in (LOUD, 30.0 * LOUD)]
    return all(bool(np.isclose(one, np.round(one), atol=0.02).all() and one.max() < 1.5) for one in found)


def test_p12_the_clip_norm_is_a_public_setting() -> None:
    assert weighs_one(Gradient(1.0, RATE, 100))
    assert weighs_one(RootedGradient(1.0, RATE, 100, max_degree=1))
    assert weighs_one(OwnLoop(1.0, RATE, 100))
    assert not weighs_one(MedianClip(1.0, RATE, 100))


def test_p33_sums_are_divided_by_the_expected_size() -> None:
    assert weighs_one(Gradient(1.0, RATE, 100))
    assert weighs_one(RootedGradient(1.0, RATE, 100, max_degree=1))
    assert not weighs_one(RealizedSize(1.0, RATE, 100))


def declared_sizes(graph: CheckedGraph) -> Metadata:
    return graph.metadata


def counted_sizes(graph: CheckedGraph) -> Metadata:
    """Takes the number of training examples from the records that are not empty."""
    return replace(graph.metadata, num_train=int((graph.labels[graph.train] >= 0).sum()))


def plans_agree(method: Method, sizes: Callable[[CheckedGraph], Metadata]) -> bool:
    """Whether a graph and its neighbors are trained by the same plan: the same rate, steps and noise."""
    unit = Node(3)
    graph = small_graph(unit)
    neighbors = list(unit.neighbors(Variations(graph), np.random.default_rng(0)))
    found = {str(method.plan(sizes(one), unit, BUDGET).as_dict()) for one in (graph, *neighbors)}
    return len(found) == 1


def test_p33_rates_and_sizes_are_the_same_for_all_neighbors() -> None:
    methods = [method for method, unit in proven_methods(small_graph(Node(3))) if unit == Node(3)]
    assert {method.name for method in methods} >= {"auto", "chorus", "gap", "progap", "dp-gnn", "dp-mlp"}
    for method in methods:
        assert plans_agree(method, declared_sizes), method.name
    assert not plans_agree(DPMLP(), counted_sizes)


# P35: first the charge, then the step


class ChargedLate:
    """A run whose charges are looked at when it closes."""

    def __init__(self, run: Any, log: list[str]) -> None:
        self.run, self.log, self.late = run, log, []

    def charge(self, *stage: Any) -> None:
        self.late.append(stage)

    def close(self) -> None:
        for stage in self.late:
            self.log.append("charge")
            self.run.charge(*stage)


class ChargedFirst(ChargedLate):
    """A real run that is watched."""

    def charge(self, *stage: Any) -> None:
        self.log.append("charge")
        self.run.charge(*stage)

    def close(self) -> None:
        self.run.close()


def order_of_events(watched: type[ChargedLate]) -> list[str]:
    graph, log = columns(), []
    stage = Stage(STAGE, Gradient(1.0, RATE, 5), noise=None, scale=1.0)
    plan = Plan("test", graph.metadata, UNIT, Budget(1e6, 1e-6), (stage,))
    vault, run = open_vault(graph, plan, None, 7, None)
    watcher = watched(run, log)
    vault = Vault(graph, plan, watcher, vault._noise, lambda *_: log.append("step"))  # type: ignore[arg-type]
    module = Linear(EXAMPLES, 2, bias=False)
    vault.release(STAGE, module, vault.features, Training(epochs=1, lr=TINY, optimizer="sgd"))
    watcher.close()
    return log


def test_p35_all_steps_are_charged_before_the_first_one() -> None:
    expected = ["charge", *["step"] * 5]
    assert order_of_events(ChargedFirst) == expected
    assert order_of_events(ChargedLate) != expected


class Spy(NeighborSum):
    """Counts how often it looks at the data."""

    looks = 0

    def release(self, data: Any, scale: float, noise: Any, rows: Any) -> Tensor:
        Spy.looks += 1
        return super().release(data, scale, noise, rows)


def looks_over_budget(watched: type[ChargedLate] | None) -> int:
    """How often the data is looked at by a release that no budget covers."""
    graph, unit = small_graph(UndirectedEdge()), UndirectedEdge()
    vault = stage_vault(graph, Spy(), unit)
    if watched is not None:
        vault = Vault(graph, vault.plan, watched(vault._run, []), vault._noise)  # type: ignore[arg-type]
    vault.release(STAGE, graph.features)
    Spy.looks = 0
    try:
        vault.release(STAGE, graph.features)
    except BudgetError:
        return Spy.looks
    return Spy.looks


def test_p35_a_release_over_the_budget_does_not_look_at_the_data() -> None:
    assert looks_over_budget(None) == 0
    assert looks_over_budget(ChargedLate) > 0


def test_p35_a_run_over_the_limit_is_refused_before_it_starts() -> None:
    ledger, graph = Ledger(), random_graph(2)
    quick = GAP(encoder_layers=0, epochs=1)
    quick.fit(graph, UndirectedEdge(), BUDGET, ledger=ledger)
    ledger.set_limit(4.0, 1e-3)
    with pytest.raises(BudgetError):
        quick.fit(graph, UndirectedEdge(), BUDGET, ledger=ledger)
