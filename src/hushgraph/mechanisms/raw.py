"""Raw data without any protection: what baselines without privacy read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hushgraph.errors import UnprovenError
from hushgraph.privacy import events
from hushgraph.privacy.events import Event
from hushgraph.privacy.mechanism import Mechanism
from hushgraph.privacy.units import Unit


@dataclass(frozen=True)
class Raw(Mechanism):
    """Hands out a part of the data as it is. It has no bound, so it runs without a privacy budget only."""

    part: str = "edges"

    name = "raw"
    proof = "none"
    law = "none"
    released = "raw data"

    @classmethod
    def variants(cls) -> Sequence[Raw]:
        """One for each part."""
        return [cls(part) for part in ("edges", "features", "labels")]

    @property
    def reads(self) -> frozenset[str]:
        """The part."""
        return frozenset({self.part})

    def sensitivity(self, unit: Unit) -> float:
        """Unbounded."""
        return math.inf

    def require(self, unit: Unit) -> float:
        """Refused wherever something is promised."""
        raise UnprovenError(
            f"this method reads raw {self.part} and has no privacy proof under the unit '{unit.name}'; it runs with "
            "epsilon=inf only"
        )

    def event(self, unit: Unit, scale: float) -> Event:
        """Not private."""
        return events.non_private()

    def query(self, data: Any) -> Any:
        """The part itself."""
        return data.whole_lists.load() if self.part == "edges" else getattr(data, self.part)

    def release(self, data: Any, scale: float, noise: Any) -> Any:
        """Never reached: there is no scale of noise that would do."""
        raise UnprovenError("raw data has no private release")
