"""Only one process writes a ledger at a time; whoever waits learns for whom."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from hushgraph.errors import LedgerError
from hushgraph.files.writing import private_folder

TIMEOUT = 10.0
_PATIENCE = 1.0
_LOCK, _HOLDER = ".lock", ".lock.holder"
_LOG = logging.getLogger("hushgraph.ledger")


@contextlib.contextmanager
def held(folder: Path, timeout: float = TIMEOUT) -> Iterator[None]:
    """Hold the lock of the ledger in `folder`; an error that names its holder after `timeout` seconds."""
    private_folder(folder)
    lock = FileLock(folder / _LOCK, mode=0o600)
    _acquire(lock, folder, timeout)
    try:
        _say_who(folder / _HOLDER)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(folder / _HOLDER)
        lock.release()


def _acquire(lock: FileLock, folder: Path, timeout: float) -> None:
    started = time.monotonic()
    try:
        lock.acquire(timeout=min(timeout, _PATIENCE))
        return
    except Timeout:
        if timeout > _PATIENCE:
            _LOG.warning("waiting up to %g s for the ledger in %s: %s", timeout, folder, holder(folder))
    try:
        lock.acquire(timeout=max(0.0, timeout - (time.monotonic() - started)))
    except Timeout:
        raise LedgerError(
            f"expected the ledger in {folder} to be free; it is {holder(folder)}, and {timeout:g} s have passed. "
            "Wait for that process or end it, then try again; nothing was charged"
        ) from None


def holder(folder: Path) -> str:
    """Who holds the lock, in words."""
    try:
        who = json.loads((folder / _HOLDER).read_text())
        return f"held by process {who['pid']} on {who['host']} since {who['since']} ({who['command']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "held by a process that left no name"


def command_line() -> str:
    """How this process was started, shortened."""
    words = shlex.join(sys.argv)
    return words if len(words) <= 300 else words[:297] + "..."


def _say_who(path: Path) -> None:
    who: dict[str, Any] = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "command": command_line(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    with contextlib.suppress(OSError):  # a full disk must not keep anybody from reading
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(handle, "w") as file:
            json.dump(who, file)
