"""One switch of Chorus at a time against its default: paired runs over seeds and graphs, with intervals.

python benchmarks/switches.py [--levels node edge] [--seeds 5] [--datasets BU10 pubmed] [--only centered] [--show]

Every finished run is a row of benchmarks/results/switches.json, stored under the settings it was made with, so the
command can be stopped and continued, and a changed default makes new runs. Two runs are a pair if they share graph,
budget and seed. Values are to be chosen by validation accuracy; test accuracy is shown beside it. None of the graphs
is Berkeley13 or Cornell5.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from earlier import half_width, load

from hushgraph.methods.chorus import Chorus
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget

ROOT = Path(__file__).resolve().parent.parent
ROWS = ROOT / "benchmarks" / "results" / "switches.json"
DATASETS = ("JohnsHopkins55", "BU10", "facebook_pagepage", "pubmed")
LEVELS: dict[str, tuple[units.Unit, tuple[float, ...], float]] = {
    "node": (units.Node(), (2.0, 8.0), 1e-5),
    "edge": (units.UndirectedEdge(), (1.0,), 1e-7),
}
SWITCHES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "node": [
        ("messages not centered", {"centered": False}),
        ("lists cut at 100 instead of messages divided by the root of their length", {"shared": False}),
        ("noise of sums relative to gradients 0.25 (default 0.4)", {"aggregation_noise": 0.25}),
        ("the same, 0.6", {"aggregation_noise": 0.6}),
        ("the same, 1", {"aggregation_noise": 1.0}),
        ("two stages instead of one", {"num_stages": 2}),
        ("all train nodes learn to read sums (default a quarter)", {"learners": 1.0}),
        ("half of them do", {"learners": 0.5}),
        ("no shrinkage: sums scaled to length one (default: noise floor 3)", {"floor": 0.0}),
        ("less shrinkage: noise floor 1", {"floor": 1.0}),
        ("more shrinkage: noise floor 6", {"floor": 6.0}),
        ("random instead of zero start", {"zero_start": False}),
        ("weights of the last half of the steps averaged", {"average_last": 0.5}),
        ("Adam with the noise variance subtracted", {"optimizer": "adam-corrected"}),
        ("the same, half the learning rate", {"optimizer": "adam-corrected", "lr": 0.03}),
        ("normalized instead of clipped gradients", {"normalize": True}),
        ("batches of 512 (default 256)", {"batch_size": 512}),
        ("batches of 1024", {"batch_size": 1024}),
        ("learning rate 0.03 (default 0.06)", {"lr": 0.03}),
        ("learning rate 0.12", {"lr": 0.12}),
        ("5 epochs (default 10)", {"epochs": 5}),
        ("20 epochs", {"epochs": 20}),
    ],
    "edge": [
        ("messages not centered", {"centered": False}),
        ("guesses as loud as labels, one noise for all (default: half as loud)", {"quiet": 1.0}),
        ("guesses a quarter as loud", {"quiet": 0.25}),
        ("one stage (default three)", {"num_stages": 1}),
        ("two stages", {"num_stages": 2}),
        ("mean of three classifiers (default one)", {"members": 3}),
        ("mean of five", {"members": 5}),
    ],
}
OTHER_LEVEL = {
    "node": {"hidden", "dropout", "members", "quiet"},
    "edge": {"batch_size", "learners", "max_grad_norm", "aggregation_noise", "shared", "floor"}
    | {"zero_start", "optimizer", "normalize", "average_last"},
}


def settings_of(level: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that matter at a level, under the names that they have in the rows."""
    earlier = {new: old for old, new in Chorus.aliases.items()}
    named = {earlier.get(name, name): value for name, value in settings.items()}
    return {name: value for name, value in named.items() if name not in OTHER_LEVEL[level]}


def with_settings(changed: dict[str, Any]) -> Chorus:
    """Chorus with some settings changed, which may have their earlier names."""
    return replace(Chorus(), **{Chorus.aliases.get(name, name): value for name, value in changed.items()})


def digest(level: str, settings: dict[str, Any]) -> str:
    """A short name for the settings: the one that rows have them under, or a hash."""
    wanted = settings_of(level, settings)
    kept = next((name for name, one in read_rows()["settings"].items() if one == wanted), None)
    return kept or hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:10]


def read_rows() -> dict[str, Any]:
    """Settings and finished runs."""
    return json.loads(ROWS.read_text()) if ROWS.exists() else {"settings": {}, "runs": {}}


def run(levels: list[str], names: list[str], seeds: int, only: str) -> None:
    """All runs that have no row yet."""
    for level in levels:
        for dataset in names:
            graph = load(dataset, 0.75)
            wanted = [changed for label, changed in SWITCHES[level] if only in label]
            for changed in [{}, *wanted]:
                for epsilon in LEVELS[level][1]:
                    for seed in range(seeds):
                        _run_one(graph, level, dataset, with_settings(changed), epsilon, seed)


def _run_one(graph: Any, level: str, dataset: str, method: Chorus, epsilon: float, seed: int) -> None:
    name = digest(level, method.as_dict())
    rows, key = read_rows(), f"{level}|{epsilon:g}|{dataset}|{name}|{seed}"
    if key in rows["runs"]:
        return
    unit, _, delta = LEVELS[level]
    accuracy = method.fit(graph, unit, Budget(epsilon, delta), seed=seed).metrics["accuracy"]
    rows = read_rows()
    rows["settings"][name] = settings_of(level, method.as_dict())
    rows["runs"][key] = {"val": round(accuracy["val"], 2), "test": round(accuracy["test"], 2)}
    fresh = ROWS.with_suffix(f".{os.getpid()}.tmp")
    fresh.write_text(json.dumps(rows, indent=0, sort_keys=True) + "\n")
    fresh.replace(ROWS)
    print(key, rows["runs"][key], flush=True)


def paired(level: str, epsilon: float, dataset: str, changed: dict[str, Any], split: str) -> list[float]:
    """Differences by seed: with the switch less without it."""
    runs, start = read_rows()["runs"], f"{level}|{epsilon:g}|{dataset}"
    ours, other = (digest(level, with_settings(values).as_dict()) for values in ({}, changed))
    keys = [(f"{start}|{ours}|{seed}", f"{start}|{other}|{seed}") for seed in range(25)]
    return [runs[b][split] - runs[a][split] for a, b in keys if a in runs and b in runs]


def interval(values: list[float]) -> str:
    """Mean and half of the 95% interval (Student's t) of the paired differences."""
    if len(values) < 2:
        return "not run"
    return f"{statistics.mean(values):+.1f} ± {half_width(values):.1f}"


def table(level: str) -> list[str]:
    """Per switch and epsilon: the difference over all pairs, pairs won and lost, and the mean by graph."""
    head = ["switch", "epsilon", "validation", "won, lost", "test", *DATASETS]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for label, changed in SWITCHES[level]:
        for epsilon in LEVELS[level][1]:
            val = {d: paired(level, epsilon, d, changed, "val") for d in DATASETS}
            test = [x for d in DATASETS for x in paired(level, epsilon, d, changed, "test")]
            pairs = [x for values in val.values() for x in values]
            score = f"{sum(x > 0 for x in pairs)}, {sum(x < 0 for x in pairs)} of {len(pairs)}"
            by_graph = [f"{statistics.mean(v):+.1f}" if v else "not run" for v in val.values()]
            lines.append(
                f"| {label} | {epsilon:g} | {interval(pairs)} | {score} | {interval(test)} | {' | '.join(by_graph)} |"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--levels", nargs="*", default=list(LEVELS), choices=list(LEVELS))
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS), choices=list(DATASETS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="only switches whose name contains this")
    parser.add_argument("--show", action="store_true", help="run nothing")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if not given.show:
        run(given.levels, given.datasets, given.seeds, given.only)
    for level in given.levels:
        print(level, *table(level), sep="\n")


if __name__ == "__main__":
    main()
