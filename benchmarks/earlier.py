"""Accuracy on nine graphs before Chorus with codes: fills benchmarks/results/accuracy/, writes docs/results-earlier.md.

The tables of today are those of studies/results.yaml.

python benchmarks/earlier.py [--seeds 5] [--datasets Berkeley13 pubmed] [--parts node edge paper rates sage] [--write]

Every finished run is one row on disk, so the command can be stopped and continued; `--write` only writes the document
from the rows there are. Data: the folder that HUSHGRAPH_DATA names.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from data_files import data_file
from scipy.stats import t as student

from hushgraph import datasets
from hushgraph.graph.checks import check_graph
from hushgraph.methods.auto import Auto
from hushgraph.methods.base import Method
from hushgraph.methods.chorus import Chorus
from hushgraph.methods.gap import GAP
from hushgraph.methods.mlp import DPMLP, MLP
from hushgraph.methods.plain_gnn import GraphSAGE
from hushgraph.methods.progap import ProGAP
from hushgraph.privacy import units
from hushgraph.privacy.budget import Budget

ROOT = Path(__file__).resolve().parent.parent
ROWS = ROOT / "benchmarks" / "results" / "accuracy"
DOCUMENT = ROOT / "docs" / "results-earlier.md"

FILES = {
    "Berkeley13": "facebook100/Berkeley13.npz",
    "Cornell5": "facebook100/Cornell5.npz",
    "BU10": "facebook100/BU10.npz",
    "JohnsHopkins55": "facebook100/JohnsHopkins55.npz",
    "facebook_pagepage": "facebook_pagepage/facebook_pagepage.npz",
    "pubmed": "planetoid/pubmed.npz",
    "coauthor_cs": "coauthor_cs/coauthor_cs.npz",
    "amazon_computers": "amazon_computers/amazon_computers.npz",
    "tolokers": "tolokers/tolokers.npz",
}
EDGE_EPSILONS, NODE_EPSILONS = (1.0, 4.0, 0.25), (8.0, 2.0, 16.0)
EDGE_DELTA, NODE_DELTA = 1e-7, 1e-5
RATES = (0.01, 0.10, 0.75)
PARTS = ("node", "edge", "paper", "rates", "sage")
REFERENCE = {  # part, graph, depth, epsilon: mean of 5 seeds of the reference code on the same split
    ("paper", "Berkeley13", 2, 1.0): 70.2,
    ("paper", "Berkeley13", 5, 1.0): 71.3,
    ("paper", "Berkeley13", 2, 4.0): 76.6,
    ("paper", "Berkeley13", 5, 4.0): 78.4,
    ("paper-node", "Berkeley13", 4, 8.0): 62.9,
    ("paper", "Cornell5", 2, 1.0): 79.2,
    ("paper", "Cornell5", 5, 1.0): 81.0,
    ("paper", "Cornell5", 2, 4.0): 83.9,
    ("paper", "Cornell5", 5, 4.0): 87.3,
    ("paper-node", "Cornell5", 4, 8.0): 72.9,
}
AS_PUBLISHED, LONGER = "-100epochs", "-200epochs"  # epochs a stage, where they are not the default
FASTER = "-lr0.05"  # 100 epochs at the paper's other learning rate
CHOSEN_ON = (
    ("JohnsHopkins55", 1.0),
    ("JohnsHopkins55", 4.0),
    ("BU10", 4.0),
)  # where 100 and 200 epochs a stage were compared


Job = tuple[str, str, Method, units.Unit, Budget, float, bool]  # part, label, method, unit, budget, share, paper mode


def jobs(part: str, dataset: str) -> Iterator[Job]:
    """The runs of one part on one graph."""
    method: Method
    if part == "node":
        for epsilon in NODE_EPSILONS:
            for method in (Auto(), Chorus(), DPMLP(), GAP(), ProGAP()):
                yield part, method.name, method, units.Node(), Budget(epsilon, NODE_DELTA), 0.75, False
    elif part == "edge":
        yield part, "mlp", MLP(), units.UndirectedEdge(), Budget(1.0, EDGE_DELTA), 0.75, False
        for epsilon in EDGE_EPSILONS:
            for method in (Chorus(), GAP(), ProGAP()):
                yield part, method.name, method, units.UndirectedEdge(), Budget(epsilon, EDGE_DELTA), 0.75, False
    elif part == "paper":
        node, deep = units.Node(), ProGAP(hops=4, base_layers=2)
        yield "paper-node", "progap", deep, node, Budget(8.0, NODE_DELTA), 0.75, True
        yield "paper-node", "gap", GAP(), node, Budget(8.0, NODE_DELTA), 0.75, True
        for epsilon in EDGE_EPSILONS:
            for name, method in [
                ("chorus", Chorus()),
                ("gap", GAP()),
                ("progap", ProGAP()),
                *_compared(dataset, epsilon),
            ]:
                yield part, name, method, units.DirectedEdge(), Budget(epsilon, EDGE_DELTA), 0.75, True
    elif part == "rates" and dataset in ("Berkeley13", "BU10", "facebook_pagepage"):
        for share in RATES[:2]:
            for method in (Auto(), Chorus(), DPMLP()):
                yield part, method.name, method, units.Node(), Budget(8.0, NODE_DELTA), share, False
            for method in (Chorus(), MLP()):
                yield part, method.name, method, units.UndirectedEdge(), Budget(1.0, EDGE_DELTA), share, False
    elif part == "sage":
        yield part, "sage", GraphSAGE(), units.UndirectedEdge(), Budget(math.inf, EDGE_DELTA), 0.75, False


def _compared(dataset: str, epsilon: float) -> Iterator[tuple[str, Method]]:
    """ProGAP of depth 5 where the reference code was run too, and where its number of epochs was chosen."""
    if ("paper", dataset, 5, epsilon) in REFERENCE or (dataset, epsilon) in CHOSEN_ON:
        yield "progap-5", ProGAP(hops=5)
        yield f"progap-5{AS_PUBLISHED}", ProGAP(hops=5, epochs=100)
        yield f"progap-5{FASTER}", ProGAP(hops=5, epochs=100, lr=0.05)
        yield f"progap{FASTER}", ProGAP(lr=0.05)
        yield f"progap{LONGER}", ProGAP(epochs=200)


def load(dataset: str, share: float) -> Any:
    """The graph, with its stored split where there is one, else 75/10/15; other shares take fewer train nodes."""
    path = data_file(FILES[dataset])
    split = path.with_name(f"{path.stem}-split.npz")
    data = datasets.load(path, split=split if split.exists() else (0.75, 0.10, 0.15), seed=0)
    if share != 0.75:
        train = data.train_mask.nonzero().squeeze(1)
        keep = train[torch.randperm(train.numel(), generator=torch.Generator().manual_seed(0))]
        keep = keep[: round(share * data.num_nodes)]
        data.train_mask = torch.zeros_like(data.train_mask).index_fill_(0, keep, True)
    return check_graph(data)


def run(names: list[str], parts: list[str], seeds: int, methods: list[str], epsilons: list[float]) -> None:
    """All runs that have no row yet, one seed after the other; empty lists mean all."""
    ROWS.mkdir(parents=True, exist_ok=True)
    for part in parts:
        for seed in range(seeds):
            for dataset in names:
                for job in jobs(part, dataset):
                    if job[1] in (methods or [job[1]]) and job[4].epsilon in (epsilons or [job[4].epsilon]):
                        _run_one(dataset, job, seed)


_GRAPHS: dict[tuple[str, float], Any] = {}


def _run_one(dataset: str, job: Job, seed: int) -> None:
    part, label, method, unit, budget, share, paper = job
    rows = read_rows(dataset)
    key = f"{part}|{label}|{unit.name}|{budget.epsilon:g}|{share:g}|{seed}"
    if key in rows:
        return
    if (dataset, share) not in _GRAPHS:
        _GRAPHS.clear()
        _GRAPHS[dataset, share] = load(dataset, share)
    started = time.process_time()
    model = method.fit(_GRAPHS[dataset, share], unit, budget, seed=seed, paper_mode=paper)
    accuracy = model.metrics["accuracy"]
    seconds = round(time.process_time() - started, 1)
    facts = _GRAPHS[dataset, share].facts
    rows = read_rows(dataset)  # another process may have added some meanwhile
    rows["sizes"] = {"nodes": facts.num_nodes, "edges": facts.num_edges}
    rows[key] = {"val": round(accuracy["val"], 3), "test": round(accuracy["test"], 3), "cpu_seconds": seconds}
    fresh = ROWS / f"{dataset}.{os.getpid()}.tmp"
    fresh.write_text(json.dumps(rows, indent=0, sort_keys=True) + "\n")
    fresh.replace(ROWS / f"{dataset}.json")
    print(dataset, key, rows[key], flush=True)


def read_rows(dataset: str) -> dict[str, Any]:
    """The finished runs of one graph."""
    path = ROWS / f"{dataset}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def cell(dataset: str, part: str, label: str, unit: str, epsilon: float, share: float = 0.75) -> list[float]:
    """Accuracies by seed. `auto` (test only) at edge level is Chorus or the MLP, whichever validates better.

    At node level `auto` is run itself: its count of edges takes a part of the budget.
    """
    prefix, found = f"{part}|{label}|{unit}|{epsilon:g}|{share:g}|", read_rows(dataset)
    if label != "auto" or unit == "node":
        return [row["test"] for key, row in found.items() if key.startswith(prefix)]
    chosen = []
    for key, row in found.items():
        if key.startswith(prefix.replace("auto", "chorus")):
            plain = found.get(f"{part}|mlp|undirected-edge|1|{share:g}|{key.rsplit('|', 1)[1]}")
            if plain is not None:
                chosen.append(plain["test"] if plain["val"] >= row["val"] else row["test"])
    return chosen


def shown(values: list[float]) -> str:
    """Mean, half width of the 95% interval (Student's t), and the number of seeds."""
    if not values:
        return "not run"
    mean = f"{statistics.mean(values):.1f}"
    return f"{mean} (1)" if len(values) < 2 else f"{mean} ± {half_width(values):.1f} ({len(values)})"


def half_width(values: list[float]) -> float:
    """Half of the 95% interval of the mean, by Student's t."""
    quantile = float(student.ppf(0.975, len(values) - 1))
    return quantile * statistics.stdev(values) / math.sqrt(len(values))


def table(part: str, unit: str, epsilons: tuple[float, ...], labels: tuple[str, ...]) -> list[str]:
    """One row per graph and epsilon, one column per method."""
    lines = ["| graph | epsilon | " + " | ".join(labels) + " |", "| --- " * (len(labels) + 2) + "|"]
    for dataset in FILES:
        for epsilon in sorted(epsilons):
            cells = [shown(cell(dataset, part, label, unit, 1.0 if label == "mlp" else epsilon)) for label in labels]
            if any(text != "not run" for text in cells):
                lines.append(f"| {dataset} | {epsilon:g} | " + " | ".join(cells) + " |")
    return lines


def reference_table() -> list[str]:
    """Our paper mode beside the reference code, where its figures are known; more than its 5 seeds where run."""
    lines = ["| graph | unit | epsilon | depth | ours | all seeds | reference code |", "| --- " * 7 + "|"]
    for (part, dataset, depth, epsilon), theirs in REFERENCE.items():
        unit, name = ("node" if part == "paper-node" else "directed-edge"), ("progap-5" if depth == 5 else "progap")
        ours = cell(dataset, part, name, unit, epsilon)
        every = shown(ours) if len(ours) > 5 else "the same"
        lines.append(f"| {dataset} | {unit} | {epsilon:g} | {depth} | {shown(ours[:5])} | {every} | {theirs} |")
    return lines


def epochs_table() -> list[str]:
    """Every setting of ProGAP that was tried in paper mode: epochs a stage, and the paper's other learning rate."""
    lines = ["| graph | epsilon | depth | 200 epochs | 100 epochs | 100 epochs, rate 0.05 |", "| --- " * 6 + "|"]
    names = {5: ("progap-5", f"progap-5{AS_PUBLISHED}", f"progap-5{FASTER}")}
    names[2] = (f"progap{LONGER}", "progap", f"progap{FASTER}")
    compared = [(dataset, epsilon) for _, dataset, depth, epsilon in REFERENCE if depth == 5]
    for depth in (5, 2):
        for dataset, epsilon in [*CHOSEN_ON, *compared]:
            cells = [shown(cell(dataset, "paper", label, "directed-edge", epsilon)) for label in names[depth]]
            lines.append(f"| {dataset} | {epsilon:g} | {depth} | " + " | ".join(cells) + " |")
    return lines


def rate_table() -> list[str]:
    """Chorus, the default and models of features alone when labels are rare."""
    lines = [
        "| graph | train nodes | edge 1: auto | chorus | mlp | node 8: auto | chorus | dp-mlp |",
        "| --- " * 8 + "|",
    ]
    for dataset in ("Berkeley13", "BU10", "facebook_pagepage"):
        for share in RATES:
            edge, node = ("rates", "rates") if share != 0.75 else ("edge", "node")
            cells = [
                *[shown(cell(dataset, edge, k, "undirected-edge", 1.0, share)) for k in ("auto", "chorus", "mlp")],
                *[shown(cell(dataset, node, k, "node", 8.0, share)) for k in ("auto", "chorus", "dp-mlp")],
            ]
            lines.append(f"| {dataset} | {share:.0%} | " + " | ".join(cells) + " |")
    return lines


def dpgnn_table() -> list[str]:
    """DP-GNN with one and two layers beside the other methods; its own page has classes and more networks."""
    path = ROWS.parent / "dpgnn.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    labels = ("dp-mlp", "gap", "progap", "chorus")
    columns = ["DP-GNN, 1 layer", "DP-GNN, 2 layers", *labels, "GraphSAGE, no privacy"]
    lines = ["| graph | epsilon | " + " | ".join(columns) + " |", "| --- " * (len(columns) + 2) + "|"]
    for dataset in ("Berkeley13", "coauthor_cs", "amazon_computers", "facebook_pagepage"):
        for epsilon in (8.0, 16.0):
            ours = [
                [row["test"] for key, row in found.items() if key.startswith(f"{dataset}|{epsilon:g}|{name}|")]
                for name in columns[:2]
            ]
            others = [cell(dataset, "node", label, "node", epsilon) for label in labels]
            plain = cell(dataset, "sage", "sage", "undirected-edge", math.inf)
            shown_cells = [shown(values) for values in (*ours, *others, plain)]
            lines.append(f"| {dataset} | {epsilon:g} | " + " | ".join(shown_cells) + " |")
    return lines


def write() -> None:
    """docs/results-earlier.md from the rows on disk."""
    import switches  # it reads graphs with the functions above

    text = (ROOT / "benchmarks" / "earlier.md.in").read_text()
    blocks = {
        "EDGE": table("edge", "undirected-edge", EDGE_EPSILONS, ("chorus", "progap", "gap", "mlp")),
        "NODE": table("node", "node", NODE_EPSILONS, ("chorus", "progap", "gap", "dp-mlp")),
        "PAPER": table("paper", "directed-edge", EDGE_EPSILONS, ("chorus", "progap", "gap")),
        "SAGE": table("sage", "undirected-edge", (math.inf,), ("sage",)),
        "REFERENCE": reference_table(),
        "EPOCHS": epochs_table(),
        "DPGNN": dpgnn_table(),
        "RATES": rate_table(),
        "SWITCHES_NODE": switches.table("node"),
        "SWITCHES_EDGE": switches.table("edge"),
    }
    for name, lines in blocks.items():
        text = text.replace(f"@{name}@", "\n".join(lines))
    DOCUMENT.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--datasets", nargs="*", default=list(FILES), choices=list(FILES))
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--methods", nargs="*", default=[], help="only these (default: all)")
    parser.add_argument("--epsilons", nargs="*", type=float, default=[], help="only these (default: all)")
    parser.add_argument("--quick", action="store_true", help="one seed")
    parser.add_argument("--write", action="store_true", help="only write the document")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if not given.write:
        run(given.datasets, given.parts, 1 if given.quick else given.seeds, given.methods, given.epsilons)
    write()


if __name__ == "__main__":
    main()
