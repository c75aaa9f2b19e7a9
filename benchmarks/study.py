"""What a study adds to its fits, and whether killing it changes its table.

python benchmarks/study.py [--kills 20]

Eight trainings of GAP on campus are done in a row in one process, and as a study with one worker; then the study is
started again and again, killed with signal 9 at random moments, and its table compared with that of a whole run.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import hushgraph as hg
from hushgraph.study.export import runs_csv
from hushgraph.study.results import Results
from hushgraph.study.run import study
from hushgraph.study.spec import Study
from hushgraph.study.store import Store

EIGHT = """
name: eight
privacy: research
datasets: [campus]
methods: [gap]
units: [undirected-edge]
epsilons: [4]
deltas: [1e-7]
seeds: 8
"""


def overhead(folder: Path) -> str:
    """Wall time of a study with one worker over the sum of the same fits in a row."""
    torch.set_num_threads(1)
    graph, unit, budget = hg.datasets.load("campus"), hg.units.UndirectedEdge(), hg.Budget(4.0, 1e-7)
    fits = 0.0
    for seed in range(8):
        started = time.perf_counter()
        hg.GAP().fit(graph, unit, budget, ledger=hg.Ledger.in_memory(warn=False), seed=seed)
        fits += time.perf_counter() - started
    file = folder / "eight.yaml"
    file.write_text(EIGHT)
    started = time.perf_counter()
    found = study(file, store=folder / "one.sqlite", workers=1)
    wall = time.perf_counter() - started
    own = sum(one.seconds for _, one in found.by_cell if one is not None)
    ratios = f"{wall / own:.2f} of its cells ({own:.2f} s), {wall / fits:.2f} of the fits in a row ({fits:.2f} s)"
    return f"eight trainings as a study: {wall:.2f} s, {ratios}"


def kills(folder: Path, count: int) -> str:
    """Kill a study `count` times at random moments and compare its table with that of a whole run."""
    file = folder / "killed.yaml"
    file.write_text(EIGHT.replace("eight", "killed").replace("seeds: 8", "seeds: 24"))
    command = [sys.executable, "-m", "hushgraph", "study", "run", str(file), "--json"]
    moments, done = random.Random(1), 0
    for _ in range(count):
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(moments.uniform(2.0, 8.0))
        if running.poll() is None:
            running.send_signal(signal.SIGKILL)
            done += 1
        running.wait()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    whole = study(file, store=folder / "whole.sqlite")
    store = Store(folder / "killed.sqlite")
    same = _without_times(runs_csv(Results(Study.read(file), store))) == _without_times(runs_csv(whole))
    return f"killed {done} times: same table {same}; {sum(store.begun().values())} starts for 24 runs"


def _without_times(text: str) -> list[list[str]]:
    lines = [line.split(",") for line in text.splitlines()]
    place = lines[0].index("fit_seconds")
    return [line[:place] + line[place + 1 :] for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        print(overhead(Path(name)))
        print(kills(Path(name), given.kills))


if __name__ == "__main__":
    main()
