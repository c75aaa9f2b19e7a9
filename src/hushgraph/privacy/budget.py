"""How much privacy loss is allowed: epsilon and delta."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hushgraph.errors import InputError


@dataclass(frozen=True)
class Budget:
    """An upper limit (epsilon, delta) on privacy loss.

    `epsilon=math.inf` asks for no protection at all (a baseline); its certificate says so. `delta=None` lets the
    plan choose `default_delta` once the public number of units is known. `relations` are limits for one edge of each
    type, in a graph with types of edges; epsilon is the largest of them then.
    """

    epsilon: float = field()
    delta: float | None = None
    relations: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        problems = []
        if not _is_number(self.epsilon) or math.isnan(self.epsilon) or self.epsilon <= 0:
            problems.append(f"epsilon: expected a positive number; got {self.epsilon!r}")
        if self.delta is not None and (not _is_number(self.delta) or not 0.0 < self.delta < 1.0):
            problems.append(f"delta: expected a number above 0 and below 1; got {self.delta!r}")
        shares = [epsilon for _, epsilon in self.relations]
        if shares and not (all(_is_number(one) and one > 0 for one in shares) and max(shares) == self.epsilon):
            problems.append(f"relations: expected positive numbers, the largest of them epsilon; got {self.relations}")
        InputError.collect(problems)

    @property
    def is_private(self) -> bool:
        """False for the baseline without protection."""
        return math.isfinite(self.epsilon)

    def for_units(self, units: int, counted: str = "the number of protected units") -> Budget:
        """This budget with a definite delta for a dataset of `units` units; refuses delta >= 1/units.

        `counted` says how the units were counted, for the message.
        """
        if units < 1:
            raise InputError(f"the number of protected units: expected at least 1; got {units}")
        delta = default_delta(units) if self.delta is None else self.delta
        if self.is_private and delta * units >= 1.0:
            raise InputError(
                f"delta: expected less than 1/{units} = {1 / units:.3g} ({counted}); got {delta:g}. A delta that large "
                f"allows one unit to be published whole; try {default_delta(units):g}"
            )
        return Budget(self.epsilon, delta, self.relations)

    def as_dict(self) -> dict[str, Any]:
        """The budget as plain JSON values."""
        relations = {"relations": [list(pair) for pair in self.relations]} if self.relations else {}
        return {"epsilon": as_word(self.epsilon), "delta": self.delta, **relations}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Budget:
        """The inverse of `as_dict`, also after a way through JSON."""
        delta = values["delta"]
        relations = tuple((str(name), float(epsilon)) for name, epsilon in values.get("relations", ()))
        return cls(float(values["epsilon"]), None if delta is None else float(delta), relations)

    @property
    def definite_delta(self) -> float:
        """Delta, once it has been fixed."""
        if self.delta is None:
            raise InputError("delta has not been fixed yet: call for_units first")
        return self.delta


def as_budget(given: Any) -> Budget:
    """A budget; also an epsilon, or a pair of epsilon and delta. An epsilon may be one for each type of edge."""
    if isinstance(given, Budget):
        return given
    if _is_number(given):
        return Budget(given)
    if isinstance(given, Mapping):
        given = (given, None)
    if isinstance(given, tuple | list) and len(given) == 2:
        epsilon, delta = given
        if not isinstance(epsilon, Mapping):
            return Budget(epsilon, delta)
        if epsilon and all(_is_number(one) for one in epsilon.values()):
            return Budget(max(epsilon.values()), delta, tuple((str(name), one) for name, one in epsilon.items()))
    got = "none" if given is None else repr(given)
    raise InputError(
        "budget: expected a Budget(epsilon, delta), 4.0 or (4.0, 1e-6), or for types of edges "
        f"{{'follows': 4.0, 'pays': 1.0}}; got {got}"
    )


def as_word(epsilon: float) -> float | str:
    """An epsilon as JSON can hold it."""
    return epsilon if math.isfinite(epsilon) else str(epsilon)


def default_delta(units: int) -> float:
    """The largest power of ten below 1 / (10 x units)."""
    exponent = math.ceil(math.log10(10 * units))
    if 10**exponent <= 10 * units:
        exponent += 1
    return float(f"1e-{exponent}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
