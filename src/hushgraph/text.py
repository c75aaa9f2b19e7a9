"""Numbers for people. A printed promise is never better than the proved one, so a price is rounded up."""

from __future__ import annotations

import math


def rounded_up(value: float, digits: int = 4) -> str:
    """The smallest number of `digits` digits that is not below `value`."""
    if not math.isfinite(value) or value == 0.0:
        return f"{value:g}"
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
    return f"{math.ceil(round(value / unit, 9)) * unit:.{digits}g}"
