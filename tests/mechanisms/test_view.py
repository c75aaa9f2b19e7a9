from __future__ import annotations

import pytest
import torch

from hushgraph.errors import PrivateAccessError
from hushgraph.graph.checks import check_graph
from hushgraph.mechanisms.view import View
from hushgraph.noise.source import NoiseSource
from small_graphs import hub_graph, random_graph

PARTS = {"edges": ("edges", "whole_lists"), "features": ("features",), "labels": ("labels",)}


def view(reads: set[str], cap: int | None = None, seed: int = 0, graph=None) -> View:
    checked = check_graph(graph or random_graph(0))
    return View(checked, frozenset(reads), cap, NoiseSource.seeded(seed), "stage")


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_was_not_declared_is_not_there(part: str) -> None:
    everything_else = view(set(PARTS) - {part})
    for name in PARTS[part]:
        with pytest.raises(PrivateAccessError, match=f"reads {part} without declaring it"):
            getattr(everything_else, name)
        assert getattr(view({part}), name) is not None


def test_public_parts_are_always_there() -> None:
    graph, seen = check_graph(random_graph(0)), view(set())
    assert seen.metadata == graph.metadata
    assert torch.equal(seen.train, graph.train)
    assert torch.equal(seen.val, graph.val)
    assert torch.equal(seen.trains_on.nonzero().squeeze(1), graph.train)


def test_lists_are_cut_to_the_unit_s_cap_or_a_smaller_one_and_kept_whole_beside() -> None:
    hub = hub_graph(60)
    assert int(view({"edges"}, 3, graph=hub).edges.out_degree().max()) == 3
    assert int(view({"edges"}, 3, graph=hub).capped(2).out_degree().max()) == 2
    assert int(view({"edges"}, 3, graph=hub).capped(9).out_degree().max()) == 3
    assert int(view({"edges"}, None, graph=hub).edges.out_degree().max()) == 60
    assert int(view({"edges"}, 3, graph=hub).whole_lists.out_degree().max()) == 60


def test_all_stages_of_a_run_cut_lists_in_the_same_way() -> None:
    """Another cut would let one list reach more receivers than the cap."""
    hub, checked = hub_graph(60), check_graph(hub_graph(60))
    noise = NoiseSource.seeded(7)
    first, second = (View(checked, frozenset({"edges"}), 3, noise, name).edges.edge_index() for name in "ab")
    assert torch.equal(first, second)
    assert not torch.equal(first, view({"edges"}, 3, seed=8, graph=hub).edges.edge_index())


def test_generators_differ_by_purpose() -> None:
    draws = [torch.rand(3, generator=view(set()).generator(purpose)).tolist() for purpose in ("a", "a", "b")]
    assert draws[0] == draws[1] != draws[2]
