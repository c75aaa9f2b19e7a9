"""The vault: what it hands out, what stays inside, and that nothing leaves uncharged.

That every mechanism is charged before it returns, within its plan and never without noise, is in tests/test_matrix.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import multiprocessing
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hushgraph.errors import BudgetError, InputError, PrivateAccessError, UnprovenError
from hushgraph.graph.checks import check_graph
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.run import Run, open_run
from hushgraph.mechanisms import EdgeCount, Gradient, NeighborSum, PairCount, Raw
from hushgraph.nn import MLP, Linear
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.notes import Code, note
from hushgraph.privacy.plan import Plan, Stage
from hushgraph.training.config import Training
from hushgraph.vault import PrivateRows, Vault
from small_graphs import hub_graph, random_graph

EDGE, NODE = units.UndirectedEdge(), units.Node(max_degree=5)
SUMS = Stage("sums", NeighborSum(), 2)
TRAINING = Stage("training", Gradient(1.0, 0.5, 4))
BUDGET = Budget(50.0, 1e-3)
ONCE = Training(epochs=1)


def make_vault(
    unit: units.Unit,
    stages: list[Stage],
    ledger: Ledger | None = None,
    budget: Budget = BUDGET,
    graph: Any = None,
    noise: NoiseSource | None = None,
    **rest: Any,
) -> tuple[Vault, Run]:
    checked = check_graph(graph or random_graph(0))
    plan = Plan.make("toy", checked.metadata, unit, budget, stages, **rest)
    run = open_run(ledger or Ledger(), plan, "toy", seeded=noise is None)
    return Vault(checked, plan, run, noise or NoiseSource.seeded(1)), run


# What is handed out


def test_edge_units_hand_out_features_and_labels_and_never_edges() -> None:
    vault, _ = make_vault(EDGE, [SUMS])
    assert isinstance(vault.features, torch.Tensor)
    assert vault.labels.shape == (40,)
    with pytest.raises(PrivateAccessError, match="edges are private"):
        _ = vault.edges


def test_a_random_order_of_a_split_has_all_of_it_and_belongs_to_its_purpose() -> None:
    (vault, _), (again, _) = make_vault(NODE, [SUMS]), make_vault(NODE, [SUMS])
    train = check_graph(random_graph(0)).train
    order = vault.in_random_order("train", "readers")
    assert torch.equal(order.sort().values, train)
    assert torch.equal(order, again.in_random_order("train", "readers"))
    assert not torch.equal(order, vault.in_random_order("train", "sources"))  # the seed is fixed


def test_node_units_hand_out_handles_that_cannot_be_read() -> None:
    vault, _ = make_vault(NODE, [SUMS, TRAINING])
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
    for part in ("labels", "edges"):
        with pytest.raises(PrivateAccessError, match=f"{part} are private"):
            getattr(vault, part)
    assert "tensor" not in repr(handle)


def test_the_local_unit_hands_out_edges() -> None:
    vault, _ = make_vault(units.Local(), [])
    assert vault.edges.num_nodes == 40
    assert isinstance(vault.features, PrivateRows)


def test_the_vault_knows_no_number_of_edges() -> None:
    assert make_vault(NODE, [SUMS])[0].metadata.num_edges is None


def test_handles_of_another_vault_are_refused() -> None:
    first, _ = make_vault(NODE, [SUMS, TRAINING])
    second, _ = make_vault(NODE, [SUMS, TRAINING])
    with pytest.raises(InputError, match="another vault"):
        second.release("sums", first.features)


# What stays inside


def test_private_rows_take_modules_with_proof_only() -> None:
    vault, _ = make_vault(NODE, [SUMS, TRAINING])
    inside = vault.apply(Linear(5, 2), vault.features)
    assert isinstance(inside, PrivateRows)
    leaked: list[object] = []
    with pytest.raises(UnprovenError, match="arbitrary function"):
        vault.apply(lambda rows: leaked.append(rows), vault.features)
    with pytest.raises(UnprovenError, match="batch norm"):
        vault.apply(nn.Sequential(nn.BatchNorm1d(5)), vault.features)
    assert leaked == []


@pytest.mark.parametrize("together", ["stack", "join"])
def test_one_private_part_makes_all_private(together: str) -> None:
    vault, _ = make_vault(NODE, [SUMS, TRAINING])
    combine = getattr(vault, together)
    assert isinstance(combine([vault.features, torch.zeros(40, 5)]), PrivateRows)
    public = combine([torch.zeros(40, 5), torch.zeros(40, 5)])
    assert not isinstance(public, PrivateRows)
    assert len(public) == 40


def test_predictions_are_class_scores_and_nothing_else() -> None:
    vault, _ = make_vault(NODE, [TRAINING])
    with pytest.raises(UnprovenError, match="class scores"):
        vault.scores(Linear(5, 5), vault.features)
    scores = vault.scores(Linear(5, 3), vault.features)
    assert isinstance(scores, PrivateRows)
    assert vault.hand_over(scores).shape == (40, 3)
    assert vault.hand_over(None) is None


def test_what_leaves_at_the_end_is_scores_and_what_was_released() -> None:
    vault, _ = make_vault(NODE, [dataclasses.replace(SUMS, count=1), TRAINING])
    scores = vault.scores(Linear(5, 3), vault.features)
    vault.release("sums", vault.apply(nn.Identity(), vault.features))
    ended = vault.end(scores)
    assert ended.scores is not None
    assert ended.scores.shape == (40, 3)
    assert ended.scores_are_private
    assert len(ended.released["sums"]) == 1
    assert ended.nodes.keys() == {"train", "val", "test"}
    with pytest.raises(PrivateAccessError, match="expected class scores"):
        vault.end(vault.features)


def test_the_end_of_a_run_without_protection_charges_what_was_open() -> None:
    vault, run = make_vault(NODE, [SUMS, TRAINING], budget=Budget(math.inf))
    ended = vault.end(None)
    assert (ended.scores, ended.scores_are_private, ended.released) == (None, False, {})
    assert {entry.values["stage"] for entry in run.ledger.history().of_run(run.identity, "charge")} == {
        "sums",
        "training",
    }


@pytest.mark.parametrize("scale", [None, 0.0, math.inf, math.nan])
def test_a_stage_without_noise_is_refused_before_it_is_charged(scale: float | None) -> None:
    """A plan made by hand may hold anything: what would run without noise does not run."""
    vault, run = make_vault(EDGE, [SUMS])
    vault.plan = dataclasses.replace(vault.plan, stages=(dataclasses.replace(vault.plan["sums"], scale=scale),))
    with pytest.raises(UnprovenError, match="positive, finite scale of noise"):
        vault.release("sums", vault.features)
    assert not run.ledger.history().of_run(run.identity, "charge")


def test_nothing_but_class_scores_is_handed_over() -> None:
    graph = random_graph(0, num_features=3)  # as wide as the scores
    vault, _ = make_vault(units.BoundedDegreeNode(40), [SUMS, TRAINING], graph=graph)
    raw = vault.features
    inside = [raw, vault.apply(Linear(3, 3), raw), vault.join([raw, raw]), vault.release("sums", raw)]
    for handle in inside:
        assert isinstance(handle, PrivateRows)
        with pytest.raises(PrivateAccessError, match="expected class scores"):
            vault.hand_over(handle)


def test_class_scores_are_handed_over_only_where_a_prediction_is_declared_unprotected() -> None:
    class Strict(units.Record):
        unprotected = ()

    vault, _ = make_vault(Strict(), [TRAINING])
    with pytest.raises(PrivateAccessError, match="declares them unprotected; got class scores"):
        vault.hand_over(vault.scores(Linear(5, 3), vault.features))


def test_threads_share_one_charge_for_each_planned_release() -> None:
    vault, run = make_vault(EDGE, [SUMS])
    begin, released = threading.Barrier(6), []

    def release() -> None:
        begin.wait()
        with contextlib.suppress(BudgetError):
            released.append(vault.release("sums", vault.features))

    threads = [threading.Thread(target=release) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(released) == 2
    assert not torch.equal(*released)
    assert len(run.ledger.history().of_run(run.identity, "charge")) == 2


def test_predictions_from_raw_neighborhoods_need_a_plan_that_says_so() -> None:
    def network(features: Any, edges: Any) -> torch.Tensor:
        return torch.zeros(40, 3)

    with pytest.raises(UnprovenError, match="declares them unprotected"):
        make_vault(NODE, [TRAINING])[0].raw_scores(network)
    vault, _ = make_vault(NODE, [TRAINING], unprotected=[note(Code.RAW_PREDICTIONS)])
    assert isinstance(vault.raw_scores(network), PrivateRows)


def test_under_a_degree_promise_the_own_sum_stays_inside() -> None:
    vault, _ = make_vault(units.BoundedDegreeNode(max_degree=60), [SUMS, TRAINING], graph=hub_graph(60))
    assert isinstance(vault.release("sums", vault.features), PrivateRows)
    assert vault.released == {}


# The way out


def charges(run: Run) -> list[Any]:
    return run.ledger.history().of_run(run.identity, "charge")


def test_releases_are_charged_one_by_one_and_refused_beyond_the_plan() -> None:
    vault, run = make_vault(EDGE, [SUMS])
    for count in (1, 2):
        vault.release("sums", vault.features)
        assert len(charges(run)) == count
    with pytest.raises(BudgetError):
        vault.release("sums", vault.features)
    assert len(vault.released["sums"]) == 2
    with pytest.raises(InputError, match="no stage 'other'"):
        vault.release("other", vault.features)


def test_the_charge_stays_when_the_work_fails_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    vault, run = make_vault(EDGE, [SUMS])

    def crash(*_: object) -> None:
        raise RuntimeError("power cut")

    monkeypatch.setattr(NeighborSum, "release", crash)
    with pytest.raises(RuntimeError, match="power cut"):
        vault.release("sums", vault.features)
    assert len(charges(run)) == 1


def test_nothing_leaves_when_the_ledger_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    vault, run = make_vault(EDGE, [SUMS])

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(run.ledger, "append", full)
    called: list[int] = []
    monkeypatch.setattr(NeighborSum, "release", lambda *_: called.append(1))
    with pytest.raises(OSError, match="no space"):
        vault.release("sums", vault.features)
    assert called == []


def test_two_releases_of_the_same_rows_have_independent_noise() -> None:
    vault, _ = make_vault(EDGE, [SUMS], budget=Budget(0.05, 1e-3))
    first, second = (vault.release("sums", vault.features) for _ in range(2))
    correlation = torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1]
    assert abs(float(correlation)) < 0.4  # 200 entries, almost all noise: five standard errors


def test_seeded_releases_repeat_and_others_do_not() -> None:
    def released(noise: NoiseSource | None) -> torch.Tensor:
        vault, _ = make_vault(EDGE, [SUMS], noise=noise)
        return vault.release("sums", vault.features)

    assert torch.equal(released(None), released(None))
    assert not torch.equal(released(NoiseSource.from_os()), released(NoiseSource.from_os()))


def test_a_unit_without_a_bound_is_refused_by_name() -> None:
    with pytest.raises(UnprovenError, match="'record'"):
        make_vault(units.Record(), [SUMS])


# Training


def test_private_training_is_charged_whole_and_needs_a_plan() -> None:
    vault, run = make_vault(NODE, [TRAINING])
    module = MLP(5, 8, 3, 2)
    before = [p.clone() for p in module.parameters()]
    assert vault.release("training", module, vault.features, ONCE) is None
    (charge,) = charges(run)
    assert charge.values["event"]["count"] == 4
    assert any(not torch.equal(p, q) for p, q in zip(before, module.parameters()))
    with pytest.raises(BudgetError):
        vault.release("training", module, vault.features, ONCE)


def test_a_stage_on_other_nodes_is_noted_and_on_the_same_nodes_refused() -> None:
    """A record is an example of one part only, so two parts without a common node cost as much as one."""
    vault, run = make_vault(NODE, [Stage("training", TRAINING.mechanism, parallel=2)])
    first, second = vault.nodes("train")[::2], vault.nodes("train")[1::2]
    for part in (first, second):
        vault.release("training", MLP(5, 8, 3, 2), vault.features, ONCE, nodes=part)
    kinds = [entry.kind for entry in run.ledger.history().of_run(run.identity)]
    assert kinds == ["open", "charge", "parallel"]
    for again in (second[:1], first, None):
        with pytest.raises(BudgetError):
            vault.release("training", MLP(5, 8, 3, 2), vault.features, ONCE, nodes=again)


def test_parts_that_overlap_and_parts_that_were_not_planned_are_refused() -> None:
    vault, _ = make_vault(NODE, [Stage("training", TRAINING.mechanism, parallel=2)])
    train = vault.nodes("train")
    vault.release("training", MLP(5, 8, 3, 2), vault.features, ONCE, nodes=train[:6])
    with pytest.raises(BudgetError):
        vault.release("training", MLP(5, 8, 3, 2), vault.features, ONCE, nodes=train[5:])
    vault, _ = make_vault(NODE, [TRAINING])
    vault.release("training", MLP(5, 8, 3, 2), vault.features, ONCE, nodes=train[:6])
    with pytest.raises(BudgetError):
        vault.release("training", MLP(5, 8, 3, 2), vault.features, ONCE, nodes=train[6:])


def test_only_training_nodes_can_be_trained_on() -> None:
    vault, run = make_vault(NODE, [TRAINING])
    train = vault.nodes("train")
    for nodes in (vault.nodes("val"), torch.cat([train, train[:1]])):
        with pytest.raises(InputError, match="distinct training nodes"):
            vault.release("training", MLP(5, 8, 3, 2), vault.features, ONCE, nodes=nodes)
    assert charges(run) == []


def test_what_has_no_proof_is_refused_and_not_charged() -> None:
    vault, run = make_vault(NODE, [TRAINING])
    with pytest.raises(UnprovenError, match="batch norm"):
        vault.release("training", MLP(5, 8, 3, 2, norm="batch"), vault.features, ONCE)
    assert charges(run) == []


def test_plain_training_is_free_where_labels_are_public_and_takes_no_private_rows() -> None:
    vault, run = make_vault(EDGE, [TRAINING])
    module = MLP(5, 8, 3, 2, norm="batch")
    vault.release("training", module, vault.features, Training(epochs=3))
    assert vault.scores(module, vault.features).shape == (40, 3)
    assert charges(run) == []
    local, _ = make_vault(units.Local(private_labels=False), [TRAINING])
    with pytest.raises(PrivateAccessError, match="may not read features"):
        local.release("training", module, local.features, ONCE)


# Counts


def test_lists_are_counted_whole_and_cut_at_the_stage_and_not_at_the_unit() -> None:
    graph = hub_graph(60)  # the hub names 60, each leaf the hub and two on the ring
    vault, _ = make_vault(NODE, [Stage("count", EdgeCount(20), noise=None, scale=5)], graph=graph)
    assert abs(vault.release("count") - (20 + 60 * 3)) < 70  # beyond with probability e^-14


def test_without_protection_counts_are_exact() -> None:
    stages = [Stage("count", EdgeCount(20)), Stage("pairs", PairCount())]
    vault, run = make_vault(NODE, stages, budget=Budget(math.inf, 1e-3), graph=hub_graph(60))
    assert vault.release("count") == 20 + 60 * 3
    assert vault.release("pairs").blind == len(vault.nodes("train")) // 2
    assert [entry.values["event"] for entry in charges(run)] == [{"type": "NonPrivate"}] * 2


def test_a_run_without_protection_reads_everything_and_says_so() -> None:
    vault, run = make_vault(NODE, [Stage("edges", Raw("edges"))], budget=Budget(math.inf, 1e-3))
    assert vault.edges.num_nodes == 40
    assert isinstance(vault.features, torch.Tensor)
    assert vault.release("edges") is vault.edges
    assert charges(run)[0].values["event"] == {"type": "NonPrivate"}


def test_a_choice_opens_the_stages_of_one_branch_only() -> None:
    checked = check_graph(random_graph(0))
    branches = [
        Plan.make(name, checked.metadata, NODE, Budget(20.0, 1e-3), [stage])
        for name, stage in (("sums", SUMS), ("training", TRAINING))
    ]
    asked = [Stage("count", EdgeCount(20), noise=None, scale=5)]
    vault, _ = make_vault(NODE, asked, branches=branches)
    with pytest.raises(BudgetError, match="before what the choice is made from"):
        vault.choose(branches[0], note(Code.SETTINGS))
    vault.release("count")
    vault.choose(branches[0], note(Code.SETTINGS))
    vault.release("sums", vault.features)
    with pytest.raises(InputError, match="no stage 'training'"):
        vault.release("training", MLP(5, 8, 3, 2), vault.features, ONCE)


def test_progress_tells_stages_and_numbers() -> None:
    checked, seen = check_graph(random_graph(0)), []
    plan = Plan.make("toy", checked.metadata, EDGE, BUDGET, [SUMS])
    run = open_run(Ledger(), plan, "toy", seeded=True)
    vault = Vault(checked, plan, run, NoiseSource.seeded(0), lambda *step: seen.append(step))
    vault.release("sums", vault.features)
    assert seen == [("sums", 1, 2)]
    assert set(vault.seconds) == {"sums"}


# Interrupted


def _release_forever(folder: Path, marker: Path) -> None:
    torch.set_num_threads(1)
    stage = Stage("sums", NeighborSum(), 10_000, noise=None, scale=200.0)
    checked = check_graph(random_graph(0))
    plan = Plan.make("toy", checked.metadata, EDGE, Budget(1e6, 1e-3), [stage])
    vault = Vault(checked, plan, open_run(Ledger(folder), plan, "toy", seeded=False), NoiseSource.from_os())
    with open(marker, "ab", buffering=0) as out:
        while True:
            vault.release("sums", vault.features)
            out.write(b"released\n")


def test_a_killed_run_has_charged_all_it_released_and_counts_as_its_plan(tmp_path: Path) -> None:
    rng, context = random.Random(3), multiprocessing.get_context("fork")
    some_released = 0
    for moment in range(8):
        folder, marker = tmp_path / f"book-{moment}", tmp_path / f"out-{moment}"
        process = context.Process(target=_release_forever, args=(folder, marker))
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


def test_what_can_be_stacked_and_joined_is_said() -> None:
    vault, _ = make_vault(EDGE, [SUMS])
    wide, narrow = torch.zeros(40, 5), torch.zeros(40, 3)
    with pytest.raises(InputError, match=r"stack: expected parts of one width; got \[5, 3\]"):
        vault.stack([wide, narrow])
    with pytest.raises(InputError, match=r"expected one list of rows, vault.join\(\[a, b\]\)"):
        vault.join(wide, narrow)
    with pytest.raises(InputError, match=r"a module that reads each of `rows\.parts`"):
        Linear(8, 2)(vault.join([wide, narrow]))
