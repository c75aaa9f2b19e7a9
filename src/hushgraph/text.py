"""Numbers for people and values for JSON. A printed promise is never better than the proved one: rounded up."""

from __future__ import annotations

import math
from typing import Any


def rounded_up(value: float, digits: int = 4) -> str:
    """The smallest number of `digits` digits that is not below `value`."""
    if not math.isfinite(value) or value == 0.0:
        return f"{value:g}"
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
    return f"{math.ceil(round(value / unit, 9)) * unit:.{digits}g}"


def plain_json(value: Any) -> Any:
    """The value as JSON can hold it: tuples as lists, infinity and NaN as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    return value
