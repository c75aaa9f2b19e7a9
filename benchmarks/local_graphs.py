"""LPGNN and PGC against their published figures; writes docs/results-local.md.

    python benchmarks/local_graphs.py [--minutes 60] [--only cora] [--page-only]

Data: the folder HUSHGRAPH_DATA (default ../shared/data). Every run is a fit with its own seed (and, for LPGNN, its own
random 50/25/25 split). Rows are kept in benchmarks/results/local_graphs.json, so that a run that was cut short goes on
where it stopped; all cases get their first seed before any gets its second.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from hushgraph import LPGNN, PGC, Budget, PGCLinks, datasets
from hushgraph.intake import CheckedGraph, check_graph
from hushgraph.methods.base import Method
from hushgraph.units import Local

torch.set_num_threads(1)
ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("HUSHGRAPH_DATA", ROOT.parent / "shared" / "data"))
ROWS = ROOT / "benchmarks" / "results" / "local_graphs.json"
PAGE = ROOT / "docs" / "results-local.md"
FILES = {
    "Cora": "planetoid/cora",
    "CiteSeer": "planetoid/citeseer",
    "PubMed": "planetoid/pubmed",
    "Facebook pages": "facebook_pagepage/facebook_pagepage",
    "Twitch": "twitch/ENGB",
}
FEATURES = {"Cora": 1433, "CiteSeer": 3703, "PubMed": 500, "Facebook pages": 4714, "Twitch": 3170}
TABLE_NAMES = {"features": "LPGNN features", "labels": "LPGNN labels", "pgc": "PGC nodes", "links": "PGC links"}
OURS, OUR_LINKS = "LPGNN, our defaults", "PGC, hops (our default)"
LPGNN_GRAPHS = ("Cora", "PubMed", "Facebook pages")


@dataclass(frozen=True)
class Case:
    """One cell of a table: a method on a graph at a budget, and the published figure with its interval (if any)."""

    table: str
    graph: str
    row: str
    column: str
    method: Method
    unit: Local
    epsilon: float
    published: tuple[float, float] | None = None
    seeds: int = 10
    public_split: bool = False
    paper_mode: bool = False
    split: int | None = None

    @property
    def key(self) -> str:
        """The name under which its rows are kept."""
        return " | ".join([self.table, self.graph, self.row, self.column])


# Published: mean and interval (LPGNN: 95% bootstrap; PGC: standard deviation), ten runs each.
FEATURES_ONLY = {
    "Cora": {0.01: (68.0, 2.9), 0.1: (64.6, 3.2), 1.0: (83.9, 0.4)},
    "PubMed": {0.01: (78.9, 0.7), 0.1: (82.7, 0.2), 1.0: (82.9, 0.2)},
    "Facebook pages": {0.01: (85.8, 0.4), 0.1: (91.0, 0.4), 1.0: (92.7, 0.1)},
}
WITH_LABELS = {
    "Cora": {0.5: (42.9, 1.5), 1.0: (69.3, 1.2), 2.0: (78.4, 0.7)},
    "PubMed": {0.5: (69.8, 0.7), 1.0: (74.9, 0.3), 2.0: (81.0, 0.2)},
    "Facebook pages": {0.5: (75.1, 0.6), 1.0: (84.9, 0.2), 2.0: (90.7, 0.1)},
}
BASELINES = {
    ("Cora", "forward"): {0.5: (18.6, 2.5), 1.0: (37.1, 2.5), 2.0: (75.1, 1.0)},
    ("Cora", "cross-entropy"): {0.5: (18.6, 1.3), 1.0: (25.5, 1.7), 2.0: (52.9, 2.1)},
}
PGC_NODES = {
    "Cora": {1.0: (57.0, 1.9), 5.0: (80.2, 0.6), 9.0: (81.2, 0.4), math.inf: (81.4, 0.3)},
    "CiteSeer": {1.0: (37.3, 1.3), 5.0: (70.7, 0.6), 9.0: (70.2, 0.7), math.inf: (69.6, 0.9)},
    "Twitch": {1.0: (59.0, 0.7), 5.0: (61.2, 0.8), 9.0: (62.5, 0.2), math.inf: (62.8, 0.2)},
}
PGC_LINKS = {
    "Cora": {1.0: (85.4, 0.9), 5.0: (90.6, 0.6), 9.0: (92.1, 0.5), math.inf: (91.9, 0.6)},
    "CiteSeer": {1.0: (79.0, 1.1), 5.0: (87.2, 0.5), 9.0: (90.0, 0.5), math.inf: (89.6, 0.8)},
    "Twitch": {1.0: (81.1, 0.4), 5.0: (83.2, 0.6), 9.0: (84.6, 0.8), math.inf: (84.9, 1.0)},
}
NO_INFORMATION = 1e-9
_KEPT = ("feature_steps", "label_steps", "epochs", "hop_weights", "degree_weight")
LINK_DECAY = {"Cora": 0.01, "CiteSeer": 0.01, "Twitch": 0.001}
PGC_OTHERS = {
    "laplace": {1.0: (54.4, 0.9), 5.0: (73.9, 0.8), 9.0: (78.8, 0.7)},
    "piecewise": {1.0: (56.6, 1.9), 5.0: (77.8, 1.0), 9.0: (80.9, 0.6)},
}
# Learning rate, weight decay, dropout, and K for features and labels, as published.
PAPER_RATES = {
    ("Cora", True): (0.01, 0.001, 0.5),
    ("Cora", False): (0.01, 0.01, 0.75),
    ("PubMed", True): (0.01, 0.0001, 0.25),
    ("PubMed", False): (0.01, 0.01, 0.75),
}
PAPER_STEPS_FEATURES = {"Cora": {0.01: 8, 0.1: 16, 1.0: 16}, "PubMed": {0.01: 16, 0.1: 16, 1.0: 16}}
PAPER_STEPS_LABELS = {
    "Cora": {0.5: (2, 8), 1.0: (2, 8), 2.0: (8, 4)},
    "PubMed": {0.5: (0, 4), 1.0: (4, 2), 2.0: (16, 0)},
}
PGC_SETTINGS: dict[str, dict[str, float]] = {
    "Cora": {"weight_decay": 0.01, "dropout": 0.5},
    "CiteSeer": {"weight_decay": 0.1, "dropout": 0.5},
    "Twitch": {"weight_decay": 0.0001, "dropout": 0.0, "lr": 0.001},
}
RANGE: dict[str, Any] = {"low": 0.0, "high": 1.0}
PUBLIC_LABELS, PRIVATE_LABELS = Local(private_labels=False), Local()


def cases() -> Iterator[Case]:
    """Every cell, in order of importance."""
    yield from _lpgnn_cases()
    yield from _pgc_cases()
    yield from _range_cases()
    yield from _paper_cases()
    yield from _control_cases()


def _lpgnn_cases() -> Iterator[Case]:
    for graph in LPGNN_GRAPHS:
        for epsilon, published in FEATURES_ONLY[graph].items():
            yield Case("features", graph, OURS, f"{epsilon:g}", LPGNN(**RANGE), PUBLIC_LABELS, epsilon, published)
    for graph in LPGNN_GRAPHS:
        for epsilon, published in WITH_LABELS[graph].items():
            method = LPGNN(**RANGE, label_epsilon=epsilon)
            yield Case("labels", graph, OURS, f"{epsilon:g}", method, PRIVATE_LABELS, 1.0 + epsilon, published)


def _pgc_cases() -> Iterator[Case]:
    for graph, figures in PGC_NODES.items():
        for epsilon, published in figures.items():
            method = PGC(**RANGE, **PGC_SETTINGS[graph])
            total = FEATURES[graph] * epsilon
            fixed = graph != "Twitch"
            column = "raw" if math.isinf(epsilon) else f"{epsilon:g}"
            yield Case("pgc", graph, "PGC", column, method, PUBLIC_LABELS, total, published, public_split=fixed)
    for graph in PGC_LINKS:
        yield from _link_cases(graph, OUR_LINKS, PGCLinks(**RANGE))
    one_split = PGC(**RANGE, **PGC_SETTINGS["Twitch"])
    row = "PGC on the first split"
    for epsilon, column in ((9.0, "9"), (math.inf, "raw")):
        total, figure = FEATURES["Twitch"] * epsilon, PGC_NODES["Twitch"][epsilon]
        yield Case("pgc", "Twitch", row, column, one_split, PUBLIC_LABELS, total, figure, split=0)
    for graph in ("Cora", "CiteSeer"):
        method = PGC(**RANGE, feature_steps=4, **PGC_SETTINGS[graph])
        total, row = FEATURES[graph] * 1.0, "PGC after 4 propagations (ours)"
        yield Case("pgc", graph, row, "1", method, PUBLIC_LABELS, total, PGC_NODES[graph][1.0], 3, True)
    for name, figures in PGC_OTHERS.items():
        for epsilon, published in figures.items():
            method = PGC(**RANGE, mechanism=name, **PGC_SETTINGS["Cora"])
            total = FEATURES["Cora"] * epsilon
            yield Case("pgc", "Cora", name, f"{epsilon:g}", method, PUBLIC_LABELS, total, published, 3, True)


def _link_cases(graph: str, row: str, method: PGCLinks, seeds: int = 10) -> Iterator[Case]:
    for epsilon, published in PGC_LINKS[graph].items():
        column, total = "raw" if math.isinf(epsilon) else f"{epsilon:g}", FEATURES[graph] * epsilon
        yield Case("links", graph, row, column, method, PUBLIC_LABELS, total, published, seeds, graph != "Twitch")


def _auto_encoder_cases() -> Iterator[Case]:
    """The published auto-encoder, and the same with hidden links; and what the graph says without any feature."""
    for graph, decay in LINK_DECAY.items():
        published = PGCLinks(**RANGE, scorer="vgae", hidden_share=0.0, weight_decay=decay)
        yield from _link_cases(graph, "PGC as published", published, 10 if graph != "Twitch" else 3)
        noise = PGCLinks(**RANGE, feature_epsilon=NO_INFORMATION)
        total, row = FEATURES[graph] * NO_INFORMATION, "hops on pure noise"
        yield Case("links", graph, row, "0", noise, PUBLIC_LABELS, total, seeds=10, public_split=graph != "Twitch")
    for graph, seeds in (("Cora", 10), ("CiteSeer", 3)):
        hidden = PGCLinks(**RANGE, scorer="vgae", hidden_share=0.3, weight_decay=LINK_DECAY[graph])
        yield from _link_cases(graph, "as published, links hidden", hidden, seeds)


def _paper_cases() -> Iterator[Case]:
    """The published algorithm with the published settings."""
    yield from _auto_encoder_cases()
    for graph, steps in PAPER_STEPS_FEATURES.items():
        lr, decay, dropout = PAPER_RATES[graph, False]
        for epsilon, k in steps.items():
            method = _paper("cross-entropy", lr, decay, dropout, k, 0)
            seeds = 10 if graph == "Cora" else 3
            figure = FEATURES_ONLY[graph][epsilon]
            row = "LPGNN as published"
            yield Case("features", graph, row, f"{epsilon:g}", method, PUBLIC_LABELS, epsilon, figure, seeds)
    for graph, label_steps in PAPER_STEPS_LABELS.items():
        lr, decay, dropout = PAPER_RATES[graph, True]
        for epsilon, (kx, ky) in label_steps.items():
            rules = ("drop", "forward", "cross-entropy") if graph == "Cora" else ("drop",)
            for rule in rules:
                method = _paper(rule, lr, decay, dropout, kx, ky, label_epsilon=epsilon)
                figure = (WITH_LABELS[graph] if rule == "drop" else BASELINES[graph, rule])[epsilon]
                seeds = 10 if graph == "Cora" else 3
                row = f"as published: {rule}"
                total = 1.0 + epsilon
                yield Case("labels", graph, row, f"{epsilon:g}", method, PRIVATE_LABELS, total, figure, seeds)


def _paper(rule: str, lr: float, decay: float, dropout: float, kx: int, ky: int, **more: Any) -> LPGNN:
    return LPGNN(
        **RANGE,
        rule=rule,
        normalise=False,
        epochs=500,
        lr=lr,
        weight_decay=decay,
        dropout=dropout,
        feature_steps=kx,
        label_steps=ky,
        **more,
    )


def _range_cases() -> Iterator[Case]:
    for graph, seeds in (("Cora", 10), ("PubMed", 10)):
        for epsilon in (0.01, 1.0):
            method = LPGNN()
            row, column = "raw minimum and maximum of every column", f"{epsilon:g}"
            yield Case("range", graph, row, column, method, PUBLIC_LABELS, epsilon, seeds=seeds, paper_mode=True)


def _control_cases() -> Iterator[Case]:
    for graph, seeds in (("Cora", 10), ("PubMed", 3), ("Facebook pages", 3)):
        for kind in ("codes", "degree", "ones", "random"):
            method = LPGNN(features=kind)
            column = "labels public"
            yield Case("control", graph, kind, column, method, PUBLIC_LABELS, 1.0, seeds=min(seeds, 10))
    for kind, figure in (("codes", None), ("degree", (44.4, 3.5)), ("ones", (22.6, 5.0)), ("random", (26.4, 3.0))):
        method = LPGNN(features=kind)
        yield Case("control", "Cora", kind, "eps_y 1", method, PRIVATE_LABELS, 1.0, figure, seeds=5)
    for kind in ("gcn", "gat"):
        method = LPGNN(**RANGE, backbone=kind)
        yield Case("control", "Cora", f"LPGNN on {kind}, eps_x 1", "labels public", method, PUBLIC_LABELS, 1.0, seeds=3)


@lru_cache(maxsize=2)
def load(graph: str, seed: int | None) -> CheckedGraph:
    """The graph with its public split (seed None) or a random one of 50/25/25."""
    path = str(DATA / f"{FILES[graph]}.npz")
    split: Any = {} if seed is None else {"split": (0.5, 0.25, 0.25), "seed": seed}
    return check_graph(datasets.load(path, **split))


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
    for case in _range_cases():
        public = {r["seed"]: r["value"] for r in rows.get(f"features | {case.graph} | {OURS} | {case.column}", [])}
        gains = [r["value"] - public[r["seed"]] for r in rows.get(case.key, []) if r["seed"] in public]
        if gains:
            mean, half = summary(gains)
            found.append(f"{mean:+.1f} ± {half:.1f} on {case.graph} at epsilon {case.column} ({len(gains)} runs)")
    return "Raw minus public range, run by run on the same splits, in points: " + "; ".join(found) + "."


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
    text = text.replace("{range_difference}", range_difference())
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
