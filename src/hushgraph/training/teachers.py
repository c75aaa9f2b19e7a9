"""An ensemble of teachers: disjoint parts of the records, one learner on each, and their votes on public queries.

The parts follow from the numbers of the records and a public seed, never from what is in them, so one record is in one
part and moves one teacher. Teachers can be trained in several processes, and what each voted can be kept in a folder,
from which a run that was stopped goes on. Votes without noise are as private as the data: the folder is readable by
its owner alone, and is emptied when the last teacher has voted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hushgraph.errors import InputError
from hushgraph.executors.base import Executor
from hushgraph.executors.processes import Processes
from hushgraph.graph.edges import Edges, MemoryEdges
from hushgraph.graph.rows import Rows, dense_rows, take_rows
from hushgraph.training.alike import one_thread
from hushgraph.training.learners import Learner, Part, learner_from

_ROUNDS = 15


def parts_of(members: Tensor, teachers: int, seed: int) -> list[Tensor]:
    """`members` in `teachers` disjoint parts of nearly equal size, by a public shuffle; some are empty if few."""
    order = np.random.default_rng([seed, 0x7EAC]).permutation(members.numel())
    return [members[torch.from_numpy(np.sort(part))] for part in np.array_split(order, teachers)]


@dataclass(frozen=True)
class Ensemble:
    """How teachers are made: how many, of what kind, by which public seed, and where.

    `executor` trains them; `folder`, on this machine, keeps what each has voted until all have.
    """

    teachers: int
    learner: Learner
    seed: int = 0
    executor: Executor = field(default_factory=lambda: Processes(1))
    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.folder is not None and not self.executor.is_here:
            raise InputError(
                "folder: expected workers on this machine, where it is; got a cluster; leave the folder out"
            )

    def votes(
        self,
        features: Rows,
        labels: Tensor,
        edges: Edges | None,
        members: Tensor,
        queries: Part,
        classes: int,
        public: Tensor | None = None,
    ) -> Iterator[Tensor]:
        """What each teacher votes, teacher by teacher: one class per query.

        `public` are the nodes that the rows of `queries` are, where the graph has such nodes.
        """
        asked = replace(queries, x=self.learner.rows(queries.x))
        parts = parts_of(members, self.teachers, self.seed)
        cut = None if edges is None else edges.load()
        links = [None] * self.teachers if cut is None else _links(cut, parts, public, len(queries.x))
        tasks = [
            _Task(
                number,
                dense_rows(take_rows(features, part)),
                labels[part],
                None if cut is None else cut.induced(part).edge_index(),
                links[number],
            )
            for number, part in enumerate(parts)
        ]
        return self._finished(tasks, asked, classes)

    def _finished(self, tasks: Sequence[_Task], asked: Part, classes: int) -> Iterator[Tensor]:
        kept = _Kept(self.folder, _digest(asked, self.learner, self.seed, classes))
        yield from self.executor.map(_vote, tasks, self.learner.as_dict(), asked, classes, self.seed, kept)
        kept.clear()


@dataclass(frozen=True)
class _Task:
    """One teacher: its number and its part of the data."""

    number: int
    x: Tensor
    labels: Tensor
    edge_index: Tensor | None
    links: Tensor | None

    @property
    def content(self) -> str:
        """A digest of its part of the data."""
        return _content(self.x, self.labels, self.edge_index, self.links)


def _links(edges: MemoryEdges, parts: Sequence[Tensor], public: Tensor | None, queries: int) -> Sequence[Tensor]:
    """For every part, its links: rows of the part and public rows with an edge between them, in either direction."""
    if public is None or not public.numel():
        return [torch.empty((2, 0), dtype=torch.int64)] * len(parts)
    if public.numel() != queries:
        raise InputError(f"queries: expected all {public.numel()} public nodes, the others as neighbors; got {queries}")
    part_of, row_of, public_row = (torch.full((edges.num_nodes,), -1) for _ in range(3))
    public_row[public] = torch.arange(queries)
    part_of[torch.cat(list(parts))] = torch.repeat_interleave(torch.tensor([part.numel() for part in parts]))
    row_of[torch.cat(list(parts))] = torch.cat([torch.arange(part.numel()) for part in parts])
    ends = edges.edge_index()
    both = torch.cat([ends, ends.flip(0)], dim=1)
    own, other = both[:, (part_of[both[0]] >= 0) & (public_row[both[1]] >= 0)]
    pairs = torch.unique(torch.stack([part_of[own], row_of[own], public_row[other]]), dim=1)
    sizes = torch.bincount(pairs[0], minlength=len(parts)).tolist()
    return pairs[1:].split(sizes, dim=1)


def _vote(task: _Task, learner: dict, asked: Part, classes: int, seed: int, kept: _Kept) -> Tensor:
    name = "" if kept.folder is None else f"{task.number}-{task.content}"
    found = kept.get(name)
    if found is not None:
        return found
    with one_thread():  # a teacher does not depend on who trains it
        voted = one_vote(learner_from(learner), task, asked, classes, seed)
    kept.put(name, voted)
    return voted


def one_vote(learner: Learner, task: _Task, asked: Part, classes: int, seed: int) -> Tensor:
    """One class per query, whatever the part holds: class 0 where no record has a class."""
    known = (task.labels >= 0).nonzero().squeeze(1)
    if not known.numel():
        return torch.zeros(len(asked), dtype=torch.int64)
    edges = None if task.edge_index is None else _between(task.edge_index, known, len(task.labels))
    links = None if task.links is None else _of_rows(task.links, known, len(task.labels))
    part = Part(learner.rows(task.x[known]), edges, links=links)
    generator = torch.Generator().manual_seed(seed * 1_000_003 + task.number)
    voted = learner.votes(part, task.labels[known], asked, classes, generator)
    voted = voted if asked.nodes is None else voted[asked.nodes]
    return voted.to(torch.int64).clamp(0, classes - 1)


def _between(edge_index: Tensor, nodes: Tensor, count: int) -> Tensor:
    ends = _numbers(nodes, count)[edge_index]
    return ends[:, (ends >= 0).all(dim=0)]


def _of_rows(links: Tensor, nodes: Tensor, count: int) -> Tensor:
    own = _numbers(nodes, count)[links[0]]
    return torch.stack([own, links[1]])[:, own >= 0]


def _numbers(nodes: Tensor, count: int) -> Tensor:
    """The place of every node in `nodes`; -1 where it has none."""
    return torch.full((count,), -1).index_copy_(0, nodes, torch.arange(nodes.numel()))


@dataclass(frozen=True)
class _Kept:
    """Votes of teachers that are done. What is found is used only for the same part, learner and queries."""

    folder: Path | None
    digest: str

    def get(self, name: str) -> Tensor | None:
        path = self._path(name)
        if path is None or not path.is_file():
            return None
        return torch.from_numpy(np.load(path, allow_pickle=False))

    def put(self, name: str, votes: Tensor) -> None:
        path = self._path(name)
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.part.npy")
        np.save(unfinished, votes.numpy(), allow_pickle=False)
        os.replace(unfinished, path)

    def clear(self) -> None:
        if self.folder is not None:
            for path in self.folder.glob(f"{self.digest}-*.npy"):
                path.unlink()

    def _path(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / f"{self.digest}-{name}.npy"


def _digest(asked: Part, learner: Learner, seed: int, classes: int) -> str:
    settings = json.dumps([learner.as_dict(), seed, classes], sort_keys=True)
    return hashlib.sha256((settings + _content(asked.x, asked.edge_index, asked.nodes)).encode()).hexdigest()[:16]


def _content(*tensors: Tensor | None) -> str:
    found = hashlib.sha256()
    for tensor in tensors:
        if tensor is not None:
            found.update(repr((tuple(tensor.shape), str(tensor.dtype))).encode())
            found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()[:24]


# Which public records to ask about


def central_rows(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """The numbers of `count` distinct rows near the centers of k-means, which stand for many others."""
    centers = rows[torch.randperm(len(rows), generator=generator)[:count]].clone()
    for _ in range(_ROUNDS):
        nearest = _distances(rows, centers).argmin(dim=1)
        sizes = torch.bincount(nearest, minlength=count)
        sums = torch.zeros_like(centers).index_add_(0, nearest, rows)
        filled = sizes > 0
        centers[filled] = sums[filled] / sizes[filled].unsqueeze(1)
    return _distinct(_distances(rows, centers))


def _distances(rows: Tensor, centers: Tensor) -> Tensor:
    """Squared distances, `[rows, centers]`."""
    return rows.square().sum(dim=1, keepdim=True) - 2.0 * rows @ centers.T + centers.square().sum(dim=1)


def _distinct(distance: Tensor) -> Tensor:
    """The nearest row of every center; where two centers have the same one, the next free rows in order."""
    chosen = distance.argmin(dim=0).unique()
    free = torch.ones(len(distance), dtype=torch.bool)
    free[chosen] = False
    missing = distance.shape[1] - chosen.numel()
    order = distance.min(dim=1).values.masked_fill(~free, float("inf")).argsort()
    return torch.cat([chosen, order[:missing]])
