"""`make bench`: every benchmark, one after the other, threads pinned; a table of ratios, a JSON file and a plot.

Each ratio compares two things measured side by side in one run. `python benchmarks --only steps` runs one part.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PARTS = {
    "startup": ["startup.py", "--json"],
    "steps": ["steps.py", "--json"],
    "rooted": ["rooted.py", "--json", "{file}"],
    "aggregation": ["aggregation.py", "--json"],
    "fit": ["fit.py", "--profile", str(HERE / "profile.txt"), "--reference", "edge=6.5", "node=10.9"],
}


def run(name: str) -> Any:
    """One part in its own process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        script, *words = PARTS[name]
        command = [sys.executable, str(HERE / script), *(word.format(file=file) for word in words)]
        done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            return {"not run": f"exit code {done.returncode}"}
        return json.loads(file.read_text() if file.exists() else done.stdout)


def ratios(results: dict[str, Any]) -> list[tuple[str, float]]:
    """The comparisons that matter, out of everything measured."""
    rows: list[tuple[str, float]] = []
    startup, steps, fit = results.get("startup", {}), results.get("steps", {}), results.get("fit", {})
    if "import hushgraph / import torch" in startup:
        rows.append(("import hushgraph / import torch", startup["import hushgraph / import torch"]))
        rows.append(("hushgraph --help, seconds", startup["hushgraph --help"]))
    for title, table in steps.items():
        if "plain Adam" in table:
            rows += [(f"{title}: {name} / plain Adam", v / table["plain Adam"]) for name, v in table.items()]
    for row in results.get("rooted", []) if isinstance(results.get("rooted"), list) else []:
        name = f"per-root step, {row['network']} K={row['max_degree']} r={row['layers']}"
        rows += [(f"{name}: private / plain", row["ratio"]), (f"{name}: extra MiB", row["extra MiB"])]
    rows += aggregation_ratios(results.get("aggregation", {}))
    for level, found in fit.items():
        if isinstance(found, dict) and "reference / ours" in found:
            rows.append((f"GAP {level} level: reference CPU / ours", found["reference / ours"]))
            rows.append((f"GAP {level} level: usual tools, CPU / ours", found["usual way / ours"]))
            rows.append((f"GAP {level} level: peak MiB", found["peak MiB"]))
    return rows


def aggregation_ratios(parts: dict[str, Any]) -> list[tuple[str, float]]:
    """Rates beside other libraries and beside a copy of memory, blocks on disk beside memory, growth with edges."""
    rows: list[tuple[str, float]] = []
    for title, table in parts.items():
        if not isinstance(table, dict):
            continue
        rows += [(f"{title}: ours / {name}", rate) for name, rate in table.get("ours_over", {}).items()]
        if "gigabytes_per_second" in table:
            ours, copied = table["gigabytes_per_second"].values()
            rows += [(f"{title}: GB/s", ours), (f"{title}: GB/s / those of a copy", ours / copied)]
        rows += [(f"{title}: {name} / in memory", r) for name, r in table.get("over_in_memory", {}).items()]
        if "exponent" in table:
            rows.append((f"{title}: exponent of time in edges", table["exponent"]))
        if title.startswith("noise"):
            rows += [(f"{title}: {size} at once, ours / torch.randn float64", v["ratio"]) for size, v in table.items()]
    return rows


def plot(rows: list[tuple[str, float]], path: Path) -> None:
    """Step times relative to a plain Adam step, on a logarithmic axis."""
    shown = [(name, value) for name, value in rows if name.startswith("step,")]
    if not shown:
        return
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 0.35 * len(shown) + 1))
    axis.barh([name for name, _ in shown], [value for _, value in shown])
    axis.axvline(1.0, color="black", linewidth=0.8)
    axis.set_xscale("log")
    axis.invert_yaxis()
    axis.set_xlabel("time of a step relative to a plain Adam step")
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else {}
    for name in options.only:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        results[name] = run(name)
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}
    rows = ratios(results)
    RESULTS.write_text(json.dumps({"machine": machine, "ratios": dict(rows), "results": results}, indent=2) + "\n")
    for name, value in rows:
        print(f"{name:80s} {value:10.3g}")
    plot(rows, HERE / "results.svg")
    print(f"written to {RESULTS.name}, results.svg and profile.txt in {HERE.name}/")


if __name__ == "__main__":
    main()
