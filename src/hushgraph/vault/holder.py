"""What every part of the vault shares: the data, what is public of it, handles to the rest, and the clock."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor, nn

from hushgraph.data.checks import CheckedGraph, check_unit
from hushgraph.data.joined import JoinedRows
from hushgraph.data.metadata import PublicFacts
from hushgraph.data.rows import Rows, dense_rows
from hushgraph.errors import InputError, PrivateAccessError, UnprovenError
from hushgraph.graph.degree import cap_senders
from hushgraph.graph.edges import InNeighbors
from hushgraph.ledger.run import Run
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.plan import UnprotectedStage
from hushgraph.training.rowwise import require_rowwise
from hushgraph.vault.handles import PrivateRows

Progress = Callable[[str, int, int], None]


class Holder:
    """Holds `graph` for one `run`. `progress(stage, done, total)` is called while it works."""

    def __init__(self, graph: CheckedGraph, run: Run, noise: NoiseSource, progress: Progress | None = None) -> None:
        unit = run.plan.charged_unit
        check_unit(graph, unit)
        self.facts: PublicFacts = graph.facts.for_unit(unit)
        self.unit = unit
        self.unprotected = False
        self._graph = graph
        self._run = run
        self._noise = noise
        self._progress = progress
        self._releases = 0
        self.seconds: dict[str, float] = {}
        self._taught: dict[str, Tensor] = {}
        self._rows: weakref.WeakKeyDictionary[PrivateRows, Rows] = weakref.WeakKeyDictionary()
        for stage in run.plan.stages:
            if isinstance(stage, UnprotectedStage):
                run.charge(stage)
                self.unprotected = True

    # What is public, and handles to the rest

    def is_public(self, part: str) -> bool:
        """Whether the unit leaves `edges`, `features` or `labels` public (all, in a run without protection)."""
        return self.unprotected or part in self.unit.public

    @property
    def features(self) -> Rows | PrivateRows:
        """The features: a tensor where they are public, a handle otherwise."""
        return self._guarded(self._graph.features, "features")

    @property
    def labels(self) -> Tensor:
        """The labels, where they are public."""
        if not self.is_public("labels"):
            raise PrivateAccessError(f"labels are private under the unit '{self.unit}'; train through the vault")
        return self._graph.labels

    @property
    def edge_index(self) -> Tensor:
        """The edges, in a run without protection only."""
        if not self.is_public("edges"):
            raise PrivateAccessError(
                f"edges are private under the unit '{self.unit}'; the only way out is a charged mechanism (aggregate)"
            )
        return self._edges.edge_index()

    def nodes(self, split: str) -> Tensor:
        """The node numbers of `train`, `val` or `test` (membership is public)."""
        return self._graph.split(split)

    def generator(self, purpose: str) -> torch.Generator:
        """A generator for public randomness such as initial weights."""
        return self._noise.torch_generator(purpose)

    # Work that stays inside

    def apply(self, function: Callable[[Any], Tensor], rows: Rows | PrivateRows) -> Rows | PrivateRows:
        """A row-wise module (or a bound method of one) on every row; private rows give a new handle."""
        if not isinstance(rows, PrivateRows):
            with torch.no_grad():
                return function(rows)
        owner = function if isinstance(function, nn.Module) else getattr(function, "__self__", None)
        if not isinstance(owner, nn.Module):
            raise UnprovenError("private rows: expected a module, or a method of one; got an arbitrary function")
        require_rowwise(owner)
        with torch.no_grad():
            return self._keep(function(self._rows[rows]), f"rows computed from {rows.what}")

    def stack(self, parts: Sequence[Rows | PrivateRows]) -> Rows | PrivateRows:
        """The parts side by side, `[nodes, parts, columns]`; private as soon as one part is."""
        stacked = torch.stack([dense_rows(self._open(part)) for part in parts], dim=1)
        private = [part for part in parts if isinstance(part, PrivateRows)]
        return self._keep(stacked, private[0].what) if private else stacked

    def join(self, parts: Sequence[Rows | PrivateRows]) -> Rows | PrivateRows:
        """The parts side by side, each in its own form and width; private as soon as one part is."""
        joined = cast(Rows, JoinedRows([self._open(part) for part in parts]))
        private = [part for part in parts if isinstance(part, PrivateRows)]
        return self._keep(joined, private[0].what) if private else joined

    def predictions(self, module: nn.Module, rows: Rows | PrivateRows) -> Tensor:
        """Class scores, one row per node, each meant for that node's owner.

        Where features are private a node's scores depend on its own record: what others see of the run stays
        protected, the node's own row does not (`Unit.not_protected` says so).
        """
        if isinstance(rows, PrivateRows):
            require_rowwise(module)
        module.eval()
        with torch.no_grad():
            scores: Tensor = module(self._open(rows))
        if scores.shape != (self.facts.num_nodes, self.facts.num_classes):
            raise UnprovenError(f"predictions: expected class scores; got shape {tuple(scores.shape)}")
        return scores

    # Inside

    def _guarded(self, rows: Rows, part: str) -> Rows | PrivateRows:
        return rows if self.is_public(part) else self._keep(rows, part)

    def _keep(self, rows: Rows, what: str) -> PrivateRows:
        handle = PrivateRows(tuple(rows.shape), what)
        self._rows[handle] = rows
        return handle

    def _open(self, rows: Rows | PrivateRows) -> Rows:
        if not isinstance(rows, PrivateRows):
            return rows
        if rows not in self._rows:
            raise InputError("these private rows belong to another vault")
        return self._rows[rows]

    @cached_property
    def _edges(self) -> InNeighbors:
        """The edges that sums read: cut when they are first needed, because not all runs need them."""
        return self._graph.edges if self.unprotected else self._capped(self._graph.edges)

    def _capped(self, edges: InNeighbors) -> InNeighbors:
        """The owned lists cut to the unit's cap, where it has one; a promised bound was checked instead."""
        cap = self.unit.max_out_degree
        if cap is None or self.unit.degree_promised:
            return edges
        return self._capped_at(edges, cap)

    def _capped_at(self, edges: InNeighbors, cap: int) -> InNeighbors:
        """Every owner keeps at most `cap` entries, by its own keys; a smaller cap keeps a part of a larger one."""
        return cap_senders(edges, cap, self._noise.stream("degree cap"))

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

    def report(self, stage: str, done: int, total: int) -> None:
        """Tell whoever watches how far a stage is; carries no private value."""
        if self._progress is not None:
            self._progress(stage, done, total)
