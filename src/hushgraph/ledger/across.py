"""What a run that was planned for one unit costs under another: a bound where one is proved, nothing elsewhere.

A plan says what mechanisms did, and `plan.ways(unit)` prices that for any unit. Three things can make that price wrong,
and are looked at here. What was public under the unit of the run was used without a charge, so it must be public under
the other unit, too: an edge-level run proves nothing at node level. Lists were cut for the unit of the run: a smaller
cap of the other unit was not applied. And where lists were cut, an entry that is removed may let another one in, so
that an edge is two entries (four, for both directions) in what the mechanism saw. Argument: docs/proofs/filters.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dp_accounting import dp_event as dpa

from hushgraph.errors import UnprovenError
from hushgraph.privacy import events, units
from hushgraph.privacy.events import Event, PureDpEvent
from hushgraph.privacy.units import DirectedEdge, Unit

_ENTRIES = {"directed-edge": 2, "undirected-edge": 4}
"""Entries of cut lists that one edge changes: each list it is on loses one and may gain one."""


def priced_across(ways: Callable[[Unit], list[Event]], charged: Unit, asked: Unit) -> list[Event]:
    """The events of a run charged for `charged`, for `asked`; UnprovenError where no bound is known."""
    unit, entries = _seen_as(charged, asked)
    return [grouped(way, entries) for way in ways(unit)]


def _seen_as(charged: Unit, asked: Unit) -> tuple[Unit, int]:
    """The unit whose bounds hold for one change of `asked`, and how many such changes it amounts to."""
    if charged == asked:
        return asked, 1
    cap, other = _cap(charged), _cap(asked)
    same_kind = _trust(charged) == _trust(asked) and not (_promised(charged) or _promised(asked))
    if same_kind and charged.public <= asked.public:
        if cap is None and other is None:
            return asked, 1
        if cap is not None and other is not None:
            return units.from_dict({**asked.as_dict(), "max_degree": max(cap, other)}), 1
        if cap is not None and asked.name in _ENTRIES:
            return DirectedEdge(), _ENTRIES[asked.name]
    raise UnprovenError(f"a run for the unit '{charged.name}' has no bound under the unit '{asked.name}'")


def grouped(event: Event, size: int) -> Event:
    """The event when `size` units change together, each as far as one may."""
    if size == 1:
        return event
    parts = []
    for leaf, count in events.flatten(event):
        if isinstance(leaf, dpa.GaussianDpEvent):
            parts.append(events.gaussian(leaf.noise_multiplier / size, count))
        elif isinstance(leaf, PureDpEvent):
            parts.append(events.repeated(events.pure(leaf.epsilon * size), count))
        else:
            raise UnprovenError(f"no bound is known for {type(leaf).__name__} when {size} units change together")
    return events.composed(parts)


def _cap(unit: Unit) -> int | None:
    found: Any = getattr(unit, "max_out_degree", None)
    return found if found is not None else getattr(unit, "cap", None)


def _promised(unit: Unit) -> bool:
    return bool(getattr(unit, "degree_promised", unit.name == "node-promise"))


def _trust(unit: Unit) -> str:
    return str(getattr(unit, "trust", "local" if unit.name == "local" else "central"))
