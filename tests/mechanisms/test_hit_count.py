"""Right answers on validation nodes: the naive count, and nothing of raw neighborhoods."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from hushgraph.errors import UnprovenError
from hushgraph.graph.checks import check_graph
from hushgraph.ledger.run import CoveredCharges
from hushgraph.mechanisms.hit_count import HitCount
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.vault import Vault
from small_graphs import random_graph


def test_it_counts_hits_on_validation_nodes_alone() -> None:
    scores = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    labels = torch.tensor([0, 1, 0, -1, 1])
    view = SimpleNamespace(labels=labels, val=torch.tensor([1, 2, 3]))
    assert HitCount().query(view, scores) == 1
    value = HitCount().from_tensors(HitCount().to_tensors(-4))
    assert value == -4


def test_one_record_is_one_hit_and_more_has_no_bound() -> None:
    assert HitCount().sensitivity(units.Node()) == HitCount().sensitivity(units.NodeReplace()) == 1.0
    assert HitCount().reads <= units.UndirectedEdge().public


def test_scores_of_raw_neighborhoods_are_refused_before_they_are_charged() -> None:
    graph = check_graph(random_graph(0))
    plan = Plan.make("toy", graph.metadata, units.Node(), Budget(1.0, 1e-3), [Stage("score", HitCount())])
    charges = CoveredCharges()
    vault = Vault(graph, plan, charges, NoiseSource.seeded(0))  # type: ignore[arg-type]
    raw = vault._keep(torch.zeros(40, 3), "class scores from raw neighborhoods", raw=True, are_scores=True)
    with pytest.raises(UnprovenError, match="only be handed over"):
        vault.release("score", raw)
    assert not charges.made
    assert vault.hand_over(raw) is not None
