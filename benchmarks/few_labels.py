"""Chorus with codes where few nodes have a label: validation nodes teach, or edges between training nodes do.

    python benchmarks/few_labels.py [--seeds 4] [--epsilon 1] [--graphs NAME ...] [--shares 0.01 ...]

Edge level; needs HUSHGRAPH_DATA. Accuracy on the nodes that no longer train, whose labels nothing reads: neither
training nor validation nor test nodes. A Markdown table: mean over seeds.
"""

from __future__ import annotations

import argparse
import os
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from torch_geometric.data import Data

import hushgraph as hg
from hushgraph.datasets import load
from hushgraph.ledger.ledger import Ledger
from hushgraph.study.lab import with_label_share

torch.set_num_threads(1)
warnings.filterwarnings("ignore", message="a ledger in memory")
GRAPHS = (
    "facebook100/JohnsHopkins55",
    "cora_ml/cora_ml",
    "planetoid/cora",
    "planetoid/citeseer",
)
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2)
METHODS: dict[str, hg.Method] = {
    "validation nodes teach": hg.ChorusCodes(few_labels=1.0),
    "training nodes teach": hg.ChorusCodes(few_labels=0.0),
}


def accuracy(method: hg.Method, data: Data, whole: Data, epsilon: float, seed: int) -> float:
    """In percent, on nodes of the whole training split that do not train."""
    model = method.fit(data, hg.units.UndirectedEdge(), hg.Budget(epsilon, 1e-7), ledger=Ledger(), seed=seed)
    unseen = whole.train_mask & ~data.train_mask & (whole.y >= 0)
    return 100.0 * float((model.predict()[unseen] == whole.y[unseen]).double().mean())


def main() -> None:
    """One row for each graph and share."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--graphs", nargs="*", default=list(GRAPHS), help="as `hushgraph.datasets.load` names them")
    parser.add_argument("--shares", nargs="*", type=float, default=list(SHARES))
    asked = parser.parse_args()
    print("| graph | share that trains |", " | ".join(METHODS), "|\n|", " --- |" * (len(METHODS) + 2), flush=True)
    for name in asked.graphs:
        whole = load(name, split=[0.75, 0.10, 0.15])
        for share in asked.shares:
            data = with_label_share(whole, share, 0)
            found = [
                np.mean([accuracy(method, data, whole, asked.epsilon, seed) for seed in range(asked.seeds)])
                for method in METHODS.values()
            ]
            print(f"| {name.split('/')[1]} | {share:g} |", " | ".join(f"{one:.1f}" for one in found), "|", flush=True)


if __name__ == "__main__":
    main()
