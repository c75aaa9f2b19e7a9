"""Inductive evaluation: train on one graph, test on another that shares no node with it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from hushgraph.datasets.splits import has_split
from hushgraph.datasets.subgraph import induced
from hushgraph.errors import InputError


def disjoint_graphs(data: Data, seed: int = 0) -> tuple[Data, Data]:
    """Cut `data` into a graph for training and validation and a graph for testing; `data` is not changed.

    Nodes of the train and validation masks go to the first, nodes of the test mask to the second. Nodes in no mask
    (unlabeled, or left out of the split) are dealt out at random in the same proportion, with `seed`. Edges between
    the two graphs are dropped. Both keep `node_ids`, the ids of their nodes in `data`.
    """
    if not has_split(data):
        raise InputError(
            "expected data with train_mask, val_mask and test_mask; got data without a split; call random_split first"
        )
    in_test = _test_side(data, seed)
    if not bool(in_test.any()) or bool(in_test.all()):
        raise InputError("expected nodes on both sides; got a split whose train/val or test part is empty")
    return induced(data, ~in_test), induced(data, in_test)


def _test_side(data: Data, seed: int) -> Tensor:
    learns = data.train_mask | data.val_mask
    tests = data.test_mask
    share = int(tests.sum()) / max(1, int(learns.sum()) + int(tests.sum()))
    coin = np.random.default_rng(seed).random(len(tests)) < share
    return tests | (~learns & ~tests & torch.from_numpy(coin))
