"""What a fit will take: grows as the graph does, and is told before anything is read."""

from __future__ import annotations

import pytest

from commands import flat, run, run_json
from hushgraph.methods.auto import Auto
from hushgraph.methods.base import Method
from hushgraph.methods.chorus import Chorus
from hushgraph.methods.expected import expected
from hushgraph.methods.gap import GAP
from hushgraph.methods.progap import ProGAP
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.units import Node, UndirectedEdge, Unit


@pytest.mark.parametrize("unit", [UndirectedEdge(), Node(50)])
def test_ten_times_the_graph_takes_about_ten_times_as_much(unit: Unit) -> None:
    found = [
        expected(Chorus().plan(Metadata.from_sizes(nodes, 50 * nodes, None, 16, 8), unit, Budget(1.0)))
        for nodes in (20_000_000, 200_000_000)
    ]
    for name in ("fit_seconds", "import_seconds", "bytes_on_disk", "bytes_in_memory"):
        assert 7.0 < getattr(found[1], name) / getattr(found[0], name) < 11.0, name
    assert found[0].bytes_on_disk < found[0].bytes_in_memory


def test_edges_that_were_not_declared_are_assumed() -> None:
    plan = Chorus().plan(Metadata.from_sizes(1_000), UndirectedEdge(), Budget(1.0))
    assert (expected(plan).entries, expected(plan).entries_assumed) == (20_000, True)


def test_a_plan_that_chooses_is_as_costly_as_its_costliest_branch() -> None:
    metadata = Metadata.from_sizes(1_000_000, 10_000_000, None, 16, 8)
    plan = Auto().plan(metadata, Node(50), Budget(1.0))
    assert plan.branches
    assert expected(plan).fit_seconds >= max(expected(branch).fit_seconds for branch in plan.branches)


def test_the_command_says_so() -> None:
    words = ["plan", "chorus", "--unit", "undirected-edge", "--nodes", 20_000_000, "--edges", 1_000_000_000]
    words += ["--features", 16, "--classes", 8, "--epsilon", 1]
    assert "for 1,000,000,000 directed edges, 16 features and 8 classes: importing" in flat(run(*words))
    shown = run_json(*words)["expected"]
    assert shown["entries"] == 1_000_000_000
    assert 4 << 30 < shown["bytes_on_disk"] < 9 << 30


@pytest.mark.parametrize(
    ("method", "unit", "nodes", "edges", "seconds", "on_disk", "in_memory"),
    [
        (Chorus(), UndirectedEdge(), 600_000, 30_000_000, 19.2, 0.87, 0.97),
        (Chorus(), Node(), 600_000, 30_000_000, 8.1, 0.71, 0.88),
        (GAP(), UndirectedEdge(), 600_000, 30_000_000, 13.7, 1.21, 1.32),
        (GAP(), Node(), 600_000, 30_000_000, 17.7, 1.22, 1.78),
        (ProGAP(), UndirectedEdge(), 600_000, 30_000_000, 15.6, 1.08, 1.21),
        (ProGAP(), Node(), 600_000, 30_000_000, 19.0, 1.10, 1.78),
        (Auto(), UndirectedEdge(), 600_000, 30_000_000, 26.9, 1.33, 1.58),
        (Auto(), Node(), 600_000, 30_000_000, 14.1, 1.09, 1.71),
        (Auto(), UndirectedEdge(), 200_000, 10_000_000, 19.1, 1.03, 1.15),
        (Chorus(), UndirectedEdge(), 2_000_000, 20_000_000, 23.0, 1.04, None),
        (GAP(), UndirectedEdge(), 2_000_000, 20_000_000, 18.6, 2.29, None),
        (GAP(), Node(), 2_000_000, 20_000_000, 48.5, 2.59, None),
        (ProGAP(), Node(), 2_000_000, 20_000_000, 44.8, 2.13, None),
        (Auto(), UndirectedEdge(), 2_000_000, 20_000_000, 52.2, 2.14, None),
        (Auto(), Node(), 2_000_000, 20_000_000, 28.4, 1.07, None),
    ],
)
def test_what_was_measured_is_within_a_factor_of_two(
    method: Method, unit: Unit, nodes: int, edges: int, seconds: float, on_disk: float, in_memory: float | None
) -> None:
    """Seconds of the processor and GiB, of 6 features and 5 classes, 60% of the nodes for training, at epsilon 1."""
    found = expected(method.plan(Metadata.from_sizes(nodes, edges, nodes * 6 // 10, 6, 5), unit, Budget(1.0)))
    assert 0.5 < seconds / found.fit_seconds < 2.0
    assert 0.5 < on_disk * 2**30 / found.bytes_on_disk < 2.0
    assert in_memory is None or 0.5 < in_memory * 2**30 / found.bytes_in_memory < 2.0


def test_codes_take_longer_with_many_classes() -> None:
    plan = Auto().plan(Metadata.from_sizes(2_000_000, 20_000_000, 1_200_000, 6, 15), UndirectedEdge(), Budget(1.0))
    assert 0.5 < 192.0 / expected(plan).fit_seconds < 2.0
    assert 0.5 < 4.66 * 2**30 / expected(plan).bytes_on_disk < 2.0
