"""What a fit will take: grows as the graph does, and is told before anything is read."""

from __future__ import annotations

import pytest

from commands import flat, run, run_json
from hushgraph.methods.auto import Auto
from hushgraph.methods.chorus import Chorus
from hushgraph.methods.expected import expected
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
