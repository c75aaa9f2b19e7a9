"""What the runs of the studies of PATE do: students of the same teachers, by seed and epsilon.

Teachers do not depend on epsilon, on the seed or on the student, so their exact votes on all public pictures are
counted once and kept in runs/pate; a run adds the noise of its plan and teaches its student. `pate+` is what `pate++`
has before it takes labels away, so both share one search, as do all values of tau.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

import hushgraph as hg
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.mechanisms.view import View
from hushgraph.mechanisms.votes import Ballot, Votes
from hushgraph.methods.pate import PATE
from hushgraph.nn.gan import Panel
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plan import Plan
from hushgraph.study.lab import Lab
from hushgraph.training.learners import Part
from hushgraph.training.lesson import Lesson
from hushgraph.training.semi_gan import PatePlusPlus
from hushgraph.training.teachers import central_rows

Metrics = dict[str, float | None]
KEPT = Path(__file__).parent.parent / "runs" / "pate"
SEARCHES = ("pate+", "pate++")


def taught(lab: Lab) -> Metrics:
    """One student: accuracy on test pictures and, to choose settings by, on public pictures without votes.

    Of `pate++` also: the share of wrong labels among those taken away, and the share of all wrong labels that they are.
    """
    method, started = _method(lab), time.process_time()
    made = _searched(lab) if method.student in SEARCHES else None
    class_ = _classroom(lab)
    if made is None:
        network = class_.network(method)
        method.student_with_settings().learn(network, class_.lesson, class_.generator, _silent)
        found: Metrics = {}
    else:
        network = made.network
        network.load_state_dict(made.last)
        found = made.cleansed(method, class_) if method.student == "pate++" else {}
    wrong = class_.wrong.float().mean()
    return {
        "test_accuracy": class_.accuracy(network, class_.graph.test),
        "public_accuracy": class_.accuracy(network, class_.unlabeled),
        "wrong_labels": 100.0 * float(wrong),
        **found,
        "noise": class_.plan["votes"].scale,
        "proved_epsilon": class_.plan.epsilon,
        "cpu_seconds": time.process_time() - started,
    }


def searched(lab: Lab, *, epoch: int) -> Metrics:
    """One epoch of the search of PATE++ for wrong labels (Fig. 3.3)."""
    return _searched(lab).curve[int(epoch) - 1]


@dataclass(frozen=True)
class Classroom:
    """What the student of one run is given, and the true labels that it is judged by."""

    graph: CheckedGraph
    lesson: Lesson
    plan: Plan
    seed: int

    @property
    def generator(self) -> torch.Generator:
        """A fresh one of this seed."""
        return torch.Generator().manual_seed(self.seed)

    @property
    def wrong(self) -> Tensor:
        """Which labels are not the true ones."""
        return self.lesson.labels != self.graph.labels[self.graph.public][self.lesson.labeled]

    @property
    def unlabeled(self) -> Tensor:
        """The public pictures that nobody voted on."""
        free = torch.ones(self.graph.public.numel(), dtype=torch.bool)
        return self.graph.public[free.index_fill_(0, self.lesson.labeled, False)]

    def network(self, method: PATE) -> nn.Module:
        """Untrained."""
        return method.network(self.plan, self.generator)

    def accuracy(self, network: nn.Module, records: Tensor) -> float:
        """In percent."""
        said = network.eval()(cast(Tensor, self.graph.features)[records]).argmax(dim=1)
        return 100.0 * float((said == self.graph.labels[records]).float().mean())


def _classroom(lab: Lab) -> Classroom:
    return _latest("classroom", _shared(lab), lambda: _made(lab))


def _searched(lab: Lab) -> Search:
    return _latest("search", _shared(lab), lambda: _search(lab))


_MADE: dict[tuple[str, str], Any] = {}
_MOST = 12


def _latest(name: str, key: str, make: Callable[[], Any]) -> Any:
    """What was made under `name` for this key if that is not long ago, else it is made now."""
    if (name, key) not in _MADE:
        while len(_MADE) >= _MOST:
            _MADE.pop(next(iter(_MADE)))
        _MADE[name, key] = make()
    return _MADE[name, key]


def _shared(lab: Lab) -> str:
    """All that teachers, noise and the search for wrong labels depend on."""
    return repr((_name(lab), lab.budget, lab.seed, _searching(lab)))


def _method(lab: Lab) -> PATE:
    """Without the settings of the experiment."""
    assert lab.cell.method is not None
    return PATE(**lab.cell.method.settings)


def _searching(lab: Lab) -> PATE:
    """The method; where it searches for wrong labels, up to what it does after that."""
    method = _method(lab)
    return replace(method, student="pate++", removed=0.0) if method.student in SEARCHES else method


def _made(lab: Lab) -> Classroom:
    """The plan's noise on the exact counts of what is asked."""
    graph: CheckedGraph = _latest("graph", _name(lab), lambda: check_graph(lab.data, needs_edges=False))
    method, seed = _searching(lab), lab.seed or 0
    plan = method.plan(graph.metadata, hg.units.Record(), lab.budget)
    ballot, source = cast(Ballot, plan["votes"].mechanism), NoiseSource.seeded(seed)
    public = Part(cast(Tensor, graph.features)[graph.public])
    generator = source.torch_generator("queries")
    if method.ask == "centers":
        asked = central_rows(ballot.learner.rows(public.x), ballot.asked, generator)
    else:
        asked = torch.randperm(len(public), generator=generator)[: ballot.asked]
    exact = _counts(lab, graph, ballot)[asked]
    noisy = exact + source.stream("votes").integer_gaussian(tuple(exact.shape), plan["votes"].scale or 0.0)
    return Classroom(graph, method.lesson(plan, public, asked, noisy), plan, seed)


def _counts(lab: Lab, graph: CheckedGraph, ballot: Ballot) -> Tensor:
    """Exact counts on all public pictures; a file of its own for all data that differs."""
    path = KEPT / f"{_name(lab)}-{ballot.teachers}-{ballot.learner.name}.npy"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        everything = Votes(teachers=ballot.teachers, queries=graph.public.numel(), learner=ballot.learner)
        view = View(graph, everything.reads, None, NoiseSource.seeded(0), "study")
        unfinished = path.with_suffix(".part.npy")
        asked = Part(cast(Tensor, graph.features)[graph.public])
        np.save(unfinished, everything.counts(view, asked).numpy())
        unfinished.replace(path)
    return torch.from_numpy(np.load(path, allow_pickle=False))


def _name(lab: Lab) -> str:
    dataset = lab.cell.dataset
    assert dataset is not None
    return f"{dataset.name}-{dataset.options.get('public')}-{(dataset.content or '')[:12]}"


@dataclass
class Search:
    """A search for wrong labels: the network after it, what is in dispute, and what was seen on the way."""

    network: Panel
    first: dict[str, Tensor]
    last: dict[str, Tensor]
    dispute: Tensor
    generator_state: Tensor
    curve: list[Metrics]

    def cleansed(self, method: PATE, class_: Classroom) -> Metrics:
        """Take labels away and train again from the first weights, as `PatePlusPlus.learn` does."""
        student, lesson = cast(PatePlusPlus, method.student_with_settings()), class_.lesson
        kept = student.cleansed(self.dispute)
        self.network.load_state_dict(self.first)
        generator = torch.Generator()
        generator.set_state(self.generator_state)
        student.train(self.network, lesson, lesson.labeled[kept], lesson.labels[kept], generator, _silent)
        removed = torch.ones_like(class_.wrong).index_fill_(0, kept, False)
        hits = float((removed & class_.wrong).sum())
        return {
            "wrong_among_removed": 100.0 * hits / max(float(removed.sum()), 1.0),
            "wrong_found": 100.0 * hits / max(float(class_.wrong.sum()), 1.0),
        }


def _search(lab: Lab) -> Search:
    class_, method = _classroom(lab), _searching(lab)
    network = cast(Panel, class_.network(method))
    student = cast(PatePlusPlus, method.student_with_settings())
    first, generator, curve = copy.deepcopy(network.state_dict()), class_.generator, list[Metrics]()

    def watch(epoch: int, said: list[Tensor]) -> None:
        apart = said[0] != said[1]
        right = [100.0 * float((one == class_.lesson.labels).float().mean()) for one in said]
        among = class_.wrong[apart].float()
        curve.append(
            {
                "first_agrees": right[0],
                "second_agrees": right[1],
                "disagreements": float(apart.sum()),
                "wrong_among_them": 100.0 * float(among.mean()) if len(among) else None,
            }
        )

    labeled, labels = class_.lesson.labeled, class_.lesson.labels
    dispute = student.train(network, class_.lesson, labeled, labels, generator, _silent, watch)
    return Search(network, first, copy.deepcopy(network.state_dict()), dispute, generator.get_state(), curve)


def _silent(done: int, total: int) -> None:
    """No progress."""
