"""What embeddings or predictions give away by regression: degrees, features, a sensitive attribute.

The attacker knows the truth for some nodes (half of them, by default), fits a ridge regression from what the model
shows, and predicts the rest. Simple on purpose: what a linear map finds is not hidden.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler
from torch_geometric.data import Data

from hushgraph.attacks.base import Attack, AttackScores, Progress, Target, dense_features, silent
from hushgraph.errors import InputError
from hushgraph.settings import setting

SOURCES = ("embeddings", "posteriors")


@dataclass(frozen=True)
class RegressionAttack(Attack):
    """An attack that knows the truth of a random share `known` of the nodes and reads the model's `source` of all."""

    known: float = setting(0.5, above=0, below=1, help="share of the nodes whose truth the attacker knows")
    source: str = setting("embeddings", among=SOURCES, help="what the attacker reads")
    seed: int = 0

    def known_nodes(self, count: int) -> np.ndarray:
        """Which nodes the attacker knows."""
        return np.random.default_rng(self.seed).random(count) < self.known

    def shown(self, target: Target) -> np.ndarray:
        """The model's rows, or the logarithms of its predictions."""
        rows: Any = target.needs(self.source)
        if self.source == "posteriors":
            rows = rows.clamp_min(1e-9).log()
        found: np.ndarray = rows.double().numpy()
        return found


@dataclass(frozen=True)
class DegreeInference(RegressionAttack):
    """Node degrees from what the model shows. Scores: is the degree above the median?

    `details` holds the root-mean-square error of the predicted degree beside that of always guessing the mean.
    """

    name = "degree inference"
    assumes = "sees the model's rows (or predictions) and knows the degrees of some nodes"

    def run(self, target: Target, data: Data, progress: Progress = silent) -> AttackScores:
        """Predict log degrees, judge degrees."""
        degrees = np.bincount(data.edge_index[0].numpy(), minlength=int(data.num_nodes or 0)).astype(np.float64)
        known = self.known_nodes(len(degrees))
        guesses = ridge(self.shown(target), np.log1p(degrees)[:, None], known)[:, 0]
        predicted, real = np.expm1(np.clip(guesses[~known], 0.0, np.log1p(degrees[known].max()))), degrees[~known]
        figures = {
            "rmse": float(np.sqrt(((predicted - real) ** 2).mean())),
            "rmse of guessing the mean": float(np.sqrt(((degrees[known].mean() - real) ** 2).mean())),
            "rmse of log degrees": float(np.sqrt(((guesses[~known] - np.log1p(real)) ** 2).mean())),
        }
        return self.scored(target, predicted, real > np.median(real), **figures)


@dataclass(frozen=True)
class FeatureReconstruction(RegressionAttack):
    """Features from embeddings. Scores: every entry of the held-out rows, is it above its column's mean?"""

    most_entries: int = 200_000

    name = "feature reconstruction"
    assumes = "sees the model's rows and knows the features of some nodes"

    def run(self, target: Target, data: Data, progress: Progress = silent) -> AttackScores:
        """Predict all features; compare with predicting the mean."""
        x = dense_features(data).numpy().astype(np.float64)
        known = self.known_nodes(len(x))
        center = x[known].mean(axis=0)
        varying = x[known].std(axis=0) > 0
        guesses = ridge(self.shown(target), x[:, varying] - center[varying], known)[~known]
        real = (x[:, varying] - center[varying])[~known]
        explained = 1.0 - float(((guesses - real) ** 2).sum() / max(float((real**2).sum()), 1e-300))
        rng = np.random.default_rng(self.seed)
        places = rng.permutation(real.size)[: self.most_entries]
        return self.scored(target, guesses.ravel()[places], real.ravel()[places] > 0, explained_variance=explained)


@dataclass(frozen=True)
class AttributeInference(RegressionAttack):
    """One sensitive feature column from the predictions. The column is a 0/1 feature of the attacked graph."""

    source: str = setting("posteriors", among=SOURCES, help="what the attacker reads")
    column: int = 0

    name = "attribute inference"
    assumes = "reads the predictions and knows the attribute of some nodes"

    def run(self, target: Target, data: Data, progress: Progress = silent) -> AttackScores:
        """Predict the attribute of the other nodes."""
        x = dense_features(data)
        if not 0 <= self.column < x.shape[1]:
            raise InputError(f"attribute: expected a column from 0 to {x.shape[1] - 1}; got {self.column}")
        value = x[:, self.column].numpy() > 0.5
        known = self.known_nodes(len(value))
        scores = ridge(self.shown(target), value.astype(np.float64)[:, None], known)[~known, 0]
        return self.scored(target, scores, value[~known], column=self.column, share=float(value.mean()))


def ridge(shown: np.ndarray, wanted: np.ndarray, known: np.ndarray, penalty: float = 1.0) -> np.ndarray:
    """Ridge regression on standardized columns and their squares, fitted on `known`, for all rows."""
    scaled = StandardScaler().fit(shown[known]).transform(shown)
    table = np.concatenate([scaled, scaled**2], axis=1)
    return np.asarray(Ridge(alpha=penalty).fit(table[known], wanted[known]).predict(table)).reshape(wanted.shape)
