"""What a mechanism is shown of a dataset: the parts it declares in `reads`, and what is public anyway."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from hushgraph.errors import PrivateAccessError
from hushgraph.executors.base import Executor
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.edges import Edges, MemoryEdges
from hushgraph.graph.rows import Rows
from hushgraph.graph.types import of_one_type
from hushgraph.graph.weights import EdgeWeights
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.metadata import Metadata
from hushgraph.training.loop import StepKeeper


@dataclass
class View:
    """One release's view of the data. A part that was not declared is not there.

    `edges` are cut to the unit's cap; `whole_lists` are not, for a mechanism that bounds what a list can do by itself.
    `report(done, total)` is for progress and learns nothing. `cut` keeps edges with shortened lists for later releases:
    what a list keeps follows from the key of the run, and is the same each time.
    """

    _graph: CheckedGraph
    _reads: frozenset[str]
    _cap: int | None
    _noise: NoiseSource
    _name: str
    report: Callable[[int, int], object] = lambda done, total: None
    _cut: dict[int | str, Edges] = field(default_factory=dict)
    keeper: StepKeeper | None = None
    """Keeps the state of a training between two steps, where the run has a checkpoint."""
    executor: Executor | None = None
    """Does what a mechanism hands out, where the user has workers."""

    @property
    def metadata(self) -> Metadata:
        """The public sizes."""
        return self._graph.metadata

    @property
    def train(self) -> Tensor:
        """The numbers of the training nodes (public)."""
        return self._graph.train

    @property
    def val(self) -> Tensor:
        """The numbers of the validation nodes (public)."""
        return self._graph.val

    @property
    def public(self) -> Tensor:
        """The numbers of the nodes whose records are public knowledge."""
        return self._graph.public

    def labeled(self, split: str) -> Tensor:
        """The nodes of a split that have a label; only for a mechanism that reads labels."""
        self._require("labels")
        return self._graph.labeled(split)

    @property
    def public_edges(self) -> MemoryEdges | None:
        """The edges that were declared to be public knowledge."""
        return self._graph.public_edges

    @property
    def trains_on(self) -> Tensor:
        """The public mask of the training nodes."""
        mask = torch.zeros(self.metadata.num_nodes, dtype=torch.bool)
        return mask.index_fill_(0, self._graph.train, True)

    @property
    def features(self) -> Rows:
        """The features."""
        return self._part("features")

    @property
    def labels(self) -> Tensor:
        """The labels."""
        return self._part("labels")

    @property
    def whole_lists(self) -> Edges:
        """The edges as they are."""
        return self._part("edges")

    @property
    def edge_weights(self) -> EdgeWeights | None:
        """The weights of the edges, where they have any."""
        self._part("edges")
        return self._graph.edge_weights

    def mailboxes(self, types: int, *, whole: bool = False) -> Edges:
        """The edges to the mailboxes of every type, every node's own list of all types cut to the unit's cap.

        With `whole`, lists are not cut, as in `whole_lists`.
        """
        self._part("edges")
        known, cap = self._graph.edge_types, None if whole else self._cap
        if known is None:
            return of_one_type((self.whole_lists if whole else self.edges).load(), types)
        if cap is None:
            return known.entries
        kept = f"types {cap}"
        if kept not in self._cut:
            self._cut[kept] = known.entries.cap(cap, self._noise.stream("degree cap"))
        return self._cut[kept]

    @cached_property
    def edges(self) -> Edges:
        """The edges, every node's own list cut to the unit's cap."""
        return self.capped(None)

    def capped(self, limit: int | None) -> Edges:
        """The edges with lists cut to the unit's cap and to `limit`, whichever is less."""
        caps = [cap for cap in (self._cap, limit) if cap is not None]
        whole = self.whole_lists
        if not caps:
            return whole
        if min(caps) not in self._cut:
            self._cut[min(caps)] = whole.cap(min(caps), self._noise.stream("degree cap"))
        return self._cut[min(caps)]

    def generator(self, purpose: str) -> torch.Generator:
        """A generator for things that need no privacy, such as the order of public batches."""
        return self._noise.torch_generator(f"{purpose}/{self._name}")

    def _part(self, part: str) -> Any:
        self._require(part)
        return getattr(self._graph, part)

    def _require(self, part: str) -> None:
        if part not in self._reads:
            raise PrivateAccessError(f"'{self._name}' reads {part} without declaring it; add it to `reads`")
