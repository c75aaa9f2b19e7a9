"""Sparse feature matrices between scipy and torch, and the choice of rows of either kind of `x`."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from scipy import sparse
from torch import Tensor


def to_torch_csr(matrix: sparse.spmatrix | sparse.sparray) -> Tensor:
    """A torch sparse CSR float32 tensor with the same entries, columns sorted within each row."""
    csr = sparse.csr_matrix(matrix, dtype=np.float32, copy=True)
    csr.sum_duplicates()
    with warnings.catch_warnings():
        # torch announces on every first use that the CSR layout is in beta; nothing here depends on what may change.
        warnings.filterwarnings("ignore", message=".*[Ss]parse CSR tensor support is in beta.*")
        return torch.sparse_csr_tensor(
            torch.from_numpy(csr.indptr.astype(np.int64)),
            torch.from_numpy(csr.indices.astype(np.int64)),
            torch.from_numpy(csr.data),
            size=csr.shape,
            check_invariants=True,
        )


def to_scipy(x: Tensor) -> sparse.csr_matrix:
    """The scipy CSR matrix of a torch sparse tensor (CSR or COO) or of a dense one."""
    if x.layout == torch.sparse_coo:
        x = x.coalesce().to_sparse_csr()
    if x.layout == torch.sparse_csr:
        parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
        return sparse.csr_matrix(parts, shape=tuple(x.shape))
    return sparse.csr_matrix(x.numpy())


def choose_rows(x: Tensor, rows: Tensor) -> Tensor:
    """The given rows (indices) of a dense or sparse CSR tensor, in that order and in the same layout."""
    if x.layout == torch.strided:
        return x[rows]
    return to_torch_csr(to_scipy(x)[rows.numpy()])
