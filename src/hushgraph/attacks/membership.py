"""Node membership inference: was this node in the training set?

Train on a subgraph, test on the full graph (TSTF; Olatunji, Nejdl, Khosla 2021, as in GAP section 7.4.2). The attacker
has a shadow graph of the same kind, trains a shadow model on half of it, and learns from the shadow's posteriors what
members look like. Members are the nodes the target was trained on, with the edges among them; the target then answers
for all nodes of the full graph.

LiRA (Carlini and others, 2022) trains many shadow models on random halves of the candidates. For every node this gives
two samples of the log odds of its true class: from models that had it and from models that did not. The score is the
log ratio of the two fitted normals at what the target says. Unlike an average over nodes, it finds the few nodes that
are badly exposed, which is what true-positive rates at low false-positive rates show.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from hushgraph.attacks.base import Attack, AttackScores, Progress, Target, Trainer, dense_features, silent
from hushgraph.errors import InputError
from hushgraph.settings import setting

_LEAST = 1e-9  # probabilities nearer to 0 or 1 are cut off before a logarithm


@dataclass(frozen=True)
class MembershipAttack(Attack):
    """An attack on membership: the attacked graph's train nodes are members, its test nodes are not."""

    seed: int = 0

    def run(self, target: Target, data: Data, progress: Progress = silent) -> AttackScores:
        """Score all train nodes and all test nodes."""
        members, others = split_truth(data)
        asked = torch.cat([members, others])
        scores = self.node_scores(target, data, asked, len(members) / len(asked), progress)
        return self.scored(target, scores, np.arange(len(asked)) < len(members), models=self.models())

    @abstractmethod
    def models(self) -> int:
        """How many models the attacker trains."""

    @abstractmethod
    def node_scores(self, target: Target, data: Data, asked: Tensor, share: float, progress: Progress) -> np.ndarray:
        """A score for every node of `asked`, of which about `share` are members; higher: more likely one of them."""


@dataclass(frozen=True)
class ShadowMembership(MembershipAttack):
    """A shadow model, and a 3-layer MLP on its posteriors."""

    per_class: int = setting(1000, least=2, help="nodes of the shadow graph")
    epochs: int = setting(300, least=1)
    hidden: int = setting(64, least=1)

    name = "membership, shadow model"
    assumes = (
        "reads the predictions about each node and knows its label; has a shadow graph of the same kind and can train "
        "the same method on it"
    )

    def models(self) -> int:
        """One shadow."""
        return 1

    def node_scores(self, target: Target, data: Data, asked: Tensor, share: float, progress: Progress) -> np.ndarray:
        """What the attacker that learned from the shadow says of the target's posteriors."""
        train = target.needs("trainer")
        rng = np.random.default_rng(self.seed)
        shadow = induced(data, sample_per_class(data, self.per_class, rng))
        inside = torch.from_numpy(rng.random(shadow.num_nodes) < 0.5)
        posteriors = train(member_graph(shadow, inside), self.seed)(shadow)
        progress("shadow models", 1, 1)
        model = train_attacker(membership_signals(posteriors, shadow.y), inside, self.hidden, self.epochs, self.seed)
        with torch.no_grad():
            scores: Tensor = model(membership_signals(target.posteriors[asked], data.y[asked])).squeeze(1)
        return np.asarray(scores.numpy())


@dataclass(frozen=True)
class Lira(MembershipAttack):
    """The online attack with `shadows` shadow models and one variance per world."""

    shadows: int = setting(16, least=4, help="models that the attacker trains")

    name = "membership, LiRA"
    assumes = (
        "reads the predictions about each node and knows its label; knows the candidates' features, labels and edges; "
        "can train the same method many times"
    )

    def models(self) -> int:
        """The shadows."""
        return self.shadows

    def node_scores(self, target: Target, data: Data, asked: Tensor, share: float, progress: Progress) -> np.ndarray:
        """The log likelihood ratio of what the target says of each node."""
        inside, odds = self._shadow_odds(target, data, asked, share, progress)
        return likelihood_ratio(log_odds(target.posteriors[asked], data.y[asked]).numpy(), odds, inside)

    def _shadow_odds(
        self, target: Target, data: Data, asked: Tensor, share: float, progress: Progress
    ) -> tuple[np.ndarray, np.ndarray]:
        """For every shadow, which nodes it had, and the log odds it gives all: `[shadows, nodes]`.

        Shadows are as large as the target. Every node is in about its share of them.
        """
        train = target.needs("trainer")
        rng = np.random.default_rng(self.seed)
        size = round(share * len(asked))
        inside = np.zeros((self.shadows, len(asked)), dtype=bool)
        odds = np.zeros((self.shadows, len(asked)))
        for shadow in range(self.shadows):
            inside[shadow, rng.permutation(len(asked))[:size]] = True
            nodes = asked[torch.from_numpy(inside[shadow])].sort().values
            posteriors = train(member_graph(data, nodes), self.seed + 1 + shadow)(data)
            odds[shadow] = log_odds(posteriors[asked], data.y[asked]).numpy()
            progress("shadow models", shadow + 1, self.shadows)
        return inside, odds


def split_truth(data: Data) -> tuple[Tensor, Tensor]:
    """The members (train nodes) and as many others (test nodes) as there are."""
    members = data.train_mask.nonzero().squeeze(1)
    others = data.test_mask.nonzero().squeeze(1) if getattr(data, "test_mask", None) is not None else members[:0]
    if len(members) < 2 or len(others) < 2:
        raise InputError("membership: expected train and test nodes in the attacked graph; got too few")
    return members, others


def log_odds(posteriors: Tensor, labels: Tensor) -> Tensor:
    """log(p / (1 - p)) of the true class, in double precision."""
    true = posteriors.double().gather(1, labels.unsqueeze(1)).squeeze(1).clamp(_LEAST, 1.0 - _LEAST)
    return (true / (1.0 - true)).log()


def membership_signals(posteriors: Tensor, labels: Tensor) -> Tensor:
    """What the attacker looks at: sorted log posteriors, the log odds of the true class, and the entropy."""
    safe = posteriors.double().clamp(_LEAST, 1.0 - _LEAST)
    logs = safe.log()
    entropy = -(safe * logs).sum(dim=1, keepdim=True)
    odds = log_odds(posteriors, labels).unsqueeze(1)
    return torch.cat([logs.sort(dim=1, descending=True).values, odds, entropy], dim=1).float()


def train_attacker(signals: Tensor, members: Tensor, hidden: int, epochs: int, seed: int) -> nn.Module:
    """A 3-layer MLP that tells members from others, on standardized signals."""
    generator = torch.Generator().manual_seed(seed)
    width = signals.shape[1]
    model = nn.Sequential(
        _Standardize(signals),
        nn.Linear(width, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 1),
    )
    for parameter in model.parameters():
        limit = 1.0 / np.sqrt(parameter.shape[-1])
        nn.init.uniform_(parameter, -limit, limit, generator=generator)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-4)
    wanted = members.float().unsqueeze(1)
    for _ in range(epochs):
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(signals), wanted).backward()
        optimizer.step()
    return model.eval()


class _Standardize(nn.Module):
    """Columns to mean 0 and variance 1, as measured on the shadow."""

    mean: Tensor
    spread: Tensor

    def __init__(self, signals: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", signals.mean(dim=0))
        self.register_buffer("spread", signals.std(dim=0).clamp_min(1e-6))

    def forward(self, signals: Tensor) -> Tensor:
        scaled: Tensor = (signals - self.mean) / self.spread
        return scaled.clamp(-10.0, 10.0)


def likelihood_ratio(seen: np.ndarray, odds: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """The log ratio of two normals per node: mean by node and world, variance by world over all nodes."""
    with_it, without = (stats.norm.logpdf(seen, *_fit(odds, world)) for world in (inside, ~inside))
    return np.asarray(with_it - without)


def _fit(odds: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, float]:
    """The mean of the chosen odds of every node (the overall mean where there are none), and one spread."""
    counts = chosen.sum(axis=0)
    overall = odds[chosen].mean() if chosen.any() else 0.0
    means = np.where(counts > 0, (odds * chosen).sum(axis=0) / np.maximum(counts, 1), overall)
    residual = (odds - means)[chosen]
    freedom = max(1, int(chosen.sum()) - int((counts > 0).sum()))
    return means, float(np.sqrt((residual**2).sum() / freedom)) + 1e-6


def sample_per_class(data: Data, per_class: int, rng: np.random.Generator) -> Tensor:
    """Up to `per_class` random nodes of every class, ascending."""
    labels = data.y.numpy()
    found = [rng.permutation(np.flatnonzero(labels == c))[:per_class] for c in np.unique(labels[labels >= 0])]
    return torch.from_numpy(np.sort(np.concatenate(found)))


def induced(data: Data, nodes: Tensor) -> Data:
    """The graph on `nodes` with the edges among them; all of them are train nodes."""
    edges, _ = subgraph(nodes, data.edge_index, relabel_nodes=True, num_nodes=data.num_nodes)
    names = {"class_names": data.class_names} if "class_names" in data else {"num_classes": int(data.y.max()) + 1}
    everyone = torch.ones(len(nodes), dtype=torch.bool)
    return Data(x=dense_features(data)[nodes], edge_index=edges, y=data.y[nodes], train_mask=everyone, **names)


def member_graph(data: Data, members: Tensor) -> Data:
    """The graph on the members alone, all of them train nodes: what a model is trained on."""
    nodes = members.nonzero().squeeze(1) if members.dtype is torch.bool else members
    return induced(data, nodes)


def trained_target(name: str, data: Data, trainer: Trainer, seed: int) -> Target:
    """A target trained on the train nodes of `data` only, answering for all nodes (TSTF)."""
    return Target(name, trainer(member_graph(data, data.train_mask), seed)(data), trainer=trainer)
