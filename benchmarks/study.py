"""What a study adds to its fits, and whether killing it changes its table.

python benchmarks/study.py [--kills 20]

Eight trainings of GAP on campus are done in a row in one process, and as a study with one worker; then the study is
started again and again, killed with signal 9 at random moments, and its table compared with that of a whole run.
"""

from __future__ import annotations

import argparse
import os
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

RUNS = 80
"""Enough that every kill finds the study at work."""


def overhead(folder: Path) -> str:
    """Processor time of a study with one worker over that of the same fits; its wall time over that of its cells."""
    torch.set_num_threads(1)
    graph, unit, budget = hg.datasets.load("campus"), hg.units.UndirectedEdge(), hg.Budget(4.0, 1e-7)
    started = time.process_time()
    for seed in range(8):
        hg.GAP().fit(graph, unit, budget, ledger=hg.Ledger.in_memory(warn=False), seed=seed)
    fits = time.process_time() - started
    file = folder / "eight.yaml"
    file.write_text(EIGHT)
    before, started = _processor_time(), time.perf_counter()
    found = study(file, store=folder / "one.sqlite", workers=1)
    wall, used = time.perf_counter() - started, _processor_time() - before
    own = sum(one.seconds for _, one in found.by_cell if one is not None)
    ratios = f"{used / fits:.2f} of the processor time of the fits, {wall / own:.2f} of the time of its cells"
    return f"eight trainings as a study: {ratios}"


def _processor_time() -> float:
    """Of this process and of those that it started and that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def kills(folder: Path, count: int) -> str:
    """Kill a study `count` times at random moments and compare its table with that of a whole run."""
    file = folder / "killed.yaml"
    file.write_text(EIGHT.replace("eight", "killed").replace("seeds: 8", f"seeds: {RUNS}"))
    command = [sys.executable, "-m", "hushgraph", "study", "run", str(file), "--json"]
    moments, done, store = random.Random(1), 0, Store(folder / "killed.sqlite")
    for _ in range(count):
        before = sum(store.begun().values())
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while sum(store.begun().values()) == before and running.poll() is None:
            time.sleep(0.01)  # a kill while libraries are imported would show nothing
        time.sleep(moments.uniform(0.0, 1.5))
        if running.poll() is None:
            running.send_signal(signal.SIGKILL)
            done += 1
        running.wait()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    whole = study(file, store=folder / "whole.sqlite")
    same = _without_times(runs_csv(Results(Study.read(file), store))) == _without_times(runs_csv(whole))
    return f"killed {done} times: same table {same}; {sum(store.begun().values())} starts for {RUNS} runs"


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
