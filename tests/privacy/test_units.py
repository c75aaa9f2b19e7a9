from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from hushgraph import registry
from hushgraph.errors import InputError
from hushgraph.graph.checks import check_graph
from hushgraph.mechanisms import NeighborSum
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.mechanism import mechanism_from_dict
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.units import Footprint, Relation
from hushgraph.privacy.units.edge import EDGES_PER_NODE
from hushgraph.testing import units as all_units
from small_graphs import hub_graph, random_graph

METADATA = Metadata(10, 5, num_edges=30)
BOUNDS = json.loads((Path(__file__).parent / "bounds.json").read_text())


@pytest.mark.parametrize(
    ("unit", "sensitivity"),
    [
        (units.DirectedEdge(), 1.0),
        (units.UndirectedEdge(), math.sqrt(2)),
        (units.Node(max_degree=9), 3.0),
        (units.NodeReplace(max_degree=9), 6.0),
        (units.BoundedDegreeNode(max_degree=9), 3.0),
        (units.Record(), math.inf),
    ],
)
def test_the_table_of_sensitivities(unit: units.Unit, sensitivity: float) -> None:
    assert NeighborSum().sensitivity(unit) == pytest.approx(sensitivity)
    assert NeighborSum(2.5).sensitivity(unit) == pytest.approx(2.5 * sensitivity)


def test_bounds_from_footprints_equal_those_that_were_proved_unit_by_unit() -> None:
    """234 bounds of 18 mechanisms and 13 units, computed by code that had a case for every unit."""
    assert len(BOUNDS) == 234
    for case in BOUNDS:
        bound = mechanism_from_dict(case["mechanism"]).sensitivity(units.from_dict(case["unit"]))
        assert bound == pytest.approx(float(case["bound"]), rel=1e-12), case
    assert sum(case["bound"] == "inf" for case in BOUNDS) == 64


def test_a_footprint_that_says_nothing_bounds_nothing() -> None:
    empty = Footprint()
    numbers = (empty.receivers, empty.own_list, empty.other_entries, empty.records, empty.groups)
    assert numbers == (math.inf,) * 5
    assert not empty.owned
    assert units.Local().footprint == Footprint()


def test_owned_is_one_record_and_no_other_list() -> None:
    owned = {unit.name for unit in all_units() if unit.footprint.owned}
    assert owned == {"node", "node-replace"}


@pytest.mark.parametrize("unit", all_units(), ids=str)
def test_a_replaced_record_is_so_in_the_footprint_and_in_the_relation(unit: units.Unit) -> None:
    """Bounds read the footprint, accountants the relation: a unit that says different things to them is unsafe."""
    f = unit.footprint
    if 0 < f.records < math.inf:
        assert f.replaced == (unit.relation is Relation.REPLACE)
    if f.mirrored:
        assert (f.receivers, f.own_list, f.other_entries, f.records) == (2, 1, 1, 0)


def test_edge_units_leave_features_and_labels_public_and_the_local_unit_edges() -> None:
    public = {unit.name: unit.public for unit in all_units() if unit != units.Local(private_labels=False)}
    records = {"features", "labels"}
    assert {name for name, parts in public.items() if parts == records} == {
        "undirected-edge",
        "private-edge",
        "directed-edge",
    }
    assert {name for name, parts in public.items() if parts == {"edges"}} == {"local"}
    assert units.Local(private_labels=False).public == {"edges", "labels"}


def test_the_local_unit_says_what_is_public() -> None:
    assert "label" not in units.Local(private_labels=False).change
    assert units.Local(private_labels=False) != units.Local()
    assert {unit.trust for unit in all_units() if unit.name != "local"} == {"central"}
    assert units.Local().trust == "local"


@pytest.mark.parametrize("unit", all_units(), ids=str)
def test_units_read_back_from_json(unit: units.Unit) -> None:
    assert units.from_dict(json.loads(json.dumps(unit.as_dict()))) == unit
    assert registry.load("units", unit.name) is type(unit)


def test_older_names_and_fields_are_read() -> None:
    assert units.from_dict({"name": "node-promise", "max_degree": 3}) == units.BoundedDegreeNode(max_degree=3)
    assert units.from_dict({"name": "local", "private_labels": True, "range_from_data": False}) == units.Local()


def test_unknown_names_and_parameters_are_refused_with_advice() -> None:
    with pytest.raises(InputError, match="did you mean 'undirected-edge'"):
        units.by_name("undirected-edg")
    with pytest.raises(InputError, match="takes no parameter max_degree"):
        units.by_name("undirected-edge", max_degree=3)


@pytest.mark.parametrize("degree", [0, -1, 2.5, True])
def test_a_cap_is_a_positive_whole_number(degree: object) -> None:
    with pytest.raises(InputError, match="max_degree"):
        units.Node(max_degree=degree)  # type: ignore[arg-type]


def test_lists_are_cut_to_the_cap_and_promises_are_not_applied() -> None:
    assert units.Node(max_degree=7).cap == units.NodeReplace(max_degree=7).cap == 7
    assert units.BoundedDegreeNode(max_degree=7).cap is None
    assert units.UndirectedEdge().cap is None


def test_units_are_counted_for_delta() -> None:
    assert units.UndirectedEdge().count(METADATA) == 15
    assert units.DirectedEdge().count(METADATA) == 30
    assert units.Node().count(METADATA) == 10
    public = Metadata(10, 5, num_edges=60, num_public_edges=30)
    assert units.PrivateEdge().count(public) == 15


def test_a_number_of_edges_that_is_declared_too_small_does_not_make_delta_large() -> None:
    """Also where nearly all edges were declared public: the number of private ones is private."""
    few = Metadata(10_000, 5_000, num_edges=40, num_public_edges=40)
    for unit in all_units():
        if unit.footprint.mirrored:
            assert unit.count(few) == 10_000, unit
            assert Budget(4.0).for_units(unit.count(few), unit.counted(few)).definite_delta <= 1e-5


def test_the_number_of_edges_is_assumed_from_public_sizes_where_it_was_not_declared() -> None:
    unknown = Metadata(10, 5)
    assert units.UndirectedEdge().count(unknown) == 10 * EDGES_PER_NODE
    assert units.DirectedEdge().count(unknown) == 20 * EDGES_PER_NODE
    codes = [note.code for note in units.UndirectedEdge().notes(unknown)]
    assert "edges-assumed" in codes
    assert "edges-declared" in [note.code for note in units.UndirectedEdge().notes(METADATA)]


def test_a_refused_delta_says_what_the_number_of_edges_was_taken_from() -> None:
    edge, unknown = units.UndirectedEdge(), Metadata(8000, 6000)
    with pytest.raises(InputError, match=r"1/80000 .*for an assumed 10 edges per node; declare .*--edges"):
        Budget(4.0, 1e-3).for_units(edge.count(unknown), edge.counted(unknown))
    with pytest.raises(InputError, match=r"1/15 .*the number of edges, as declared"):
        Budget(4.0, 0.5).for_units(edge.count(METADATA), edge.counted(METADATA))
    (assumed, *_) = edge.notes(unknown)
    assert "delta was set" not in str(assumed)


def test_directed_edges_are_charged_as_undirected_ones_in_paper_mode() -> None:
    assert units.DirectedEdge().honest == units.UndirectedEdge()
    assert all(unit.honest == unit for unit in all_units() if unit.name != "directed-edge")


def test_units_must_fit_the_kind_of_graph() -> None:
    symmetric, directed = check_graph(random_graph(1)), check_graph(random_graph(1, symmetric=False))
    units.UndirectedEdge().check(symmetric)
    units.DirectedEdge().check(directed)
    units.DirectedEdge().check(symmetric, paper_mode=True)
    with pytest.raises(InputError, match="symmetric"):
        units.UndirectedEdge().check(directed)
    with pytest.raises(InputError, match="one edge is two entries"):
        units.DirectedEdge().check(symmetric)


def test_a_broken_degree_promise_is_refused_in_both_directions() -> None:
    hub = check_graph(hub_graph(60))
    units.BoundedDegreeNode(max_degree=60).check(hub)
    with pytest.raises(InputError, match=r"got one\. Raise"):
        units.BoundedDegreeNode(max_degree=59).check(hub)
    graph = random_graph(0)
    graph.edge_index = graph.edge_index.new_tensor([[*range(1, 30)], [0] * 29])  # node 0 names nobody
    with pytest.raises(InputError, match=r"got one\. Raise"):
        units.BoundedDegreeNode(max_degree=5).check(check_graph(graph))


def test_a_unit_covers_another_only_under_the_same_trust_and_with_no_more_public() -> None:
    class OnDevices(units.Record):
        trust = "local"

    record = units.Record()
    assert record.covers(units.Node(), edges=False)
    assert not record.covers(OnDevices(), edges=False)
    assert not OnDevices().covers(record, edges=False)
    assert not units.UndirectedEdge().covers(units.Node(), edges=False)
    assert units.Node(5).covers(units.NodeReplace(5))
    assert not units.Node(5).covers(units.Node(6))


def test_a_unit_that_lists_no_neighbors_says_so() -> None:
    class Stranger(units.Unit):
        name = "stranger"

    with pytest.raises(NotImplementedError, match="stranger"):
        Stranger().neighbors(None, None)


def test_an_edge_without_more_words_is_an_undirected_one() -> None:
    assert units.as_unit("edge") == units.UndirectedEdge()
