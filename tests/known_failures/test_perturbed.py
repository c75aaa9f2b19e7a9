"""Known failures of perturbed graphs: P22, and P2, P3 as they occur there. Broken variants are caught by the audit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from audit_plans import plan_of
from hushgraph.audit.result import AuditResult, Verdict
from hushgraph.audit.run import audit_plan
from hushgraph.graph.edges import MemoryEdges
from hushgraph.graph.pairs import pair_edges, pair_numbers
from hushgraph.mechanisms import EdgeCount, EdgeFlip, NoisyEdges
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import DirectedEdge, UndirectedEdge, Unit
from hushgraph.testing import Cell
from matrix_graphs import largest_share

EPSILON, CANARIES, RATE, BATCHES = 1.0, 20_000, 0.25, 4


def audited(mechanism: Mechanism, unit: Unit | None = None) -> AuditResult:
    """The canaries of one release with epsilon 1, seeded. A right mechanism is contradicted once in 10,000 seeds."""
    stage = Stage("graph", mechanism, noise=None, scale=1.0 / EPSILON)
    return audit_plan(plan_of(unit or UndirectedEdge(), stage), canaries=CANARIES, seed=0)


def drawn(result: AuditResult) -> float:
    """The lower bound from canaries alone."""
    return max(finding.strict_bound for finding in result.findings if finding.canaries)


class Thinned(EdgeFlip):
    """Right: canaries of a thinned release."""

    def canary_inputs(self, pairs: int) -> tuple[Any, ...]:
        return (RATE,)


@pytest.mark.parametrize("mechanism", [EdgeFlip(), NoisyEdges(), Thinned()])
def test_right_releases_stay_within_the_claim_and_come_close(mechanism: Mechanism) -> None:
    result = audited(mechanism)
    assert result.verdict is Verdict.CONSISTENT
    assert 0.6 * EPSILON < drawn(result) <= EPSILON


@pytest.mark.parametrize("mechanism", [EdgeFlip(undirected=False), NoisyEdges(undirected=False)])
def test_directed_pairs_have_canaries_of_their_own(mechanism: Mechanism) -> None:
    result = audited(mechanism, DirectedEdge())
    assert result.verdict is Verdict.CONSISTENT
    assert 0.6 * EPSILON < drawn(result) <= EPSILON


# P22: both directions perturbed apart; blocks of the matrix


@dataclass(frozen=True)
class EachDirection(EdgeFlip):
    """Perturbs both entries of an undirected edge apart, and claims the cost of one."""

    undirected: bool = False

    def sensitivity(self, unit: Unit) -> float:
        return 1.0


@dataclass(frozen=True)
class EachDirectionOfLaplace(NoisyEdges):
    """The same with Laplace noise."""

    undirected: bool = False

    def sensitivity(self, unit: Unit) -> float:
        return 1.0


@pytest.mark.parametrize("broken", [EachDirection(), EachDirectionOfLaplace()])
def test_p22_an_undirected_edge_that_is_perturbed_twice_is_caught(broken: Mechanism) -> None:
    result = audited(broken)
    assert result.verdict is Verdict.CONTRADICTED
    assert drawn(result) > 1.3 * EPSILON


@dataclass(frozen=True)
class BlockDensities(EdgeCount):
    """The density of each third of the rows, with noise for the density of the whole matrix."""

    cap: int = 100

    def before_noise(self, data: Any, noise: Any, *inputs: Any) -> np.ndarray:
        degrees = data.whole_lists.out_degree().numpy()
        return 3.0 * np.add.reduceat(degrees, np.linspace(0, len(degrees), 4).astype(int)[:3])


def test_p22_densities_of_blocks_with_noise_for_the_whole_are_caught() -> None:
    assert largest_share(Cell(EdgeCount(100), UndirectedEdge())) <= 1.0
    assert largest_share(Cell(BlockDensities(), UndirectedEdge())) == pytest.approx(3.0)


# P3: keeping a share of the links taken to multiply epsilon by it


class MultipliedByRate(Thinned):
    """Flips with epsilon over the rate, keeps a link at the rate, and claims their product."""

    def release(self, data: Any, scale: float, noise: Any, keep: float = 1.0) -> MemoryEdges:
        return super().release(data, scale * keep, noise, keep)


def test_p03_thinning_that_is_taken_to_amplify_is_caught() -> None:
    result = audited(MultipliedByRate())
    assert result.verdict is Verdict.CONTRADICTED
    assert drawn(result) > 2.0 * EPSILON


# P2: every batch perturbs its own copy of an edge


class PerBatch(EdgeFlip):
    """Perturbs the graph anew for each batch that needs it; all batches are seen."""

    def release(self, data: Any, scale: float, noise: Any, keep: float = 1.0) -> MemoryEdges:
        drawn = [super(PerBatch, self).release(data, scale, noise.stream(str(b)), keep) for b in range(BATCHES)]
        numbers = np.concatenate([pair_numbers(one, undirected=True) for one in drawn])
        found, times = np.unique(numbers, return_counts=True)
        return pair_edges(found[times == BATCHES], drawn[0].num_nodes, undirected=True)


def test_p02_edges_perturbed_anew_for_every_batch_are_caught() -> None:
    result = audited(PerBatch())
    assert result.verdict is Verdict.CONTRADICTED
    assert drawn(result) > 2.0 * EPSILON


@dataclass(frozen=True)
class CachedBatch(EdgeFlip):
    """Keeps the bits of linked pairs as they are once they were drawn as linked, whatever the noise says later."""

    def release(self, data: Any, scale: float, noise: Any, keep: float = 1.0) -> MemoryEdges:
        pairs = self.pairs(data)
        flipped = pair_numbers(super().release(data, scale, noise, keep), undirected=True)
        cached = pairs.linked[: len(pairs.linked) // 2]  # the batches that were in the cache already: raw
        return pairs.graph(np.union1d(flipped, cached))


def test_p02_batches_that_were_cached_before_they_were_perturbed_are_caught() -> None:
    result = audited(CachedBatch())
    assert result.verdict is Verdict.CONTRADICTED


# Half the noise


class HalfScale(EdgeFlip):
    """Half the noise."""

    def release(self, data: Any, scale: float, noise: Any, keep: float = 1.0) -> MemoryEdges:
        return super().release(data, scale / 2.0, noise, keep)


class HalfLaplace(NoisyEdges):
    """Half the noise."""

    def release(self, data: Any, scale: float, noise: Any, count: int) -> MemoryEdges:
        return super().release(data, scale / 2.0, noise, count)


@pytest.mark.parametrize("broken", [HalfScale(), HalfLaplace()])
def test_half_the_noise_is_caught(broken: Mechanism) -> None:
    result = audited(broken)
    assert result.verdict is Verdict.CONTRADICTED
    assert drawn(result) > 1.5 * EPSILON
