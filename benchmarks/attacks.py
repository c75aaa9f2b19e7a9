"""Attacks on real graphs and images: what each achieves, against models with and without privacy.

    python benchmarks/attacks.py [links] [membership] [inversion] [--graphs Berkeley13 ...] [--write]

Every finished attack is a row in benchmarks/results/attacks.json, so the command can be stopped and continued; rows
that are there are not run again. It ends by writing docs/results-attacks.md from the rows there are; `--write` only
writes. Data: the folder that HUSHGRAPH_DATA names. Parts whose data is missing are
skipped, and that is said.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from torch_geometric.data import Data

import hushgraph as hg
from hushgraph import datasets
from hushgraph.attacks.analysis import analyze
from hushgraph.attacks.base import Attack, Target
from hushgraph.attacks.links import LinkTeller, PosteriorSimilarity, ReleasedRows
from hushgraph.attacks.membership import Lira, ShadowMembership, trained_target
from hushgraph.attacks.regression import AttributeInference, DegreeInference, FeatureReconstruction
from hushgraph.attacks.targets import method_trainer, target_of
from hushgraph.methods.base import Method
from hushgraph.methods.gap import GAP
from hushgraph.methods.plain_gnn import GCN, GraphSAGE

sys.path.insert(0, str(Path(__file__).resolve().parent))
from attack_page import write_page
from data_files import data_file
from inversion import inversion

ROOT = Path(__file__).resolve().parent.parent
KEEP = ROOT / "benchmarks" / "results" / "attacks.json"
SCHOOLS = ("JohnsHopkins55", "Berkeley13")
EDGE = hg.units.UndirectedEdge()
FREE = hg.Budget(math.inf, 1e-7)
GENDER = 1  # the group of feature columns that is taken as the sensitive attribute


class Rows:
    """The rows of finished attacks, kept in a file after every one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, dict[str, Any]]:
        """All rows by key."""
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def missing(self, *keys: str) -> list[str]:
        """The keys that have no row."""
        there = self.read()
        return [key for key in keys if key not in there]

    def keep(self, key: str, row: dict[str, Any]) -> None:
        """Add one row, with the version that made it; another process may have added others meanwhile."""
        row = {**row, "version": hg.__version__}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps({**self.read(), key: row}, indent=1, sort_keys=True) + "\n")
        new.replace(self.path)
        print(key, {name: value for name, value in row.items() if isinstance(value, int | float | str)}, flush=True)


def school(name: str, **options: Any) -> Data:
    """The task graph of one school."""
    return datasets.load(data_file(f"facebook100/{name}.npz"), **options)


def gender_column(name: str) -> int:
    """The more common value of the sensitive attribute, as a column of the features."""
    with np.load(data_file(f"facebook100/{name}.npz"), allow_pickle=False) as arrays:
        columns = np.flatnonzero(arrays["x_group"] == GENDER)
        counts = np.bincount(arrays["x_indices"], minlength=len(arrays["x_group"]))
    return int(columns[np.argmax(counts[columns])])


def attack_all(
    rows: Rows, prefix: str, attacks: dict[str, tuple[Attack, str]], make: Callable[[], dict[str, Any]], data: Data
) -> None:
    """Run the attacks that have no row yet on the targets that `make` builds (only when one is needed)."""
    missing = rows.missing(*[f"{prefix}|{name}" for name in attacks])
    if not missing:
        return
    targets = make()
    for name, (attack, part) in attacks.items():
        if f"{prefix}|{name}" not in missing:
            continue
        wall, busy = time.perf_counter(), time.process_time()
        found = analyze(attack.run(targets[part], data))
        row = {key: value for key, value in found.as_dict().items() if key != "roc"}
        row |= {"accuracy": targets["accuracy"], "seconds": time.perf_counter() - wall}
        rows.keep(f"{prefix}|{name}", {**row, "cpu_seconds": time.process_time() - busy})


def links(name: str, rows: Rows) -> None:
    """Links, degrees, features and an attribute, from a GCN without privacy and from GAP at edge epsilon 1."""
    data = school(name)
    gender = AttributeInference(column=gender_column(name))
    # 5,000 pairs and more: 118 sources with up to 25 neighbors and 25 others each.
    common: dict[str, tuple[Attack, str]] = {
        "LinkTeller": (LinkTeller(sources=118), "target"),
        "posterior similarity": (PosteriorSimilarity(sources=118), "target"),
        "degrees from rows": (DegreeInference(), "target"),
        "degrees from predictions": (DegreeInference(source="posteriors"), "target"),
        "features from rows": (FeatureReconstruction(), "target"),
        "gender from predictions": (gender, "target"),
    }
    stored: dict[str, tuple[Attack, str]] = {
        "LinkTeller, cached": (LinkTeller(sources=118), "cached"),
        "released rows": (ReleasedRows(sources=118), "target"),
    }
    cases: list[tuple[str, Method, hg.Budget, dict[str, tuple[Attack, str]]]] = [
        ("GCN, no privacy", GCN(epochs=20), FREE, common),
        ("GAP, edge epsilon 1", GAP(), hg.Budget(1.0, 1e-7), common | stored),
    ]
    for title, method, budget, attacks in cases:

        def make(method: Method = method, budget: hg.Budget = budget) -> dict[str, Any]:
            model = method.fit(data, EDGE, budget, seed=0)
            found = {"target": target_of(model, data), "accuracy": {"test": model.metrics["accuracy"]["test"]}}
            return found | {"cached": target_of(model, data, fresh_noise=False)}

        attack_all(rows, f"links|{name}|{title}", attacks, make, data)


def membership(name: str, rows: Rows) -> None:
    """Shadow-model membership inference and LiRA against overfitted targets and GAP at node epsilon 8."""
    data = school(name, split=(0.2, 0.0, 0.8), seed=0)
    attacks: dict[str, tuple[Attack, str]] = {
        "shadow model": (ShadowMembership(per_class=300 if data.num_nodes < 10_000 else 1000), "target"),
        "LiRA": (Lira(shadows=8), "target"),
    }
    cases: dict[str, tuple[Method, Any, hg.Budget]] = {
        "GAP, no privacy": (GAP(hidden_channels=64, epochs=200), EDGE, FREE),
        "GraphSAGE, no privacy": (GraphSAGE(hidden_channels=64, epochs=60), EDGE, FREE),
        "GAP, node epsilon 8": (GAP(), hg.units.Node(max_degree=100), hg.Budget(8.0, 1e-5)),
    }
    for title, (method, unit, budget) in cases.items():

        def make(title: str = title, method: Method = method, unit: Any = unit, budget: Any = budget) -> dict[str, Any]:
            target = trained_target(title, data, method_trainer(method, unit, budget), seed=1)
            rates = {"members": _accuracy(target, data, "train_mask"), "others": _accuracy(target, data, "test_mask")}
            return {"target": target, "accuracy": rates}

        attack_all(rows, f"membership|{name}|{title}", attacks, make, data)


def _accuracy(target: Target, data: Data, mask: str) -> float:
    chosen = data[mask]
    return 100.0 * float((target.posteriors[chosen].argmax(1) == data.y[chosen]).float().mean())


def main() -> None:
    """Run what has no row yet, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="links, membership, inversion; default: all")
    parser.add_argument("--graphs", nargs="*", default=list(SCHOOLS))
    parser.add_argument("--write", action="store_true", help="write the page from the rows there are")
    chosen = parser.parse_args()
    parts: dict[str, Callable[[str, Rows], None]] = {"links": links, "membership": membership}
    unknown = set(chosen.parts) - {*parts, "inversion"}
    if unknown:
        parser.error(f"unknown part: {', '.join(sorted(unknown))}")
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    rows = Rows(KEEP)
    if not chosen.write:
        for part in chosen.parts or [*parts, "inversion"]:
            if part == "inversion":
                inversion(data_file(""), rows)
                continue
            for name in chosen.graphs:
                file = data_file(f"facebook100/{name}.npz")
                if file.exists():
                    parts[part](name, rows)
                else:
                    print(f"{part}: no {file}; skipped")
    write_page(rows.read(), ROOT)


if __name__ == "__main__":
    main()
