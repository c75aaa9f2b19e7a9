"""From a raw file of edges to a trained and certified model, at any size: what each part takes.

    python benchmarks/scale.py --folder /path/with/room --entries 1e6 1e7 1e8

It makes the graph itself: 50 entries (25 undirected edges) a node, eight classes, sixteen features that say a little
about the class, and neighbors of one's own class more often than of others. For each size, in a folder of its own and
each in a process of its own with one thread:

* make: raw pairs (`edges.npy`) and a table of nodes (`nodes.parquet`);
* import: `hushgraph import` of both;
* edge, node: Chorus at edge level and at node level at epsilon 1, with a ledger, saved as a folder;
* batches: Chorus at edge level by minibatches, as above, and on full batches, with the same noise (fixed seeds; long);
* steps: Chorus at node level with batches by rule, as above, and with batches of 256, with the same noise;
* sums: the exact label sums of all nodes from disk;
* duckdb: the sums of labels by DuckDB, GROUP BY over its own tables, made outside of the clock (pip install duckdb);
* sorted: the sorted, distinct edges of the raw file as Parquet by DuckDB, beside the import.

Parts that are done are not done again (`results.json`). About 30 bytes of disk an entry are needed, 50 with DuckDB; a
billion entries take under 8 GiB of memory. `--clean` removes all but the results.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

DEGREE, CLASSES, FEATURES, SAME = 50, 8, 16, 0.2
AT_ONCE = 1 << 22
PARTS = ("make", "import", "edge", "node", "sums", "batches", "steps", "duckdb", "sorted")
SEEDS = (1, 2, 3)
MEMORY = "4GiB"  # 1e8 entries are used from memory, more from the disk
UNITS = {"edge": "undirected-edge", "node": "node"}


# What is measured


def make(folder: Path, nodes: int) -> dict[str, Any]:
    """The raw files. The class of node v is v modulo the number of classes."""
    import pyarrow as pa
    from pyarrow import parquet

    rng, lines = np.random.default_rng(0), nodes * DEGREE // 2
    with (folder / "edges.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<i4", "fortran_order": False, "shape": (lines, 2)})
        for first in range(0, lines, AT_ONCE):
            count = min(AT_ONCE, lines - first)
            pairs = rng.integers(0, nodes - CLASSES, (count, 2), dtype=np.int32)
            alike = rng.random(count, dtype=np.float32) < SAME
            pairs[alike, 1] += pairs[alike, 0] % CLASSES - pairs[alike, 1] % CLASSES
            file.write(pairs.data)
    # The same at every size, so that accuracies can be put side by side.
    centers = 0.35 * np.random.default_rng(1).standard_normal((CLASSES, FEATURES), dtype=np.float32)
    names = [f"x{column}" for column in range(FEATURES)]
    kinds = [
        ("id", pa.int64()),
        ("label", pa.int64()),
        ("split", pa.string()),
        *((name, pa.float32()) for name in names),
    ]
    with parquet.ParquetWriter(folder / "nodes.parquet", pa.schema(kinds), compression="none") as writer:
        for first in range(0, nodes, AT_ONCE // 4):
            ids = np.arange(first, min(first + AT_ONCE // 4, nodes))
            x = centers[ids % CLASSES] + rng.standard_normal((len(ids), FEATURES), dtype=np.float32)
            split = np.array(["train", "val", "test"])[np.searchsorted([0.75, 0.85], rng.random(len(ids)))]
            columns = [ids, ids % CLASSES, split, *x.T]
            writer.write_table(pa.table([pa.array(values) for values in columns], schema=pa.schema(kinds)))
    return {"lines": lines, "raw GB": (folder / "edges.npy").stat().st_size / 1e9}


def read_in(folder: Path, nodes: int) -> dict[str, Any]:
    """`hushgraph import`, edges and nodes."""
    from hushgraph.importing.edges import EdgeColumns
    from hushgraph.importing.importer import import_files
    from hushgraph.importing.nodes import NodeColumns

    columns = NodeColumns("id", "label", "split", {"x*": None}, [str(number) for number in range(CLASSES)])
    done = import_files(
        folder / "my.graph", folder / "edges.npy", folder / "nodes.parquet", columns, EdgeColumns(directed=False)
    )
    return {"entries": done.num_edges}


def fit(level: str) -> Callable[[Path, int], dict[str, Any]]:
    """Chorus at one level, from the folder of the graph to the folder of the model."""

    def part(folder: Path, nodes: int) -> dict[str, Any]:
        import hushgraph as hg

        warnings.simplefilter("ignore")
        started, first = time.process_time(), list[float]()
        model = hg.Chorus().fit(
            str(folder / "my.graph"),
            UNITS[level],
            1.0,
            ledger=str(folder / f"ledger-{level}"),
            memory=MEMORY,
            progress=lambda *_: first.append(time.process_time() - started) if not first else None,
        )
        trained = time.process_time() - started
        model.save(folder / f"model-{level}")
        return {
            "recognized after": first[0],
            "fit": trained,
            "save": time.process_time() - started - trained,
            "wall seconds by stage": model.seconds,
            "accuracy": model.metrics["accuracy"],
            "epsilon": model.certificate.epsilon,
            "delta": model.certificate.delta,
            "settings": model.settings,
        }

    return part


def compare_batches(folder: Path, nodes: int) -> dict[str, Any]:
    """Chorus at edge level by minibatches and on full batches."""
    import hushgraph as hg

    # A schedule of one's own switches minibatches off; this one leaves the learning rate as it is.
    ways: dict[str, Any] = {"minibatches": None, "full batches": lambda share: 1.0}

    def trained(way: str, seed: int) -> Any:
        given = (str(folder / "my.graph"), UNITS["edge"], 1.0)
        model = hg.Chorus().fit(*given, ledger=hg.Ledger(), seed=seed, memory="1MiB", schedule=ways[way])
        assert ("minibatches" in model.settings) == (way == "minibatches")
        return model

    return compared(folder / "batches.json", list(ways), trained)


def compare_steps(folder: Path, nodes: int) -> dict[str, Any]:
    """Chorus at node level with batches by rule and with batches of 256, as on small graphs."""
    import hushgraph as hg

    ways = {"by rule": hg.Chorus(), "of 256": hg.Chorus(batch_size=256)}

    def trained(way: str, seed: int) -> Any:
        given = (str(folder / "my.graph"), UNITS["node"], 1.0)
        return ways[way].fit(*given, ledger=hg.Ledger(), seed=seed, memory="1MiB")

    return compared(folder / "steps.json", list(ways), trained)


def compared(kept: Path, ways: list[str], trained: Callable[[str, int], Any]) -> dict[str, Any]:
    """Two ways with the same noise: test accuracy in points, and processor seconds. What is done is not done again."""
    warnings.simplefilter("ignore")
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    found |= json.loads(kept.read_text()) if kept.exists() else {}
    for seed in SEEDS:
        for way, results in found.items():
            if len(results) > SEEDS.index(seed):
                continue
            started = time.process_time()
            accuracy = trained(way, seed).metrics["accuracy"]["test"]
            results.append({"accuracy": accuracy, "cpu": time.process_time() - started})
            kept.write_text(json.dumps(found) + "\n")
            print(f"seed {seed}, {way}: {json.dumps(results[-1])}", file=sys.stderr, flush=True)
    pairs = zip(*found.values(), strict=True)
    return {**found, "differences": [one["accuracy"] - other["accuracy"] for one, other in pairs]}


def stored_labels(folder: Path) -> np.ndarray:
    return np.fromfile(folder / "my.graph" / "labels.bin", dtype="<i8")


def add_up(folder: Path, nodes: int) -> dict[str, Any]:
    """Exact sums of all labels over neighbors, from disk."""
    import torch

    from hushgraph.graph.disk import DiskEdges
    from hushgraph.graph.edges import MemoryEdges
    from hushgraph.graph.labels import quantize_labels
    from hushgraph.graph.quantized import quantize

    edges = DiskEdges.open(folder / "my.graph" / "edges")
    labels = quantize_labels(torch.from_numpy(stored_labels(folder)), CLASSES)
    seconds, checked = {}, {}
    rows = quantize(torch.randn(nodes, 16, generator=torch.Generator().manual_seed(0)), normalize=True)
    few = (torch.arange(nodes + 1) * DEGREE).clamp(max=1 << 20)  # where each of some short lists begins
    for name, sent in (("labels", labels), ("16 columns", rows)):
        MemoryEdges(few, torch.zeros(int(few[-1]), dtype=torch.int32)).sum(sent, narrow=True)  # loops are compiled
        started = time.process_time()
        checked[name] = int(edges.sum(sent, narrow=True).sum()) * sent.step
        seconds[name] = time.process_time() - started
    return {"ns an entry": {name: used / edges.num_edges * 1e9 for name, used in seconds.items()}, "of": checked}


def database_sums(folder: Path, nodes: int) -> dict[str, Any]:
    """Sums of labels by DuckDB."""
    import duckdb
    import pyarrow as pa

    from hushgraph.graph.disk import DiskEdges

    db = duckdb.connect(str(folder / "duck.db"))
    db.execute(f"SET memory_limit='6GB'; SET threads=1; SET temp_directory='{folder / 'spill'}'")
    edges, schema = (
        DiskEdges.open(folder / "my.graph" / "edges"),
        pa.schema([("source", pa.int32()), ("target", pa.int32())]),
    )

    def stored() -> Any:
        for block in edges.edge_blocks():
            yield pa.record_batch([pa.array(end.numpy().astype(np.int32)) for end in block], schema=schema)

    reader = pa.RecordBatchReader.from_batches(schema, stored())
    db.execute("CREATE TABLE edges AS SELECT * FROM reader")
    labels = pa.table({"id": pa.array(np.arange(nodes, dtype=np.int32)), "label": pa.array(stored_labels(folder))})
    db.execute("CREATE TABLE nodes AS SELECT * FROM labels")
    counts = ", ".join(f"count(*) FILTER (label = {number}) AS n{number}" for number in range(CLASSES))
    started = time.process_time()
    db.execute(f"CREATE TABLE sums AS SELECT target, {counts} FROM edges JOIN nodes ON source = id GROUP BY target")
    summed = time.process_time() - started
    checked = db.execute(f"SELECT {' + '.join(f'sum(n{number})' for number in range(CLASSES))} FROM sums").fetchone()
    del reader, labels
    db.close()
    (folder / "duck.db").unlink()
    return {"ns an entry": {"labels": summed / edges.num_edges * 1e9}, "of": {"labels": checked[0]}}


def database_order(folder: Path, nodes: int) -> dict[str, Any]:
    """The edges of the raw file, sorted and distinct, by DuckDB."""
    import duckdb
    import pyarrow as pa

    db = duckdb.connect()
    db.execute(f"SET memory_limit='6GB'; SET threads=1; SET temp_directory='{folder / 'spill'}'")
    pairs = np.load(folder / "edges.npy", mmap_mode="r")
    schema = pa.schema([("source", pa.int32()), ("target", pa.int32())])

    def raw() -> Any:
        for first in range(0, len(pairs), AT_ONCE):
            part = np.ascontiguousarray(pairs[first : first + AT_ONCE].T)
            yield pa.record_batch([pa.array(end) for end in part], schema=schema)
            yield pa.record_batch([pa.array(end) for end in part[::-1]], schema=schema)

    reader = pa.RecordBatchReader.from_batches(schema, raw())
    started = time.process_time()
    chosen = "SELECT DISTINCT source, target FROM reader WHERE source <> target ORDER BY target, source"
    db.execute(f"COPY ({chosen}) TO '{folder / 'sorted.parquet'}' (FORMAT parquet)")
    used = time.process_time() - started
    del reader
    (folder / "sorted.parquet").unlink()
    return {"ns an entry": {"sorted and distinct": used / (2 * len(pairs)) * 1e9}}


WORK: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "make": make,
    "import": read_in,
    "edge": fit("edge"),
    "node": fit("node"),
    "sums": add_up,
    "batches": compare_batches,
    "steps": compare_steps,
    "duckdb": database_sums,
    "sorted": database_order,
}


# How


def run_part(part: str, folder: Path, nodes: int) -> None:
    """One part in this process; what it took is the last line that is printed."""
    wall = time.perf_counter()
    found = WORK[part](folder, nodes)
    used = {"cpu": time.process_time(), "wall": time.perf_counter() - wall}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({**used, "peak GiB": peak, **found}))


def run_size(folder: Path, entries: int, parts: list[str]) -> dict[str, Any]:
    """All parts of one size, each in its own process."""
    place = folder / f"{entries:.0e}".replace("+", "")
    place.mkdir(parents=True, exist_ok=True)
    kept = place / "results.json"
    results: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    for part in parts:
        if part in results:
            continue
        print(f"{entries:.0e} entries: {part} ...", file=sys.stderr, flush=True)
        if part in UNITS:
            for rest in (f"ledger-{part}", f"model-{part}"):
                shutil.rmtree(place / rest, ignore_errors=True)
        command = [sys.executable, __file__, "--folder", str(place), "--entries", str(entries), "--part", part]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        results[part] = json.loads(done.stdout.splitlines()[-1])
        kept.write_text(json.dumps(results, indent=2) + "\n")
    return results


def show(found: dict[int, dict[str, Any]]) -> None:
    """The table, and how whole fits grow with the number of entries."""
    for entries, results in found.items():
        for part, one in results.items():
            more = {key: one[key] for key in ("accuracy", "epsilon", "ns an entry", "differences") if key in one}
            print(
                f"{entries:8.0e} {part:7s} cpu {one['cpu']:8.1f} s ({one['cpu'] / entries * 1e9:6.1f} ns an entry), "
                f"wall {one['wall']:8.1f} s, peak {one['peak GiB']:.2f} GiB  {json.dumps(more) if more else ''}"
            )
    sizes = sorted(found)
    for level in UNITS:
        times = {size: found[size][level]["cpu"] for size in sizes if level in found[size]}
        if len(times) > 1:
            logs = np.polyfit([math.log(size) for size in times], [math.log(used) for used in times.values()], 1)
            between = f"{min(times):.0e} to {max(times):.0e}"
            print(f"exponent of a whole fit at {level} level in entries, {between}: {logs[0]:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where to write; needs room")
    parser.add_argument("--entries", type=float, nargs="+", default=[1e6, 1e7])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS[:5]))
    parser.add_argument("--clean", action="store_true", help="remove all but the results when done")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part is not None:
        run_part(given.part, given.folder, int(given.entries[0]) // DEGREE)
        return
    found = {}
    for entries in map(int, given.entries):
        found[entries] = run_size(given.folder, entries, given.parts)
        if given.clean:
            place = given.folder / f"{entries:.0e}".replace("+", "")
            for rest in place.iterdir():
                if rest.name != "results.json":
                    (shutil.rmtree if rest.is_dir() else os.unlink)(rest)
    show(found)


if __name__ == "__main__":
    main()
