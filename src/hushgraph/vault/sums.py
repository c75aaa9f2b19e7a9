"""Noisy sums over in-neighbors: of learned rows, and of labels. Charged before anything leaves."""

from __future__ import annotations

import torch
from torch import Tensor

from hushgraph.data.rows import Rows, dense_rows
from hushgraph.graph.edges import InNeighbors
from hushgraph.graph.sums import sum_in_neighbors
from hushgraph.mechanisms.aggregate import bounded_rows, noisy_sum
from hushgraph.mechanisms.label_sum import known_labels, label_messages, noisy_label_sum
from hushgraph.privacy.label_sum import LabelSumStage
from hushgraph.privacy.plan import AggregationStage
from hushgraph.vault.handles import PrivateRows
from hushgraph.vault.holder import Holder


class NoisySums(Holder):
    """The part of the vault that sums over neighbors."""

    def label_rows(self, guesses: Rows | PrivateRows | None = None) -> Rows | PrivateRows:
        """One-hot labels of the train nodes; for all others, zeros or their row of `guesses`.

        Labels of nodes outside the train split are never read.
        """
        rows = known_labels(self._graph.labels, self._graph.train, len(self._graph.class_names))
        if guesses is not None:
            rows = torch.where(self._labeled().unsqueeze(1), rows, dense_rows(self._open(guesses)))
        private = isinstance(guesses, PrivateRows) or not self.is_public("labels")
        return self._keep(rows, "label rows") if private else rows

    def _labeled(self) -> Tensor:
        return torch.zeros(self.facts.num_nodes, dtype=torch.bool).index_fill_(0, self._graph.train, True)

    def aggregate_labels(
        self, rows: Rows | PrivateRows, stage: LabelSumStage, receivers: Tensor | None = None
    ) -> Tensor | PrivateRows:
        """One noisy sum over in-neighbors of label rows; the noise of a row depends on the kind of its node.

        A shared stage bounds what a record sends by itself, so it reads whole lists: the unit's cap is not needed.
        With a public mask of `receivers`, all other nodes get zeros and entries that name them are not used.
        """
        with self._timed(stage.name):
            opened, labeled = dense_rows(self._open(rows)), self._labeled()
            edges = self._graph.edges if stage.shared else self._edges
            if receivers is not None:
                edges = InNeighbors.from_edge_index(
                    edges.edge_index()[:, receivers[edges.targets().long()]], len(opened)
                )
            if self.unprotected:
                return sum_in_neighbors(edges, label_messages(edges, opened, labeled, stage))
            self._run.charge(stage, 1)
            self._releases += 1
            self.report(stage.name, self._releases, stage.count)
            noise = self._noise.stream(f"label sum/{stage.name}/{self._releases}")
            released = noisy_label_sum(edges, opened, labeled, stage, noise)
            if receivers is not None:
                released[~receivers] = 0.0
            return self._keep(released, "aggregated rows") if self.unit.degree_promised else released

    def aggregate(self, rows: Rows | PrivateRows, stage: AggregationStage) -> Tensor | PrivateRows:
        """One noisy sum over in-neighbors of the rows, each scaled to the stage's norm first.

        Under `node-promise` a node's own sum is part of its own record, so the result stays in the vault.
        """
        with self._timed(stage.name):
            return self._aggregate(rows, stage)

    def _aggregate(self, rows: Rows | PrivateRows, stage: AggregationStage) -> Tensor | PrivateRows:
        if self.unprotected:
            with torch.no_grad():
                return sum_in_neighbors(self._edges, bounded_rows(dense_rows(self._open(rows)), stage.row_norm))
        self._run.charge(stage, 1)
        self._releases += 1
        self.report(stage.name, self._releases, stage.count)
        noise = self._noise.stream(f"aggregate/{stage.name}/{self._releases}")
        released = noisy_sum(self._edges, dense_rows(self._open(rows)), stage.row_norm, stage.std, noise)
        return self._keep(released, "aggregated rows") if self.unit.degree_promised else released
