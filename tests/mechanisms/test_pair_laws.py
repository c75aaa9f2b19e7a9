"""The exact law of what is released, from the very code that draws it: every graph, order of pairs and public edge."""

from __future__ import annotations

import math

import numpy as np
import pytest

from every_outcome import largest_loss, outcomes
from hushgraph.graph.pairs import pair_edges, pair_numbers
from hushgraph.mechanisms import EdgeFlip, NoisyEdges
from hushgraph.mechanisms.pair_release import PairRelease
from hushgraph.privacy import units
from hushgraph.privacy.metadata import count_pairs
from hushgraph.privacy.units import Unit
from mechanisms.graph_laws import Bits, all_bits, view

Law = dict[Bits, float]


def release_law(mechanism: PairRelease, bits: Bits, nodes: int, public: tuple[int, ...], *inputs: float) -> Law:
    """How likely every released graph is, at an epsilon of 1 a pair."""
    known = pair_edges(np.array(public, dtype=np.int64), nodes, undirected=mechanism.undirected) if public else None
    data, law = view(bits, nodes, undirected=mechanism.undirected, public=known), {}
    for edges, chance in outcomes(lambda noise: mechanism.release(data, 1.0, noise, *inputs)):
        out = tuple(sorted(pair_numbers(edges, undirected=mechanism.undirected).tolist()))
        law[out] = law.get(out, 0.0) + chance
    assert math.fsum(law.values()) == pytest.approx(1.0, abs=1e-6)
    return law


def changed(bits: Bits, unit: Unit, nodes: int, *, undirected: bool) -> list[Bits]:
    """The graphs that differ from this one in one unit: a pair, or both orders of it where pairs are ordered."""
    if undirected or not unit.footprint.mirrored:
        groups = [(place,) for place in range(len(bits))]
    else:
        order = [
            pair_numbers(pair_edges(np.array([place]), nodes, undirected=True), undirected=False)
            for place in range(count_pairs(nodes, undirected=True))
        ]
        groups = [tuple(one.tolist()) for one in order]
    return [tuple(1 - bit if place in group else bit for place, bit in enumerate(bits)) for group in groups]


def realized(mechanism: PairRelease, unit: Unit, nodes: int, public: tuple[int, ...], *inputs: float) -> float:
    """The largest loss between any two neighbors."""
    graphs = all_bits(nodes, undirected=mechanism.undirected)
    laws = {bits: release_law(mechanism, bits, nodes, public, *inputs) for bits in graphs}
    for bits, law in laws.items():
        for out in law:
            assert set(public) <= set(out), bits
    return max(
        largest_loss(laws[bits], laws[other])
        for bits in graphs
        for other in changed(bits, unit, nodes, undirected=mechanism.undirected)
    )


EDGE, ONE_WAY = units.UndirectedEdge(), units.DirectedEdge()

FLIPS = [
    (EdgeFlip(), EDGE, 3, ()),
    (EdgeFlip(), EDGE, 3, (1,)),
    (EdgeFlip(), units.PrivateEdge(), 3, (0, 2)),
    (EdgeFlip(undirected=False), ONE_WAY, 2, ()),
    (EdgeFlip(undirected=False), ONE_WAY, 2, (1,)),
    (EdgeFlip(undirected=False), EDGE, 2, ()),
]


@pytest.mark.parametrize("keep", [1.0, 0.4])
@pytest.mark.parametrize(("mechanism", "unit", "nodes", "public"), FLIPS)
def test_flipped_pairs_realize_what_is_claimed(
    mechanism: EdgeFlip, unit: Unit, nodes: int, public: tuple[int, ...], keep: float
) -> None:
    assert realized(mechanism, unit, nodes, public, keep) == pytest.approx(mechanism.sensitivity(unit), rel=1e-9)


TOPS = [
    (NoisyEdges(grain=1), EDGE, 3, (0, 2), 1),
    (NoisyEdges(undirected=False, grain=1), ONE_WAY, 2, (), 1),
    (NoisyEdges(undirected=False, grain=1), ONE_WAY, 2, (0,), 1),
    (NoisyEdges(undirected=False, grain=1), EDGE, 2, (), 1),
]


@pytest.mark.parametrize(("mechanism", "unit", "nodes", "public", "count"), TOPS)
def test_the_largest_noisy_pairs_stay_within_the_claim(
    mechanism: NoisyEdges, unit: Unit, nodes: int, public: tuple[int, ...], count: int
) -> None:
    """Both orders of a pair move together in the last case: with one place they take it from each other."""
    found = realized(mechanism, unit, nodes, public, count)
    assert 0.2 < found <= mechanism.sensitivity(unit) * (1.0 + 1e-6)


class TossedAgain(EdgeFlip):
    """Broken on purpose: a pair that is linked has its own coin and that of the others too, so it is drawn twice."""

    def release(self, data, scale, noise, keep=1.0):
        present, absent = self.rates(scale, keep)
        pairs = self.pairs(data)
        stays = pairs.linked[noise.stream("present").bernoulli_places(len(pairs.linked), present)]
        becomes = noise.stream("absent").bernoulli_places(pairs.total, absent)
        return pairs.graph(np.setdiff1d(np.union1d(stays, becomes), pairs.public))


def test_a_pair_that_is_drawn_twice_is_seen() -> None:
    assert realized(TossedAgain(), EDGE, 3, (), 1.0) > 1.2
