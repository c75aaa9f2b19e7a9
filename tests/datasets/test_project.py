from __future__ import annotations

import pytest
import torch

from hushgraph.datasets import project
from hushgraph.errors import InputError
from small_graphs import random_graph


def test_rows_are_projected_one_by_one_into_the_range() -> None:
    graph = random_graph(0, num_features=50)
    found = project(graph, 8).x
    assert found.shape == (40, 8)
    assert float(found.min()) >= 0
    assert float(found.max()) <= 1
    changed = random_graph(0, num_features=50)
    changed.x[3] = 100 * changed.x[5]
    again = project(changed, 8).x
    assert torch.equal(again[torch.arange(40) != 3], found[torch.arange(40) != 3])
    assert torch.allclose(again[3], found[5], atol=1e-6)  # the length says nothing
    assert not torch.equal(project(graph, 8, seed=1).x, found)


def test_sparse_rows_and_empty_ones() -> None:
    graph = random_graph(0, num_features=50)
    graph.x[7] = 0
    dense = project(graph, 6).x
    assert (dense[7] == 0.5).all()
    graph.x = graph.x.to_sparse_csr()
    assert torch.allclose(project(graph, 6).x, dense, atol=1e-6)
    with pytest.raises(InputError, match="project"):
        project(graph, 0)
