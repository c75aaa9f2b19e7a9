from __future__ import annotations

import math
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from hushgraph.data.checks import check_graph
from hushgraph.errors import BudgetError, InputError, PrivateAccessError, UnprovenError
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.run import Run, open_run
from hushgraph.nn import MLP, Linear
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.plan import AggregationStage, GradientStage, Plan, Stage, UnprotectedStage
from hushgraph.vault import PrivateRows, Recipe, Vault
from small_graphs import hub_graph, random_graph

EDGE, NODE = units.UndirectedEdge(), units.Node(max_degree=5)
AGGREGATION = AggregationStage("aggregation", 2, 100.0)
GRADIENT = GradientStage("training", 4, 5.0, 1.0, 0.5)
BUDGET = Budget(50.0, 1e-3)


def make_vault(
    unit: units.Unit, stages: tuple[Stage, ...], ledger: Ledger | None = None, budget: Budget = BUDGET, graph=None
) -> tuple[Vault, Run]:
    plan = Plan("toy", unit, budget, stages, unit)
    run = open_run(ledger or Ledger(), plan, "toy", seeded=True)
    return Vault(check_graph(graph or random_graph(0)), run, NoiseSource.seeded(1)), run


def test_edge_units_hand_out_features_and_labels_and_never_edges() -> None:
    vault, _ = make_vault(EDGE, (AGGREGATION,))
    assert isinstance(vault.features, torch.Tensor)
    assert vault.labels.shape == (40,)
    with pytest.raises(PrivateAccessError, match="edges are private"):
        _ = vault.edge_index


def test_node_units_hand_out_handles_that_cannot_be_read() -> None:
    vault, _ = make_vault(NODE, (AGGREGATION, GRADIENT))
    handle = vault.features
    assert isinstance(handle, PrivateRows)
    assert handle.shape == (40, 5)
    for read in (
        lambda: handle[0],
        lambda: list(handle),
        lambda: torch.tensor(handle),
        lambda: handle + 1,
        lambda: handle @ torch.ones(5),
        lambda: handle.numpy(),
        lambda: float(handle),
        lambda: bool(handle),
    ):
        with pytest.raises((PrivateAccessError, TypeError, RuntimeError)):
            read()
    with pytest.raises(PrivateAccessError, match="labels are private"):
        _ = vault.labels
    assert "tensor" not in repr(handle)


def test_handles_of_another_vault_are_refused() -> None:
    first, _ = make_vault(NODE, (AGGREGATION, GRADIENT))
    second, _ = make_vault(NODE, (AGGREGATION, GRADIENT))
    with pytest.raises(InputError, match="another vault"):
        second.aggregate(first.features, AGGREGATION)


def test_private_rows_take_modules_with_proof_only() -> None:
    vault, _ = make_vault(NODE, (AGGREGATION, GRADIENT))
    inside = vault.apply(Linear(5, 2), vault.features)
    assert isinstance(inside, PrivateRows)
    leaked: list[object] = []
    with pytest.raises(UnprovenError, match="arbitrary function"):
        vault.apply(lambda rows: leaked.append(rows), vault.features)  # type: ignore[arg-type, func-returns-value]
    with pytest.raises(UnprovenError, match="batch norm"):
        vault.apply(nn.Sequential(nn.BatchNorm1d(5)), vault.features)
    assert leaked == []


def test_stacking_one_private_part_makes_all_private() -> None:
    vault, _ = make_vault(NODE, (AGGREGATION, GRADIENT))
    assert isinstance(vault.stack([vault.features, torch.zeros(40, 5)]), PrivateRows)
    assert isinstance(vault.stack([torch.zeros(40, 5), torch.zeros(40, 5)]), torch.Tensor)


# Contract of the mechanisms


def test_an_aggregation_is_charged_before_it_returns_and_refused_beyond_its_plan() -> None:
    ledger = Ledger()
    vault, run = make_vault(EDGE, (AGGREGATION,), ledger)
    for count in (1, 2):
        vault.aggregate(vault.features, AGGREGATION)
        assert len(ledger.history().of_run(run.identity, "charge")) == count
    with pytest.raises(BudgetError):
        vault.aggregate(vault.features, AGGREGATION)


def test_the_charge_is_written_even_when_the_work_fails_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger()
    vault, run = make_vault(EDGE, (AGGREGATION,), ledger)

    def crash(*_: object) -> None:
        raise RuntimeError("power cut")

    monkeypatch.setattr("hushgraph.vault.sums.noisy_sum", crash)
    with pytest.raises(RuntimeError, match="power cut"):
        vault.aggregate(vault.features, AGGREGATION)
    assert len(ledger.history().of_run(run.identity, "charge")) == 1


def test_nothing_leaves_when_the_ledger_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    vault, run = make_vault(EDGE, (AGGREGATION,))

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(run.ledger, "append", full)
    called: list[int] = []
    monkeypatch.setattr("hushgraph.vault.sums.noisy_sum", lambda *_: called.append(1))
    with pytest.raises(OSError, match="no space"):
        vault.aggregate(vault.features, AGGREGATION)
    assert called == []


def test_two_aggregations_of_the_same_rows_have_independent_noise() -> None:
    vault, _ = make_vault(EDGE, (AGGREGATION,))
    first, second = (vault.aggregate(vault.features, AGGREGATION) for _ in range(2))
    assert isinstance(first, torch.Tensor)
    assert isinstance(second, torch.Tensor)
    correlation = torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1]
    assert abs(float(correlation)) < 0.4  # 200 entries: five standard errors


def test_a_unit_without_a_bound_is_refused_by_name() -> None:
    with pytest.raises(UnprovenError, match="record"):
        make_vault(units.Record(), (AGGREGATION,))


def test_private_training_charges_all_its_steps_and_needs_a_plan() -> None:
    ledger = Ledger()
    vault, run = make_vault(NODE, (GRADIENT,), ledger)
    module = MLP(5, 8, 3, 2)
    before = [p.clone() for p in module.parameters()]
    vault.train(module, vault.features, Recipe(epochs=1), GRADIENT, "training")
    charges = ledger.history().of_run(run.identity, "charge")
    assert [entry.values["count"] for entry in charges] == [4]
    assert any(not torch.equal(p, q) for p, q in zip(before, module.parameters()))
    with pytest.raises(BudgetError):
        vault.train(module, vault.features, Recipe(epochs=1), GRADIENT, "training")


def test_a_stage_on_other_nodes_is_noted_and_on_the_same_nodes_refused() -> None:
    """A record is an example of one part only, so two parts without a common node cost as much as one."""
    ledger = Ledger()
    vault, run = make_vault(NODE, (GRADIENT,), ledger)
    first, second = vault.nodes("train")[::2], vault.nodes("train")[1::2]
    for part in (first, second):
        vault.train(MLP(5, 8, 3, 2), vault.features, Recipe(epochs=1), GRADIENT, "training", part)
    kinds = [entry.kind for entry in ledger.history().of_run(run.identity)]
    assert kinds == ["open", "charge", "parallel"]
    with pytest.raises(BudgetError):
        vault.train(MLP(5, 8, 3, 2), vault.features, Recipe(epochs=1), GRADIENT, "training", second[:1])


def test_free_looks_are_refused_and_not_charged() -> None:
    ledger = Ledger()
    vault, run = make_vault(NODE, (GRADIENT,), ledger)
    with pytest.raises(UnprovenError, match="best-epoch"):
        vault.train(MLP(5, 8, 3, 2), vault.features, Recipe(epochs=1, select_best=True), GRADIENT, "training")
    with pytest.raises(UnprovenError, match="batch norm"):
        vault.train(MLP(5, 8, 3, 2, norm="batch"), vault.features, Recipe(epochs=1), GRADIENT, "training")
    with pytest.raises(PrivateAccessError, match="plan a gradient stage"):
        vault.train(MLP(5, 8, 3, 2), vault.features, Recipe(epochs=1), None, "training")
    assert ledger.history().of_run(run.identity, "charge") == []


def test_plain_training_is_allowed_where_labels_are_public() -> None:
    vault, _ = make_vault(EDGE, ())
    module = MLP(5, 8, 3, 2, norm="batch")
    vault.train(module, vault.features, Recipe(epochs=3, select_best=True), None, "training")
    assert vault.predictions(module, vault.features).shape == (40, 3)


def test_predictions_are_class_scores_and_nothing_else() -> None:
    vault, _ = make_vault(NODE, (GRADIENT,))
    with pytest.raises(UnprovenError, match="class scores"):
        vault.predictions(Linear(5, 5), vault.features)


def test_under_a_degree_promise_the_own_sum_stays_inside() -> None:
    unit = units.NodePromise(max_degree=60)
    vault, _ = make_vault(unit, (AGGREGATION, GRADIENT), graph=hub_graph(60))
    assert isinstance(vault.aggregate(vault.features, AGGREGATION), PrivateRows)


def test_owned_lists_are_capped_inside_the_vault() -> None:
    vault, _ = make_vault(units.Node(max_degree=3), (AGGREGATION, GRADIENT), graph=hub_graph(60))
    assert int(vault._edges.out_degree().max()) == 3


def test_a_run_without_protection_reads_everything_and_says_so() -> None:
    ledger = Ledger()
    vault, run = make_vault(NODE, (UnprotectedStage("u", 1, 0.0),), ledger, Budget(math.inf, 1e-3))
    assert vault.edge_index.shape[0] == 2
    assert isinstance(vault.features, torch.Tensor)
    assert ledger.history().of_run(run.identity, "charge")[0].values["event"] == {"type": "NonPrivate"}


def _aggregate_forever(folder: Path, marker: Path) -> None:
    torch.set_num_threads(1)
    plan = Plan("toy", EDGE, Budget(1e6, 1e-3), (AggregationStage("aggregation", 10_000, 100.0),), EDGE)
    run = open_run(Ledger(folder), plan, "toy", seeded=False)
    vault = Vault(check_graph(random_graph(0)), run, NoiseSource.from_os())
    with open(marker, "ab", buffering=0) as out:
        while True:
            vault.aggregate(vault.features, plan.aggregation("aggregation"))
            out.write(b"released\n")


def test_a_killed_run_has_charged_all_it_released_and_counts_as_its_plan(tmp_path: Path) -> None:
    rng, context = random.Random(3), multiprocessing.get_context("fork")
    some_released = 0
    for moment in range(8):
        folder, marker = tmp_path / f"book-{moment}", tmp_path / f"out-{moment}"
        process = context.Process(target=_aggregate_forever, args=(folder, marker))
        process.start()
        time.sleep(rng.uniform(0.05, 0.5))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        released = len(marker.read_text().split()) if marker.exists() else 0
        if not Ledger(folder).exists:
            assert released == 0
            continue
        history = Ledger(folder).history()
        assert released <= sum(1 for entry in history.entries if entry.kind == "charge")
        some_released += released > 0
    assert some_released >= 2
