"""Arguments that are tensors without one contiguous storage."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl

torch: Any = pytest.importorskip("torch")


@tw.jit
def kernel(x_ptr, n):
    tl.store(x_ptr, n)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
def test_sparse_tensors_are_rejected(layout: str) -> None:
    sparse = torch.eye(8).to_sparse(layout=getattr(torch, layout))
    with pytest.raises(TypeError, match=rf"torch.{layout} has no storage: argument `x_ptr`.*dense"):
        kernel[(1,)](sparse, 1)
