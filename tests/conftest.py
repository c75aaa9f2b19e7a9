"""What all tests share."""

from __future__ import annotations

import pytest
import torch
from small_graphs import random_graph
from torch_geometric.data import Data

torch.set_num_threads(1)


@pytest.fixture
def graph() -> Data:
    """One small symmetric graph."""
    return random_graph(0)
