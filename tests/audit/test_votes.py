"""Canaries for votes: right noise is consistent, half of it is contradicted."""

from __future__ import annotations

from collections.abc import Callable

from hushgraph.audit.result import Verdict
from hushgraph.audit.run import audit_plan
from hushgraph.mechanisms.votes import Votes
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.privacy.units import Record


def _plan() -> Plan:
    sizes = Metadata(100, 100, num_features=256, num_classes=2)
    return Plan.make("toy", sizes, Record(), Budget(4.0, 1e-3), [Stage("votes", Votes(3, 4))])


def test_right_noise_is_consistent() -> None:
    found = audit_plan(_plan(), canaries=400, seed=0)
    assert found.verdict is Verdict.CONSISTENT
    assert found.lower_bound > 0.3 * found.claimed


def test_half_the_noise_is_caught(half_noise: Callable[[int], NoiseSource]) -> None:
    assert audit_plan(_plan(), canaries=400, seed=0, noise=half_noise(0)).verdict is Verdict.CONTRADICTED
