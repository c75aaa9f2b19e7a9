"""LPGNN and PGC against their published figures; writes docs/results-local.md.

    python benchmarks/local_graphs.py [--minutes 60] [--only cora] [--page-only]

Data: the folder that HUSHGRAPH_DATA names. Every run is a fit with its own seed (and, for LPGNN, its own
random 50/25/25 split). Rows are kept in benchmarks/results/local_graphs.json, so that a run that was cut short goes on
where it stopped; all cases get their first seed before any gets its second.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from data_files import data_file
from local_cases import FEATURES, OUR_LINKS, OURS, Case, cases, range_cases

from hushgraph import Budget, datasets
from hushgraph.graph.checks import CheckedGraph, check_graph

torch.set_num_threads(1)
ROOT = Path(__file__).resolve().parent.parent
ROWS = ROOT / "benchmarks" / "results" / "local_graphs.json"
PAGE = ROOT / "docs" / "results-local.md"
FILES = {
    "Cora": "planetoid/cora",
    "CiteSeer": "planetoid/citeseer",
    "PubMed": "planetoid/pubmed",
    "Facebook pages": "facebook_pagepage/facebook_pagepage",
    "Twitch": "twitch/ENGB",
}
TABLE_NAMES = {"features": "LPGNN features", "labels": "LPGNN labels", "pgc": "PGC nodes", "links": "PGC links"}
_KEPT = ("feature_steps", "label_steps", "epochs", "hop_weights", "degree_weight")


@lru_cache(maxsize=2)
def load(graph: str, seed: int | None) -> CheckedGraph:
    """The graph with its public split (seed None) or a random one of 50/25/25."""
    split: Any = {} if seed is None else {"split": (0.5, 0.25, 0.25), "seed": seed}
    return check_graph(datasets.load(data_file(f"{FILES[graph]}.npz"), **split))


def measure(case: Case, seed: int) -> dict[str, Any]:
    """One fit."""
    graph = load(case.graph, None if case.public_split else seed if case.split is None else case.split)
    assert graph.facts.num_features == FEATURES[case.graph]
    started = time.perf_counter()
    model = case.method.fit(graph, case.unit, Budget(case.epsilon), paper_mode=case.paper_mode, seed=seed)
    value = model.metrics["test_auc"] if "test_auc" in model.metrics else model.metrics["accuracy"]["test"]
    return {
        "seed": seed,
        "value": value,
        "provable_epsilon": str(model.certificate.epsilon),
        "settings": {k: v for k, v in model.settings.items() if k in _KEPT},
        "seconds": round(time.perf_counter() - started, 2),
    }


def read_rows() -> dict[str, list[dict[str, Any]]]:
    """The rows measured so far, by case."""
    return json.loads(ROWS.read_text()) if ROWS.exists() else {}


def write_rows(rows: dict[str, list[dict[str, Any]]]) -> None:
    """Keep the rows, whole or not at all."""
    ROWS.parent.mkdir(exist_ok=True)
    unfinished = ROWS.with_suffix(".part")
    unfinished.write_text(json.dumps(rows, indent=1) + "\n")
    os.replace(unfinished, ROWS)


def run(minutes: float, only: str, seeds: int) -> None:
    """Measure what is missing, seed by seed, until the time is up."""
    end = time.monotonic() + 60.0 * minutes
    for seed in range(seeds):
        for case in cases():
            if seed >= case.seeds or only.lower() not in case.key.lower() or _has(read_rows(), case, seed):
                continue
            if time.monotonic() > end:
                return
            found, rows = measure(case, seed), read_rows()
            if not _has(rows, case, seed):
                write_rows({**rows, case.key: [*rows.get(case.key, []), found]})
            print(case.key, seed, f"{found['value']:.1f}", f"{found['seconds']} s", flush=True)


def _has(rows: dict[str, list[dict[str, Any]]], case: Case, seed: int) -> bool:
    return any(row["seed"] == seed for row in rows.get(case.key, []))


def summary(values: list[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95% bootstrap interval (1000 samples), as LPGNN's tables have it."""
    array = np.array(values)
    rng = np.random.default_rng(0)
    means = rng.choice(array, (1000, len(array))).mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(array.mean()), float((high - low) / 2.0)


def verdict(mean: float, published: tuple[float, float] | None) -> str:
    """Where a mean stands against a published figure and its interval."""
    if published is None:
        return ""
    figure, half = published
    if mean > figure + half:
        return "above"
    return "within" if mean >= figure - half else "below"


def table(name: str) -> list[str]:
    """One table of the page."""
    rows = read_rows()
    lines = [
        "| graph | method | epsilon | measured | runs | published | |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for case in sorted((c for c in cases() if c.table == name), key=lambda c: list(FILES).index(c.graph)):
        found = rows.get(case.key, [])
        shown, place = "not run", ""
        if found:
            mean, half = summary([row["value"] for row in found])
            shown, place = f"{mean:.1f} ± {half:.1f}", verdict(mean, case.published)
        figure = "" if case.published is None else f"{case.published[0]:.1f} ± {case.published[1]:.1f}"
        lines.append(f"| {case.graph} | {case.row} | {case.column} | {shown} | {len(found)} | {figure} | {place} |")
    return lines


def twitch_spread() -> str:
    """How much accuracy on Twitch depends on the split, and how much on the weights."""
    rows = read_rows()
    over_splits = [row["value"] for row in rows.get("pgc | Twitch | PGC | raw", [])]
    over_weights = [row["value"] for row in rows.get("pgc | Twitch | PGC on the first split | raw", [])]
    if min(len(over_splits), len(over_weights)) < 2:
        return "The split matters more than the weights here (figures not complete)."
    return (
        f"Without any privacy, our {len(over_splits)} runs with a split each lie between {min(over_splits):.1f} and "
        f"{max(over_splits):.1f}\n(standard deviation {np.std(over_splits, ddof=1):.1f}); {len(over_weights)} runs on "
        f"the first of these splits have mean {np.mean(over_weights):.1f} and\nstandard deviation "
        f"{np.std(over_weights, ddof=1):.1f}."
    )


def range_difference() -> str:
    """Raw range minus public range, run by run on the same split: mean and interval for every cell."""
    rows, found = read_rows(), []
    for case in range_cases():
        public = {r["seed"]: r["value"] for r in rows.get(f"features | {case.graph} | {OURS} | {case.column}", [])}
        gains = [r["value"] - public[r["seed"]] for r in rows.get(case.key, []) if r["seed"] in public]
        if gains:
            mean, half = summary(gains)
            found.append(f"{mean:+.1f} ± {half:.1f} on {case.graph} at epsilon {case.column} ({len(gains)} runs)")
    return "Raw minus public range, run by run on the same splits, in points: " + "; ".join(found) + "."


def label_gap() -> str:
    """Which cells of the published label rules are below on Cora, and how far apart runs on different splits are."""
    rows, below, spread, total = read_rows(), [], [], 0
    for case in cases():
        if case.table == "labels" and case.graph == "Cora" and case.row != OURS:
            values = [row["value"] for row in rows.get(case.key, [])]
            if len(values) < case.seeds:
                return "Not all cells of Cora have their runs yet."
            total += 1
            spread.append(float(np.std(values, ddof=1)))
            mean = summary(values)[0]
            if case.published is not None and verdict(mean, case.published) == "below":
                short = case.published[0] - case.published[1] - mean
                below.append(f"{case.row.removeprefix('as published: ')} at {case.column} (by {short:.1f})")
    return (
        f"Of the {total} cells on Cora, {total - len(below)} now reach the published interval. Below it, in points "
        f"under its lower end: {'; '.join(below) or 'none'}.\nRuns of one cell, each on its own split, have standard "
        f"deviations of {min(spread):.1f} to {max(spread):.1f} points."
    )


def reached() -> str:
    """Which published cells are reached with ten runs, which are not, and which lack runs: from the rows alone."""
    rows, places = read_rows(), {}
    for case in cases():
        if case.row in (OURS, OUR_LINKS) or (case.table == "pgc" and case.row == "PGC"):
            found = rows.get(case.key, [])
            name = f"{TABLE_NAMES[case.table]}, {case.graph}, {case.column}"
            if not found:
                place = "not run"
            elif len(found) < case.seeds:
                place, name = "unfinished", f"{name} ({len(found)} runs)"
            else:
                place = verdict(summary([row["value"] for row in found])[0], case.published)
            places.setdefault(place, []).append(name)
    total = sum(map(len, places.values()))
    above, inside = len(places.get("above", [])), len(places.get("within", []))
    lines = [
        f"Of {total} published cells (LPGNN with our defaults, PGC on nodes and links), {above + inside} are reached "
        f"with ten\nruns: {above} above the published interval and {inside} within it.",
        "",
    ]
    for place, words in (
        ("below", "Below the published interval, with ten runs"),
        ("unfinished", "Fewer than ten runs so far"),
        ("not run", "Not run"),
    ):
        names = places.get(place, [])
        lines.append(f"- {words}: " + ("; ".join(names) if names else "none") + ".")
    return "\n".join(lines)


def page() -> str:
    """The page, from the text beside this file and the rows."""
    text = (ROOT / "benchmarks" / "local_graphs.md.in").read_text()
    for name in ("features", "labels", "pgc", "links", "range", "control"):
        text = text.replace(f"{{{name}}}", "\n".join(table(name)))
    text = text.replace("{range_difference}", range_difference()).replace("{label_gap}", label_gap())
    return text.replace("{twitch}", twitch_spread()).replace("{reached}", reached())


def main() -> None:
    """Measure what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--only", default="", help="Only cases whose name contains this.")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--page-only", action="store_true")
    choices = parser.parse_args()
    if not choices.page_only:
        run(choices.minutes, choices.only, choices.seeds)
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
