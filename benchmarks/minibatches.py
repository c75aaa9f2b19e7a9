"""Minibatches beside full batches: `python benchmarks/minibatches.py [--rows 250000] [--seeds 5]`.

The classifier of Chorus at edge level, trained both ways from the same weights on the same rows, one thread: test
accuracy in points, the paired difference with its standard error over the seeds, and the ratio of processor time.
"sums" has features that say little beside sums that say more; in "xor" no column says anything alone: the class follows
from the signs of pairs of columns; "many" has 40 classes and wide features.
"""

from __future__ import annotations

import argparse
import copy
import os
import time
from collections.abc import Callable

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from torch import Tensor

from hushgraph.graph.rows import JoinedRows
from hushgraph.methods.chorus import PLAIN_EPOCHS, PLAIN_LR, PLAIN_PATIENCE
from hushgraph.nn.chorus import Ensemble
from hushgraph.training.ensemble import train_ensemble, train_ensemble_in_minibatches
from hushgraph.training.minibatches import Minibatches

Problem = tuple[JoinedRows, Tensor, int]


def sums(n: int, draw: torch.Generator) -> Problem:
    labels = torch.randint(10, (n,), generator=draw)
    centers = torch.randn(10, 32, generator=draw)
    features = 0.3 * centers[labels] + torch.randn(n, 32, generator=draw)
    noisy = [torch.nn.functional.one_hot(labels, 10) * k + torch.randn(n, 10, generator=draw) for k in (0.7, 1.0, 1.2)]
    return JoinedRows([features, *noisy]), labels, 10


def xor(n: int, draw: torch.Generator) -> Problem:
    features = torch.randn(n, 12, generator=draw)
    signs = (features > 0).long()
    labels = (signs[:, 0] ^ signs[:, 1]) + 2 * (signs[:, 2] ^ signs[:, 3])
    wrong = torch.rand(n, generator=draw) < 0.1
    labels[wrong] = torch.randint(4, (int(wrong.sum()),), generator=draw)
    return JoinedRows([features, torch.randn(n, 4, generator=draw)]), labels, 4


def many(n: int, draw: torch.Generator) -> Problem:
    labels = (40 * torch.rand(n, generator=draw) ** 2).long()
    features = torch.randn(40, 128, generator=draw)[labels] * 0.15 + torch.randn(n, 128, generator=draw)
    return JoinedRows([features, torch.randn(n, 40, generator=draw) + 1.5 * torch.eye(40)[labels]]), labels, 40


PROBLEMS: dict[str, Callable[[int, torch.Generator], Problem]] = {"sums": sums, "xor": xor, "many": many}


def compared(name: str, rows: int, seed: int) -> tuple[dict[str, float], dict[str, float]]:
    """Test accuracy in points and processor seconds of both ways."""
    draw = torch.Generator().manual_seed(seed)
    count = rows * 4 // 3
    data, labels, classes = PROBLEMS[name](count, draw)
    train, val, test = torch.randperm(count, generator=draw).split([rows, count // 10, count - rows - count // 10])
    first = Ensemble([int(p.shape[1]) for p in data.parts], 32, classes, dropout=0.3, generator=draw)
    accuracy, seconds = {}, {}
    for way in ("full", "mini"):
        network, started = copy.deepcopy(first), time.process_time()
        given = (network, data, labels, train, val)
        random = torch.Generator().manual_seed(seed)
        if way == "full":
            train_ensemble(*given, epochs=PLAIN_EPOCHS, lr=PLAIN_LR, patience=PLAIN_PATIENCE, generator=random)
        else:
            train_ensemble_in_minibatches(*given, Minibatches(), epochs=PLAIN_EPOCHS, lr=PLAIN_LR, generator=random)
        seconds[way] = time.process_time() - started
        with torch.no_grad():
            accuracy[way] = 100.0 * float((network(data.rows(test)).argmax(1) == labels[test]).float().mean())
    return accuracy, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=250_000, help="training rows")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", choices=list(PROBLEMS), nargs="+", default=list(PROBLEMS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.only:
        found = [compared(name, given.rows, seed) for seed in range(given.seeds)]
        gain = np.array([one["mini"] - one["full"] for one, _ in found])
        ratio = np.median([used["full"] / used["mini"] for _, used in found])
        error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else float("nan")
        full, mini = (np.mean([one[way] for one, _ in found]) for way in ("full", "mini"))
        print(
            f"{name:5s} {given.rows:,} rows, {given.seeds} seeds: full {full:.2f}, minibatches {mini:.2f}, "
            f"difference {gain.mean():+.2f} +- {error:.2f}; CPU full / mini {ratio:.1f} "
            f"(mini {np.median([used['mini'] for _, used in found]):.1f} s)",
            flush=True,
        )


if __name__ == "__main__":
    main()
