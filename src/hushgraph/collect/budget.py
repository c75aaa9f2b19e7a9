"""The lifetime budget a device keeps for its owner, in one small file.

Every task that was answered is listed with its price. A task is charged once, before its answer is drawn; a charge that
would pass the limit is refused. The file is written whole and made durable before anything else happens.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hushgraph.errors import BudgetError, InputError, LedgerError

FORMAT = "hushgraph-lifetime/1"


def write_durably(path: Path, content: bytes) -> None:
    """Replace `path` by `content` so that a crash leaves the old or the new file, never half of one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, so that two programs of one owner cannot draw two answers."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(folder / "lock", "a+b") as file:
        if os.name == "posix":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class LifetimeBudget:
    """Charges by task hash in `path`, never above `limit` in total."""

    def __init__(self, path: Path, limit: float) -> None:
        if not (math.isfinite(limit) and limit > 0):
            raise InputError(f"expected a lifetime epsilon > 0; got {limit}; choose what this device may ever spend")
        self.path, self.limit = path, limit

    @property
    def charges(self) -> dict[str, float]:
        """Task hash to epsilon. A damaged file is an error: guessing would risk spending twice."""
        if not self.path.exists():
            return {}
        try:
            body: Any = json.loads(self.path.read_bytes())
            charges = {str(task): float(epsilon) for task, epsilon in body["charges"].items()}
            valid = body["format"] == FORMAT and all(math.isfinite(e) and e > 0 for e in charges.values())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LedgerError(f"expected a budget file; got a damaged one at {self.path}; restore it") from error
        if not valid:
            raise LedgerError(f"expected a budget file; got other entries at {self.path}; restore it")
        return charges

    @property
    def spent(self) -> float:
        """The sum of all charges."""
        return math.fsum(self.charges.values())

    def charge(self, task_hash: str, epsilon: float) -> None:
        """Charge a task once; a second charge of the same task changes nothing, because its answer is drawn once."""
        charges = self.charges
        if task_hash in charges:
            return
        if self.spent + epsilon > self.limit * (1 + 1e-12):
            raise BudgetError(
                f"expected at most {self.limit:g} in a lifetime; {self.spent:g} is spent and this task asks for "
                f"{epsilon:g}; decline it, or raise the limit on purpose"
            )
        body = {"format": FORMAT, "charges": {**charges, task_hash: epsilon}}
        write_durably(self.path, json.dumps(body, sort_keys=True).encode("ascii"))
