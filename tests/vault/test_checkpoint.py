"""Runs that are killed and go on: the same weights, the same charges, and no noise on anything else."""

from __future__ import annotations

import json
import multiprocessing
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from hushgraph.errors import InputError
from hushgraph.ledger.abandoned import close_abandoned
from hushgraph.ledger.checking import Status
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.manifest import verify_model
from hushgraph.ledger.occasion import Occasion
from hushgraph.methods.base import Method
from hushgraph.methods.chorus import Chorus
from hushgraph.methods.dpgnn import DPGNN
from hushgraph.methods.edge_rr import EdgeRR
from hushgraph.methods.gap import GAP
from hushgraph.methods.mlp import DPMLP
from hushgraph.methods.progap import ProGAP
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget
from hushgraph.privacy.units import Unit
from hushgraph.vault.checkpoint import Checkpoint
from small_graphs import random_graph

BUDGET, NODE = Budget(4.0, 1e-4), units.Node(4)


class Stopped(BaseException):
    """Stands for whatever ends a process."""


def fit(
    method: Method, unit: Unit, folder: Path, *, seed: int | None = 5, stop: int | None = None, **options: Any
) -> Any:
    """A run with a checkpoint in `folder`; it is stopped at the call number `stop` of its progress."""
    calls = [0]

    def progress(*_: Any) -> None:
        calls[0] += 1
        if calls[0] == stop:
            raise Stopped

    kept = Checkpoint(folder / "kept", every=0.0)
    graph = options.pop("graph", random_graph(0))
    ledger = Ledger(folder / "ledger")
    return method.fit(graph, unit, BUDGET, ledger=ledger, seed=seed, progress=progress, checkpoint=kept, **options)


def charges(folder: Path) -> list[tuple[str, Any]]:
    entries = Ledger(folder / "ledger").history().entries
    return [(entry.kind, entry.values.get("stage")) for entry in entries if entry.run is not None]


def same(first: Any, second: Any) -> bool:
    ours, theirs = first.network.state_dict(), second.network.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


RUNS = [
    (GAP(epochs=3), NODE),
    (GAP(epochs=3), units.UndirectedEdge()),
    (ProGAP(epochs=3), NODE),
    (Chorus(epochs=3), NODE),
    (DPGNN(epochs=3), NODE),
    (DPMLP(epochs=3), NODE),
    (DPMLP(epochs=3), units.Record()),
    (Chorus(epochs=3, optimizer="sgd", average_last=0.5), NODE),
    (GAP(epochs=3, dropout=0.5), NODE),
]


@pytest.mark.parametrize(("method", "unit"), RUNS, ids=lambda one: one.name)
def test_a_run_that_is_stopped_anywhere_ends_as_if_it_had_not_been(method: Method, unit: Unit, tmp_path: Path) -> None:
    whole = fit(method, unit, tmp_path / "whole")
    rng = random.Random(1)
    for number in range(4):
        folder, stopped = tmp_path / str(number), 0
        while True:
            try:
                found = fit(method, unit, folder, stop=rng.randrange(1, 12) if stopped < 3 else None)
                break
            except Stopped:
                stopped += 1
        assert same(found, whole)
        assert charges(folder) == charges(tmp_path / "whole")
        assert found.certificate.epsilon == whole.certificate.epsilon
        assert found.certificate.total.runs == 1


def _child(folder: Path) -> None:
    fit(GAP(epochs=15), NODE, folder)


@pytest.mark.slow
def test_twenty_kills_at_random_moments_change_nothing(tmp_path: Path) -> None:
    """SIGKILL, at any moment: also in the middle of a write, of a charge, before the first and after the last."""
    whole = fit(GAP(epochs=15), NODE, tmp_path / "whole")
    rng, context, took, killed = random.Random(2), multiprocessing.get_context("fork"), 60.0, 0
    for number in range(200):
        folder = tmp_path / str(number)
        child, begun = context.Process(target=_child, args=(folder,)), time.monotonic()
        child.start()
        child.join(rng.random() * took)
        child.kill()
        child.join()
        if child.exitcode != -signal.SIGKILL:  # it had ended: moments are chosen within the shortest run so far
            took = min(took, time.monotonic() - begun)
            continue
        found = fit(GAP(epochs=15), NODE, folder)
        assert same(found, whole)
        assert charges(folder) == charges(tmp_path / "whole")
        killed += 1
        if killed == 20:
            return
    pytest.fail(f"{killed} kills in 200 runs")


def test_noise_of_the_operating_system_goes_on_too(tmp_path: Path) -> None:
    """Without a seed nobody can repeat the run but the checkpoint: two ends of one run are the same."""
    with pytest.raises(Stopped):
        fit(GAP(epochs=3), NODE, tmp_path, seed=None, stop=8)
    first = fit(GAP(epochs=3), NODE, tmp_path, seed=None)
    again = fit(GAP(epochs=3), NODE, tmp_path, seed=None)  # killed before it was saved, say
    assert same(first, again)
    assert first.certificate.run == again.certificate.run
    other = fit(GAP(epochs=3), NODE, tmp_path / "other", seed=None)
    assert not same(first, other)
    folder = again.save(tmp_path / "model")
    assert verify_model(folder, Ledger(tmp_path / "ledger")).status is Status.VERIFIED
    assert not (tmp_path / "kept").exists()


def test_what_was_released_is_read_back_and_never_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hushgraph.mechanisms.neighbor_sum import NeighborSum

    with pytest.raises(Stopped):
        fit(GAP(epochs=3, encoder_layers=0), NODE, tmp_path, stop=4)
    assert len(list((tmp_path / "kept").glob("aggregation-*.1.safetensors"))) == 1
    monkeypatch.setattr(NeighborSum, "release", lambda *_: pytest.fail("a release was made twice"))
    fit(GAP(epochs=3, encoder_layers=0), NODE, tmp_path)


def test_another_run_is_refused_in_the_same_folder(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        fit(GAP(epochs=3), NODE, tmp_path, stop=4)
    moved = random_graph(0)
    moved.y = moved.y.flip(0)
    others: list[tuple[str, Any]] = [
        ("data", lambda: fit(GAP(epochs=3), NODE, tmp_path, graph=moved)),
        ("settings", lambda: fit(GAP(epochs=3, lr=0.02), NODE, tmp_path)),
        ("plan", lambda: fit(GAP(epochs=4), NODE, tmp_path)),
        ("seeded", lambda: fit(GAP(epochs=3), NODE, tmp_path, seed=None)),
        ("seed", lambda: fit(GAP(epochs=3), NODE, tmp_path, seed=6)),
        ("method", lambda: fit(DPMLP(epochs=3), NODE, tmp_path)),
    ]
    for words, act in others:
        with pytest.raises(InputError, match=rf"got another .*{words}"):
            act()
    found = json.loads((tmp_path / "kept" / "run.json").read_text())
    (tmp_path / "kept" / "run.json").write_text(
        json.dumps({**found, "versions": {**found["versions"], "torch": "1.0"}})
    )
    with pytest.raises(InputError, match="got another versions"):
        fit(GAP(epochs=3), NODE, tmp_path)


def test_a_run_that_somebody_closed_does_not_go_on(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        fit(GAP(epochs=3), NODE, tmp_path, stop=4)
    ledger = Ledger(tmp_path / "ledger")
    run = json.loads((tmp_path / "kept" / "run.json").read_text())["run"]
    close_abandoned(ledger.on(Occasion(purpose="it was stopped")), run)
    with pytest.raises(InputError, match="closed by somebody else"):
        fit(GAP(epochs=3), NODE, tmp_path)


def test_a_checkpoint_needs_a_ledger_that_lasts_and_a_folder_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a ledger on the disk"):
        GAP().fit(random_graph(0), NODE, BUDGET, ledger=Ledger.in_memory(warn=False), checkpoint=tmp_path / "kept")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    with pytest.raises(InputError, match="is neither"):
        GAP().fit(random_graph(0), NODE, BUDGET, ledger=Ledger(tmp_path / "l"), checkpoint=tmp_path / "full")


def test_the_folder_is_for_its_owner_only_and_damage_is_named(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        fit(GAP(epochs=3), NODE, tmp_path, stop=4)
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700
    for path in (tmp_path / "kept").iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
        path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(InputError, match="damaged"):
        fit(GAP(epochs=3), NODE, tmp_path)


def test_code_of_ones_own_is_refused(tmp_path: Path) -> None:
    """Weights and code of a module are no settings: the same noise on other rows would give the edges away."""
    own = GAP(epochs=1, encoder=torch.nn.Linear(5, 4))
    with pytest.raises(InputError, match="without code of your own"):
        fit(own, units.UndirectedEdge(), tmp_path)

    class Mine(GAP):
        pass

    with pytest.raises(InputError, match="got other code"):
        fit(Mine(epochs=1), units.UndirectedEdge(), tmp_path)
    assert not (tmp_path / "kept").exists()


def test_other_public_edges_are_other_data(tmp_path: Path) -> None:
    graph = random_graph(0)
    pairs = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    for number, (first, last) in enumerate([(0, 5), (5, 10)]):
        known = pairs[:, first:last]
        graph.public_edge_index = torch.cat([known, known.flip(0)], 1)
        if number == 0:
            fit(EdgeRR(steps_per_node=1), units.PrivateEdge(), tmp_path, graph=graph)
            continue
        with pytest.raises(InputError, match="got another data"):
            fit(EdgeRR(steps_per_node=1), units.PrivateEdge(), tmp_path, graph=graph)


def test_other_weights_of_edges_are_other_data(tmp_path: Path) -> None:
    """The same noise on sums with other weights would give the weights away."""
    graph = random_graph(0)
    graph.edge_weight, graph.weight_bound = torch.ones(graph.edge_index.shape[1]), 1.0
    with pytest.raises(Stopped):
        fit(GAP(epochs=3), units.UndirectedEdge(), tmp_path, graph=graph, stop=5)
    graph.edge_weight[0] = 0.0
    with pytest.raises(InputError, match="got another data"):
        fit(GAP(epochs=3), units.UndirectedEdge(), tmp_path, graph=graph)
    graph.edge_weight[0] = 1.0
    fit(GAP(epochs=3), units.UndirectedEdge(), tmp_path, graph=graph)


def test_a_run_goes_on_as_published_as_it_began(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        fit(GAP(epochs=3), NODE, tmp_path, stop=2)
    ledger = Ledger(tmp_path / "ledger").on(Occasion(unpublished=True))
    kept = Checkpoint(tmp_path / "kept", every=0.0)
    with pytest.raises(InputError, match="published and grouped as it was entered"):
        GAP(epochs=3).fit(random_graph(0), NODE, BUDGET, ledger=ledger, seed=5, checkpoint=kept)


def test_stages_with_similar_names_have_files_of_their_own(tmp_path: Path) -> None:
    kept = Checkpoint(tmp_path)
    assert len({kept._next(name, count=False) for name in ("a b", "a-b", "A-B")}) == 3


def test_a_kill_before_the_beginning_leaves_nothing_to_trip_over(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / ".run.json.abc").write_text("{")
    fit(GAP(epochs=1), NODE, tmp_path)
    assert not (tmp_path / "kept" / ".run.json.abc").exists()
