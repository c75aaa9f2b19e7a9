from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from charges import charged_stages
from hushgraph.errors import InputError, UnprovenError
from hushgraph.ledger.ledger import Ledger
from hushgraph.methods.model import load
from hushgraph.methods.quorum import CLASSIFIER, VOTES, Quorum
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code
from small_graphs import random_graph

WHOLE = units.NodeWithEdges()
SIZES = Metadata.from_sizes(20_000, 1_000_000)
QUICK = Quorum(epochs=2, batch_size=8)
BUDGET = Budget(4.0, 1e-3)


def friends(nodes: int = 1200) -> Data:
    """Three groups whose members know each other; features that tell nothing; node 0 knows everybody."""
    made = torch.Generator().manual_seed(0)
    group = torch.arange(nodes) % 3
    pairs = torch.randint(0, nodes, (2, 60 * nodes), generator=made)
    pairs = pairs[:, (group[pairs[0]] == group[pairs[1]]) & (pairs[0] != pairs[1])]
    hub = torch.stack([torch.zeros(nodes - 1, dtype=torch.int64), torch.arange(1, nodes)])
    pairs = torch.cat([pairs, hub], dim=1)
    split = torch.rand(nodes, generator=made)
    return Data(
        x=torch.randn(nodes, 4, generator=made),
        y=group,
        edge_index=torch.unique(torch.cat([pairs, pairs.flip(0)], dim=1), dim=1),
        train_mask=split < 0.6,
        val_mask=(split >= 0.6) & (split < 0.7),
        test_mask=split >= 0.7,
        num_classes=3,
    )


def test_the_plan_is_one_sum_and_one_training() -> None:
    plan = Quorum().plan(SIZES, WHOLE, Budget(4.0, 1e-5))
    assert [(stage.name, stage.count) for stage in plan] == [(VOTES, 1), (CLASSIFIER, 1)]
    assert 3.99 < plan.epsilon <= 4.0
    assert Code.BALANCED in {note.code for note in plan.public}


@pytest.mark.parametrize("unit", [units.Node(), units.BoundedDegreeNode()], ids=str)
def test_the_noise_is_the_same_whatever_is_promised_or_cut(unit: units.Unit) -> None:
    whole, other = (Quorum().plan(SIZES, one, Budget(4.0, 1e-5)) for one in (WHOLE, unit))
    assert whole[VOTES].scale == pytest.approx(other[VOTES].scale)
    assert Code.DEGREE_CAP not in {note.code for note in other.public}


def test_units_without_proof_are_refused() -> None:
    for unit in (units.UndirectedEdge(), units.Record()):
        with pytest.raises((UnprovenError, InputError), match=unit.name):
            Quorum().plan(SIZES, unit, Budget(4.0, 1e-7))


def test_votes_are_heard_where_features_tell_nothing() -> None:
    model = Quorum(vote_noise=0.1).fit(friends(), WHOLE, Budget(8.0, 1e-5), seed=0)
    assert model.metrics["accuracy"]["test"] > 80.0
    deaf = Quorum(strength=0).fit(friends(), WHOLE, Budget(8.0, 1e-5), seed=0)
    assert deaf.metrics["accuracy"]["test"] < 45.0


def test_charges_come_once_and_rows_stay_in_the_vault(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    model = QUICK.fit(random_graph(1), WHOLE, BUDGET, ledger=ledger)
    assert sorted(charged_stages(ledger)) == [CLASSIFIER, VOTES]
    assert model.released == {}
    with pytest.raises(InputError, match="predict_on"):
        model.predict(random_graph(1))
    assert model.predict_on(random_graph(2), BUDGET).metrics["accuracy"]["test"] >= 0.0


def test_a_saved_model_of_an_owned_record_predicts_as_it_did(tmp_path: Path) -> None:
    graph = random_graph(1)
    model = QUICK.fit(graph, units.Node(max_degree=5), BUDGET)
    model.save(tmp_path / "model")
    assert torch.equal(load(tmp_path / "model").predict(graph), model.predict(graph))


def test_without_protection_it_still_runs() -> None:
    model = Quorum(epochs=2).fit(friends(300), WHOLE, Budget(math.inf))
    assert model.metrics["accuracy"]["test"] > 80.0
