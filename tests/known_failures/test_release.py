"""Known failures about the noise itself and the networks it protects: P31, P32, P38."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hushgraph.errors import UnprovenError
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.ledger import resuming
from hushgraph.local import MultiBit, RandomizedResponse, SampledReport
from hushgraph.mechanisms.gradient import Gradient
from hushgraph.mechanisms.label_sum import LabelSum
from hushgraph.mechanisms.local_report import LocalReport
from hushgraph.mechanisms.neighbor_sum import NeighborSum
from hushgraph.methods.base import Method
from hushgraph.methods.gap import GAP
from hushgraph.methods.running import open_vault
from hushgraph.nn import MLP, Linear
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Local, Node, UndirectedEdge, Unit
from hushgraph.training.config import Training
from known_failures.common import BUDGET, EDGE_READERS, STAGE, answer, inputs_of, proven_methods, small_graph, step_sum
from small_graphs import random_graph

SMALL = check_graph(random_graph(0))
METHODS = list(proven_methods(SMALL))
PAID = [  # others, such as plain MLPs, read nothing that is protected
    (method, unit)
    for method, unit in METHODS
    if not all(stage.is_free(unit) for stage in method.stages(SMALL.metadata, unit, BUDGET))
]
over_paid = pytest.mark.parametrize(
    ("method", "unit"), PAID, ids=[f"{method.name}-{unit}-{number}" for number, (method, unit) in enumerate(PAID)]
)


def graph_for(unit: Unit) -> Any:
    return random_graph(0, symmetric=unit.name != "directed-edge", num_edges=60)


# P31: noise that nobody can repeat


def one_release(mechanism: Mechanism, unit: Unit) -> np.ndarray:
    """A release by a run without a seed, after every generator that a user can seed was seeded."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)
    graph = small_graph(unit)
    scale = 2.0**40 if mechanism.law == "discrete-laplace" else 1.0  # two draws then agree once in 10^12
    plan = Plan("test", graph.metadata, unit, Budget(1e6, 1e-6), (Stage(STAGE, mechanism, noise=None, scale=scale),))
    vault, _ = open_vault(graph, plan, None, None, None)
    if isinstance(mechanism, Gradient):
        module = Linear(5, 3, bias=False)
        nn.init.zeros_(module.weight)
        vault.release(STAGE, module, vault.features, Training(epochs=1, optimizer="sgd"))
        return module.weight.detach().numpy()
    value = vault.release(STAGE, *inputs_of(mechanism, graph))
    if isinstance(value, SampledReport):
        return np.concatenate([value.index, value.value], axis=1)
    tensors = mechanism.to_tensors(value).values()
    return np.concatenate([tensor.numpy().reshape(-1) for tensor in tensors])


def repeats(mechanism: Mechanism, unit: Unit) -> bool:
    return bool(np.array_equal(one_release(mechanism, unit), one_release(mechanism, unit)))


EDGE, NODE, LOCAL = UndirectedEdge(), Node(3), Local()
RELEASES: list[tuple[Mechanism, Unit]] = [
    *((one, EDGE if math.isfinite(one.sensitivity(EDGE)) else NODE) for one in EDGE_READERS),
    (Gradient(1.0, 1.0, 3), NODE),
    (LocalReport(MultiBit(1.0, 5), low=-4.0, high=4.0), LOCAL),
    (LocalReport(RandomizedResponse(0.1, 3), "labels"), LOCAL),
]


@pytest.mark.parametrize(("mechanism", "unit"), RELEASES, ids=repr)
def test_p31_no_public_constant_repeats_the_noise(
    mechanism: Mechanism, unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two draws of 18 labels of three classes at epsilon 0.1 agree with probability 3e-9; all else below 1e-12."""
    assert not repeats(mechanism, unit)
    monkeypatch.setattr(NoiseSource, "from_os", classmethod(lambda cls: NoiseSource.seeded(12345)))
    assert repeats(mechanism, unit)


def stamped(method: Method, unit: Unit) -> bool:
    """Whether the certificate of a run with a seed says that it promises nothing."""
    certificate = method.fit(graph_for(unit), unit_for(unit), BUDGET, seed=0).certificate
    return not certificate.is_private and certificate.as_dict()["randomness"] == "seeded"


def unit_for(unit: Unit) -> Unit:
    """The same unit with a cap that the graph keeps to."""
    return type(unit)(20) if hasattr(unit, "max_degree") else unit


@over_paid
def test_p31_a_seeded_run_is_stamped(method: Method, unit: Unit) -> None:
    assert stamped(method, unit)
    assert method.fit(graph_for(unit), unit_for(unit), BUDGET).certificate.is_private


def test_p31_a_run_that_hides_its_seed_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = resuming.open_run

    def hides(*arguments: Any, **options: Any) -> Any:
        return honest(*arguments, **{**options, "seeded": False})

    monkeypatch.setattr(resuming, "open_run", hides)
    assert not stamped(GAP(epochs=1), EDGE)


# P32: values on a grid that does not depend on the data


class SinglePrecision(NeighborSum):
    """Adds single-precision noise to the sum and leaves its last bits as they come."""

    def release(self, data: Any, scale: float, noise: Any, rows: Any) -> Tensor:
        exact = self.query(data, rows).to(torch.float32)
        return exact + scale * torch.randn(exact.shape, generator=torch.Generator().manual_seed(0))


class NoisyLabelsOffGrid(LabelSum):
    """The same for sums of labels."""

    def release(self, data: Any, scale: float, noise: Any, *inputs: Any) -> Tensor:
        exact = self.query(data, *inputs).to(torch.float64)
        drawn = torch.randn(exact.shape, generator=noise.torch_generator("noise"), dtype=torch.float64)
        return exact + scale * drawn


def on_a_grid(mechanism: Mechanism, unit: Unit, scale: float) -> bool:
    """Whether all values are multiples of one public power of two, a few millionths of the noise."""
    values = answer(mechanism, unit, small_graph(unit), scale=scale)
    grid = 2.0 ** math.floor(math.log2(scale * 2.0**-22))
    return bool((values / grid == (values / grid).round()).all())


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_p32_released_sums_lie_on_a_grid_that_no_data_sets(scale: float) -> None:
    for mechanism in EDGE_READERS:
        unit = EDGE if math.isfinite(mechanism.sensitivity(EDGE)) else NODE
        assert on_a_grid(mechanism, unit, scale), mechanism
    assert not on_a_grid(SinglePrecision(), EDGE, scale)
    assert not on_a_grid(NoisyLabelsOffGrid(), EDGE, scale)


# P38: batch norm and clipping


class BatchNormEverywhere(GAP):
    """Uses the network of plain training under DP-SGD."""

    def network(self, plan: Plan, generator: torch.Generator) -> nn.Module:
        free = Plan(plan.method, plan.metadata, plan.unit, Budget(math.inf, 1e-6), plan.stages)
        return super().network(free, generator)


def mixes_rows(method: Method, unit: Unit) -> bool:
    """Whether a network that is trained by clipped gradients has batch norm in it."""
    metadata = check_graph(graph_for(unit)).metadata
    plan = method.plan(metadata, unit, BUDGET)
    clipped = any(stage.mechanism.trains and not stage.is_free(unit) for stage in plan)
    layers = method.network(plan, torch.Generator()).modules()
    return clipped and any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in layers)


def test_p38_no_method_clips_gradients_behind_batch_norm() -> None:
    for method, unit in METHODS:
        assert not mixes_rows(method, unit), (method.name, unit)
    assert mixes_rows(BatchNormEverywhere(), NODE)


def test_p38_batch_norm_under_clipping_is_refused_by_name() -> None:
    with pytest.raises(UnprovenError, match="batch norm"):
        BatchNormEverywhere(epochs=1).fit(random_graph(0), NODE, BUDGET)


def clipped_sum(module: nn.Module, graph: CheckedGraph, rows: Tensor) -> Tensor:
    """A clipped sum whose examples share one forward pass, as a wrapped training loop has it."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    total = torch.zeros(sum(p.numel() for p in parameters))
    for loss in F.cross_entropy(module(rows), graph.labels, reduction="none"):
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters, retain_graph=True)])
        total += gradient / max(1.0, float(gradient.norm()))
    return total


def test_p38_the_refusal_is_needed_and_group_norm_keeps_the_bound() -> None:
    graph = check_graph(random_graph(2, num_nodes=16))
    rows = torch.as_tensor(graph.features)
    changed = rows.clone()
    changed[0] *= -100.0

    def network(norm: Any) -> nn.Module:
        return MLP(5, 8, 3, 2, norm=norm, generator=torch.Generator().manual_seed(0))

    moved = [
        float((clipped_sum(network(n), graph, rows) - clipped_sum(network(n), graph, changed)).norm()) for n in NORMS
    ]
    assert moved[0] > 2.0 + 1e-3
    assert moved[1] <= 2.0 + 1e-5
    assert torch.isfinite(step_sum(Gradient(), NODE, graph, network("group"), rows)).all()


NORMS = ("batch", "group")
