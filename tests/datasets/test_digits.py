"""The digits graph against a plain computation of the nearest neighbors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from hushgraph.datasets.digits import digits
from hushgraph.errors import InputError


def test_form() -> None:
    data = digits()
    assert tuple(data.x.shape) == (1797, 64)
    assert data.x.dtype == torch.float32
    assert float(data.x.min()) == 0.0
    assert float(data.x.max()) == 1.0
    assert data.class_names == [str(number) for number in range(10)]
    assert int((data.train_mask ^ data.val_mask ^ data.test_mask).sum()) == 1797
    assert data.name == "digits"


def test_edges_are_the_nearest_neighbors_either_way() -> None:
    data = digits(neighbors=4)
    distance = cdist(data.x.numpy(), data.x.numpy())
    np.fill_diagonal(distance, np.inf)
    reach = np.sort(distance, axis=1)[:, 3]
    source, target = data.edge_index.numpy()
    stored = np.zeros_like(distance, dtype=bool)
    stored[source, target] = True
    assert len(source) == stored.sum()
    assert np.array_equal(stored, stored.T)
    assert not stored.diagonal().any()
    # Strictly nearer pairs must be linked, strictly farther ones must not; ties may fall either way.
    limit = np.maximum(reach[:, None], reach[None, :])
    assert stored[distance < limit - 1e-6].all()
    assert not stored[distance > limit + 1e-6].any()


def test_split_depends_on_the_seed_and_edges_do_not() -> None:
    first, second = digits(seed=1), digits(seed=2)
    assert torch.equal(first.edge_index, second.edge_index)
    assert not torch.equal(first.train_mask, second.train_mask)


@pytest.mark.parametrize("neighbors", [0, 1797, 2.5, True])
def test_refuses_other_numbers(neighbors: object) -> None:
    with pytest.raises(InputError, match="neighbors"):
        digits(neighbors)  # type: ignore[arg-type]
