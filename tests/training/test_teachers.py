"""Teachers: parts are disjoint and blind, a part without classes still votes, and a stopped run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hushgraph.errors import InputError
from hushgraph.executors.processes import Processes
from hushgraph.graph.edges import MemoryEdges
from hushgraph.training import learners
from hushgraph.training.learners import (
    ConvNet,
    GraphNet,
    HogRidge,
    Learner,
    NeighborRidge,
    Part,
    Ridge,
    TorchLearner,
    learner_from,
)
from hushgraph.training.teachers import Ensemble, parts_of

MADE = torch.Generator().manual_seed(3)
X = torch.rand(40, 64, generator=MADE)
Y = torch.randint(0, 3, (40,), generator=MADE)
ASKED = Part(torch.rand(7, 64, generator=MADE))


def votes(ensemble: Ensemble, labels: torch.Tensor = Y) -> torch.Tensor:
    edges = None
    if "edges" in ensemble.learner.reads:
        edges = MemoryEdges.from_edge_index(torch.randint(0, 40, (2, 90), generator=torch.Generator()), 40)
    return torch.stack(list(ensemble.votes(X, labels, edges, torch.arange(30), ASKED, 3)))


def test_parts_are_disjoint_complete_and_of_nearly_equal_size() -> None:
    parts = parts_of(torch.arange(10, 33), 4, 0)
    assert sorted(torch.cat(parts).tolist()) == list(range(10, 33))
    assert {part.numel() for part in parts} == {5, 6}
    assert sum(part.numel() == 0 for part in parts_of(torch.arange(2), 5, 0)) == 3


@pytest.mark.parametrize(
    "learner", [Ridge(), HogRidge(), ConvNet(epochs=1, width=2), GraphNet(epochs=2), NeighborRidge()], ids=str
)
def test_every_teacher_gives_one_class_per_query_even_without_records(learner: Learner) -> None:
    found = votes(Ensemble(4, learner), torch.where(torch.arange(40) % 2 == 0, Y, -1))
    assert found.shape == (4, 7)
    assert int(found.min()) >= 0
    assert int(found.max()) < 3
    assert not votes(Ensemble(2, learner), torch.full((40,), -1)).any()
    assert learner_from(learner.as_dict()) == learner


def test_a_module_that_teachers_share_carries_nothing_from_part_to_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that was pretrained and is kept; with batch norm, whatever number of records a part has."""
    pretrained = torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))

    class Tuned(TorchLearner):
        name = "tuned"

        def module(self, columns: int, classes: int) -> torch.nn.Module:
            return pretrained

    monkeypatch.setitem(learners._LEARNERS, "tuned", Tuned)
    ensemble = Ensemble(4, Tuned(epochs=3, batch_size=2, lr=0.1))
    before = votes(ensemble)
    for record in range(0, 30, 5):
        other = votes(ensemble, torch.where(torch.arange(40) == record, -1, Y))
        assert int((other != before).any(dim=1).sum()) <= 1


def test_processes_change_nothing() -> None:
    assert torch.equal(votes(Ensemble(5, Ridge())), votes(Ensemble(5, Ridge(), executor=Processes(2))))


def test_a_stopped_run_goes_on_with_the_votes_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = votes(Ensemble(6, Ridge()))
    calls = []
    vote = Ridge.votes

    def stopped(self: Ridge, part: Part, *rest: object) -> torch.Tensor:
        calls.append(len(part.x))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return vote(self, part, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Ridge, "votes", stopped)
    with pytest.raises(KeyboardInterrupt):
        votes(Ensemble(6, Ridge(), folder=tmp_path / "votes"))
    assert len(list((tmp_path / "votes").glob("*.npy"))) == 3
    assert (tmp_path / "votes").stat().st_mode & 0o077 == 0
    assert torch.equal(votes(Ensemble(6, Ridge(), folder=tmp_path / "votes")), right)
    assert len(calls) == 4 + 3
    assert list((tmp_path / "votes").glob("*.npy")) == []


def test_kept_votes_of_other_data_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushgraph.training.teachers._Kept.clear", lambda self: None)
    votes(Ensemble(6, Ridge(), folder=tmp_path))
    other = (Y + 1) % 3
    assert torch.equal(votes(Ensemble(6, Ridge(), folder=tmp_path), other), votes(Ensemble(6, Ridge()), other))


def test_unknown_learners_are_named() -> None:
    with pytest.raises(InputError, match="unknown learner 'rigde'"):
        learner_from({"name": "rigde"})
