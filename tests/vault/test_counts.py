"""The vault's count: charged before it leaves, within the plan, and the only thing known of the lists."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from hushgraph.data.checks import check_graph
from hushgraph.errors import BudgetError, InputError
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.run import Run, open_run
from hushgraph.mechanisms.pairs import count_pairs
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.count import CountStage
from hushgraph.privacy.pairs import PairStage
from hushgraph.privacy.plan import Plan, UnprotectedStage
from hushgraph.vault import Vault
from hushgraph.vault import counts as module
from small_graphs import hub_graph, random_graph

NODE = units.Node(max_degree=5)
STAGE = CountStage.within("count of edges", 0.5, NODE, 20)


def make_vault(unit: units.Unit, stage: CountStage, graph=None, ledger: Ledger | None = None) -> tuple[Vault, Run]:
    run = open_run(ledger or Ledger(), Plan("toy", unit, Budget(5.0, 1e-3), (stage,), unit), "toy", seeded=True)
    return Vault(check_graph(graph or hub_graph()), run, NoiseSource.seeded(1)), run


def test_the_charge_is_written_before_the_lists_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    vault, run = make_vault(NODE, STAGE)

    def crash(*_: object) -> int:
        assert [e.values["event"] for e in run.ledger.history().entries if e.kind == "charge"] == [
            {"type": "Pure", "epsilon": STAGE.epsilon(NODE)}
        ]
        raise RuntimeError("the power went")

    monkeypatch.setattr(module, "noisy_count", crash)
    with pytest.raises(RuntimeError, match="power"):
        vault.count_entries(STAGE)


def test_a_second_count_another_stage_and_a_count_over_the_limit_are_refused() -> None:
    vault, _ = make_vault(NODE, STAGE)
    vault.count_entries(STAGE)
    with pytest.raises(BudgetError, match="1 more are refused"):
        vault.count_entries(STAGE)
    louder = CountStage.within("count of edges", 1.0, NODE, 20)
    with pytest.raises(BudgetError, match="not the stage"):
        make_vault(NODE, STAGE)[0].count_entries(louder)
    ledger = Ledger()
    ledger.create("toy", NODE.as_dict())
    ledger.set_limit(0.4, 1e-3)
    with pytest.raises(BudgetError, match="Nothing was read"):
        make_vault(NODE, STAGE, ledger=ledger)


def test_lists_are_cut_at_the_stage_and_not_at_the_unit() -> None:
    graph = hub_graph(60)  # the hub names 60, each leaf the hub and two on the ring
    quiet = CountStage.within("count of edges", 4.9, NODE, 20)
    vault, _ = make_vault(NODE, quiet, graph)
    # noise of scale 5: beyond 70 with probability e^-14
    assert abs(vault.count_entries(quiet) - (20 + 60 * 3)) < 70


def test_seeded_counts_repeat_and_others_do_not() -> None:
    assert make_vault(NODE, STAGE)[0].count_entries(STAGE) == make_vault(NODE, STAGE)[0].count_entries(STAGE)
    wide = CountStage.within("count of edges", 1e-6, NODE, 20)
    found = set()
    for _ in range(2):
        run = open_run(Ledger(), Plan("toy", NODE, Budget(5.0, 1e-3), (wide,), NODE), "toy", seeded=False)
        found.add(Vault(check_graph(hub_graph()), run, NoiseSource.from_os()).count_entries(wide))
    assert len(found) == 2  # equal with probability below 1e-7


def test_without_protection_the_count_is_exact() -> None:
    plan = Plan("toy", NODE, Budget(math.inf, 1e-3), (UnprotectedStage("unprotected", 1, 0.0),), NODE)
    vault = Vault(check_graph(hub_graph(60)), open_run(Ledger(), plan, "toy", seeded=True), NoiseSource.seeded(0))
    assert vault.count_entries(STAGE) == 20 + 60 * 3


def test_a_promised_degree_must_hold_in_both_directions() -> None:
    graph = random_graph(0)
    leaves = torch.arange(1, 30)
    graph.edge_index = torch.stack([leaves, torch.zeros_like(leaves)])  # everybody names node 0, which names nobody
    unit = units.NodePromise(max_degree=5)
    stage = CountStage.within("count of edges", 0.5, unit, 20)
    vault, run = make_vault(unit, stage, graph)
    with pytest.raises(InputError, match="more than 5 others name"):
        vault.count_entries(stage)
    assert not run.ledger.history().of_run(run.identity, "charge")
    ring = dataclasses.replace(stage)
    graph.edge_index = torch.stack([leaves, leaves.roll(1)])
    assert isinstance(make_vault(unit, ring, graph)[0].count_entries(ring), int)


def test_the_vault_knows_no_number_of_edges_at_node_level() -> None:
    assert make_vault(NODE, STAGE)[0].facts.num_edges is None


PAIRS = PairStage.within("pairs", 0.5, NODE)


def pair_vault(ledger: Ledger | None = None) -> tuple[Vault, Run]:
    run = open_run(ledger or Ledger(), Plan("toy", NODE, Budget(5.0, 1e-3), (PAIRS,), NODE), "toy", seeded=True)
    return Vault(check_graph(random_graph(0)), run, NoiseSource.seeded(1)), run


def test_pairs_are_charged_before_they_are_counted_and_only_as_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    vault, run = pair_vault()
    found = vault.compare_pairs(PAIRS)
    assert found.blind == len(vault.nodes("train")) // 2
    assert found == pair_vault()[0].compare_pairs(PAIRS)  # seeded
    with pytest.raises(BudgetError, match="1 more are refused"):
        vault.compare_pairs(PAIRS)
    with pytest.raises(BudgetError, match="not the stage"):
        pair_vault()[0].compare_pairs(PairStage.within("pairs", 1.0, NODE))
    vault, run = pair_vault()

    def crash(*_: object) -> None:
        (charge,) = run.ledger.history().of_run(run.identity, "charge")
        assert charge.values["event"] == {"type": "Pure", "epsilon": PAIRS.epsilon(NODE)}
        raise RuntimeError("the power went")

    monkeypatch.setattr(module, "noisy_pairs", crash)
    with pytest.raises(RuntimeError, match="power"):
        vault.compare_pairs(PAIRS)


def test_without_protection_pairs_are_exact() -> None:
    plan = Plan("toy", NODE, Budget(math.inf, 1e-3), (UnprotectedStage("unprotected", 1, 0.0),), NODE)
    graph = check_graph(random_graph(0))
    vault = Vault(graph, open_run(Ledger(), plan, "toy", seeded=True), NoiseSource.seeded(0))
    exact = count_pairs(graph.edges, graph.labels, graph.train, NoiseSource.seeded(0).stream("pairs/pairs"))
    assert vault.compare_pairs(PAIRS) == exact
