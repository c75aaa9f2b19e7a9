"""PostgreSQL as the store of a collection service: pooled connections that come back after a restart of it.

Left to itself the pool tries to connect again after one, two, four seconds. Here it gives up at once, and whoever waits
for a connection asks for a new one a few times a second: the service is back as soon as the database is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from hushgraph.collect.store import Store, Unavailable
from hushgraph.errors import InputError

MOST_CONNECTIONS = 8
WAIT, ASK_AGAIN = 5.0, 0.2
_MIGRATIONS = 0x68757368_636F6C6C  # the advisory lock of whoever changes the tables: "hushcoll"


class PostgresStore(Store):
    """A PostgreSQL database by address; needs the packages `psycopg` and `psycopg_pool`."""

    blob = "BYTEA"
    placeholder = "%s"
    row_lock = " FOR SHARE"
    writers = 3

    def __init__(self, address: str) -> None:
        try:
            import psycopg
            import psycopg_pool
        except ImportError as error:
            raise InputError(
                f"expected the packages psycopg and psycopg_pool for PostgreSQL; {error}; "
                "pip install 'hushgraph[postgres]'"
            ) from error
        self._timeout = psycopg_pool.PoolTimeout
        self._gone: tuple[type[Exception], ...] = (
            psycopg.OperationalError,  # the server went away; deadlocks and failed serializations are among them
            psycopg.InterfaceError,
            psycopg_pool.PoolTimeout,
        )
        self._pool = psycopg_pool.ConnectionPool(
            address,
            min_size=1,
            max_size=MOST_CONNECTIONS,
            kwargs={"autocommit": True, "connect_timeout": 3},
            check=psycopg_pool.ConnectionPool.check_connection,
            timeout=ASK_AGAIN,
            reconnect_timeout=ASK_AGAIN / 2,
            open=True,
        )
        try:
            super().__init__()
        except BaseException:
            self._pool.close(timeout=1.0)
            raise

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Any]:
        try:
            with contextlib.ExitStack() as stack:
                yield self._entered(stack)
        except self._gone as error:
            raise Unavailable(f"PostgreSQL: {type(error).__name__}") from error

    def _entered(self, stack: contextlib.ExitStack) -> Any:
        until = time.monotonic() + WAIT
        while True:
            try:
                return stack.enter_context(self._pool.connection())
            except self._timeout:
                if time.monotonic() > until:
                    raise

    def _pipeline(self, connection: Any) -> contextlib.AbstractContextManager[Any]:
        return connection.pipeline()

    def _begin(self, write: bool) -> str:
        return "BEGIN"

    def _hold_migrations(self, run: Any) -> None:
        run("SELECT pg_advisory_xact_lock(?)", (_MIGRATIONS,))

    def close(self) -> None:
        """Connections belong to no thread; they went back to the pool after each transaction."""

    def shut_down(self) -> None:
        """Close all connections."""
        self._pool.close(timeout=1.0)
