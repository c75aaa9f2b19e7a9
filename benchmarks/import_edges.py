"""`hushgraph import` of a Parquet file of edges, against DuckDB sorting the same file by destination.

    python benchmarks/import_edges.py --edges 1e7

Each runs in a process of its own with one thread and says its CPU time, wall time and peak memory; DuckDB may use 2 GB.
The first import after an installation also compiles its loops, once: run it twice.
It needs DuckDB (pip install duckdb), which nothing else here does.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

AT_ONCE = 5_000_000


def make(path: Path, edges: int, nodes: int) -> None:
    """Uniform random pairs, in row groups."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    with parquet.ParquetWriter(path, pa.schema([("source", pa.int64()), ("target", pa.int64())])) as writer:
        for first in range(0, edges, AT_ONCE):
            count = min(AT_ONCE, edges - first)
            columns = {name: rng.integers(0, nodes, count) for name in ("source", "target")}
            writer.write_table(pa.table(columns))


def sort(path: Path, nodes: int) -> None:
    """What a database does with it."""
    import duckdb

    work = duckdb.connect()
    work.execute(f"SET memory_limit='2GB'; SET threads=1; SET temp_directory='{path.parent / 'spill'}'")
    work.execute(
        f"COPY (SELECT * FROM '{path}' ORDER BY target) TO '{path.parent / 'sorted.parquet'}' (FORMAT parquet)"
    )


def read_in(path: Path, nodes: int) -> None:
    """The command, from its start on."""
    from hushgraph.cli import main

    out = path.parent / "my.graph"
    sys.argv = f"hushgraph import --edges {path} --num-nodes {nodes} --directed --json --out {out}".split()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main()
    if not out.is_dir():
        raise SystemExit("the import failed")


PARTS = {"duckdb": sort, "import": read_in}


def measured(part: str, path: Path, nodes: int) -> dict[str, float]:
    """One part in this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    PARTS[part](path, nodes)
    used = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    return {**used, "peak MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--edges", type=float, default=1e7)
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    edges = int(given.edges)
    nodes = max(edges // 20, 1)
    if given.part is not None:
        print(json.dumps(measured(given.part, given.file, nodes)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "edges.parquet"
        make(path, edges, nodes)
        words = [sys.executable, __file__, "--edges", str(edges), "--file", str(path), "--part"]
        runs = {part: subprocess.run([*words, part], check=True, stdout=subprocess.PIPE) for part in PARTS}
    found = {part: json.loads(done.stdout) for part, done in runs.items()}
    found["import / duckdb, cpu"] = found["import"]["cpu"] / found["duckdb"]["cpu"]
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
