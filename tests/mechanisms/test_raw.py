from __future__ import annotations

import math

import pytest
import torch

from hushgraph.errors import UnprovenError
from hushgraph.graph.checks import check_graph
from hushgraph.mechanisms import Raw
from hushgraph.privacy import events
from hushgraph.privacy.units import Unit
from hushgraph.testing import units
from matrix_graphs import view_of
from small_graphs import random_graph


@pytest.mark.parametrize("unit", units(), ids=str)
def test_raw_data_has_no_bound_no_price_and_no_release(unit: Unit) -> None:
    assert math.isinf(Raw().sensitivity(unit))
    assert Raw().event(unit, 1.0) == events.non_private()
    with pytest.raises(UnprovenError, match="epsilon=inf only"):
        Raw().require(unit)
    with pytest.raises(UnprovenError, match="no private release"):
        Raw().release(None, 1.0, None)


def test_it_hands_out_one_part_as_it_is() -> None:
    graph = check_graph(random_graph(0))
    for part in ("edges", "features", "labels"):
        mechanism = Raw(part)
        found = mechanism.query(view_of(graph, mechanism, None))
        assert found is getattr(graph, part)
    assert torch.equal(Raw("labels").query(view_of(graph, Raw("labels"), None)), graph.labels)
