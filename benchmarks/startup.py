"""How long it takes to start: `import hushgraph` against `import torch`, and `hushgraph --help`.

Each is timed in fresh interpreters, in turn, and the medians are compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

CODES = {
    "import torch": "import torch",
    "import hushgraph": "import hushgraph",
    "import hushgraph and use GAP": "import hushgraph as hg; hg.GAP",
    "hushgraph --help": "import sys; sys.argv = ['hushgraph', '--help']; from hushgraph.cli import main; main()",
}


def seconds(code: str) -> float:
    """Wall time of a fresh interpreter that runs `code`."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def measure(rounds: int = 5) -> dict[str, float]:
    """Medians in seconds, and what they are compared with."""
    times: dict[str, list[float]] = {name: [] for name in CODES}
    for _ in range(rounds):
        for name, code in CODES.items():
            times[name].append(seconds(code))
    medians = {name: statistics.median(found) for name, found in times.items()}
    return {**medians, "import hushgraph / import torch": medians["import hushgraph"] / medians["import torch"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    found = measure()
    if parser.parse_args().json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:36s} {value:.3f}")


if __name__ == "__main__":
    main()
