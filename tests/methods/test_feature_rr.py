from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from hushgraph import local
from hushgraph.errors import InputError, UnprovenError
from hushgraph.mechanisms.local_report import LocalReport
from hushgraph.methods.feature_rr import MECHANISMS, FeatureRR
from hushgraph.methods.model import load
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from small_graphs import random_graph

SIZES = Metadata(2708, 140, 500, 1000, 4, 7)
LOCAL = units.Local(private_labels=False)
RANGE: dict[str, Any] = {"low": -1.0, "high": 1.0}


@pytest.fixture
def graph() -> Data:
    return random_graph(0)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 4.0])
def test_the_price_is_the_budget_and_is_realized(epsilon: float) -> None:
    method = FeatureRR(**RANGE, importance=(4.0, 3.0, 2.0, 1.0), sensitivity=(0.0, 1.0, 1.0, 2.0), bins=5)
    plan = method.plan(SIZES, LOCAL, Budget(epsilon))
    mechanism = plan["features"].mechanism
    assert isinstance(mechanism, LocalReport)
    assert plan.epsilon == pytest.approx(epsilon, rel=1e-12)
    assert plan.epsilon <= epsilon
    assert mechanism.randomizer == local.FeatureRR(plan.epsilon, method.scores(4), 5)
    realized = mechanism.realized(LOCAL, 1.0)
    assert realized is not None
    assert epsilon - 4e-9 < realized <= epsilon


def test_scores_weigh_importance_against_sensitivity() -> None:
    important, betraying = (1.0, 0.0), (1.0, 0.0)
    only_importance = FeatureRR(**RANGE, importance=important, sensitivity=betraying, gamma=1.0)
    only_sensitivity = FeatureRR(**RANGE, importance=important, sensitivity=betraying, gamma=0.0)
    assert only_importance.scores(2) == (1.0, 0.0)
    assert only_sensitivity.scores(2) == (0.0, 1.0)
    assert FeatureRR(**RANGE).scores(4) == (0.25,) * 4


def test_what_does_not_fit_is_refused(graph: Data) -> None:
    with pytest.raises(InputError, match="private_labels"):
        FeatureRR(**RANGE).plan(SIZES, units.Local(), Budget(1.0))
    with pytest.raises(UnprovenError, match="local"):
        FeatureRR(**RANGE).plan(SIZES, units.UndirectedEdge(), Budget(1.0))
    with pytest.raises(InputError, match="public range"):
        FeatureRR().fit(graph, LOCAL, Budget(1.0))
    with pytest.raises(InputError, match=r"(?s)importance: expected one number for each of the 4.*sensitivity"):
        FeatureRR(**RANGE, importance=(1.0,), sensitivity=(1.0, 2.0)).plan(SIZES, LOCAL, Budget(1.0))
    with pytest.raises(InputError, match=r"(?s)gamma.*bins"):
        FeatureRR(**RANGE, gamma=1.5, bins=1)


def test_it_learns_saves_and_predicts_the_same(graph: Data, tmp_path: Path) -> None:
    columns = graph.num_node_features
    method = FeatureRR(**RANGE, importance=tuple(range(1, columns + 1)), hidden_channels=8, epochs=20)
    model = method.fit(graph, LOCAL, Budget(4.0), seed=0)
    model.save(tmp_path / "run")
    again = load(tmp_path / "run")
    assert again.method == method
    assert torch.equal(again.predict(), model.predict())
    assert again.certificate.epsilon == pytest.approx(4.0)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_local_randomizer_takes_its_place_and_can_be_clipped(graph: Data, mechanism: str) -> None:
    method = FeatureRR(**RANGE, mechanism=mechanism, clip=True, hidden_channels=4, epochs=2)
    model = method.fit(graph, LOCAL, Budget(1.0), seed=0)
    assert model.certificate.epsilon <= 1.0
    assert model.predict().shape[0] == graph.num_nodes


def test_without_protection_the_features_are_as_they_are(graph: Data) -> None:
    model = FeatureRR(**RANGE, hidden_channels=4, epochs=2).fit(graph, LOCAL, Budget(math.inf), seed=0)
    assert math.isinf(model.certificate.epsilon)


def test_numbers_of_the_command_line() -> None:
    assert FeatureRR.from_words({"importance": "1,2,0.5", "low": "-1,0,0", "high": "1"}) == {
        "importance": (1.0, 2.0, 0.5),
        "low": (-1.0, 0.0, 0.0),
        "high": 1.0,
    }
