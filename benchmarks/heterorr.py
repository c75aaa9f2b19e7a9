"""docs/results-heterorr.md from the runs of studies/feature-rr.yaml and studies/hetero-rr.yaml.

    hushgraph study run studies/feature-rr.yaml && hushgraph study run studies/hetero-rr.yaml
    python benchmarks/heterorr.py --keep     # the runs there are, to benchmarks/results/heterorr.jsonl
    python benchmarks/heterorr.py            # the page, from the runs that are kept

Data: the folder that HUSHGRAPH_DATA names.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from hushgraph.study.export import markdown
from hushgraph.study.results import Results
from hushgraph.study.spec import Study
from hushgraph.study.store import Store
from hushgraph.study.table import Table
from hushgraph.study.views import View

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "benchmarks" / "results" / "heterorr.jsonl"
PREFACE = ROOT / "benchmarks" / "heterorr.md.in"
PAGE = ROOT / "docs" / "results-heterorr.md"
STUDIES = ("feature-rr", "hetero-rr")
SHOWN = ("test_accuracy", "auc", "public_auc")
COLUMNS = ("key", "identity", "code", "cell", "state", "metrics", "facts", "message", "seconds", "finished")


def keep(stores: list[Path]) -> None:
    """Add the runs of the stores to those that are kept; the newest of a cell stays."""
    rows = {row["identity"]: row for row in kept()}
    for store in stores:
        with closing(sqlite3.connect(store)) as connection:
            query = f"SELECT {', '.join(COLUMNS)} FROM results WHERE state = 'done' ORDER BY finished"
            for values in connection.execute(query):
                row = dict(zip(COLUMNS, values, strict=True))
                shown = {name: value for name, value in json.loads(row["metrics"]).items() if name in SHOWN}
                small = {"metrics": json.dumps(shown), "facts": "{}", "seconds": round(row["seconds"], 1)}
                rows[row["identity"]] = {**row, **small}
    lines = (json.dumps(row, sort_keys=True) for row in sorted(rows.values(), key=lambda row: str(row["cell"])))
    KEPT.write_text("\n".join(lines) + "\n")


def kept() -> Iterator[dict[str, Any]]:
    """The runs that are kept."""
    if KEPT.is_file():
        yield from map(json.loads, KEPT.read_text().splitlines())


def results(folder: Path) -> dict[str, Results]:
    """Both studies over the runs that are kept."""
    store = Store(folder / "kept.sqlite")
    store.begin("none")  # makes the tables
    with closing(sqlite3.connect(store.path)) as connection, connection:
        marks = ", ".join("?" * len(COLUMNS))
        connection.executemany(
            f"INSERT INTO results VALUES ({marks})", [[row[name] for name in COLUMNS] for row in kept()]
        )
    return {name: Results(Study.read(ROOT / "studies" / f"{name}.yaml"), store, any_code=True) for name in STUDIES}


def section(title: str, found: Results, words: str = "", **options: Any) -> list[str]:
    """A table under its title; nothing where no run of it is there."""
    value = options.get("value", "test_accuracy")
    if not any(value in row.metrics for row in found.where(options.get("where", {}))):
        return []
    table = found.table(View(title, "table", **options))
    return [f"## {title}", "", *([words, ""] if words else []), markdown(table).rstrip(), ""]


def wins(table: Table) -> str:
    """Where FeatureRR is ahead of the best other randomizer of a row, and where it is not."""
    lines = ["| dataset | epsilon | feature-rr | best other | its accuracy | best clipped | its accuracy |"]
    lines.append("| --- " * 7 + "|")
    others = [name for name in table.column_keys if not str(name).startswith(("feature-rr", "clean", "features only"))]
    for key in table.row_keys:
        means = {name: entry.summary.mean for name in table.column_keys if (entry := table[key, name]) is not None}
        clipped = {name: means[name] for name in others if name in means and "clipped" in name}
        plain = {name: means[name] for name in others if name in means and "clipped" not in name}
        if "feature-rr" not in means or not clipped or not plain:
            continue
        best = [f"{name} | {of[name]:.1f}" for of in (plain, clipped) for name in [max(of, key=lambda one: of[one])]]
        lines.append(f"| {key[0]} | {key[1]:g} | {means['feature-rr']:.1f} | {' | '.join(best)} |")
    return "\n".join(lines)


def grid(found: Results) -> list[str]:
    """The accuracy over both budgets as a table, one row for each epsilon of the features."""
    return section(
        "Both budgets",
        found,
        "facebook_pagepage, 32 projected features, a tenth of the pairs private, the network of FeatureRR on what "
        "HeteroRR releases. Across: epsilon of the edges; down: epsilon of the features (inf, inf: the clean graph).",
        rows=("feature_epsilon",),
        columns="epsilon",
        where={"part": ["grid", "grid, clean"]},
    )


def page(found: dict[str, Results]) -> str:
    """The whole page."""
    features, both = found["feature-rr"], found["hetero-rr"]
    lines = [PREFACE.read_text().rstrip(), ""]
    options: dict[str, Any] = {"where": {"part": ["randomizers", "clean", "features only"]}}
    if features.rows:
        table = features.table(View("features", "table", baseline="feature-rr", **options))
        lines += ["## FeatureRR and the best of the others", "", wins(table), ""]
    lines += section("All randomizers", features, rows=("dataset", "method"), columns="epsilon", **options)
    swept = {"rows": ("gamma",), "columns": "bins", "where": {"part": "scores"}}
    lines += section("FeatureRR over gamma and bins", both, "PubMed, epsilon 4.", **swept)
    edges = {"part": ["edges", "all edges", "public edges only"]}
    lines += section("Edges", both, rows=("dataset", "method"), columns="epsilon", where=edges)
    lines += grid(both)
    told: dict[str, Any] = {"rows": ("epsilon",), "columns": "dataset", "where": {"part": "LinkTeller"}}
    lines += section("LinkTeller about private edges (AUC)", both, "Epsilon inf: the raw graph.", value="auc", **told)
    lines += section("LinkTeller against a model of public edges alone (AUC)", both, value="public_auc", **told)
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Keep runs, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    own = [ROOT / "studies" / f"{name}.sqlite" for name in STUDIES]
    parser.add_argument("--keep", nargs="*", type=Path, help="stores to take runs from; default: those in studies/")
    options = parser.parse_args()
    if options.keep is not None:
        keep([store for store in options.keep or own if store.is_file()])
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(page(results(Path(folder))))


if __name__ == "__main__":
    main()
