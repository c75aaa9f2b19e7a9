"""A vault that gives back what was released before: predictions about the training graph cost nothing more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from hushgraph.errors import InputError, PrivateAccessError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.edges import Edges
from hushgraph.graph.rows import Rows
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.plan import Plan
from hushgraph.vault.handles import Held
from hushgraph.vault.vault import NOBODY, Vault


class Replay(Vault):
    """The releases of a run, in the order in which they were made, with the features of `graph` if it is given.

    What needs features is refused without a graph. Nothing is charged, and nothing new can be released. Features are
    handed to `recognize` before they are read: it refuses those of another graph.
    """

    def __init__(
        self,
        plan: Plan,
        released: dict[str, list[Any]],
        graph: CheckedGraph | None,
        nodes: dict[str, Tensor],
        recognize: Callable[[Rows], None] = lambda _: None,
    ) -> None:
        self.plan, self.unit = plan, plan.unit
        self.seconds: dict[str, float] = {}
        self.trained_how: dict[str, Any] = {}
        self.released = released
        self._given, self._nodes, self._recognize = graph, nodes, recognize
        if graph is not None:
            self._graph = graph
        self._progress = NOBODY
        self._noise = NoiseSource.from_os()  # for public generators alone; a replay draws nothing that matters
        self._next: Counter[str] = Counter()
        self._cut = {}
        self._checkpoint = self._options = self._executor = None
        self._rows = {}  # type: ignore[assignment]

    @property
    def metadata(self) -> Metadata:
        """The public sizes of the training graph."""
        return self.plan.metadata

    def is_public(self, part: str) -> bool:
        """Everything given here is in the caller's hands already."""
        return True

    @property
    def features(self) -> Held:
        """The given features."""
        rows = self._needed("nodes' own features").features
        self._recognize(rows)
        return rows

    @property
    def labels(self) -> Tensor:
        """The given labels."""
        return self._needed("labels").labels

    @property
    def edges(self) -> Edges:
        """The given edges."""
        return self._needed("edges").edges

    def release(self, name: str, *inputs: Any, nodes: Tensor | None = None, **options: Any) -> Any:
        """The next value that was released under this name; a stage that was free is carried out again."""
        stage = self.plan[name]
        if stage.mechanism.trains:
            raise PrivateAccessError(f"'{name}' trains: a replay of what was released cannot do that")
        if self.plan.runs_exactly(name):
            self._needed(", ".join(sorted(stage.mechanism.reads)))
            return stage.mechanism.query(self._view(stage, None, ()), *inputs, **options)
        kept, at = self.released.get(name, []), self._next[name]
        if at >= len(kept):
            raise self._not_stored(name)
        self._next[name] += 1
        return kept[at]

    def raw_scores(self, network: Callable[[Rows, Edges], Tensor]) -> Tensor:
        """Class scores from the given features and edges."""
        given = self._needed("edges")
        with torch.no_grad():
            return network(cast(Rows, self.features), given.edges)

    def _not_stored(self, name: str) -> InputError:
        return InputError(
            f"predict: under the unit '{self.unit}' the result of '{name}' is part of each node's own record and is "
            "not stored with the model; use predict_on with the graph and a budget (--on GRAPH --epsilon E)"
        )

    def _needed(self, what: str) -> CheckedGraph:
        unstored = [stage.name for stage in self.plan if stage.mechanism.stays_private(self.unit)]
        if self._given is None and unstored and self.plan.budget.is_private:
            raise self._not_stored(unstored[0])
        if self._given is None:
            raise InputError(f"predict: this model reads the {what}; pass the graph it was trained on (--data)")
        return self._given


class Collection(Replay):
    """Reports that people sent: a method is trained on them as on its own, and no raw value is there to be read.

    `graph` has what the unit leaves public. All that follows from reports costs nothing more.
    """

    def __init__(self, plan: Plan, reports: dict[str, Any], graph: CheckedGraph, noise: NoiseSource) -> None:
        nodes = {split: graph.split(split) for split in ("train", "val", "test")}
        super().__init__(plan, {name: [report] for name, report in reports.items()}, graph, nodes)
        self._noise = noise

    def is_public(self, part: str) -> bool:
        """As under the unit: what is not public was reported, or it is not there."""
        return part in self.unit.public
