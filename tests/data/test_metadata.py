from __future__ import annotations

import pytest

from hushgraph.data.metadata import PublicFacts
from hushgraph.errors import InputError
from hushgraph.privacy import units

FACTS = PublicFacts(100, 600, 50, name="toy")


def test_the_number_of_edges_stays_where_edges_are_counted_or_public() -> None:
    for unit in (units.DirectedEdge(), units.UndirectedEdge(), units.Local()):
        assert FACTS.for_unit(unit) == FACTS
    for unit in (units.Node(), units.NodeReplace(), units.NodePromise(), units.Record()):
        kept = FACTS.for_unit(unit)
        assert kept.num_edges is None
        assert (kept.num_nodes, kept.num_train, kept.name) == (100, 50, "toy")
        assert kept.for_unit(unit) == kept


def test_every_unit_is_listed_on_one_side() -> None:
    """A new unit must be thought about: unknown units lose the number of edges."""
    assert set(units.UNITS) == {
        "directed-edge",
        "undirected-edge",
        "local",
        "node",
        "node-replace",
        "node-promise",
        "record",
    }


def test_units_are_counted_without_edges_where_they_are_nodes() -> None:
    without = FACTS.for_unit(units.Node())
    assert without.count_units(units.Node()) == 100
    assert FACTS.count_units(units.UndirectedEdge()) == 300
    with pytest.raises(InputError, match="expected their number"):
        without.count_units(units.UndirectedEdge())


def test_facts_read_back() -> None:
    for facts in (FACTS, FACTS.for_unit(units.Node())):
        assert PublicFacts(**facts.as_dict()) == facts
    with pytest.raises(InputError, match="edges: expected at least 0"):
        PublicFacts(100, -1, 50)
