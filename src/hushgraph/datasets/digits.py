"""Handwritten digits as a graph: each image is linked with the images most like it.

The images ship with scikit-learn, so nothing is downloaded. The graph is made from the pixels alone, which makes this
a small test bed where edges follow features; it is not a social network.
"""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.data import Data

from hushgraph.datasets.splits import random_split
from hushgraph.errors import InputError

# A pixel counts the dots set in a 4 x 4 block, so 16 is the largest value by design: no data is looked at.
LARGEST_PIXEL = 16.0
NODES = 1797


def digits(neighbors: int = 10, seed: int = 0) -> Data:
    """The symmetric nearest-neighbor graph of the 1,797 digits: 64 features in [0, 1], 10 classes.

    Two images are linked when either is among the `neighbors` nearest of the other. `seed` makes the 75/10/15 split.
    """
    from sklearn.datasets import load_digits

    if isinstance(neighbors, bool) or not isinstance(neighbors, int) or not 1 <= neighbors < NODES:
        raise InputError(f"expected neighbors to be an integer from 1 to {NODES - 1}; got {neighbors!r}")
    pixels, label = load_digits(return_X_y=True)
    scaled = np.asarray(pixels, dtype=np.float32) / np.float32(LARGEST_PIXEL)
    data = Data(
        x=torch.from_numpy(scaled),
        # Whole numbers keep the distances exact, so that ties fall the same way everywhere.
        edge_index=_nearest_neighbor_edges(np.asarray(pixels, dtype=np.float64), neighbors),
        y=torch.from_numpy(np.asarray(label, dtype=np.int64)),
        class_names=[str(digit) for digit in range(10)],
        name="digits",
    )
    return random_split(data, seed=seed)


def _nearest_neighbor_edges(points: np.ndarray, neighbors: int) -> torch.Tensor:
    from sklearn.neighbors import kneighbors_graph

    nearest = kneighbors_graph(points, neighbors, include_self=False)
    either = (nearest + nearest.T).tocsr()
    either.sort_indices()
    source = np.repeat(np.arange(len(points)), np.diff(either.indptr))
    return torch.from_numpy(np.stack([source, either.indices]).astype(np.int64))
