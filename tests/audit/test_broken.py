"""Broken on purpose: each variant is a mistake found in published code, and the audit or deletion test that sees it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from audit_plans import SIZES, gradient_plan, plan_of, rooted_plan, weighted_plan
from hushgraph.audit.result import Bound, Verdict
from hushgraph.audit.run import audit_plan
from hushgraph.errors import UnprovenError
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.quantized import QuantizedRows, quantize
from hushgraph.mechanisms import NeighborSum
from hushgraph.methods.gap import GAP
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import DirectedEdge, Node, NodeReplace, NodeWithEdges, UndirectedEdge
from hushgraph.testing import Variations
from hushgraph.training.clipping import ClippedGradient
from small_graphs import capped_edges, random_graph


class CachedBatches:
    """A source that draws one epoch of fixed batches and replays it; the noise itself is right."""

    def __init__(self, source: NoiseSource, examples: int) -> None:
        self.source, self.examples = source, examples
        self.seeded_run = source.seeded_run
        self.order = torch.from_numpy(np.random.default_rng(0).permutation(examples))
        self.calls = 0

    def stream(self, label: str) -> CachedBatches:
        return CachedBatches(self.source.stream(label), self.examples)

    def __getattr__(self, name: str) -> object:
        return getattr(self.source, name)

    def bernoulli_indices(self, n: int, p: float) -> Tensor:
        batches = self.order.tensor_split(math.ceil(1.0 / p))
        drawn = []  # several batches are asked for at once, one after the other
        for place in range(n // self.examples):
            drawn.append(batches[self.calls % len(batches)].sort().values + place * self.examples)
            self.calls += 1
        return torch.cat(drawn)


def test_right_noise_is_not_called_broken() -> None:
    plan = GAP().plan(SIZES, UndirectedEdge(), Budget(1.0, 1e-7))
    assert audit_plan(plan, canaries=4000, seed=0).verdict is Verdict.CONSISTENT


def test_half_the_noise_is_caught_in_sums(half_noise: Callable[[int], NoiseSource]) -> None:
    plan = GAP().plan(SIZES, UndirectedEdge(), Budget(1.0, 1e-7))
    found = audit_plan(plan, canaries=4000, seed=0, noise=half_noise(0))
    assert found.verdict is Verdict.CONTRADICTED
    assert found.lower_bound > 1.3


def test_half_the_noise_is_caught_in_all_stages_together(half_noise: Callable[[int], NoiseSource]) -> None:
    plan = GAP(epochs=1).plan(SIZES, Node(max_degree=20), Budget(4.0, 1e-6))
    assert audit_plan(plan, canaries=2000, seed=0).verdict is Verdict.CONSISTENT
    found = audit_plan(plan, canaries=2000, seed=0, noise=half_noise(0))
    assert found.findings[0].stages == ("encoder", "aggregation", "classifier")
    assert found.findings[0].contradicts
    assert found.lower_bound > 1.5 * found.claimed


def test_directed_accounting_on_a_symmetric_graph_is_caught() -> None:
    plan = GAP().plan(SIZES, DirectedEdge(), Budget(1.0, 1e-7), paper_mode=True)
    found = audit_plan(plan, canaries=10_000, seed=0)
    assert found.verdict is Verdict.CONTRADICTED
    assert (found.unit, found.planted_unit) == ("directed-edge", "undirected-edge")
    assert 1.0 < found.lower_bound <= plan.epsilon * 1.1


def test_half_the_noise_is_caught_in_gradients(half_noise: Callable[[int], NoiseSource]) -> None:
    plan = gradient_plan(Node(), 40, 2.0, 0.25)
    right = audit_plan(plan, canaries=2000, seed=1)
    found = audit_plan(plan, canaries=2000, seed=1, noise=half_noise(1))
    assert right.verdict is Verdict.CONSISTENT
    assert found.verdict is Verdict.CONTRADICTED
    assert found.lower_bound > 1.5 * found.claimed


@pytest.mark.parametrize("unit", [Node(), NodeReplace()])
def test_half_the_noise_is_caught_in_rooted_gradients(half_noise: Callable[[int], NoiseSource], unit: Node) -> None:
    plan = rooted_plan(unit, 20, 6.0, 0.2, 2, 1)
    right = audit_plan(plan, canaries=800, seed=1)
    found = audit_plan(plan, canaries=800, seed=1, noise=half_noise(1))
    assert right.verdict is Verdict.CONSISTENT
    assert found.verdict is Verdict.CONTRADICTED
    assert found.lower_bound > 1.5 * found.claimed


@pytest.mark.parametrize("unit", [NodeWithEdges(), NodeReplace()])
def test_half_the_noise_is_caught_in_gradients_over_rows(
    half_noise: Callable[[int], NoiseSource], unit: NodeWithEdges
) -> None:
    plan = weighted_plan(unit, 20, 6.0, 0.2, 2)
    right = audit_plan(plan, canaries=500, seed=1)
    found = audit_plan(plan, canaries=500, seed=1, noise=half_noise(1))
    assert right.verdict is Verdict.CONSISTENT
    assert right.lower_bound > 0.4 * plan.epsilon
    assert found.verdict is Verdict.CONTRADICTED


@pytest.mark.parametrize(
    ("plan", "canaries", "examples"),
    [
        (gradient_plan(Node(), 400, 2.0, 0.05), 2000, 2000),
        (weighted_plan(NodeWithEdges(), 400, 2.0, 0.05, 0), 2000, 2000),
    ],
)
def test_cached_batches_accounted_as_poisson_are_caught(plan: Plan, canaries: int, examples: int) -> None:
    right = audit_plan(plan, canaries=canaries, seed=2)
    broken = CachedBatches(NoiseSource.seeded(2), examples)
    found = audit_plan(plan, canaries=canaries, seed=2, noise=broken)  # type: ignore[arg-type]
    assert right.verdict is Verdict.CONSISTENT
    caught = [finding for finding in found.findings if finding.contradicts]
    assert Bound.REPEATED in {finding.bound for finding in caught}  # the statistic made for it sees it
    assert max(finding.strict_bound for finding in caught) > 1.5 * plan.epsilon


class LongRows(NeighborSum):
    """Broken on purpose: rows are twice as long as the bound counts on."""

    def _whole(self, rows: Any) -> QuantizedRows:
        return quantize(rows, 2.0 * self.row_norm, normalize=True)


def test_rows_longer_than_the_bound_are_caught() -> None:
    plans = [plan_of(Node(max_degree=5), Stage("sums", kind(), scale=4.0)) for kind in (NeighborSum, LongRows)]
    right, broken = (audit_plan(plan, canaries=4000, seed=0) for plan in plans)
    assert right.verdict is Verdict.CONSISTENT
    assert broken.verdict is Verdict.CONTRADICTED


def deletion_change(release: Callable[[Any], Tensor], present: Any, absent: Any) -> float:
    """How far a release without noise moves between two neighboring inputs (L2): must not exceed its bound."""
    return float((release(present).to(torch.float64) - release(absent).to(torch.float64)).norm())


def most_moved(release: Callable[[CheckedGraph], Tensor], unit: Node, graphs: list[CheckedGraph]) -> float:
    """The largest change over all neighbors of all graphs."""
    rng = np.random.default_rng(0)
    changes = [
        deletion_change(release, graph, other) for graph in graphs for other in unit.neighbors(Variations(graph), rng)
    ]
    return max(changes)


def sums_of(edges: MemoryEdges, rows: Tensor) -> Tensor:
    whole = quantize(rows)
    return edges.sum(whole).double() * whole.step


def first_senders(edges: MemoryEdges) -> MemoryEdges:
    """Broken on purpose: receivers keep their first in-neighbor, so a freed place is refilled by another sender."""
    pairs = edges.edge_index()
    pairs = pairs[:, torch.argsort(pairs[1] * edges.num_nodes + pairs[0])]
    first = torch.ones(pairs.shape[1], dtype=torch.bool)
    first[1:] = pairs[1, 1:] != pairs[1, :-1]
    kept = pairs[:, first]
    owned = [kept[:, kept[0] == sender][:, :1] for sender in range(edges.num_nodes)]
    return MemoryEdges.from_edge_index(torch.cat(owned, dim=1), edges.num_nodes)


def test_a_cap_that_looks_at_the_receivers_is_caught_on_small_graphs() -> None:
    graphs = [check_graph(random_graph(seed, 7, 14, symmetric=False)) for seed in range(8)]
    noise = NoiseSource.seeded(0)

    def refilled(graph: CheckedGraph) -> Tensor:
        return sums_of(first_senders(graph.edges), torch.ones(7, 1))

    def owned(graph: CheckedGraph) -> Tensor:
        kept = capped_edges(graph.edges.edge_index(), 7, 1, noise.stream("degree cap"))
        return sums_of(MemoryEdges.from_edge_index(kept, 7), torch.ones(7, 1))

    assert most_moved(refilled, Node(max_degree=1), graphs) > 1.0
    assert most_moved(owned, Node(max_degree=1), graphs) == 1.0


def star_of_stars(senders: int, degree: int) -> Tensor:
    """A hub that every sender lists first, and `degree` private receivers for each sender."""
    pairs = [(s, 0) for s in range(1, senders + 1)]
    first = senders + 1
    for sender in range(1, senders + 1):
        pairs += [(sender, first + (sender - 1) * degree + k) for k in range(degree)]
    return torch.tensor(pairs).t()


def refill(edges: Tensor, degree: int) -> Tensor:
    """Broken on purpose: each sender keeps the first entries of whatever is left of its list."""
    kept = [edges[:, edges[0] == sender][:, :degree] for sender in edges[0].unique()]
    return torch.cat(kept, dim=1)


def test_refilled_lists_move_further_than_declared_and_owned_lists_do_not() -> None:
    degree, senders = 3, 40
    edges = star_of_stars(senders, degree)
    nodes = int(edges.max()) + 1
    without_hub = edges[:, edges[1] != 0]  # the hub is removed with everything incident to it
    rows = torch.ones(nodes, 1)

    def total(kept: Tensor) -> Tensor:
        return sums_of(MemoryEdges.from_edge_index(kept, nodes), rows)[1:]

    assert deletion_change(lambda e: total(refill(e, degree)), edges, without_hub) > math.sqrt(degree) + 1.0
    noise = NoiseSource.seeded(0)
    own = edges[:, edges[0] != 5]  # the unit we promise for: one node's own record becomes null

    def capped(e: Tensor) -> Tensor:
        kept = capped_edges(e, nodes, degree, noise.stream("degree cap"))
        return sums_of(MemoryEdges.from_edge_index(kept, nodes), rows)

    assert deletion_change(capped, edges, own) <= math.sqrt(degree)


def small_rows() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(12, 4, generator=generator)
    rows[-1] = 100.0
    return rows, torch.randint(0, 3, (12,), generator=generator)


def clipped_sum_through(module: nn.Module, rows: Tensor, labels: Tensor, per_layer: bool) -> Tensor:
    """A naive clipped sum whose examples share one forward pass, as a wrapped training loop has it."""
    losses = F.cross_entropy(module(rows), labels, reduction="none")
    parameters = [p for p in module.parameters() if p.requires_grad]
    total = [torch.zeros_like(p) for p in parameters]
    for loss in losses:
        gradient = torch.autograd.grad(loss, parameters, retain_graph=True)
        norms = [g.norm() for g in gradient]
        flat = torch.stack(norms).norm()
        for place, (one, norm) in enumerate(zip(gradient, norms, strict=True)):
            total[place] += one / max(1.0, float(norm if per_layer else flat))
    return torch.cat([t.flatten() for t in total])


def test_batch_norm_left_in_moves_other_gradients_and_is_refused() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    rows, labels = small_rows()

    def release(chosen: Tensor) -> Tensor:
        return clipped_sum_through(module, rows[chosen], labels[chosen], per_layer=False).detach()

    everyone = torch.arange(12)
    assert deletion_change(release, everyone, everyone[:-1]) > 1.0 + 1e-3
    with pytest.raises(UnprovenError, match="batch norm"):
        ClippedGradient(module, max_grad_norm=1.0)


def test_clipping_layer_by_layer_moves_further_than_one_bound() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    rows, labels = small_rows()
    labels[-1] = int(module(rows[-1:]).argmin())
    everyone = torch.arange(12)

    def broken(chosen: Tensor) -> Tensor:
        return clipped_sum_through(module, rows[chosen], labels[chosen], per_layer=True).detach()

    def ours(chosen: Tensor) -> Tensor:
        engine = ClippedGradient(module, max_grad_norm=1.0)
        with torch.no_grad():
            return engine.sum(rows[chosen], labels[chosen]).clone()

    assert deletion_change(broken, everyone, everyone[:-1]) > 1.5
    assert deletion_change(ours, everyone, everyone[:-1]) <= 1.0 + 1e-5
