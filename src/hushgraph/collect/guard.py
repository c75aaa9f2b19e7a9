"""What stands between the service and a hostile network: allowances, deadlines, and a cap on connections.

Rate limits work without addresses. Each enrolled token has a small allowance of its own; all unknown tokens share one,
so that guessing is slow however many there are, and random tokens cannot push a real one out of the table.

A connection has a few seconds to send a whole request, and no more bytes than a request has. Where there are as many
connections as the process can hold, the one that has kept us waiting longest makes room: a client that sends what it
has to say is served however many say nothing.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hushgraph.collect.observing import Metrics

REQUEST_SECONDS = 10.0
MOST_CONNECTIONS = 4000
LARGEST_HEAD = 16 * 1024


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


class KnownTokens:
    """Which tokens are enrolled, kept in memory by eight bytes of their hashes; read again now and then.

    It decides how a request is throttled and nothing else: the store has the last word about every token.
    """

    def __init__(
        self,
        read: Callable[[str], list[bytes]],
        every: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._every, self._clock = read, every, clock
        self._known: dict[str, frozenset[bytes]] = {}
        self._next: dict[str, float] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}

    async def has(self, task_id: str, token_hash: bytes) -> bool:
        """Whether the token is enrolled, by a list that is read again for one it lacks, if it is no longer fresh.

        All who ask while it is being read wait for it, so that nobody who is enrolled is taken for a stranger.
        """
        key = token_hash[:8]
        if key in self._known.get(task_id, ()):
            return True
        if task_id not in self._reading and self._clock() >= self._next.get(task_id, 0.0):
            self._reading[task_id] = asyncio.create_task(self._refresh(task_id))
        if task_id in self._reading:
            await asyncio.shield(self._reading[task_id])
        return key in self._known.get(task_id, ())

    async def _refresh(self, task_id: str) -> None:
        """Read the list; the more it costs, the longer until the next time."""
        begun = self._clock()
        try:
            listed = await asyncio.to_thread(self._read, task_id)
            self._known[task_id] = frozenset(one[:8] for one in listed)
            self._next[task_id] = self._clock() + max(self._every, 20.0 * (self._clock() - begun))
        finally:
            del self._reading[task_id]


class Gate:
    """All connections of the process, and which of them have yet to send a whole request, longest first."""

    def __init__(
        self, most: int = MOST_CONNECTIONS, seconds: float = REQUEST_SECONDS, metrics: Metrics | None = None
    ) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.most = min(most, max(16, files * 3 // 4))
        self.seconds, self.metrics = seconds, metrics or Metrics()
        self.metrics.gauge("connections", lambda: len(self.open))
        self.open: set[Any] = set()
        self._waiting: OrderedDict[Any, asyncio.TimerHandle] = OrderedDict()

    def enter(self, connection: Any) -> None:
        """A new connection; where there is no room, the one that waited longest goes."""
        self.open.add(connection)
        self.expect(connection)
        if len(self.open) > self.most:
            self.drop(next(iter(self._waiting)), "room")

    def expect(self, connection: Any) -> None:
        """A connection owes a request, from now on."""
        self.received(connection)
        timer = asyncio.get_running_loop().call_later(self.seconds, self.drop, connection, "slow")
        self._waiting[connection] = timer

    def received(self, connection: Any) -> None:
        """It has sent a whole request."""
        timer = self._waiting.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def leave(self, connection: Any) -> None:
        """It is gone."""
        self.received(connection)
        self.open.discard(connection)

    def drop(self, connection: Any, why: str) -> None:
        """Close it without a word."""
        self.leave(connection)
        self.metrics.count("connections_dropped", why=why)
        connection.transport.abort()


class GuardedProtocol(HttpToolsProtocol):
    """HTTP behind a gate."""

    def __init__(self, *args: Any, gate: Gate, largest: int, **named: Any) -> None:
        super().__init__(*args, **named)
        self.gate, self.largest, self._taken = gate, largest, 0

    def connection_made(self, transport: Any) -> None:
        """Ask the gate."""
        super().connection_made(transport)
        self.gate.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the gate."""
        self.gate.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the bytes of a request that is not whole yet."""
        self._taken += len(data)
        if self._taken > self.largest:
            self.gate.drop(self, "large")
            return
        super().data_received(data)

    def on_message_complete(self) -> None:
        """A whole request is there."""
        self._taken = 0
        self.gate.received(self)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The next request is awaited, if the connection is kept."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self.gate.expect(self)
