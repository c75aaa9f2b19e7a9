"""GAP at node level with an encoder of the user (three layers, layer norm, dropout), against the built-in one.

    python benchmarks/own_modules.py

CPU time of a whole fit on the built-in graph, the two in turn, medians; the promise has to be the same.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch
from torch import Tensor, nn

import hushgraph as hg
from hushgraph.ledger.ledger import Ledger


class Encoder(nn.Module):
    """What a user might write."""

    def __init__(self, columns: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(columns, width), nn.Linear(width, width)])
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.last, self.act, self.drop = nn.Linear(width, width), nn.SELU(), nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        """Features to rows."""
        for layer, norm in zip(self.layers, self.norms):
            x = self.drop(self.act(norm(layer(x))))
        return self.last(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    graph = hg.datasets.load("campus")
    methods = {"own": hg.GAP(encoder=Encoder(graph.x.shape[1], 16)), "built-in": hg.GAP(encoder_layers=3)}
    times: dict[str, list[float]] = {name: [] for name in methods}
    epsilons: dict[str, float] = {}
    for at in range(rounds + 1):
        for name, method in methods.items():
            started = time.process_time()
            model = method.fit(graph, hg.units.Node(max_degree=50), (8.0, 1e-5), ledger=Ledger.in_memory())
            if at:  # the first round warms up
                times[name].append(time.process_time() - started)
            epsilons[name] = model.certificate.epsilon
    medians = {name: statistics.median(found) for name, found in times.items()}
    found = {"epsilon": epsilons, "cpu": medians, "own / built-in": medians["own"] / medians["built-in"]}
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
