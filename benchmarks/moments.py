"""One noisy release (`noisy-moments`) on Fashion-MNIST and MNIST: accuracy by epsilon, by record.

    python benchmarks/moments.py fashion_mnist mnist     # about 40 CPU seconds a cell
    python benchmarks/class_dp_page.py                   # write docs/results-class-dp.md from what is there

Needs HUSHGRAPH_DATA. Every cell is a line in benchmarks/results/moments.jsonl; a command that was stopped goes on with
the cells that are missing. Noise is seeded: these are research runs on public data.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import torch
from cells import Cell, Cells
from torch_geometric.data import Data

import hushgraph as hg
from hushgraph.methods.noisy_moments import NoisyMoments

RESULTS = Path(__file__).parent / "results" / "moments.jsonl"
EPSILONS = (0.25, 1.0, 2.0, 4.05, 5.04)
DELTA = 1e-5
PUBLIC = (9000, 5000)
"""Public pictures, from the first test picture on: as many as PATE asks, and fewer, with more left to test on."""


def measured(data: Data, name: str, public: int, epsilon: float, seed: int) -> Cell:
    """One run of the method, as everybody uses it."""
    started = time.process_time()
    model = NoisyMoments().fit(data, hg.units.Record(), hg.Budget(epsilon, DELTA), ledger=hg.Ledger(), seed=seed)
    return {
        "data": name,
        "epsilon": epsilon,
        "seed": seed,
        "public": public,
        "spent": model.plan.epsilon,
        "std": model.plan["sums"].scale,
        "accuracy": model.metrics["accuracy"]["test"],
        "ridge": model.settings["ridge"],
        "seconds": time.process_time() - started,
    }


def main() -> None:
    """Run the cells that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", choices=["fashion_mnist", "mnist"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--public", type=int, nargs="+", default=PUBLIC)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    cells = Cells(RESULTS)
    for public in options.public:
        for name in options.data:
            data = hg.datasets.load(name, public=public)
            for seed in range(options.seeds):
                for epsilon in options.epsilons:
                    key = f"{name}-{public}-{epsilon}-{seed}"
                    cells.measure(key, measured, data, name, public, epsilon, seed)


if __name__ == "__main__":
    main()
