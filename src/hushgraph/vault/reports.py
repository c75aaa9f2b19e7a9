"""Local reports: the vault plays every person's device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hushgraph.data.rows import dense_rows
from hushgraph.errors import BudgetError, PrivateAccessError
from hushgraph.mechanisms.devices import FeatureRandomizer, LabelRandomizer, Range, device_randomness, unit_interval
from hushgraph.privacy.plan import LocalStage
from hushgraph.privacy.units import Local
from hushgraph.vault.holder import Holder


class LocalReports(Holder):
    """The part of the vault that draws one randomized report per person."""

    def collect_features(self, mechanism: FeatureRandomizer, stage: LocalStage, low: Range, high: Range) -> Any:
        """Every person's randomized features, drawn once: clipped to the range, moved to [0, 1], randomized."""
        with self._timed(stage.name):
            self._charge_report(mechanism.epsilon, stage)
            rows = unit_interval(dense_rows(self._graph.features).numpy(), low, high)
            return mechanism.perturb(rows, device_randomness(self._noise, stage.name))

    def collect_labels(self, mechanism: LabelRandomizer, stage: LocalStage) -> Tensor:
        """The randomized labels of train and validation nodes, drawn once; -1 for everybody else."""
        with self._timed(stage.name):
            self._charge_report(mechanism.epsilon, stage)
            asked = torch.cat([self._graph.train, self._graph.val])
            reports = torch.full((self.facts.num_nodes,), -1, dtype=torch.int64)
            truth = self._graph.labels[asked].numpy()
            reports[asked] = torch.from_numpy(mechanism.perturb(truth, device_randomness(self._noise, stage.name)))
            return reports

    def raw_range(self) -> tuple[Range, Range]:
        """The least and the largest value of every column, as publications take them; proves nothing."""
        if not (self.unprotected or (isinstance(self.unit, Local) and self.unit.range_from_data)):
            raise PrivateAccessError("the range of raw features is private; state a public one (low, high)")
        rows = dense_rows(self._graph.features).numpy()
        low, high = rows.min(axis=0), rows.max(axis=0)
        return low, np.where(high > low, high, low + 1.0).astype(rows.dtype)

    def _charge_report(self, epsilon: float, stage: LocalStage) -> None:
        if not epsilon <= stage.epsilon:
            raise BudgetError(
                f"'{stage.name}' was planned at epsilon {stage.epsilon:g}; its randomizer has {epsilon:g}"
            )
        self._run.charge(stage)
