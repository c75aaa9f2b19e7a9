from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from hushgraph.errors import InputError, UnprovenError
from hushgraph.mechanisms import EdgeCount, NeighborSum
from hushgraph.privacy import events, units
from hushgraph.privacy.mechanism import GaussianMechanism, Mechanism, PureMechanism, mechanism_from_dict
from hushgraph.testing import mechanisms


@dataclass(frozen=True)
class Toy(GaussianMechanism):
    bound: float = 2.0

    name = "toy"
    proof = "none"
    reads = frozenset({"labels"})

    def sensitivity(self, unit: units.Unit) -> float:
        return self.bound

    def query(self, data: Any) -> float:
        return 0.0

    def release(self, data: Any, scale: float, noise: Any) -> float:
        return 0.0


@dataclass(frozen=True)
class Coin(PureMechanism):
    """Pure, with noise that is not a whole number."""

    name = "coin"
    proof = "none"
    law = "randomizer"
    reads = frozenset({"labels"})
    sensitivity = Toy.sensitivity
    query, release = Toy.query, Toy.release
    bound = 2.0


def test_a_gaussian_costs_its_scale_over_its_bound() -> None:
    assert Toy().event(units.Node(), 5.0) == events.gaussian(2.5)
    assert Toy().event(units.Node(), 0.0) == events.non_private()


def test_a_pure_mechanism_costs_its_bound_over_its_scale() -> None:
    assert EdgeCount(10).event(units.Node(), 4.0) == events.pure(2.5)
    assert Coin().event(units.Node(), 0.8) == events.pure(2.5)
    assert EdgeCount(10).event(units.Node(), 0.0) == events.non_private()


def test_discrete_noise_needs_a_whole_scale_and_other_noise_does_not() -> None:
    assert EdgeCount(10).usable_scale(2.1) == 3.0
    assert EdgeCount(10).usable_scale(0.0) == 1.0
    assert Coin().usable_scale(2.1) == Toy().usable_scale(2.1) == 2.1
    with pytest.raises(InputError, match="whole scale"):
        EdgeCount(10).event(units.Node(), 2.5)


def test_an_infinite_bound_is_refused_by_name() -> None:
    for ask in (lambda m: m.require(units.Node()), lambda m: m.event(units.Node(), 1.0)):
        with pytest.raises(UnprovenError, match="toy has no proof under the unit 'node'"):
            ask(Toy(math.inf))
        with pytest.raises(UnprovenError, match="toy has no proof under the unit 'node'"):
            ask(Toy(math.nan))


def test_the_reference_of_relative_noise_is_the_bound() -> None:
    assert Toy().reference(units.Node()) == 2.0
    assert Toy().claimed_event(units.Node(), 5.0) == Toy().event(units.Node(), 5.0)


@pytest.mark.parametrize("values", [{}, {"name": "neighbor-sum", "length": 3}, {"row_norm": 1.0}])
def test_parameters_that_do_not_fit_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expected a mechanism"):
        mechanism_from_dict(values)


def test_unknown_mechanisms_are_refused_with_advice() -> None:
    with pytest.raises(InputError, match="did you mean 'neighbor-sum'"):
        mechanism_from_dict({"name": "neighbor-sums"})


@pytest.mark.parametrize("mechanism", mechanisms(), ids=repr)
def test_mechanisms_say_what_they_are(mechanism: Mechanism) -> None:
    assert mechanism_from_dict(mechanism.as_dict()) == mechanism
    assert mechanism.reads <= {"edges", "features", "labels"}
    assert mechanism.reads
    assert hash(mechanism) == hash(mechanism_from_dict(mechanism.as_dict()))


def test_a_mechanism_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        NeighborSum().row_norm = 3.0  # type: ignore[misc]
