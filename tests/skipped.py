"""What was skipped, and how to get it: the last lines of `make test`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

GET = {
    "chromium": "apt-get install chromium",
    "postgres": "apt-get install postgresql",
    "initdb": "apt-get install postgresql",
    "nginx": "apt-get install nginx",
    "caddy": "apt-get install caddy",
    "systemd": "a system with systemd",
    "network namespaces": "root on Linux, and apt-get install iproute2 openssl",
    "fork": "a system that forks, such as Linux",
    "no /proc": "Linux",
    "gpu": "a machine without a GPU",
    "could not import": "pip install -e '.[dev]'",
    "needs mkdocs": "pip install -e '.[docs]'",
}
"""A word of the reason, in small letters, and what brings the tests back."""


def skipped_lines(reasons: Iterable[str]) -> list[str]:
    """A line for every reason: how many tests, why, and what to do."""
    lines = []
    for reason, count in Counter(reason.removeprefix("Skipped: ") for reason in reasons).most_common():
        get = next((how for word, how in GET.items() if word in reason.lower()), None)
        tests = "1 test" if count == 1 else f"{count} tests"
        lines.append(f"{tests}: {reason}." + (f" To run: {get}" if get else ""))
    return lines
