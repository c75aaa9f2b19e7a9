"""How long it takes to start: `import hushgraph` against `import torch`, and commands that only print.

Each is timed in fresh interpreters, in turn, and the medians are compared: wall time, and beside it processor time,
which other work on the machine disturbs less.

Measured once on two virtual cores, in processor seconds: `methods` 0.64, `plan` 0.61 for one edge and 0.90 for one
node, `--help` 0.17, `import hushgraph` 0.02 beside 1.18 of `import torch`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time


def command(*words: str) -> str:
    """Code that runs a command as the shell would."""
    return f"import sys; sys.argv = ['hushgraph', *{words!r}]; from hushgraph.cli import main; main()"


PLAN = ("plan", "gap", "--nodes", "8000", "--epsilon", "4", "--unit")
CODES = {
    "import torch": "import torch",
    "import hushgraph": "import hushgraph",
    "import hushgraph and use GAP": "import hushgraph as hg; hg.GAP",
    "hushgraph --help": command("--help"),
    "hushgraph methods": command("methods"),
    "hushgraph plan, one edge": command(*PLAN, "undirected-edge"),
    "hushgraph plan, one node": command(*PLAN, "node"),
}


def seconds(code: str) -> tuple[float, float]:
    """Wall and processor time of a fresh interpreter that runs `code`."""
    started, before = time.perf_counter(), os.times()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - started, used


def measure(rounds: int = 7) -> dict[str, float]:
    """Medians in seconds, wall and processor, and what they are compared with."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in CODES}
    for _ in range(rounds):
        for name, code in CODES.items():
            times[name].append(seconds(code))
    medians = {name: statistics.median(wall for wall, _ in found) for name, found in times.items()}
    used = {f"{name} (processor)": statistics.median(cpu for _, cpu in found) for name, found in times.items()}
    ratio = {"import hushgraph / import torch": medians["import hushgraph"] / medians["import torch"]}
    return {**medians, **used, **ratio}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    found = measure()
    if parser.parse_args().json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:44s} {value:.3f}")


if __name__ == "__main__":
    main()
