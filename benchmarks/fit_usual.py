"""GAP as one would write it today: dense features, autograd, torch.optim, torch.sparse, and Opacus at node level.

The yardstick of `benchmarks/fit.py`: the same networks, epochs, batches and noise, with the usual tools and without
hushgraph. One fit in this process; prints its CPU seconds. Noise scales are given, so no accounting is done here.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HIDDEN, HOPS, BATCH, EPOCHS, PRIVATE_EPOCHS, LR = 16, 2, 256, 100, 10, 0.01
AGGREGATION_STD = {"edge": 7.0, "node": 10.0}  # any positive number costs the same time
GRADIENT_STD = 1.0


class Normalize(nn.Module):
    """Rows of unit length."""

    def forward(self, x: Tensor) -> Tensor:
        """Divide by the length."""
        return F.normalize(x, dim=-1)


class Classifier(nn.Module):
    """One linear layer per hop, concatenated, normalized, and a head."""

    def __init__(self, classes: int, norm: bool) -> None:
        super().__init__()
        self.bases = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(HOPS + 1))
        self.head = nn.Sequential(*_between(HIDDEN * (HOPS + 1), norm), nn.Linear(HIDDEN * (HOPS + 1), classes))

    def forward(self, hops: Tensor) -> Tensor:
        """Class scores."""
        outputs = [base(hop) for base, hop in zip(self.bases, hops.unbind(1))]
        return self.head(F.normalize(torch.cat(outputs, 1), dim=-1))


def encoder(features: int, classes: int, norm: bool) -> nn.Sequential:
    """Two linear layers to unit rows (the first part), and a head for pre-training."""
    body = nn.Sequential(nn.Linear(features, HIDDEN), *_between(HIDDEN, norm), nn.Linear(HIDDEN, HIDDEN), Normalize())
    return nn.Sequential(body, *_between(HIDDEN, norm), nn.Linear(HIDDEN, classes))


def _between(width: int, norm: bool) -> list[nn.Module]:
    return [nn.BatchNorm1d(width), nn.SELU()] if norm else [nn.SELU()]


def train(module: nn.Module, rows: Tensor, labels: Tensor, parts: dict[str, Tensor]) -> None:
    """Full-batch Adam; the epoch with the best validation accuracy is kept."""
    train_rows, train_labels = rows[parts["train"]], labels[parts["train"]]
    val_rows, val_labels = rows[parts["val"]], labels[parts["val"]]
    optimizer = torch.optim.Adam(module.parameters(), lr=LR)
    best, kept = -1.0, module.state_dict()
    for _ in range(EPOCHS):
        module.train()
        optimizer.zero_grad()
        F.cross_entropy(module(train_rows), train_labels).backward()
        optimizer.step()
        module.eval()
        with torch.no_grad():
            accuracy = float((module(val_rows).argmax(1) == val_labels).float().mean())
        if accuracy > best:
            best, kept = accuracy, copy.deepcopy(module.state_dict())
    module.load_state_dict(kept)


def train_privately(module: nn.Module, rows: Tensor, labels: Tensor, parts: dict[str, Tensor]) -> None:
    """DP-SGD with Opacus: Poisson batches, per-example gradients by its hooks, Adam."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer
    from opacus.utils.uniform_sampler import UniformWithReplacementSampler

    train_rows, train_labels = rows[parts["train"]], labels[parts["train"]]
    rate = BATCH / len(train_labels)
    wrapped = GradSampleModule(module)
    optimizer = DPOptimizer(
        torch.optim.Adam(module.parameters(), lr=LR),
        noise_multiplier=GRADIENT_STD,
        max_grad_norm=1.0,
        expected_batch_size=BATCH,
    )
    sampler = UniformWithReplacementSampler(num_samples=len(train_labels), sample_rate=rate)
    for _ in range(PRIVATE_EPOCHS):
        for batch in sampler:
            index = torch.tensor(batch)
            optimizer.zero_grad()
            F.cross_entropy(wrapped(train_rows[index]), train_labels[index]).backward()
            optimizer.step()


def load() -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
    """Dense features, labels, edges and the split of Berkeley13 (hushgraph reads the file, and that is all it does)."""
    from hushgraph.datasets import load as read

    data = read("facebook100/Berkeley13", split="facebook100/Berkeley13-split")
    parts = {"train": data.train_mask.nonzero().squeeze(1), "val": data.val_mask.nonzero().squeeze(1)}
    return data.x.to_dense().float(), data.y, data.edge_index, parts


def fit(level: str) -> float:
    """CPU seconds from loaded data to predictions."""
    features, labels, edges, parts = load()
    classes, fit_module = int(labels.max()) + 1, train if level == "edge" else train_privately
    started = time.process_time()
    n = len(labels)
    adjacency = torch.sparse_coo_tensor(edges.flip(0).to(torch.int64), torch.ones(edges.shape[1]), (n, n))
    adjacency = adjacency.to_sparse_csr()
    network = encoder(features.shape[1], classes, level == "edge")
    fit_module(network, features, labels, parts)
    with torch.no_grad():
        hops = [network[0].eval()(features)]
        for _ in range(HOPS):
            noise = AGGREGATION_STD[level] * torch.randn(n, HIDDEN)
            hops.append(F.normalize(adjacency @ hops[-1] + noise, dim=-1))
    classifier, table = Classifier(classes, level == "edge"), torch.stack(hops, 1)
    fit_module(classifier, table, labels, parts)
    with torch.no_grad():
        classifier.eval()(table).argmax(1)
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--level", choices=("edge", "node"), required=True)
    options: Any = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps({"CPU s": fit(options.level)}))


if __name__ == "__main__":
    main()
