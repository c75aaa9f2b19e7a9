from __future__ import annotations

import json

import pytest

from hushgraph.errors import InputError
from hushgraph.graph.checks import check_graph
from hushgraph.privacy.metadata import Metadata
from small_graphs import random_graph


def test_the_number_of_edges_is_what_was_declared_and_never_read_off_the_data() -> None:
    assert check_graph(random_graph(0)).metadata.num_edges is None
    assert check_graph(random_graph(0), num_edges=240).metadata.num_edges == 240


def test_metadata_reads_back() -> None:
    for metadata in (Metadata(100, 50, num_edges=600, name="toy"), Metadata.from_sizes(40, num_classes=3)):
        assert Metadata.from_dict(json.loads(json.dumps(metadata.as_dict()))) == metadata


def test_all_impossible_sizes_are_reported_together() -> None:
    with pytest.raises(InputError) as caught:
        Metadata(0, 50, num_edges=-1)
    assert len(caught.value.problems) == 2  # that 50 of no nodes train needs no sentence
    with pytest.raises(InputError, match="edges: expected at least 0"):
        Metadata(100, 50, num_edges=-1)


def test_sizes_without_data_leave_out_what_is_not_known() -> None:
    sizes = Metadata.from_sizes(1_000)
    assert (sizes.num_train, sizes.num_val, sizes.num_test) == (750, 100, 150)
    for what in ("features", "classes"):
        with pytest.raises(InputError, match=f"{what}: expected their number"):
            getattr(sizes, what)
    assert Metadata.from_sizes(1_000, num_features=7).features == 7
