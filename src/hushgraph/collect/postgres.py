"""PostgreSQL as the store of a collection service: pooled connections that come back after a restart of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hushgraph.collect.store import Store, Unavailable
from hushgraph.errors import InputError

MOST_CONNECTIONS = 8
WAIT = 5.0
_MIGRATIONS = 0x68757368_636F6C6C  # the advisory lock of whoever changes the tables: "hushcoll"


class PostgresStore(Store):
    """A PostgreSQL database by address; needs the packages `psycopg` and `psycopg_pool`."""

    blob = "BYTEA"
    placeholder = "%s"
    row_lock = " FOR SHARE"

    def __init__(self, address: str) -> None:
        try:
            import psycopg
            import psycopg_pool
        except ImportError as error:
            raise InputError(
                f"expected the packages psycopg and psycopg_pool for PostgreSQL; {error}; "
                "pip install 'hushgraph[postgres]'"
            ) from error
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
            timeout=WAIT,
            reconnect_timeout=60.0,
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
            with self._pool.connection() as connection:
                yield connection
        except self._gone as error:
            raise Unavailable(f"PostgreSQL: {type(error).__name__}") from error

    def _begin(self, write: bool) -> str:
        return "BEGIN"

    def _hold_migrations(self, run: Any) -> None:
        run("SELECT pg_advisory_xact_lock(?)", (_MIGRATIONS,))

    def close(self) -> None:
        """Connections belong to no thread; they went back to the pool after each transaction."""

    def shut_down(self) -> None:
        """Close all connections."""
        self._pool.close(timeout=1.0)
