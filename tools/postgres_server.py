"""A PostgreSQL server of our own, for tests and measurements: made in a temporary folder, on a free port.

PostgreSQL refuses to run as root; it then borrows the `postgres` account that its package made.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

ACCOUNT = "postgres"


def missing() -> str | None:
    """Why there can be no server here; None if there can."""
    if _binary("initdb") is None:
        return "no PostgreSQL server is installed here"
    account = any(entry.pw_name == ACCOUNT for entry in pwd.getpwall())
    if os.geteuid() == 0 and (shutil.which("setpriv") is None or not account):
        return "PostgreSQL cannot run as root and there is no account to borrow"
    return None


class PostgresServer:
    """One server; `start` and `stop` it as often as you like, `remove` it in the end."""

    def __init__(self, *, fsync: bool = False) -> None:
        self.folder = tempfile.mkdtemp()
        if os.geteuid() == 0:
            shutil.chown(self.folder, ACCOUNT, ACCOUNT)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.address = f"postgresql://tester@127.0.0.1:{self.port}/postgres"
        self.options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1"
        self.options += " -c recovery_init_sync_method=syncfs" if fsync else " -c fsync=off"
        self._run("initdb", "-D", f"{self.folder}/data", "-A", "trust", "-U", "tester")

    def start(self) -> None:
        """Start it and wait until it answers."""
        log = f"{self.folder}/log"
        self._run("pg_ctl", "-D", f"{self.folder}/data", "-w", "-l", log, "-o", self.options, "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop it: `fast` ends connections in order, `immediate` is like a crash."""
        self._run("pg_ctl", "-D", f"{self.folder}/data", "-m", mode, "stop")

    def remove(self) -> None:
        """Stop it and remove its folder."""
        try:
            self.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *words: str) -> None:
        command = [str(_binary(program)), *words]
        if os.geteuid() == 0:
            command = ["setpriv", f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--clear-groups", *command]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder)


def _binary(name: str) -> str | None:
    listed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(listed[-1]) if listed else shutil.which(name)
