from __future__ import annotations

import pytest
import torch

from hushgraph.errors import InputError
from hushgraph.graph.rows import JoinedRows, SparseRows

DENSE = torch.arange(12.0).reshape(4, 3)
SPARSE = SparseRows.from_tensor(torch.eye(4)[:, :2])
TOGETHER = torch.cat([DENSE, SPARSE.to_dense()], dim=1)


def test_parts_keep_their_form_and_answer_as_one_matrix() -> None:
    joined = JoinedRows([DENSE, SPARSE])
    assert joined.shape == (4, 5)
    assert len(joined) == 4
    assert isinstance(joined.parts[1], SparseRows)
    assert torch.equal(joined.to_dense(), TOGETHER)
    assert torch.equal(joined.row_square_norms(), TOGETHER.square().sum(1))
    assert torch.equal(joined.narrow(1, 2).to_dense(), TOGETHER[1:3])
    for index in (torch.tensor([3, 0, 3]), torch.tensor([True, False, True, False])):
        assert torch.equal(joined.rows(index).to_dense(), TOGETHER[index])
    assert "parts=2" in repr(joined)


def test_parts_of_different_length_are_refused() -> None:
    with pytest.raises(InputError, match="one number of rows"):
        JoinedRows([DENSE, DENSE[:2]])
