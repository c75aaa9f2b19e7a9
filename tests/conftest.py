"""What all tests share."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from small_graphs import random_graph

torch.set_num_threads(1)


@pytest.fixture
def graph() -> Data:
    """One small symmetric graph."""
    return random_graph(0)
