"""Small pictures as records, some of them public, for tests."""

from __future__ import annotations

import torch
from torch_geometric.data import Data

CLASSES, SIDE = 3, 8


def pictures(records: int = 1500, public: int = 300) -> Data:
    """Bars in one of three directions, with noise."""
    made = torch.Generator().manual_seed(0)
    y = torch.randint(0, CLASSES, (records + public,), generator=made)
    down, across = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    bars = torch.stack([(down % 4 < 2).float(), (across % 4 < 2).float(), ((down + across) % 4 < 2).float()])
    x = (0.8 * bars[y] + 0.2 * torch.rand(len(y), SIDE, SIDE, generator=made)).flatten(1)
    number = torch.arange(len(y))
    train, public_mask = number < records - 300, number >= records
    data = Data(x=x, y=y, train_mask=train, test_mask=~train & ~public_mask, public_mask=public_mask)
    data.num_classes, data.edge_index = CLASSES, torch.empty((2, 0), dtype=torch.int64)
    return data
