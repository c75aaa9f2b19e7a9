"""Canaries for votes: right noise is consistent and most of epsilon is seen; half of the noise is contradicted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hushgraph.audit.result import AuditResult, Verdict
from hushgraph.audit.run import audit_plan
from hushgraph.mechanisms import laplace_votes
from hushgraph.mechanisms.confident_votes import ConfidentVotes
from hushgraph.mechanisms.label_votes import LabelVotes
from hushgraph.mechanisms.laplace_votes import LaplaceVotes
from hushgraph.mechanisms.votes import Ballot, Votes
from hushgraph.noise.discrete import discrete_laplace
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import NodeReplace, NodeWithEdges, Record, Unit
from hushgraph.training.learners import NeighborRidge

GAUSSIAN = [Votes(3, 4), ConfidentVotes(3, 4, checks=8, threshold=2.0)]
CANARIES = 1_000


def audited(ballot: Ballot, noise: NoiseSource | None = None, unit: Unit | None = None) -> AuditResult:
    sizes = Metadata(100, 100, num_features=256, num_classes=2)
    plan = Plan.make("toy", sizes, unit or Record(), Budget(4.0, 1e-3), [Stage("votes", ballot)])
    return audit_plan(plan, canaries=CANARIES, seed=0, noise=noise)


@pytest.mark.parametrize("ballot", GAUSSIAN, ids=lambda one: one.name)
def test_right_noise_is_consistent_and_most_of_epsilon_is_seen(ballot: Ballot) -> None:
    found = audited(ballot)
    assert found.verdict is Verdict.CONSISTENT
    assert found.lower_bound > 0.75 * found.claimed


@pytest.mark.parametrize("ballot", GAUSSIAN, ids=lambda one: one.name)
def test_half_the_noise_is_caught(ballot: Ballot, half_noise: Callable[[int], NoiseSource]) -> None:
    assert audited(ballot, half_noise(0)).verdict is Verdict.CONTRADICTED


def test_labels_and_their_leads_are_consistent() -> None:
    found = audited(LabelVotes(3, 4))
    assert found.verdict is Verdict.CONSISTENT
    assert found.lower_bound > 0.4 * found.claimed


def test_half_the_noise_on_labels_and_leads_is_caught(half_noise: Callable[[int], NoiseSource]) -> None:
    assert audited(LabelVotes(3, 4), half_noise(0)).verdict is Verdict.CONTRADICTED


@pytest.mark.parametrize("queries", [1, 16])
def test_laplace_votes_are_consistent(queries: int) -> None:
    found = audited(LaplaceVotes(3, queries))
    assert found.verdict is Verdict.CONSISTENT
    assert found.lower_bound > 0.7 * found.claimed


def test_half_of_laplace_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laplace_votes, "discrete_laplace", lambda scale, noise: discrete_laplace(scale // 2, noise))
    assert audited(LaplaceVotes(3, 40)).verdict is Verdict.CONTRADICTED


def test_teachers_on_graphs_are_audited_for_a_node_with_all_its_edges() -> None:
    found = audited(Votes(3, 4, NeighborRidge()), unit=NodeWithEdges())
    assert found.verdict is Verdict.CONSISTENT
    assert found.lower_bound > 0.75 * found.claimed


def test_a_replaced_record_moves_a_vote_too() -> None:
    found = audited(GAUSSIAN[1], unit=NodeReplace(max_degree=4))
    assert found.verdict is Verdict.CONSISTENT
    assert found.lower_bound > 0.5 * found.claimed
