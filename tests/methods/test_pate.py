"""PATE end to end on small pictures and graphs: budget, certificate, saving, and every student."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import hushgraph as hg
from hushgraph.errors import BudgetError, InputError, UnprovenError
from hushgraph.methods.model import Model
from hushgraph.methods.pate import PATE
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code
from hushgraph.training.learners import Part, TorchLearner, learner
from hushgraph.training.students import GRAPH_STUDENTS, STUDENTS

BUDGET = hg.Budget(8.0, 1e-4)
SMALL: dict[str, Any] = {"teachers": 20, "queries": 40, "epochs": 2, "width": 2, "batch_size": 20}


def pictures(count: int = 400) -> Data:
    """Bright bars at one of three places, 8 x 8."""
    made = torch.Generator().manual_seed(0)
    y = torch.randint(0, 3, (count,), generator=made)
    x = 0.3 * torch.rand(count, 8, 8, generator=made)
    for place in range(3):
        x[y == place, :, 2 * place + 1] += 0.7
    part = torch.arange(count)
    return Data(
        x=x.flatten(1),
        y=y,
        edge_index=torch.empty((2, 0), dtype=torch.int64),
        train_mask=part < 240,
        test_mask=part >= 340,
        public_mask=(part >= 240) & (part < 340),
        num_classes=3,
        name="bars",
    )


def social(count: int = 300) -> Data:
    made = torch.Generator().manual_seed(1)
    y = torch.arange(count) % 2
    edges = torch.randint(0, count, (2, 4 * count), generator=made)
    edges = edges[:, (y[edges[0]] == y[edges[1]]) & (edges[0] != edges[1])]
    part = torch.randperm(count, generator=made)
    return Data(
        x=torch.randn(count, 4, generator=made) + y.unsqueeze(1),
        y=y,
        edge_index=torch.unique(torch.cat([edges, edges.flip(0)], dim=1), dim=1),
        train_mask=part < 160,
        test_mask=part >= 220,
        public_mask=(part >= 160) & (part < 220),
        num_classes=2,
        name="two sides",
    )


@pytest.mark.parametrize("student", [name for name in STUDENTS if name not in GRAPH_STUDENTS])
def test_every_student_learns_within_the_budget_and_is_read_back(student: str, tmp_path: Path) -> None:
    data = pictures()
    model = PATE(**SMALL, student=student).fit(data, hg.units.Record(), BUDGET, seed=0, ledger=hg.Ledger())
    assert model.certificate.epsilon <= 8.0
    assert model.released["votes"][0].counts.shape == (40, 3)
    again = Model.load(model.save(tmp_path / "model"))
    assert torch.equal(again.predict(data), model.predict(data))
    if student == "kernel":
        assert model.metrics["accuracy"]["test"] > 80.0


@pytest.mark.parametrize(
    "settings",
    [
        {"threshold": 8.0, "checks": 90},
        {"noise": "laplace"},
        {"ask": "centers"},
        {"use_counts": True},
        {"learner": "cnn"},
        {"student": "pate++", "look": "pixels"},
    ],
    ids=str,
)
def test_ways_to_ask(settings: dict[str, Any]) -> None:
    model = PATE(**{**SMALL, **settings}).fit(pictures(), hg.units.Record(), BUDGET, seed=0, ledger=hg.Ledger())
    assert model.certificate.epsilon <= 8.0
    assert model.released["votes"][0].counts.shape[0] <= 40


@pytest.mark.parametrize(("learner", "student"), [("gnn", "gnn"), ("neighbors", "neighbors"), ("gnn", "neighbors")])
def test_the_unit_on_graphs_is_a_node_with_all_its_edges(learner: str, student: str) -> None:
    method = PATE(**SMALL, learner=learner, student=student, lr=0.01)
    model = method.fit(social(), None, BUDGET, seed=0, ledger=hg.Ledger())
    assert model.unit == hg.units.NodeWithEdges()
    assert "raw records" in str(model)
    assert "60 records" in str(model)
    assert model.predict(social()).shape == (300,)


@pytest.mark.parametrize(("queries", "asked", "counts"), [(40, None, False), (4000, None, True), (40, True, True)])
def test_students_learn_from_counts_where_the_planned_noise_dominates(
    queries: int, asked: bool | None, counts: bool
) -> None:
    method = PATE(teachers=100, queries=queries, use_counts=asked)
    sizes = Metadata(9_000, 4_000, num_features=64, num_classes=3, num_public=5_000)
    assert method.learns_counts(method.plan(sizes, hg.units.Record(), BUDGET)) is counts


@pytest.mark.parametrize(("noise", "spread"), [("gaussian", 1.0), ("laplace", 2.0**0.5)])
def test_students_are_told_the_noise_of_the_plan(noise: str, spread: float) -> None:
    method = PATE(teachers=100, queries=40, noise=noise)
    sizes = Metadata(9_000, 4_000, num_features=64, num_classes=3, num_public=5_000)
    plan = method.plan(sizes, hg.units.Record(), BUDGET)
    lesson = method.lesson(plan, Part(torch.zeros(40, 64)), torch.arange(40), torch.zeros(40, 3, dtype=torch.int64))
    assert lesson.noise == pytest.approx(spread * (plan["votes"].scale or 0.0))
    assert lesson.noise > 0.0


def test_what_does_not_go_together_is_said() -> None:
    with pytest.raises(InputError) as caught:
        PATE(learner="oracle", threshold=3.0, noise="laplace")
    assert "learner: got 'oracle'" in str(caught.value)
    assert "threshold: expected none with Laplace noise" in str(caught.value)
    with pytest.raises(InputError, match="student: expected 'gnn' or 'neighbors' with a learner that reads edges"):
        PATE(learner="neighbors")
    data = pictures()
    del data.public_mask
    with pytest.raises(InputError, match="public_mask"):
        PATE(**SMALL).fit(data, hg.units.Record(), BUDGET, seed=0, ledger=hg.Ledger())
    with pytest.raises(UnprovenError):
        PATE(learner="gnn", student="gnn").fit(social(), hg.units.Record(), BUDGET, ledger=hg.Ledger())


@learner
@dataclass(frozen=True)
class OneLayer(TorchLearner):
    """A teacher as a user would write one; batch norm is fine within a part."""

    epochs: int = 3
    name = "one-layer"

    def module(self, columns: int, classes: int) -> torch.nn.Module:
        """Not row-wise."""
        return torch.nn.Sequential(torch.nn.BatchNorm1d(columns), torch.nn.Linear(columns, classes))


def test_teachers_can_be_modules_of_ones_own(tmp_path: Path) -> None:
    model = PATE(learner="one-layer", **SMALL).fit(pictures(), hg.units.Record(), BUDGET, ledger=tmp_path / "ledger")
    usual = PATE(learner="ridge", **SMALL).fit(pictures(), hg.units.Record(), BUDGET, ledger=tmp_path / "other")
    assert model.certificate.epsilon == usual.certificate.epsilon
    again = hg.load(model.save(tmp_path / "model"))
    assert torch.equal(again.predict(pictures()), model.predict(pictures()))


def test_an_epsilon_for_the_votes_at_hand_stands_beside_the_one_that_is_charged(tmp_path: Path) -> None:
    method = PATE(**{**SMALL, "teachers": 200, "queries": 20}, data_dependent=True)
    model = method.fit(pictures(1_000), hg.units.Record(), BUDGET, seed=0, ledger=hg.Ledger())
    assert model.reason is not None
    assert model.reason.code is Code.AT_HAND
    assert model.reason.values["epsilon"] <= model.reason.values["charged"]
    assert model.reason.values["charged"] >= model.certificate.epsilon
    assert model.released["votes"][0].counts.sum(dim=1).tolist() == [1] * 20
    assert "at hand" in model.explain()
    assert "choice" not in model.explain()
    again = Model.load(model.save(tmp_path / "model"))
    assert again.reason == model.reason
    assert torch.equal(again.predict(pictures(1_000)), model.predict(pictures(1_000)))


def test_without_protection_there_is_no_epsilon_at_hand() -> None:
    model = PATE(**SMALL, data_dependent=True).fit(pictures(), hg.units.Record(), hg.Budget(math.inf), seed=0)
    assert model.reason is None


@pytest.mark.parametrize("other", [{"threshold": 10.0}, {"noise": "laplace"}, {"use_counts": True}], ids=str)
def test_what_is_about_labels_alone_is_refused_with_anything_else(other: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="data_dependent: expected Gaussian noise"):
        PATE(**SMALL, data_dependent=True, **other)


def test_labels_with_their_leads_are_charged_once_and_a_limit_refuses_more() -> None:
    ledger, method = hg.Ledger(), PATE(**SMALL, data_dependent=True)
    model = method.fit(pictures(), hg.units.Record(), BUDGET, seed=0, ledger=ledger)
    ledger.set_limit(9.0, 1e-3)
    [charge] = model.certificate.charges
    assert (charge.mechanism, charge.count) == ("label-votes", 1)
    assert charge.sensitivity == pytest.approx(math.sqrt(2 * 40 / 0.9))
    with pytest.raises(BudgetError):
        method.fit(pictures(), hg.units.Record(), BUDGET, seed=1, ledger=ledger)
