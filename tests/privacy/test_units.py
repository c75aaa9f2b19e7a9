from __future__ import annotations

import math

import pytest

from hushgraph.errors import InputError, UnprovenError
from hushgraph.privacy import units


@pytest.mark.parametrize(
    ("unit", "sensitivity"),
    [
        (units.DirectedEdge(), 1.0),
        (units.UndirectedEdge(), math.sqrt(2)),
        (units.Node(max_degree=9), 3.0),
        (units.NodeReplace(max_degree=9), 6.0),
        (units.NodePromise(max_degree=9), 3.0),
    ],
)
def test_the_table_of_sensitivities(unit: units.Unit, sensitivity: float) -> None:
    assert unit.aggregation_sensitivity(1.0) == pytest.approx(sensitivity)
    assert unit.aggregation_sensitivity(2.5) == pytest.approx(2.5 * sensitivity)


def test_a_record_has_no_bound_for_a_sum_over_neighbors() -> None:
    with pytest.raises(UnprovenError, match="record"):
        units.Record().aggregation_sensitivity(1.0)


def test_edge_units_leave_features_and_labels_public_and_the_local_unit_edges() -> None:
    for name, unit in units.UNITS.items():
        assert {"features", "labels"} <= unit.public or not {"features", "labels"} & unit.public
        assert bool(unit.public) == ("edge" in name or name == "local")


def test_names_round_trip_through_json_values() -> None:
    for unit in (units.UndirectedEdge(), units.Node(max_degree=7), units.NodePromise(max_degree=3)):
        assert units.from_dict(unit.as_dict()) == unit


def test_unknown_names_and_parameters_are_refused_with_advice() -> None:
    with pytest.raises(InputError, match="did you mean 'undirected-edge'"):
        units.by_name("undirected-edg")
    with pytest.raises(InputError, match="takes no parameter max_degree"):
        units.by_name("undirected-edge", max_degree=3)


@pytest.mark.parametrize("degree", [0, -1, 2.5, True])
def test_a_cap_is_a_positive_whole_number(degree: object) -> None:
    with pytest.raises(InputError, match="max_degree"):
        units.Node(max_degree=degree)  # type: ignore[arg-type]


def test_units_are_counted_for_delta() -> None:
    assert units.UndirectedEdge().count(num_nodes=10, num_edges=30) == 15
    assert units.DirectedEdge().count(num_nodes=10, num_edges=30) == 30
    assert units.Node().count(num_nodes=10, num_edges=30) == 10
