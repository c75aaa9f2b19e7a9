"""What the tests of known failures share: small graphs, single stages in a vault, and the moves of their releases."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn
from torch_geometric.data import Data

from hushgraph import registry
from hushgraph.errors import BudgetError
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.graph.rows import dense_rows
from hushgraph.ledger.run import Run
from hushgraph.mechanisms.balanced_sum import BalancedSum
from hushgraph.mechanisms.edge_count import EdgeCount
from hushgraph.mechanisms.gradient import Gradient
from hushgraph.mechanisms.label_sum import LabelSum
from hushgraph.mechanisms.neighbor_sum import NeighborSum
from hushgraph.mechanisms.pair_count import PairCount, PairCounts
from hushgraph.methods.base import Method
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import BoundedDegreeNode, DirectedEdge, Local, Node, NodeReplace, UndirectedEdge, Unit
from hushgraph.testing import Variations
from hushgraph.training.config import Training
from hushgraph.vault import Vault
from small_graphs import random_graph

STAGE = "stage"
ROUNDING = 1e-5  # of single precision, as a share of the bound
BUDGET = Budget(4.0, 1e-3)
EDGE_READERS: list[Mechanism] = [
    NeighborSum(),
    NeighborSum(row_norm=0.5),
    LabelSum(),
    LabelSum(centered=True),
    LabelSum(divided=True),
    LabelSum(divided=True, centered=True),
    BalancedSum(capacity=2.0),
    EdgeCount(cap=4),
    PairCount(),
]
"""Every mechanism that answers a question about edges, in the forms that have a bound of their own."""


def small_graph(unit: Unit) -> CheckedGraph:
    """A graph that the unit takes: symmetric, directed, or with a star of exactly the promised degree."""
    if isinstance(unit, BoundedDegreeNode):
        graph = random_graph(1, num_nodes=24)
        star = torch.stack([torch.zeros(unit.max_degree, dtype=torch.int64), torch.arange(1, unit.max_degree + 1)])
        ring = torch.stack([torch.arange(13, 24), torch.arange(13, 24).roll(1)])
        graph.edge_index = torch.cat([star, star.flip(0), ring, ring.flip(0)], dim=1)
        graph.x = graph.x.abs()
        return check_graph(graph)
    return check_graph(random_graph(1, num_nodes=24, num_edges=40, symmetric=not isinstance(unit, DirectedEdge)))


UNITS: list[Unit] = [UndirectedEdge(), DirectedEdge(), Node(3), NodeReplace(3), BoundedDegreeNode(12)]


def proven_methods(graph: CheckedGraph) -> Iterator[tuple[Method, Unit]]:
    """Every registered method under every unit for which it has a proof on a dataset of this size."""
    for name in registry.names("methods"):
        if name == "pate":  # needs public nodes: compared in test_no_free_looks.py and test_matrix_methods.py
            continue
        kind = registry.load("methods", name)
        for unit in (*UNITS, Local(), Local(private_labels=False)):
            method = kind(low=-4.0, high=4.0) if unit.trust == "local" and kind.trust == "local" else kind()
            if method.proves(graph.metadata, unit):
                yield method, unit


# One stage in a vault


def stage_vault(
    graph: CheckedGraph,
    mechanism: Mechanism,
    unit: Unit,
    *,
    scale: float | None = None,
    seed: int = 7,
    progress: Callable[[str, int, int], None] | None = None,
) -> Vault:
    """A vault whose plan has one stage with next to no noise, which the same seed makes the same everywhere."""
    usual = 1.0 if mechanism.law == "discrete-laplace" else 1e-3
    stage = Stage(STAGE, mechanism, noise=None, scale=usual if scale is None else scale)
    plan = Plan("test", graph.metadata, unit, Budget(1e6, 1e-6), (stage,))
    noise = NoiseSource.from_os() if seed is None else NoiseSource.seeded(seed)
    return Vault(graph, plan, cast(Run, UnpricedRun()), noise, progress)


class UnpricedRun:
    """Stands where a run on a ledger would: what has next to no noise has no price that an accountant could find."""

    def __init__(self) -> None:
        self.used: Counter[str] = Counter()

    def charge(self, stage: Stage, count: int | None = None) -> None:
        """Nothing is written down; more than planned is refused."""
        self.used[stage.name] += stage.count if count is None else count
        if self.used[stage.name] > stage.count:
            raise BudgetError(f"'{stage.name}' was planned {stage.count} times; more are refused")

    def note_parallel(self, stage: Stage, examples: int) -> None:
        """Nothing is written down."""


def inputs_of(mechanism: Mechanism, graph: CheckedGraph) -> tuple[Any, ...]:
    """What a method would hand to the mechanism: rows made of each node's own record."""
    if mechanism.name == "neighbor-sum":
        return (graph.features,)
    if mechanism.name == "label-sum":
        return (dense_rows(graph.features)[:, :3].softmax(dim=1).sqrt(),)
    return ()


def answer(mechanism: Mechanism, unit: Unit, graph: CheckedGraph, *inputs: Any, scale: float | None = None) -> Tensor:
    """One release, through the vault, as numbers."""
    vault = stage_vault(graph, mechanism, unit, scale=scale)
    value = vault.release(STAGE, *(inputs or inputs_of(mechanism, graph)))
    if isinstance(value, PairCounts):
        return torch.tensor([value.equal, value.unequal, value.blind_equal], dtype=torch.float64)
    if isinstance(value, int):
        return torch.tensor([value], dtype=torch.float64)
    return dense_rows(vault._open(value)).to(torch.float64)


def distance(mechanism: Mechanism, one: Tensor, other: Tensor) -> float:
    """In the norm of the mechanism's bound."""
    return float((one - other).norm(p=1 if mechanism.law == "discrete-laplace" else 2))


def moves(mechanism: Mechanism, unit: Unit, graph: CheckedGraph, *, own_row: bool = False) -> float:
    """The furthest that one unit moves a release; without a node's own row where that stays in the vault."""
    before = answer(mechanism, unit, graph)
    furthest = 0.0
    for neighbor in unit.neighbors(Variations(graph), np.random.default_rng(0)):
        after = answer(mechanism, unit, neighbor)
        if mechanism.stays_private(unit) and not own_row:
            changed = (dense_rows(graph.features) != dense_rows(neighbor.features)).any(dim=1)
            after = torch.where(changed.unsqueeze(1), before, after)
        furthest = max(furthest, distance(mechanism, before, after))
    return furthest


def keeps_its_bound(mechanism: Mechanism, unit: Unit, graph: CheckedGraph | None = None) -> bool:
    """Whether no neighbor moves the release by more than the mechanism declares."""
    graph = small_graph(unit) if graph is None else graph
    return moves(mechanism, unit, graph) <= mechanism.sensitivity(unit) * (1.0 + ROUNDING)


# One step of training


def step_sum(mechanism: Gradient, unit: Unit, graph: CheckedGraph, module: nn.Module, *rows: Any) -> Tensor:
    """The noisy sum of one plain gradient step on all training nodes, read off the weights."""
    before = nn.utils.parameters_to_vector(module.parameters()).detach().to(torch.float64)
    vault = stage_vault(graph, mechanism, unit, scale=1e-4 * mechanism.max_grad_norm)
    expected = mechanism.sample_rate * graph.train.numel()
    vault.release(STAGE, module, *rows, Training(epochs=1, lr=expected, optimizer="sgd"))
    after = nn.utils.parameters_to_vector(module.parameters()).detach().to(torch.float64)
    return before - after


# Exact numbers


def gaussian_delta(mu: float, epsilon: float) -> float:
    """delta of N(mu, 1) against N(0, 1) at epsilon, exactly."""
    upper = stats.norm.cdf(mu / 2 - epsilon / mu)
    return float(upper - math.exp(epsilon + stats.norm.logcdf(-mu / 2 - epsilon / mu)))


def mixture_delta(z: float, rate: float, before: int, after: int, epsilon: float) -> float:
    """delta of one noisy sum over a Poisson batch: `before` examples at +1 against `after` at -1, by integration."""
    x = np.linspace(-after - 12 * z, before + 12 * z, 400_001)

    def density(count: int, sign: float) -> np.ndarray:
        weights = stats.binom.pmf(np.arange(count + 1), count, rate)
        return np.asarray(sum(w * stats.norm.pdf(x, sign * i, z) for i, w in enumerate(weights)))

    p, q = density(before, 1.0), density(after, -1.0)
    both = (p - math.exp(epsilon) * q, q - math.exp(epsilon) * p)
    return max(float(np.trapezoid(np.maximum(part, 0.0), x)) for part in both)


def table(x: Tensor, y: Tensor, edge_index: Tensor | None = None, classes: int = 2) -> CheckedGraph:
    """A checked graph whose nodes all train."""
    edges = torch.empty((2, 0), dtype=torch.int64) if edge_index is None else edge_index
    everybody = torch.ones(len(x), dtype=torch.bool)
    return check_graph(Data(x=x, y=y, edge_index=edges, train_mask=everybody, num_classes=classes))
