"""Stages that release whole numbers with whole-number noise: the discrete Laplace law, pure epsilon, exact sampling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

from hushgraph.errors import InputError
from hushgraph.noise.discrete import discrete_laplace_std
from hushgraph.privacy import events
from hushgraph.privacy.events import Event
from hushgraph.privacy.plan import Stage
from hushgraph.privacy.units import Unit


@dataclass(frozen=True)
class WholeNumberStage(Stage):
    """`count` releases of whole numbers, each with noise P[k] ~ exp(-|k| / scale).

    `scale` is whole too, so that the law can be sampled exactly. `sensitivity` is in L1. Use `within` to make one.
    """

    scale: int = 1

    def __post_init__(self) -> None:
        problems = [
            f"{name}: expected a whole number of at least 1; got {value!r}"
            for name, value in self._whole_numbers().items()
            if isinstance(value, bool) or not isinstance(value, int) or value < 1
        ]
        InputError.collect(problems)
        if self.std != discrete_laplace_std(self.scale):
            raise InputError(f"std: expected that of noise of scale {self.scale}; got {self.std!r}. Use `within`")

    def _whole_numbers(self) -> dict[str, Any]:
        return {"scale": self.scale, "count": self.count}

    @classmethod
    def within(cls, name: str, epsilon: float, unit: Unit, *more: int) -> Self:
        """One release with the least noise that costs at most `epsilon` for `unit`."""
        if not (math.isfinite(epsilon) and epsilon > 0.0):
            raise InputError(f"epsilon: expected a positive, finite number; got {epsilon!r}")
        bound = cls(name, 1, discrete_laplace_std(1), 1, *more).sensitivity(unit)
        scale = max(1, math.ceil(bound / epsilon))
        if bound / scale > epsilon:  # the division above was rounded down
            scale += 1
        return cls(name, 1, discrete_laplace_std(scale), scale, *more)

    def epsilon(self, unit: Unit) -> float:
        """What one release costs: sensitivity / scale, without a delta."""
        return self.sensitivity(unit) / self.scale

    def event(self, unit: Unit) -> Event:
        """Pure epsilon-DP, `count` times."""
        return events.repeated(events.pure(self.epsilon(unit)), self.count)

    def as_dict(self, unit: Unit) -> dict[str, Any]:
        """As `Stage.as_dict`, with the law and the price."""
        return {**super().as_dict(unit), "scale": self.scale, "epsilon": self.epsilon(unit)}
