"""What an operator can watch: logs as JSON lines and figures for Prometheus, without anything about a person.

Labels and fields are taken from a fixed set of words (addresses of the service without task names, status codes, kinds
of errors), never from a request.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_HELP = {
    "requests": "Answers by kind of address and status code.",
    "commit_seconds": "Seconds from taking a batch to its commit.",
    "store_errors": "Batches that were given up.",
    "store_retries": "Batches that were tried again.",
    "connections_dropped": "Connections that were closed because they sent too slowly, too much, or were one too many.",
    "waiting": "Reports that wait for a commit.",
    "connections": "Open connections.",
}


class Metrics:
    """Counters, one kind of histogram, and gauges that are asked for when they are shown."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        self._seen: dict[str, tuple[list[int], float]] = {}
        self._gauges: dict[str, Callable[[], float]] = {}

    def count(self, name: str, **labels: object) -> None:
        """One more."""
        key = (name, tuple(sorted((word, str(value)) for word, value in labels.items())))
        with self._lock:
            self._counts[key] += 1

    def observe(self, name: str, seconds: float) -> None:
        """One more in the histogram."""
        with self._lock:
            bins, total = self._seen.get(name, ([0] * (len(BOUNDS) + 1), 0.0))
            bins[bisect_left(BOUNDS, seconds)] += 1
            self._seen[name] = (bins, total + seconds)

    def gauge(self, name: str, ask: Callable[[], float]) -> None:
        """A figure that is asked for when it is shown."""
        self._gauges[name] = ask

    def text(self) -> str:
        """All of it in the text format of Prometheus."""
        with self._lock:
            counts, seen = dict(self._counts), {name: (list(bins), total) for name, (bins, total) in self._seen.items()}
        lines: list[str] = []
        for name in sorted({name for name, _ in counts}):
            lines += _head(f"{name}_total", name, "counter")
            rows = sorted((labels, count) for (found, labels), count in counts.items() if found == name)
            lines += [f"hushgraph_{name}_total{_labels(labels)} {count}" for labels, count in rows]
        for name, (bins, total) in sorted(seen.items()):
            lines += [*_head(name, name, "histogram"), *_histogram(name, bins, total)]
        for name, ask in sorted(self._gauges.items()):
            lines += [*_head(name, name, "gauge"), f"hushgraph_{name} {ask():g}"]
        return "\n".join(lines) + "\n"


def _head(shown: str, name: str, kind: str) -> list[str]:
    return [f"# HELP hushgraph_{shown} {_HELP.get(name, name)}", f"# TYPE hushgraph_{shown} {kind}"]


def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}" if labels else ""


def _histogram(name: str, bins: list[int], total: float) -> list[str]:
    lines, so_far = [], 0
    for bound, count in zip((*map(str, BOUNDS), "+Inf"), bins):
        so_far += count
        lines.append(f'hushgraph_{name}_bucket{{le="{bound}"}} {so_far}')
    return [*lines, f"hushgraph_{name}_sum {total:.6f}", f"hushgraph_{name}_count {so_far}"]


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, event, and the facts that it was logged with (`extra={"facts": ...}`)."""

    def format(self, record: logging.LogRecord) -> str:
        """The line. Of an error only its kind is written: its text could hold what was sent."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="seconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage() if record.name.startswith("hushgraph") else str(record.msg)[:80],
            **getattr(record, "facts", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["kind"] = record.exc_info[0].__name__
        return json.dumps(line)


def log_as_json(level: int = logging.INFO) -> None:
    """Send the service's log, and the web server's, to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("hushgraph.collect", "uvicorn.error"):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(level if name.startswith("hushgraph") else logging.WARNING)
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)  # it writes where the database is, ten times a second
