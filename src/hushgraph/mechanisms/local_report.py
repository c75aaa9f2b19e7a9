"""Local reports: every person's device draws one randomized report. Proofs: docs/proofs/local-features.md, -labels.md.

In the field the randomizer runs on the person's own device (`hushgraph.collect`). In a study the vault stands in for
all devices at once; the reports have the same law.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
import torch

from hushgraph import local
from hushgraph.errors import InputError
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.rows import dense_rows
from hushgraph.local.base import Randomness, os_generator
from hushgraph.mechanisms.canaries import Evidence, OpenVault, audit_graph
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy import events
from hushgraph.privacy.events import Event
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit

_MOST_CANARY_NUMBERS = 8_000_000
_FEWEST_CANARIES = 200

Range = float | tuple[float, ...]
"""One number for all columns, or one per column."""


@dataclass(frozen=True)
class LocalReport(Mechanism):
    """One report per person about `part`, drawn by `randomizer`, which is epsilon-DP for the whole report.

    Features are clipped to the public range [`low`, `high`] and moved to [0, 1] first. `range_from_data` takes the
    range from raw values, as publications do; then nothing is proved.
    """

    randomizer: Any = None
    part: str = "features"
    low: Range = 0.0
    high: Range = 1.0
    range_from_data: bool = False

    name = "local-report"
    proof = "local-features"
    law = "randomizer"
    released = "a randomized report"

    @property
    def reads(self) -> frozenset[str]:
        """The part that is reported."""
        return frozenset({self.part})

    @property
    def epsilon(self) -> float:
        """What one whole report costs its person."""
        return float(self.randomizer.epsilon)

    def sensitivity(self, unit: Unit) -> float:
        """A report may depend on all of its person's record; it is defined where nobody else sees the record."""
        return 1.0 if unit.trust == "local" else math.inf

    def event(self, unit: Unit, scale: float) -> Event:
        """Pure epsilon-DP for every person, if the range is public."""
        return events.non_private() if self.range_from_data else self.claimed_event(unit, scale)

    def claimed_event(self, unit: Unit, scale: float) -> Event:
        """Pure epsilon-DP for every person."""
        if scale == 0.0:
            return events.non_private()
        self.require(unit)
        return events.pure(self.epsilon)

    def as_published(self) -> LocalReport:
        """With the range of the features taken from the data."""
        return replace(self, range_from_data=True) if self.part == "features" else self

    def query(self, data: Any) -> Any:
        """The raw part."""
        return getattr(data, self.part)

    def release(self, data: Any, scale: float, noise: NoiseSource) -> Any:
        """Every person's report, drawn once; labels of training and validation nodes only (-1 for everybody else).

        A report about a label is a class number, or one bit per class.
        """
        draw = _device_randomness(noise)
        if self.part == "features":
            return self.randomizer.perturb(self._unit_interval(dense_rows(data.features).numpy()), draw)
        asked = torch.cat([data.train, data.val])
        known = _filled(data.labels[asked].numpy(), data.metadata.classes, draw)
        drawn = torch.from_numpy(self.randomizer.perturb(known, draw)).long()
        return drawn.new_full((data.metadata.num_nodes, *drawn.shape[1:]), -1).index_copy_(0, asked, drawn)

    def _unit_interval(self, rows: np.ndarray) -> np.ndarray:
        """The rows clipped to the range and moved to [0, 1], column by column."""
        low, high = (rows.min(axis=0), rows.max(axis=0)) if self.range_from_data else (self.low, self.high)
        below, above = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
        if self.range_from_data:
            above = np.where(above > below, above, below + 1.0)
        if below.shape not in ((), rows.shape[1:]) or above.shape not in ((), rows.shape[1:]):
            raise InputError(f"range: expected one number, or one for each of the {rows.shape[1]} columns")
        if not (np.isfinite(below).all() and np.isfinite(above).all() and (below < above).all()):
            raise InputError(
                "range: expected finite numbers with low < high; state the range without looking at the data"
            )
        if (below == 0.0).all() and (above == 1.0).all():
            return np.clip(rows, 0.0, 1.0)
        width = (above - below).astype(rows.dtype)
        return np.clip((rows - below.astype(rows.dtype)) / width, 0.0, 1.0)

    # Canaries

    def realized(self, unit: Unit, scale: float) -> float | None:
        """Parts are drawn independently of each other and of what was picked, so their epsilons add up."""
        return float(self.randomizer.realized())

    def most_canaries(self, stage: Stage, unit: Unit) -> int:
        """As many people as have records of a few million numbers together."""
        return max(_FEWEST_CANARIES, _MOST_CANARY_NUMBERS // np.size(self.randomizer.extreme_inputs()[0]))

    def canary(
        self, stage: Stage, unit: Unit, coins: np.ndarray, open_vault: OpenVault, rng: np.random.Generator
    ) -> Evidence:
        """People with one of two extreme records: the randomizer's top input, or its bottom input."""
        report = open_vault(self._people(coins)).release(stage.name)
        parts = self.randomizer.log_ratio(report, *self.randomizer.extreme_inputs())
        return Evidence(parts.sum(axis=1), "report", parts=parts)

    def _people(self, coins: np.ndarray) -> CheckedGraph:
        """One person for each coin, without edges; all of them are asked."""
        top, bottom = self.randomizer.extreme_inputs()
        nobody = torch.empty((2, 0), dtype=torch.int64)
        everyone = torch.ones(len(coins), dtype=torch.bool)
        if self.part == "labels":
            labels = torch.from_numpy(np.where(coins, top, bottom))
            return audit_graph(torch.zeros(len(coins), 1), nobody, labels, everyone, len(self.randomizer.inputs()))
        low, high = np.asarray(self.low), np.asarray(self.high)
        rows = low + (high - low) * np.where(coins[:, None], top, bottom)
        return audit_graph(torch.from_numpy(rows.astype(np.float32)), nobody, train=everyone)

    @classmethod
    def variants(cls) -> Sequence[Self]:
        """Reports about three features and about one of two labels, as a class or as bits."""
        labels = (local.RandomizedResponse(1.0, 2), local.UnaryEncoding(1.0, 2))
        features = (local.MultiBit(1.0, 3), local.FeatureRR(1.0, (0.5, 0.3, 0.2), bins=3))
        return [*map(cls, features), *(cls(randomizer, "labels") for randomizer in labels)]

    @classmethod
    def read(cls, values: dict[str, Any]) -> Self:
        """With the randomizer read back."""
        return cast(Self, super().read({**values, "randomizer": local.from_dict(values["randomizer"])}))

    def to_tensors(self, value: Any) -> dict[str, Any]:
        """Reports of sampled features as their columns and signs; everything else as it is."""
        if isinstance(value, local.SampledReport):
            return {"index": torch.from_numpy(value.index).to(torch.int32), "sign": torch.from_numpy(value.value)}
        return {"value": torch.as_tensor(value)}

    def from_tensors(self, tensors: dict[str, Any]) -> Any:
        """The inverse of `to_tensors`."""
        if "index" in tensors:
            index, sign = tensors["index"].numpy().astype(np.int64), tensors["sign"].numpy()
            return local.SampledReport(index, sign, self.randomizer.dimensions)
        value = tensors["value"]
        return value if self.part == "labels" else value.numpy()


def _filled(labels: np.ndarray, classes: int, draw: Randomness) -> np.ndarray:
    """The labels; a person without one reports about a class drawn at random (docs/proofs/local-labels.md)."""
    missing = labels < 0
    return np.where(missing, draw.integers(0, classes, labels.shape), labels) if missing.any() else labels


def _device_randomness(noise: NoiseSource) -> Randomness:
    """Operating-system entropy; a generator derived from the seed in a seeded (not private) run."""
    if not noise.seeded_run:
        return os_generator()
    return np.random.default_rng(int(noise.integers(1, 2**53)[0]))
