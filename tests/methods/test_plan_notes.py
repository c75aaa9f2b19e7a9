"""What a plan takes as public, in words."""

from __future__ import annotations

import hushgraph as hg
from hushgraph.privacy.metadata import EXAMPLE
from hushgraph.privacy.notes import Code, Note


def batches(method: hg.Method, unit: hg.Unit, epsilon: float = 4.0) -> list[str]:
    plan = method.plan(EXAMPLE, unit, hg.Budget(epsilon, 1e-5))
    return [str(note) for note in plan.public if note.code is Code.BATCHES]


def test_steps_and_rate_of_dp_sgd_are_part_of_the_certificate() -> None:
    plan = hg.DPMLP(batch_size=75, epochs=3).plan(EXAMPLE, hg.units.Node(), hg.Budget(4.0, 1e-5))
    drawn = next(stage.mechanism for stage in plan if stage.mechanism.sampling == "poisson")
    (said,) = [str(note) for note in plan.public if note.code is Code.BATCHES]
    assert f"{drawn.steps} steps at {drawn.sample_rate:.4g}" in said


def test_batches_are_facts_and_words_of_earlier_versions_are_still_said() -> None:
    plan = hg.DPMLP(batch_size=75, epochs=3).plan(EXAMPLE, hg.units.Node(), hg.Budget(4.0, 1e-5))
    (drawn,) = [stage for stage in plan if stage.mechanism.sampling == "poisson"]
    (fact,) = [note for note in plan.public if note.code is Code.BATCHES]
    values = drawn.mechanism.as_dict()
    assert fact.values == {"batches": [{"stage": drawn.name, "steps": values["steps"], "rate": values["sample_rate"]}]}
    assert Note.from_dict(fact.as_dict()) == fact
    assert "(a: 1 step at 0.25)" in str(Note(Code.BATCHES, {"batches": [{"stage": "a", "steps": 1, "rate": 0.25}]}))
    assert "(a: 3 steps at 0.25)" in str(Note(Code.BATCHES, {"batches": "a: 3 steps at 0.25"}))


def test_nothing_is_said_of_batches_that_cost_nothing() -> None:
    assert batches(hg.GAP(), hg.units.UndirectedEdge()) == []
    assert batches(hg.GAP(), hg.units.Node(max_degree=5), float("inf")) == []
    assert len(batches(hg.GAP(), hg.units.Node(max_degree=5))) == 1
