"""Epsilon of DP-GNN training for the five settings of its paper: Theorem 1 against the mixture accounting.

    python benchmarks/theorem1.py

Same noise, batch size and number of steps in every column. "charged" is what hushgraph writes to the ledger for the
unit `node` (a record becomes null) and for `node-replace`; the other columns are for comparison only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from hushgraph.privacy.mixture import group_pld, occurrence_bound, one_sided_pld, theorem1_epsilon

GRID = 2e-4


@dataclass(frozen=True)
class Setting:
    """One row of the paper's tables. The noise has standard deviation `multiplier * 2 * C * N(K, r)`."""

    name: str
    train_nodes: int
    max_degree: int
    layers: int
    batch_size: int
    multiplier: float
    steps: int

    @property
    def touched(self) -> int:
        """N(K, r)."""
        return occurrence_bound(self.max_degree, self.layers)

    @property
    def noise_std(self) -> float:
        """For clip norm 1."""
        return self.multiplier * 2.0 * self.touched

    @property
    def delta(self) -> float:
        """The paper's 1 / (10 train nodes)."""
        return 1.0 / (10 * self.train_nodes)


SETTINGS = (
    Setting("arxiv size, K=7 r=1", 90_941, 7, 1, 10_000, 2.0, 488),
    Setting("arxiv size, K=7 r=1, large batch", 90_941, 7, 1, 20_000, 4.0, 698),
    Setting("arxiv size, K=3 r=2", 90_941, 3, 2, 20_000, 2.0, 193),
    Setting("products size, K=10 r=1", 196_615, 10, 1, 10_000, 1.0, 392),
    Setting("reddit size, K=10 r=1", 153_932, 10, 1, 10_000, 1.0, 282),
)


def epsilons(setting: Setting, grid: float = GRID) -> dict[str, float]:
    """All columns of one row."""
    counts = np.arange(setting.touched + 1)
    rate = setting.batch_size / setting.train_nodes
    hypergeometric = stats.hypergeom.pmf(counts, setting.train_nodes, setting.touched, setting.batch_size)
    binomial = stats.binom.pmf(counts, setting.touched, rate)
    touched, std = setting.touched, setting.noise_std
    losses = {
        "one-sided, without replacement": one_sided_pld(std, hypergeometric, grid),
        "one-sided, Poisson": one_sided_pld(std, binomial, grid),
        "two-sided, N and N": group_pld(std, rate, touched, touched, grid),
        "charged: node": group_pld(std, rate, touched, touched - 1, grid),
        "charged: node-replace": group_pld(std, rate, 2 * touched - 1, 2 * touched - 1, grid),
    }
    theorem = theorem1_epsilon(
        noise_std=std,
        touched=touched,
        train_nodes=setting.train_nodes,
        batch_size=setting.batch_size,
        steps=setting.steps,
        delta=setting.delta,
    )
    found = {
        name: loss.self_compose(setting.steps).get_epsilon_for_delta(setting.delta) for name, loss in losses.items()
    }
    return {"Theorem 1": theorem, **found}


def main() -> None:
    """Print the table."""
    rows = {setting.name: epsilons(setting) for setting in SETTINGS}
    columns = list(next(iter(rows.values())))
    print("| setting | " + " | ".join(columns) + " |")
    print("| --- " * (len(columns) + 1) + "|")
    for name, row in rows.items():
        print(f"| {name} | " + " | ".join(f"{row[column]:.2f}" for column in columns) + " |")


if __name__ == "__main__":
    main()
