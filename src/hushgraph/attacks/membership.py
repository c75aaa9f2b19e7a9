"""Node membership inference: was this node in the training set?

Train on a subgraph, test on the full graph (TSTF; Olatunji, Nejdl, Khosla 2021, as in GAP section 7.4.2). The attacker
has a shadow graph of the same kind, trains a shadow model on half of it, and learns from the shadow's posteriors what
members look like. Members are the nodes the target was trained on, with the edges among them; the target then answers
for all nodes of the full graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from hushgraph.attacks.base import Attack, AttackScores, Target, Trainer, dense_features
from hushgraph.errors import InputError


@dataclass(frozen=True)
class ShadowMembership(Attack):
    """A shadow model, and a 3-layer MLP on its posteriors. The attacked graph's `train_mask` is the truth."""

    per_class: int = 1000
    epochs: int = 300
    hidden: int = 64
    seed: int = 0

    name = "membership, shadow model"
    assumes = (
        "reads the predictions about each node and knows its label; has a shadow graph of the same kind and can train "
        "the same method on it"
    )

    def run(self, target: Target, data: Data) -> AttackScores:
        """Score train nodes (members) and test nodes (not members)."""
        rng = np.random.default_rng(self.seed)
        shadow = induced(data, sample_per_class(data, self.per_class, rng))
        inside = torch.from_numpy(rng.random(shadow.num_nodes) < 0.5)
        train = target.needs("trainer")
        posteriors = train(member_graph(shadow, inside), self.seed)(shadow)
        model = train_attacker(membership_signals(posteriors, shadow.y), inside, self.hidden, self.epochs, self.seed)
        members, others = split_truth(data)
        asked = torch.cat([members, others])
        with torch.no_grad():
            signals = membership_signals(target.posteriors[asked], data.y[asked])
            scores = model(signals).squeeze(1)
        truth = np.arange(len(asked)) < len(members)
        return self.scored(target, scores.numpy(), truth, shadow_nodes=int(shadow.num_nodes))


def split_truth(data: Data) -> tuple[Tensor, Tensor]:
    """The members (train nodes) and as many others (test nodes) as there are."""
    members = data.train_mask.nonzero().squeeze(1)
    others = data.test_mask.nonzero().squeeze(1) if getattr(data, "test_mask", None) is not None else members[:0]
    if len(members) < 2 or len(others) < 2:
        raise InputError("membership: expected train and test nodes in the attacked graph; got too few")
    return members, others


def membership_signals(posteriors: Tensor, labels: Tensor) -> Tensor:
    """What the attacker looks at: sorted log posteriors, the log odds of the true class, and the entropy."""
    safe = posteriors.double().clamp(1e-9, 1.0 - 1e-9)
    logs = safe.log()
    true = safe.gather(1, labels.unsqueeze(1))
    odds = (true / (1.0 - true)).log()
    entropy = -(safe * logs).sum(dim=1, keepdim=True)
    return torch.cat([logs.sort(dim=1, descending=True).values, odds, entropy], dim=1).float()


def train_attacker(signals: Tensor, members: Tensor, hidden: int, epochs: int, seed: int) -> nn.Module:
    """A 3-layer MLP that tells members from others, on standardised signals."""
    generator = torch.Generator().manual_seed(seed)
    width = signals.shape[1]
    model = nn.Sequential(
        _Standardise(signals),
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


class _Standardise(nn.Module):
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
