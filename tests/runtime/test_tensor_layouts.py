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


@pytest.mark.parametrize("warm", [False, True])
def test_negated_tensors_are_rejected(warm: bool) -> None:
    """Also by native code, which reads the arguments of a launch like an earlier one."""
    numbers = torch.full((4,), 3 - 2j, dtype=torch.complex64)
    plain, negated = numbers.imag, numbers.conj().imag
    if warm:
        kernel[(1,)](plain, 5)
        kernel[(1,)](plain, 5)
        assert plain[0] == 5
    with pytest.raises(TypeError, match=r"argument `x_ptr` of kernel\. Pass `\.resolve_neg\(\)`"):
        kernel[(1,)](negated, 7)
    resolved = negated.resolve_neg()
    kernel[(1,)](resolved, 7)
    assert resolved.tolist() == [7, 2, 2, 2]
