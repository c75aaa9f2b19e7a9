from __future__ import annotations

from pathlib import Path

import pytest

from hushgraph.datasets import write_npz
from small_graphs import random_graph


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A small graph as a file."""
    return write_npz(random_graph(1), tmp_path / "toy.npz")
