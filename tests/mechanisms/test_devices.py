from __future__ import annotations

import numpy as np
import pytest

from hushgraph.errors import InputError
from hushgraph.local import OsRandom
from hushgraph.mechanisms.devices import device_randomness, unit_interval
from hushgraph.noise.source import NoiseSource

ROWS = np.array([[-1.0, 0.5], [2.0, 9.0]], dtype=np.float32)


def test_rows_are_clipped_and_moved_to_the_unit_interval() -> None:
    assert unit_interval(ROWS, 0.0, 1.0).tolist() == [[0.0, 0.5], [1.0, 1.0]]
    assert unit_interval(ROWS, -2.0, 2.0).tolist() == [[0.25, 0.625], [1.0, 1.0]]
    each = unit_interval(ROWS, np.array([-1.0, 0.0]), np.array([2.0, 10.0]))
    assert each == pytest.approx(np.array([[0.0, 0.05], [1.0, 0.9]]))
    assert ROWS.tolist() == [[-1.0, 0.5], [2.0, 9.0]]


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (0.0, np.inf), (np.nan, 1.0), (np.zeros(3), np.ones(3))])
def test_ranges_that_make_no_sense_are_refused(low: float, high: float) -> None:
    with pytest.raises(InputError, match="range"):
        unit_interval(ROWS, low, high)


def test_only_a_seeded_run_has_repeatable_devices() -> None:
    assert isinstance(device_randomness(NoiseSource.from_os(), "features"), OsRandom)
    first, second = (device_randomness(NoiseSource.seeded(1), "features").random(4) for _ in range(2))
    assert first.tolist() == second.tolist()
    assert first.tolist() != device_randomness(NoiseSource.seeded(1), "labels").random(4).tolist()
