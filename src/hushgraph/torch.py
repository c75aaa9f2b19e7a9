"""The private training step alone, for people who have their own loop, in the words of Opacus.

    private = make_private_with_epsilon(
        module=net, optimizer=adam, data=(x, y), target_epsilon=4.0, target_delta=1e-5, epochs=10, batch_size=256
    )
    for step in private:  # a Poisson batch, clipped, noised, then adam.step()
        scheduler.step()
    print(private.certificate)

All steps are charged to the ledger before the first one. Refused is what breaks the promise: modules that mix rows,
a DataLoader (its shuffled batches are not the Poisson batches that are accounted for), an optimizer that updates
something else than the module, one that calls the loss again (LBFGS), zero noise, a second pass over the same object.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.ledger.certificate import Certificate
from hushgraph.ledger.ledger import Ledger
from hushgraph.mechanisms.gradient import Gradient
from hushgraph.methods.running import enter
from hushgraph.nn.rowwise import require_rowwise
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.notes import Code, note
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Unit, as_unit
from hushgraph.training.examples import NoisySteps, RowExamples
from hushgraph.training.loop import StepNoise
from hushgraph.training.losses import RowLoss
from hushgraph.training.optimizers import trainable, views_of
from hushgraph.training.sampler import PoissonSampler

STAGE = "training"


class PrivateSteps:
    """The steps of one run. Iterate over it once; `certificate` is there when all steps are done, or it was closed."""

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        graph: CheckedGraph,
        plan: Plan,
        loss: str | RowLoss,
        ledger: Ledger | str | os.PathLike[str] | None,
        seed: int | None,
    ) -> None:
        self.module, self.optimizer, self.plan = module, optimizer, plan
        stage = plan[STAGE]
        gradient = plan.mechanism(STAGE, Gradient)
        assert stage.scale is not None
        rate, count = gradient.sample_rate, gradient.steps
        self.noisy = NoisySteps(
            PoissonSampler(graph.metadata.num_nodes, rate), count, gradient.max_grad_norm, stage.scale
        )
        self.examples = RowExamples(module, graph.features, graph.labels, self.noisy, loss=loss)
        self._graph, self._ledger, self._seed = graph, ledger, seed
        self._run: Any = None
        self._closed = False

    def __len__(self) -> int:
        return self.noisy.steps

    def __iter__(self) -> Iterator[int]:
        """Take a step, give its number, and go on; the optimizer's learning rate may be changed in between."""
        if self._run is not None:
            raise InputError(
                "expected one pass over the steps that were paid for; got a second. More steps are another run with a "
                "budget of its own: call make_private_with_epsilon again"
            )
        self._run, source = enter(self._graph, self.plan, self._ledger, self._seed)
        self._run.charge(self.plan[STAGE])
        noise = source.stream(f"gradient/{STAGE}/0")
        parameters = trainable(self.module)
        perturb = StepNoise(self.noisy, sum(p.numel() for p in parameters), noise)
        sums = self.examples.sums(noise)
        try:
            for number in range(self.noisy.steps):
                with torch.no_grad():
                    total = next(sums)
                assert total is not None, "only a resumed run leaves steps out"
                self._step(parameters, total, perturb)
                yield number + 1
        finally:
            self._run.close()
            self._closed = True

    def _step(self, parameters: list[nn.Parameter], total: Tensor, perturb: StepNoise) -> None:
        if [id(p) for p in trainable(self.module)] != [id(p) for p in parameters]:
            raise InputError("expected the parameters that the run began with; got others; freeze layers beforehand")
        with torch.no_grad():
            mean = perturb(total) * (perturb.grid / self.noisy.sampler.expected_batch_size)
        for parameter, gradient in zip(parameters, views_of(mean, parameters)):
            parameter.grad = gradient.to(parameter.dtype).clone()
        self.optimizer.step()

    @property
    def certificate(self) -> Certificate:
        """What was promised; whatever was planned counts as spent."""
        if not self._closed:
            raise InputError("certificate: expected all steps to be done; got a run that is not finished")
        found: Certificate = self._run.certificate()
        return found

    def get_epsilon(self, delta: float) -> float:
        """Epsilon of all steps at any delta."""
        return self.plan.loss.epsilon(delta)


def make_private_with_epsilon(
    *,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Any,
    target_epsilon: float,
    target_delta: float | None = None,
    epochs: int,
    batch_size: int,
    max_grad_norm: float = 1.0,
    num_classes: int | None = None,
    loss: str | RowLoss = "cross_entropy",
    unit: Unit | str = "record",
    ledger: Ledger | str | os.PathLike[str] | None = None,
    seed: int | None = None,
    name: str = "records",
) -> PrivateSteps:
    """The steps of a training on `data=(rows, labels)` with the least noise that meets the target.

    `num_classes` is public knowledge; without it, the width of the module's output is taken. `loss` is one loss per
    row: "cross_entropy", or a function of scores and labels. `seed` makes the run repeatable and NOT private.
    """
    rows, labels = _table(data)
    problems = _problems(module, optimizer)
    for setting, value in {"epochs": epochs, "batch_size": batch_size, "max_grad_norm": max_grad_norm}.items():
        if not 0 < value < math.inf:
            problems.append(f"{setting}: expected a finite number above 0; got {value!r}")
    InputError.collect(problems)
    require_rowwise(module)
    classes = num_classes or _output_width(module, rows)
    graph = _as_graph(rows, labels, classes, name)
    protected = as_unit(unit)
    gradient = Gradient.of(len(labels), batch_size, epochs, max_grad_norm)
    public = [note(Code.NUM_RECORDS), note(Code.SETTINGS), note(Code.OWN_MODULES, modules="module")]
    budget = Budget(target_epsilon, target_delta)
    plan = Plan.make("own-loop", graph.metadata, protected, budget, [Stage(STAGE, gradient)], public=public)
    if plan.runs_exactly(STAGE):
        raise InputError(
            "expected a finite target_epsilon and a unit that protects labels; got a run that would add no noise. "
            "Train it with torch alone"
        )
    return PrivateSteps(module, optimizer, graph, plan, loss, ledger, seed)


def _table(data: Any) -> tuple[Tensor, Tensor]:
    if isinstance(data, torch.utils.data.DataLoader):
        raise InputError(
            "data: expected the whole data, (rows, labels); got a DataLoader. Its batches are shuffled, and the "
            "accounting is for Poisson batches, which are drawn here"
        )
    if isinstance(data, torch.utils.data.TensorDataset):
        data = data.tensors
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise InputError(f"data: expected (rows, labels) or a TensorDataset of both; got {type(data).__name__}")
    return torch.as_tensor(data[0], dtype=torch.float32), torch.as_tensor(data[1])


def _problems(module: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    updated = {id(p) for group in optimizer.param_groups for p in group["params"] if p.requires_grad}
    problems = []
    if updated != {id(p) for p in trainable(module)}:
        problems.append(
            "optimizer: expected exactly the trainable parameters of the module; got others. Gradients of the rest "
            "would not be private, or not be used: make it from module.parameters()"
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        problems.append("optimizer: expected one that takes a gradient; got LBFGS, which asks for the loss again")
    return problems


def _output_width(module: nn.Module, rows: Tensor) -> int:
    with torch.no_grad():
        return int(module(torch.zeros_like(rows[:1])).shape[-1])


def _as_graph(rows: Tensor, labels: Tensor, classes: int, name: str) -> CheckedGraph:
    """The table as a graph without edges, after the checks that every method makes."""
    from torch_geometric.data import Data

    everybody = torch.ones(len(labels), dtype=torch.bool)
    table = Data(x=rows, y=labels, train_mask=everybody, name=name, num_classes=classes)
    return check_graph(table, needs_edges=False)
