"""How much memory there is, and whether a graph is used from memory or from the disk.

A graph in memory is faster to walk through; from the disk it takes memory for its nodes alone. Results are the same, to
the last byte.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from hushgraph.errors import InputError

BYTES_PER_ENTRY = 40
"""Of an edge in memory, while its list is put in order: both ends as they come, sorted, and where they go."""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_DECIMAL = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_CGROUP = Path("/sys/fs/cgroup/memory.max")
_SHARE = 0.5  # of what is free: others want some of it too
_LEAST_BYTES = 1 << 20  # what a number without a unit is taken for at its word
_LEAST_AT_ONCE, _MOST_AT_ONCE = 1 << 26, 1 << 28


def bytes_of(size: str | int | None) -> int:
    """A size such as "4GiB", "500MB" or a number of bytes; None: half of the memory that is free now."""
    if size is None:
        return int(_SHARE * _free())
    if isinstance(size, int) and not isinstance(size, bool):
        found = size
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?\s*", str(size), re.IGNORECASE)
        if match is None:
            raise InputError(f"memory: expected a size such as 4GiB, 500MB or a number of bytes; got {size!r}")
        number, unit, binary = match.groups()
        units = _UNITS if binary or not unit else _DECIMAL
        found = int(float(number) * units[unit.upper()])
    if found < 1:
        raise InputError(f"memory: expected more than nothing; got {size!r}")
    if found < _LEAST_BYTES and str(size).strip().isdecimal():
        raise InputError(f"memory: expected a size such as 4GiB; got {found} bytes; did you mean {found}GiB")
    return found


def fits(num_edges: int, num_nodes: int, num_features: int, memory: int) -> bool:
    """Whether a graph is used from memory within so many bytes."""
    return BYTES_PER_ENTRY * num_edges + 4 * num_nodes * num_features <= memory


def at_once(memory: int) -> int:
    """Bytes that edges on disk are read and sorted with, within a budget for everything."""
    return min(max(memory // 16, _LEAST_AT_ONCE), _MOST_AT_ONCE)


def _free() -> int:
    """Bytes that could be used now, within the limit of a container."""
    limits = []
    try:
        limits.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        limits.append(8 << 30)  # a system that does not tell
    with contextlib.suppress(OSError, ValueError):  # no container, or one without a limit
        limits.append(int(_CGROUP.read_text()))
    return min(limits)
