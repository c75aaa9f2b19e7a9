"""What the runs of studies/pate-graph.yaml do: PATE where a fifth of the training nodes is public, others without."""

from __future__ import annotations

from typing import Any

import torch

from hushgraph.methods.pate import PATE
from hushgraph.study.lab import Lab


def fitted(lab: Lab) -> dict[str, float | None]:
    """Test and validation accuracy of one fit."""
    method = lab.method
    data = _with_public(lab.data, lab.seed or 0) if isinstance(method, PATE) else lab.data
    model = method.fit(data, lab.unit, lab.budget, ledger=lab.ledger, seed=lab.seed)
    found = model.metrics["accuracy"]
    return {"test_accuracy": found["test"], "val_accuracy": found["val"], "proved_epsilon": model.plan.epsilon}


def _with_public(graph: Any, seed: int) -> Any:
    """A fifth of the training nodes is public knowledge instead."""
    data, train = graph.clone(), graph.train_mask.nonzero().squeeze(1)
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
    public = train[order[: len(train) // 5]]
    data.train_mask = graph.train_mask.clone().index_fill_(0, public, False)
    data.public_mask = torch.zeros_like(data.train_mask).index_fill_(0, public, True)
    return data
