"""Epsilon of DP-GNN training for the five settings of its paper: Theorem 1 against the mixture accounting.

    python benchmarks/theorem1.py

Same noise, batch size and number of steps in every column. "charged" is what hushgraph writes to the ledger for the
unit `node` (a record is replaced by an empty one) and for `node-replace`; the other columns are for comparison only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld_lib
from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon
from scipy import special, stats

from hushgraph.privacy.mixture import group_pld, occurrence_bound

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


def theorem1_epsilon(
    *,
    noise_std: float,
    touched: int,
    train_nodes: int,
    batch_size: int,
    steps: int,
    delta: float,
    conversion: Literal["tight", "classic"] = "tight",
) -> float:
    """Theorem 1 of the DP-GNN paper: Renyi DP of batches drawn without replacement, clip norm 1.

    gamma(a) = ln E exp(a (a - 1) 2 rho^2 / noise_std^2) / (a - 1), rho hypergeometric: the number of touched examples
    is treated as if it were seen. `conversion` turns it into epsilon: "tight" as `dp_accounting` does, or "classic" as
    the paper quotes it, gamma + ln(1/delta) / (a - 1).
    """
    counts = np.arange(touched + 1)
    weights = stats.hypergeom.logpmf(counts, train_nodes, touched, batch_size)
    orders = np.concatenate([1 + np.geomspace(1e-2, 10, 400), np.arange(11.5, 256.0, 0.5)])
    column = orders[:, None]
    terms = weights + column * (column - 1) * 2 * counts**2 / noise_std**2
    gamma = steps * special.logsumexp(terms, axis=1) / (orders - 1)
    if conversion == "classic":
        return float(np.min(gamma + math.log(1 / delta) / (orders - 1)))
    return float(compute_epsilon(orders, gamma, delta)[0])


def one_sided_pld(noise_multiplier: float, probabilities: np.ndarray, grid: float) -> pld_lib.PrivacyLossDistribution:
    """sum_i p_i N(2i, z^2) against N(0, z^2): the mixture of Gaussians with twice the clip norm per touched example.

    A simple number for comparison. It is not a dominating pair for replaced examples (see the proof), so it is never
    used for a charge.
    """
    kept = probabilities > 1e-300
    shifts = 2.0 * np.arange(len(probabilities))[kept]
    return pld_lib.from_mixture_gaussian_mechanism(
        noise_multiplier,
        list(shifts),
        list(probabilities[kept] / probabilities[kept].sum()),
        value_discretization_interval=grid,
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
