"""PATE's epsilon for the votes at hand, stated from a noisy sum of leads, beside the one that is charged.

    python benchmarks/votes_at_hand.py [--datasets fashion_mnist mnist] [--seeds 3] [--queries 300] [--epsilons 1 4.05]

Needs HUSHGRAPH_DATA. 250 teachers, queries at k-means centers of 9,000 public pictures, delta 1e-5. Teachers depend
neither on epsilon nor on the seed, so they vote once. `without noise` is not private: what the exact leads would state,
without the cost of a sum. A Markdown table: mean over seeds.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from torch import Tensor

import hushgraph as hg
from hushgraph.datasets import load
from hushgraph.graph.checks import CheckedGraph, check_graph
from hushgraph.mechanisms.label_votes import LabelVotes
from hushgraph.mechanisms.view import View
from hushgraph.mechanisms.votes import Votes
from hushgraph.methods.pate import PATE
from hushgraph.noise.source import NoiseSource
from hushgraph.privacy.leads import of_lead
from hushgraph.privacy.renyi import ORDERS, beyond
from hushgraph.training.learners import HogRidge, Part
from hushgraph.training.teachers import central_rows

TEACHERS, DELTA = 250, 1e-5


def all_counts(graph: CheckedGraph, public: Part) -> Tensor:
    """The exact votes on all public pictures."""
    made = Votes(TEACHERS, len(public.x), HogRidge())
    return made.counts(View(graph, made.reads, None, NoiseSource.seeded(0), "benchmark"), public)


def row(graph: CheckedGraph, public: Part, counts: Tensor, asked: Any, epsilon: float) -> list[str]:
    """What is charged and what is stated, at one epsilon."""
    method = PATE(teachers=TEACHERS, queries=asked.queries, ask="centers", data_dependent=True)
    plan = method.plan(graph.metadata, hg.units.Record(), hg.Budget(epsilon, DELTA))
    made, scale = plan.mechanism("votes", LabelVotes), plan["votes"].scale or 0.0
    stated, bare, wrong = [], [], []
    for seed in range(asked.seeds):
        source = NoiseSource.seeded(seed)
        rows = central_rows(made.learner.rows(public.x), asked.queries, source.torch_generator("queries"))
        answers = made.answers(counts[rows], scale, source.stream("votes"))
        stated.append(min(made.epsilon_at_hand(answers, scale, DELTA), plan.epsilon))
        first, second = counts[rows].topk(2, dim=1).values.unbind(dim=1)
        leads, classes = (first - second).numpy(), counts.shape[1]
        costs = [float(of_lead(leads, classes, scale, order).sum()) + beyond(order, DELTA) for order in ORDERS]
        bare.append(min(costs))
        truth = graph.labels[graph.public][rows]
        wrong.append(100.0 * float((answers.counts.argmax(dim=1) != truth).double().mean()))
    return [f"{scale:.1f}", f"{np.mean(wrong):.1f}", *(f"{np.mean(one):.2f}" for one in (stated, bare))]


def main() -> None:
    """One row for each data set and epsilon."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--datasets", nargs="*", default=["fashion_mnist", "mnist"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--epsilons", nargs="*", type=float, default=[1.0, 4.05, 5.04])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    heads = ("data", "charged", "noise", "wrong labels, %", "stated at hand", "without noise")
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}", flush=True)
    for name in asked.datasets:
        graph = check_graph(load(name, public=9000), needs_edges=False)
        assert isinstance(graph.features, Tensor)
        public = Part(graph.features[graph.public])
        counts = all_counts(graph, public)
        for epsilon in asked.epsilons:
            print(f"| {' | '.join([name, f'{epsilon:g}', *row(graph, public, counts, asked, epsilon)])} |", flush=True)


if __name__ == "__main__":
    main()
