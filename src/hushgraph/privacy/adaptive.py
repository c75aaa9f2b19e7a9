"""The loss of a run that chose its way: the most that any of the ways it could have taken costs."""

from __future__ import annotations

from dataclasses import dataclass

from hushgraph.errors import UnprovenError
from hushgraph.privacy.loss import PrivacyLoss


@dataclass(frozen=True)
class WorstOf:
    """A release of pure epsilon e, then one of several options, chosen with it in view.

    Each way is the first release together with one option. If every option is (a, delta)-DP, the whole is
    (e + a, delta)-DP by basic composition, which holds however the choice is made (docs/proofs/count.md); the loss of
    the option that happened to be chosen is not enough.
    """

    ways: tuple[PrivacyLoss, ...]

    def __post_init__(self) -> None:
        if not self.ways:
            raise UnprovenError("a choice needs at least one option")

    @property
    def accountant(self) -> str:
        """Which routes give the numbers."""
        routes = " or ".join(dict.fromkeys(way.accountant for way in self.ways))
        return f"{routes}; the costliest of {len(self.ways)} options"

    @property
    def mu(self) -> float | None:
        """A choice has no exact Gaussian form."""
        return None

    def epsilon(self, delta: float) -> float:
        """Epsilon of the costliest way at `delta`."""
        return max(way.epsilon(delta) for way in self.ways)

    def delta(self, epsilon: float) -> float:
        """Delta of the costliest way at `epsilon`."""
        return max(way.delta(epsilon) for way in self.ways)
