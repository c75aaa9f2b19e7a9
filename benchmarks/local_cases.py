"""The cells of the tables in docs/results-local.md: methods, graphs, budgets and published figures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hushgraph import LPGNN, PGC, PGCLinks
from hushgraph.methods.base import Method
from hushgraph.privacy.units import Local

FEATURES = {"Cora": 1433, "CiteSeer": 3703, "PubMed": 500, "Facebook pages": 4714, "Twitch": 3170}
OURS, OUR_LINKS = "LPGNN, our defaults", "PGC, hops (our default)"
LPGNN_GRAPHS = ("Cora", "PubMed", "Facebook pages")


@dataclass(frozen=True)
class Case:
    """One cell of a table: a method on a graph at a budget, and the published figure with its interval (if any)."""

    table: str
    graph: str
    row: str
    column: str
    method: Method
    unit: Local
    epsilon: float
    published: tuple[float, float] | None = None
    seeds: int = 10
    public_split: bool = False
    paper_mode: bool = False
    split: int | None = None

    @property
    def key(self) -> str:
        """The name under which its rows are kept."""
        return " | ".join([self.table, self.graph, self.row, self.column])


# Published: mean and interval (LPGNN: 95% bootstrap; PGC: standard deviation), ten runs each.
FEATURES_ONLY = {
    "Cora": {0.01: (68.0, 2.9), 0.1: (64.6, 3.2), 1.0: (83.9, 0.4)},
    "PubMed": {0.01: (78.9, 0.7), 0.1: (82.7, 0.2), 1.0: (82.9, 0.2)},
    "Facebook pages": {0.01: (85.8, 0.4), 0.1: (91.0, 0.4), 1.0: (92.7, 0.1)},
}
WITH_LABELS = {
    "Cora": {0.5: (42.9, 1.5), 1.0: (69.3, 1.2), 2.0: (78.4, 0.7)},
    "PubMed": {0.5: (69.8, 0.7), 1.0: (74.9, 0.3), 2.0: (81.0, 0.2)},
    "Facebook pages": {0.5: (75.1, 0.6), 1.0: (84.9, 0.2), 2.0: (90.7, 0.1)},
}
BASELINES = {
    ("Cora", "forward"): {0.5: (18.6, 2.5), 1.0: (37.1, 2.5), 2.0: (75.1, 1.0)},
    ("Cora", "cross-entropy"): {0.5: (18.6, 1.3), 1.0: (25.5, 1.7), 2.0: (52.9, 2.1)},
}
PGC_NODES = {
    "Cora": {1.0: (57.0, 1.9), 5.0: (80.2, 0.6), 9.0: (81.2, 0.4), math.inf: (81.4, 0.3)},
    "CiteSeer": {1.0: (37.3, 1.3), 5.0: (70.7, 0.6), 9.0: (70.2, 0.7), math.inf: (69.6, 0.9)},
    "Twitch": {1.0: (59.0, 0.7), 5.0: (61.2, 0.8), 9.0: (62.5, 0.2), math.inf: (62.8, 0.2)},
}
PGC_LINKS = {
    "Cora": {1.0: (85.4, 0.9), 5.0: (90.6, 0.6), 9.0: (92.1, 0.5), math.inf: (91.9, 0.6)},
    "CiteSeer": {1.0: (79.0, 1.1), 5.0: (87.2, 0.5), 9.0: (90.0, 0.5), math.inf: (89.6, 0.8)},
    "Twitch": {1.0: (81.1, 0.4), 5.0: (83.2, 0.6), 9.0: (84.6, 0.8), math.inf: (84.9, 1.0)},
}
NO_INFORMATION = 1e-9
LINK_DECAY = {"Cora": 0.01, "CiteSeer": 0.01, "Twitch": 0.001}
PGC_OTHERS = {
    "laplace": {1.0: (54.4, 0.9), 5.0: (73.9, 0.8), 9.0: (78.8, 0.7)},
    "piecewise": {1.0: (56.6, 1.9), 5.0: (77.8, 1.0), 9.0: (80.9, 0.6)},
}
# Learning rate, weight decay, dropout, and K for features and labels, as published.
PAPER_RATES = {
    ("Cora", True): (0.01, 0.001, 0.5),
    ("Cora", False): (0.01, 0.01, 0.75),
    ("PubMed", True): (0.01, 0.0001, 0.25),
    ("PubMed", False): (0.01, 0.01, 0.75),
}
PAPER_STEPS_FEATURES = {"Cora": {0.01: 8, 0.1: 16, 1.0: 16}, "PubMed": {0.01: 16, 0.1: 16, 1.0: 16}}
PAPER_STEPS_LABELS = {
    "Cora": {0.5: (2, 8), 1.0: (2, 8), 2.0: (8, 4)},
    "PubMed": {0.5: (0, 4), 1.0: (4, 2), 2.0: (16, 0)},
}
PGC_SETTINGS: dict[str, dict[str, float]] = {
    "Cora": {"weight_decay": 0.01, "dropout": 0.5},
    "CiteSeer": {"weight_decay": 0.1, "dropout": 0.5},
    "Twitch": {"weight_decay": 0.0001, "dropout": 0.0, "lr": 0.001},
}
RANGE: dict[str, Any] = {"low": 0.0, "high": 1.0}
PUBLIC_LABELS, PRIVATE_LABELS = Local(private_labels=False), Local()


def cases() -> Iterator[Case]:
    """Every cell, in order of importance."""
    yield from _lpgnn_cases()
    yield from _pgc_cases()
    yield from range_cases()
    yield from _paper_cases()
    yield from _control_cases()


def _lpgnn_cases() -> Iterator[Case]:
    for graph in LPGNN_GRAPHS:
        for epsilon, published in FEATURES_ONLY[graph].items():
            yield Case("features", graph, OURS, f"{epsilon:g}", LPGNN(**RANGE), PUBLIC_LABELS, epsilon, published)
    for graph in LPGNN_GRAPHS:
        for epsilon, published in WITH_LABELS[graph].items():
            method = LPGNN(**RANGE, label_epsilon=epsilon)
            yield Case("labels", graph, OURS, f"{epsilon:g}", method, PRIVATE_LABELS, 1.0 + epsilon, published)


def _pgc_cases() -> Iterator[Case]:
    for graph, figures in PGC_NODES.items():
        for epsilon, published in figures.items():
            method = PGC(**RANGE, **PGC_SETTINGS[graph])
            total = FEATURES[graph] * epsilon
            fixed = graph != "Twitch"
            column = "raw" if math.isinf(epsilon) else f"{epsilon:g}"
            yield Case("pgc", graph, "PGC", column, method, PUBLIC_LABELS, total, published, public_split=fixed)
    for graph in PGC_LINKS:
        yield from _link_cases(graph, OUR_LINKS, PGCLinks(**RANGE))
    one_split = PGC(**RANGE, **PGC_SETTINGS["Twitch"])
    row = "PGC on the first split"
    for epsilon, column in ((9.0, "9"), (math.inf, "raw")):
        total, figure = FEATURES["Twitch"] * epsilon, PGC_NODES["Twitch"][epsilon]
        yield Case("pgc", "Twitch", row, column, one_split, PUBLIC_LABELS, total, figure, split=0)
    for graph in ("Cora", "CiteSeer"):
        method = PGC(**RANGE, feature_steps=4, **PGC_SETTINGS[graph])
        total, row = FEATURES[graph] * 1.0, "PGC after 4 propagations (ours)"
        yield Case("pgc", graph, row, "1", method, PUBLIC_LABELS, total, PGC_NODES[graph][1.0], 3, True)
    for name, figures in PGC_OTHERS.items():
        for epsilon, published in figures.items():
            method = PGC(**RANGE, mechanism=name, **PGC_SETTINGS["Cora"])
            total = FEATURES["Cora"] * epsilon
            yield Case("pgc", "Cora", name, f"{epsilon:g}", method, PUBLIC_LABELS, total, published, 3, True)


def _link_cases(graph: str, row: str, method: PGCLinks, seeds: int = 10) -> Iterator[Case]:
    for epsilon, published in PGC_LINKS[graph].items():
        column, total = "raw" if math.isinf(epsilon) else f"{epsilon:g}", FEATURES[graph] * epsilon
        yield Case("links", graph, row, column, method, PUBLIC_LABELS, total, published, seeds, graph != "Twitch")


def _auto_encoder_cases() -> Iterator[Case]:
    """The published auto-encoder, and the same with hidden links; and what the graph says without any feature."""
    for graph, decay in LINK_DECAY.items():
        published = PGCLinks(**RANGE, scorer="vgae", hidden_share=0.0, weight_decay=decay)
        yield from _link_cases(graph, "PGC as published", published, 10 if graph != "Twitch" else 3)
        noise = PGCLinks(**RANGE, feature_epsilon=NO_INFORMATION)
        total, row = FEATURES[graph] * NO_INFORMATION, "hops on pure noise"
        yield Case("links", graph, row, "0", noise, PUBLIC_LABELS, total, seeds=10, public_split=graph != "Twitch")
    for graph, seeds in (("Cora", 10), ("CiteSeer", 3)):
        hidden = PGCLinks(**RANGE, scorer="vgae", hidden_share=0.3, weight_decay=LINK_DECAY[graph])
        yield from _link_cases(graph, "as published, links hidden", hidden, seeds)


def _paper_cases() -> Iterator[Case]:
    """The published algorithm with the published settings."""
    yield from _auto_encoder_cases()
    for graph, steps in PAPER_STEPS_FEATURES.items():
        lr, decay, dropout = PAPER_RATES[graph, False]
        for epsilon, k in steps.items():
            method = _paper("cross-entropy", lr, decay, dropout, k, 0)
            seeds = 10 if graph == "Cora" else 3
            figure = FEATURES_ONLY[graph][epsilon]
            row = "LPGNN as published"
            yield Case("features", graph, row, f"{epsilon:g}", method, PUBLIC_LABELS, epsilon, figure, seeds)
    for graph, label_steps in PAPER_STEPS_LABELS.items():
        lr, decay, dropout = PAPER_RATES[graph, True]
        for epsilon, (kx, ky) in label_steps.items():
            rules = ("drop", "forward", "cross-entropy") if graph == "Cora" else ("drop",)
            for rule in rules:
                method = _paper(rule, lr, decay, dropout, kx, ky, label_epsilon=epsilon)
                figure = (WITH_LABELS[graph] if rule == "drop" else BASELINES[graph, rule])[epsilon]
                seeds = 10 if graph == "Cora" else 3
                row = f"as published: {rule}"
                total = 1.0 + epsilon
                yield Case("labels", graph, row, f"{epsilon:g}", method, PRIVATE_LABELS, total, figure, seeds)


def _paper(rule: str, lr: float, decay: float, dropout: float, kx: int, ky: int, **more: Any) -> LPGNN:
    return LPGNN(
        **RANGE,
        rule=rule,
        normalize=False,
        epochs=500,
        lr=lr,
        weight_decay=decay,
        dropout=dropout,
        feature_steps=kx,
        label_steps=ky,
        **more,
    )


def range_cases() -> Iterator[Case]:
    """LPGNN with the raw range of every column, which only paper mode allows."""
    for graph, seeds in (("Cora", 10), ("PubMed", 10)):
        for epsilon in (0.01, 1.0):
            method = LPGNN()
            row, column = "raw minimum and maximum of every column", f"{epsilon:g}"
            yield Case("range", graph, row, column, method, PUBLIC_LABELS, epsilon, seeds=seeds, paper_mode=True)


def _control_cases() -> Iterator[Case]:
    for graph, seeds in (("Cora", 10), ("PubMed", 3), ("Facebook pages", 3)):
        for kind in ("codes", "degree", "ones", "random"):
            method = LPGNN(features=kind)
            column = "labels public"
            yield Case("control", graph, kind, column, method, PUBLIC_LABELS, 1.0, seeds=min(seeds, 10))
    for kind, figure in (("codes", None), ("degree", (44.4, 3.5)), ("ones", (22.6, 5.0)), ("random", (26.4, 3.0))):
        method = LPGNN(features=kind)
        yield Case("control", "Cora", kind, "eps_y 1", method, PRIVATE_LABELS, 1.0, figure, seeds=5)
    for kind in ("gcn", "gat"):
        method = LPGNN(**RANGE, backbone=kind)
        yield Case("control", "Cora", f"LPGNN on {kind}, eps_x 1", "labels public", method, PUBLIC_LABELS, 1.0, seeds=3)
