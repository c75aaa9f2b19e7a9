"""Known failures of local randomizers: P18, P19, P23, P37."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hushgraph import local
from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.local import OneBit, PerFeature, SampledReport, realized_epsilon
from hushgraph.mechanisms.local_report import LocalReport
from hushgraph.methods.base import Method
from hushgraph.methods.lpgnn import LPGNN
from hushgraph.methods.pgc import PGC
from hushgraph.methods.running import open_vault
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.loss import PrivacyLoss
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan
from hushgraph.privacy.units import Local
from known_failures.common import STAGE, proven_methods, stage_vault
from small_graphs import random_graph

COLUMNS = 3
SIZES = Metadata(1_000, 500, 200, 300, COLUMNS, 4)

# P18: a report costs the sum over all it says


class OncePerPerson(PerFeature):
    """Spends epsilon on every feature and states it once."""

    @property
    def epsilon(self) -> float:
        return self.mechanism.epsilon


def states_its_total(randomizer: Any) -> bool:
    """Whether the law of whole reports, enumerated over all reports, keeps to the stated epsilon."""
    return realized_epsilon(randomizer) <= randomizer.epsilon * (1.0 + 1e-9)


@pytest.mark.parametrize("sampled", [None, COLUMNS])
@pytest.mark.parametrize("name", local.FEATURES)
def test_p18_a_report_about_several_features_costs_their_sum(name: str, sampled: int | None) -> None:
    if name in ("piecewise", "suboptimal", "hybrid", "laplace"):  # too many reports to list: one feature at a time
        assert states_its_total(local.scalar(name, 1.0))
        vector = local.feature_randomizer(name, 3.0, COLUMNS, sampled=sampled)
        assert vector.epsilon == pytest.approx(vector.parts * vector.one_part.epsilon)
        assert vector.epsilon <= 3.0
        return
    assert states_its_total(local.feature_randomizer(name, 2.0, COLUMNS, sampled=sampled))
    assert not states_its_total(OncePerPerson(local.scalar("one-bit", 2.0), COLUMNS))


LOCAL_METHODS = [
    (method, unit) for method, unit in proven_methods(check_graph(random_graph(0))) if unit.trust == "local"
]


def plan_states_its_total(plan: Plan) -> bool:
    """Whether a plan costs at least what its reports really say about a person, taken together."""
    reports = [stage.mechanism for stage in plan if not stage.is_free(plan.unit)]
    real = sum(realized_epsilon(one.randomizer) for one in reports if isinstance(one, LocalReport))
    return plan.epsilon >= real * (1.0 - 1e-9) > 0.0


class Understated(PGC):
    """PGC with the epsilon of one feature for all of them."""

    def stages(self, metadata: Metadata, unit: Any, budget: Budget) -> Any:
        return [self.report("features", OncePerPerson(OneBit(budget.epsilon), metadata.features))]


@pytest.mark.parametrize(("method", "unit"), LOCAL_METHODS, ids=lambda one: getattr(one, "name", str(one)))
def test_p18_plans_of_local_methods_cost_what_their_reports_say(method: Method, unit: Local) -> None:
    assert plan_states_its_total(method.plan(SIZES, unit, Budget(3.0, 1e-6)))
    broken = Understated(low=0.0, high=1.0)
    assert not plan_states_its_total(broken.plan(SIZES, Local(private_labels=False), Budget(3.0, 1e-6)))


# P19: ranges and classes are public


def reports(mechanism: LocalReport, graph: CheckedGraph) -> np.ndarray:
    vault = stage_vault(graph, mechanism, Local())
    value = vault.release(STAGE)
    return np.concatenate([value.index, value.value], axis=1) if isinstance(value, SampledReport) else np.asarray(value)


def is_local(mechanism: LocalReport) -> bool:
    """Whether nobody's report changes with somebody else's value, all random draws being equal."""
    graph = check_graph(random_graph(4, num_nodes=60))
    features = torch.as_tensor(graph.features).clone()
    features[7] = 1e4
    before, after = reports(mechanism, graph), reports(mechanism, replace(graph, features=features))
    others = np.arange(60) != 7
    return bool(np.array_equal(before[others], after[others]))


@pytest.mark.parametrize("name", ["multi-bit", "one-bit", "duchi", "piecewise"])
def test_p19_nobodys_report_depends_on_other_peoples_values(name: str) -> None:
    mechanism = LocalReport(local.feature_randomizer(name, 5.0, 5, sampled=5), low=-4.0, high=4.0)
    assert is_local(mechanism)
    from_data = replace(mechanism, range_from_data=True)
    assert not is_local(from_data)
    assert PrivacyLoss(from_data.event(Local(), 1.0), Local.relation).epsilon(1e-6) == math.inf


@pytest.mark.parametrize("method", [LPGNN(), PGC()], ids=lambda one: one.name)
def test_p19_without_a_public_range_nothing_is_collected(method: Method) -> None:
    with pytest.raises(InputError, match="public range"):
        method.fit(random_graph(0), None, Budget(4.0, 1e-3))
    paper = method.plan(SIZES, method.default_unit(check_graph(random_graph(0))), Budget(4.0, 1e-6), paper_mode=True)
    assert paper.epsilon == math.inf


def test_p19_classes_are_declared_and_not_read_off_private_labels() -> None:
    graph = random_graph(0)
    del graph.class_names
    with pytest.raises(InputError, match="classes"):
        LPGNN(low=-4.0, high=4.0, epochs=1).fit(graph, Local(), Budget(4.0, 1e-3))


# P23: which bits are flipped how often must not depend on the bits


class BitFlips:
    """Randomized response on bits; `shares` gives each bit its part of epsilon, in view of the record or not."""

    epsilon = 2.0

    def __init__(self, shares: Callable[[Sequence[int]], np.ndarray]) -> None:
        self.shares = shares

    def inputs(self) -> list[tuple[int, ...]]:
        return list(itertools.product((0, 1), repeat=3))

    def law(self, bits: Sequence[int]) -> tuple[list[tuple[int, ...]], np.ndarray]:
        keep = 1.0 / (1.0 + np.exp(-self.epsilon * self.shares(bits)))
        outputs = self.inputs()
        same = np.array(outputs) == np.array(bits)
        return outputs, np.where(same, keep, 1.0 - keep).prod(axis=1)


def public_scores(bits: Sequence[int]) -> np.ndarray:
    """Importance known beforehand, a part of epsilon for each bit."""
    return np.array([0.6, 0.3, 0.1])


def scores_of_the_record(bits: Sequence[int]) -> np.ndarray:
    """Importance worked out from the record that is protected."""
    weight = 0.2 + np.array(bits, dtype=float)
    return weight / weight.sum()


def all_of_it_for_each(bits: Sequence[int]) -> np.ndarray:
    """The whole epsilon for every bit."""
    return np.ones(3)


def test_p23_importance_of_features_is_public() -> None:
    """Guards randomized features by importance when they are built."""
    assert states_its_total(BitFlips(public_scores))
    assert not states_its_total(BitFlips(scores_of_the_record))
    assert not states_its_total(BitFlips(all_of_it_for_each))


# P37: validation is held out


def first_step(rule: str, val_label: int) -> Tensor:
    """The network after one step of training, when all validation nodes have one label."""
    graph = random_graph(5, num_nodes=80, num_edges=200)
    graph.y = torch.where(graph.val_mask, torch.full_like(graph.y, val_label), graph.y)
    checked = check_graph(graph)
    method = LPGNN(low=-4.0, high=4.0, rule=rule, epochs=2, label_steps=4, dropout=0.0)
    plan = method.plan(checked.metadata, Local(), Budget(8.0, 1e-3))
    network = method.network(plan, torch.Generator().manual_seed(0))
    seen: list[Tensor] = []

    def watch(stage: str, done: int, total: int) -> None:
        if stage == "training" and not seen:
            seen.append(nn.utils.parameters_to_vector(network.parameters()).detach().clone())

    vault, _ = open_vault(checked, plan, None, 3, watch)
    method.run(vault, network, train=True)
    return seen[0]


def holds_out_validation(rule: str) -> bool:
    """Whether what is judged on validation reports was trained without them."""
    return torch.equal(first_step(rule, 0), first_step(rule, 1))


def test_p37_the_default_rule_chooses_on_reports_that_it_was_not_trained_on() -> None:
    """The rule `drop` follows its publication, in which validation reports enter the targets."""
    assert LPGNN().rule == "votes"
    for rule in ("votes", "forward", "cross-entropy"):
        assert holds_out_validation(rule), rule
    assert not holds_out_validation("drop")
