"""Rate limits without addresses: each node token has a small allowance that refills with time.

Keys are token hashes held in memory only. The table has a fixed size; the longest unused entry goes first.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable


class TokenBuckets:
    """At most `burst` requests at once per key, refilled at `per_second`."""

    def __init__(
        self,
        burst: float = 20.0,
        per_second: float = 0.5,
        keys: int = 100_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.burst, self.per_second, self.keys, self._clock = burst, per_second, keys, clock
        self._levels: OrderedDict[bytes, tuple[float, float]] = OrderedDict()

    def allow(self, key: bytes) -> bool:
        """Whether this request may pass; it uses up one unit if so."""
        now = self._clock()
        level, seen = self._levels.pop(key, (self.burst, now))
        level = min(self.burst, level + (now - seen) * self.per_second)
        allowed = level >= 1.0
        self._levels[key] = (level - 1.0 if allowed else level, now)
        if len(self._levels) > self.keys:
            self._levels.popitem(last=False)
        return allowed
