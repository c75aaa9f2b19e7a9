"""What the parts of studies/uncapped.yaml about ideas do: class mass, public clusters and a coarse graph.

Each idea takes the place of Quorum's votes: the same model of features, the same plan, and instead of one release of
votes with noise multiplier z, releases that cost as much together. Their bounds: docs/proofs/uncapped-ideas.md.

How loud a release is beside the features is chosen on validation nodes and not paid for: the figures are above what the
ideas can reach, which is enough to see how far they are behind.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.csgraph import maximum_flow
from torch import Tensor

from hushgraph.datasets.public_edges import groups_of
from hushgraph.graph.balance import balance
from hushgraph.graph.checks import CheckedGraph
from hushgraph.graph.edges import Edges, MemoryEdges
from hushgraph.mechanisms import BalancedSum
from hushgraph.methods.quorum import VOTES, Quorum
from hushgraph.privacy.units import NodeWithEdges
from hushgraph.study.lab import Lab

DORM = "local_info:4"
"""The column of facebook100 that says where a person lives: public, in what is measured here."""
DAMPING, STEPS = 0.6, 20
"""A walk goes on with this chance; so is the lazy walk of DP-APPR with its alpha of 0.25."""
STRENGTH = 6.0
"""Quorum's, for what nodes guess of themselves between two hops."""
PRIOR = 10.0
"""So many labels of the usual shares are added to the labels of a cluster."""
LOUDNESS = (0.0, *(2.0**k for k in range(-5, 6)))
CAP = 8
"""Entries of one node that count in a cell of the coarse graph."""

Metrics = dict[str, float | None]


class _Run:
    """A model of features that was paid with what votes leave, and noise multiplier z for what replaces the votes."""

    def __init__(self, lab: Lab) -> None:
        assert isinstance(lab.method, Quorum)
        model = lab.method.fit(lab.data, lab.unit, lab.budget, ledger=lab.ledger, seed=lab.seed)
        stage = model.plan[VOTES]
        self.graph = lab.checked
        self.mechanism = model.plan.mechanism(VOTES, BalancedSum)
        self.bound = self.mechanism.sensitivity(NodeWithEdges())
        self.z = (stage.scale or 0.0) / self.bound
        self.said = model.predict_proba().double().clamp(min=1e-12).log().numpy()
        self.rng = np.random.default_rng(lab.cell.seed)
        self.train = mask_of(self.graph.train, len(self.said))
        self.labels = self.graph.labels.numpy()

    @property
    def classes(self) -> int:
        return self.graph.metadata.classes

    @property
    def guesses(self) -> np.ndarray:
        """The class that a node's own features speak for."""
        found: np.ndarray = self.said.argmax(axis=1)
        return found

    def noisy(self, exact: np.ndarray, std: float) -> np.ndarray:
        """With Gaussian noise."""
        return exact + std * self.rng.standard_normal(exact.shape)

    def one_hot(self) -> np.ndarray:
        """Labels of training nodes; nothing elsewhere."""
        rows = np.zeros((len(self.said), self.classes))
        nodes = np.flatnonzero(self.train & (self.labels >= 0))
        rows[nodes, self.labels[nodes]] = 1.0
        return rows

    def sums(self, senders: np.ndarray, receivers: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Balanced sums of rows; a node may send and receive, as two nodes that go together."""
        return doubled_sums(self.graph.edges, senders, receivers, rows, self.mechanism.capacity)

    def measured(self, parts: Sequence[np.ndarray], noise: float) -> Metrics:
        """Accuracy where each part is as loud as is best on validation nodes."""
        parts = [part - part.mean(axis=1, keepdims=True) for part in parts]
        sizes = [max(float(np.sqrt((part[~self.train] ** 2).mean())), 1e-12) for part in parts]
        best: tuple[float, Metrics] = (-1.0, {})
        for loud in itertools.product(LOUDNESS, repeat=len(parts)):
            scores = self.said + sum(a / size * part for a, size, part in zip(loud, sizes, parts, strict=True))
            right = scores.argmax(axis=1) == self.labels
            val, test = (100.0 * float(right[nodes.numpy()].mean()) for nodes in (self.graph.val, self.graph.test))
            if val > best[0]:
                best = val, {"test_accuracy": test, "val_accuracy": val, "noise": noise}
        return best[1]


def pagerank_mass(lab: Lab) -> Metrics:
    """K numbers for each node to be predicted: PageRank of the training nodes of each class."""
    run = _Run(lab)
    ends, nodes = run.graph.edges.load().edge_index().numpy(), len(run.said)
    mass = class_mass(
        sparse.csr_matrix((np.ones(ends.shape[1]), (ends[1], ends[0])), shape=(nodes, nodes)), run.one_hot()
    )
    others = ~run.train
    std = run.z * mass_bound(int(others.sum()))
    return run.measured([run.noisy(mass, std)], std / size_of(mass[others]))


def class_mass(there: Any, classes: np.ndarray) -> np.ndarray:
    """How much of each node's walk ends at nodes of each class; edges count both ways."""
    both = (sparse.csr_matrix(there + there.T) > 0).astype(np.float64)
    walk = sparse.diags_array(1.0 / np.maximum(np.asarray(both.sum(axis=1)).ravel(), 1.0)) @ both
    mass, at = np.zeros_like(classes), classes
    for step in range(STEPS):
        mass, at = mass + (1.0 - DAMPING) * DAMPING**step * at, walk @ at
    return mass


def mass_bound(receivers: int) -> float:
    """Rows of non-negative numbers of total at most 1, of which one node may change all."""
    return math.sqrt(2.0 * receivers)


def iterated(lab: Lab) -> Metrics:
    """Votes as Quorum's; then the others send each other what they think of themselves."""
    run = _Run(lab)
    others = ~run.train
    labels = run.one_hot()
    centered = labels - labels.sum(axis=1, keepdims=True) / run.classes
    first_std, second_std = math.sqrt(2.0) * run.z * run.bound, math.sqrt(2.0) * run.z * 2.0 * run.bound
    votes = run.noisy(run.sums(run.train, others, centered), first_std)
    votes -= votes.mean(axis=1, keepdims=True)
    thought = run.said + STRENGTH / (first_std**2 + STRENGTH) * votes
    posterior = np.exp(thought - thought.max(axis=1, keepdims=True))
    posterior = posterior / posterior.sum(axis=1, keepdims=True) - 1.0 / run.classes
    exact = run.sums(others, others, posterior)
    return run.measured([votes, run.noisy(exact, second_std)], second_std / size_of(exact[others]))


def by_dorm(lab: Lab) -> Metrics:
    """Every node sends what the training labels of its dorm say."""
    cluster = dorms(lab)
    return _by_cluster(_Run(lab), cluster, int(cluster.max()) + 1)


def by_guess(lab: Lab) -> Metrics:
    """The same, where a cluster is the class that features speak for."""
    run = _Run(lab)
    return _by_cluster(run, run.guesses, run.classes)


def _by_cluster(run: _Run, cluster: np.ndarray, clusters: int) -> Metrics:
    """A training node moves the table by 1 and sums by the bound; others move sums by twice the bound."""
    share, prior = _shares(run, cluster, clusters, 2.0 / math.sqrt(3.0) * run.z)
    messages = share - prior
    messages = (messages / max(float(np.linalg.norm(messages, axis=1).max()), 1e-12))[cluster]
    everyone, others = np.ones(len(cluster), dtype=bool), ~run.train
    exact, std = run.sums(everyone, others, messages), 2.0 * run.z * run.bound
    return run.measured([run.noisy(exact, std)], std / size_of(exact[others]))


def coarse_dorm(lab: Lab) -> Metrics:
    """Shares of classes by dorm, carried over the released graph of dorms."""
    run, cluster = _Run(lab), dorms(lab)
    return _carried(run, cluster, _cached_counts(str(lab.cell.axis("dataset")), run.graph, tuple(cluster.tolist())))


def coarse_guess(lab: Lab) -> Metrics:
    """The same, where a cluster is the class that features speak for."""
    run = _Run(lab)
    return _carried(run, run.guesses, cell_counts(run.graph.edges, run.guesses, CAP, run.classes))


def _carried(run: _Run, cluster: np.ndarray, counts: np.ndarray) -> Metrics:
    std = math.sqrt(2.0) * run.z * count_bound(len(counts), CAP)
    noise = std / max(float(counts.mean()), 1e-12)
    share, prior = _shares(run, cluster, len(counts), math.sqrt(2.0) * run.z)
    walk = np.maximum(run.noisy(counts, std), 0.0)
    walk = walk / np.maximum(walk.sum(axis=1, keepdims=True), 1e-12)
    carried, at = np.zeros_like(share), share
    for step in range(STEPS):
        carried, at = carried + (1.0 - DAMPING) * DAMPING**step * at, walk @ at
    said = np.log(np.maximum(carried, 1e-6)) - np.log(np.maximum(prior, 1e-6))
    return run.measured([said[cluster]], noise)


def _shares(run: _Run, cluster: np.ndarray, clusters: int, std: float) -> tuple[np.ndarray, np.ndarray]:
    """Shares of classes among the training nodes of each cluster, and of all, from a table that one node moves by 1."""
    table = np.zeros((clusters, run.classes))
    np.add.at(table, cluster, run.one_hot())
    table = np.maximum(run.noisy(table, std), 0.0)
    prior = table.sum(axis=0) / max(float(table.sum()), 1e-12)
    table += PRIOR * prior
    return table / np.maximum(table.sum(axis=1, keepdims=True), 1e-12), prior


def doubled_sums(
    edges: Edges, senders: np.ndarray, receivers: np.ndarray, rows: np.ndarray, capacity: float
) -> np.ndarray:
    """Balanced sums where node v sends as node v and receives as node n + v."""
    nodes, ends = len(senders), edges.load().edge_index()
    twice = MemoryEdges.from_edge_index(torch.stack([ends[0], ends[1] + nodes]), 2 * nodes)
    nobody = np.zeros(nodes, dtype=bool)
    sending, receiving = (torch.from_numpy(np.concatenate(two)) for two in ((senders, nobody), (nobody, receivers)))
    weights = balance(twice, sending, receiving, capacity, math.sqrt(5.0) * capacity)
    return weights.sums(np.concatenate([rows, np.zeros_like(rows)]))[nodes:]


def count_bound(clusters: int, cap: int) -> float:
    """A node reaches 2 (G - 1) cells as a sender or as a receiver, each by the cap, and one as both."""
    return cap * math.sqrt(2.0 * clusters + 2.0)


def cell_counts(edges: Edges, cluster: np.ndarray, cap: int, clusters: int) -> np.ndarray:
    """For every two clusters, as many entries from one to the other as can be kept with no node in more than `cap`."""
    source, target = edges.load().edge_index().numpy()
    cell = cluster[source] * clusters + cluster[target]
    order = np.argsort(cell, kind="stable")
    ends = np.searchsorted(cell[order], np.arange(clusters**2 + 1))
    found = np.zeros(clusters**2)
    for number in np.flatnonzero(np.diff(ends)):
        inside = order[ends[number] : ends[number + 1]]
        found[number] = _most_kept(source[inside], target[inside], cap)
    return found.reshape(clusters, clusters)


def _most_kept(source: np.ndarray, target: np.ndarray, cap: int) -> int:
    """The largest flow over senders and receivers, each of which lets `cap` pass, and one over every entry."""
    senders, s = np.unique(source, return_inverse=True)
    receivers, t = np.unique(target, return_inverse=True)
    begin, end = 0, 1 + len(senders) + len(receivers)
    first, second = 1 + np.arange(len(senders)), 1 + len(senders) + np.arange(len(receivers))
    tails = np.concatenate([np.full(len(first), begin), 1 + s, second])
    heads = np.concatenate([first, 1 + len(senders) + t, np.full(len(second), end)])
    room = np.concatenate([np.full(len(first), cap), np.ones(len(s), dtype=np.int64), np.full(len(second), cap)])
    network = sparse.csr_array((room.astype(np.int32), (tails, heads)), shape=(end + 1, end + 1))
    return int(maximum_flow(network, begin, end).flow_value)


@lru_cache(maxsize=2)
def _cached_counts(name: str, graph: CheckedGraph, cluster: tuple[int, ...]) -> np.ndarray:
    return cell_counts(graph.edges, np.array(cluster), CAP, max(cluster) + 1)


def dorms(lab: Lab) -> np.ndarray:
    """The number of every node's dorm, 0 for unknown."""
    known = groups_of(lab.data, DORM).numpy()
    return np.unique(known, return_inverse=True)[1]


def mask_of(nodes: Tensor, count: int) -> np.ndarray:
    """True for the nodes."""
    return torch.zeros(count, dtype=torch.bool).index_fill_(0, nodes, True).numpy()


def size_of(rows: np.ndarray) -> float:
    """The root mean square of centered rows."""
    return max(float(np.sqrt(((rows - rows.mean(axis=1, keepdims=True)) ** 2).mean())), 1e-12)
