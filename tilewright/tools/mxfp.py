"""Microscaling (MX) formats as torch tensors: 4-bit elements and 8-bit block scales.

    w = MXFP4Tensor(data=weights)            # fp32 rounded to fp4, one code per byte
    packed = w.to_packed_tensor(dim=1)       # two codes per byte, for tl.dot_scaled
    scales = MXScaleTensor(size=(64, 2), device="cuda").random(high=32.0)

The formats are E2M1 and E8M0 of the OCP Microscaling Formats specification 1.0. This module does
not import torch, so that importing it is cheap; its users have imported torch already.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import ceil, floor, log2
from typing import Any

__all__ = ["MXFP4Tensor", "MXScaleTensor"]

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The values of codes 0 to 7; codes 8 to 15 are their negatives."""

BIAS, NAN = 127, 255
"""Scale code e denotes 2 ** (e - BIAS); code NAN denotes NaN."""

SMALLEST, LARGEST = 2.0**-BIAS, 2.0 ** (NAN - 1 - BIAS)


def _torch() -> Any:
    torch = sys.modules.get("torch")
    if torch is None:
        raise RuntimeError("MX tensors are torch tensors, but torch is not imported")
    return torch


class _Codes:
    """A tensor of codes, one per byte.

    Args:
        data: a tensor of numbers, which are rounded; None for a tensor of zero codes.
        size: its shape, if `data` is None.
        device: its device, if `data` is None.

    Attributes:
        data: the codes, torch.uint8.
    """

    def __init__(
        self, data: Any = None, size: Sequence[int] | None = None, device: Any = None
    ) -> None:
        torch = _torch()
        if data is None and size is None:
            raise ValueError("pass data, a tensor to round, or size, a shape")
        if data is None:
            self.data = torch.zeros(tuple(size or ()), dtype=torch.uint8, device=device)
        else:
            if not isinstance(data, torch.Tensor) or data.is_complex():
                given = data.dtype if isinstance(data, torch.Tensor) else repr(data)
                raise TypeError(f"data must be a tensor of real numbers, not {given}")
            self.data = self._encoded(data.float())
        self.device = device if data is None else data.device

    @property
    def size(self) -> Any:
        """The shape."""
        return self.data.shape

    def _encoded(self, x: Any) -> Any:
        raise NotImplementedError

    def _decoded(self) -> Any:
        raise NotImplementedError

    def to(self, dtype: Any) -> Any:
        """The values as a tensor of torch.float32.

        Raises:
            ValueError: `dtype` is not torch.float32.
        """
        if dtype != _torch().float32:
            raise ValueError(f"the only supported type is torch.float32, not {dtype}")
        return self._decoded()


class MXFP4Tensor(_Codes):
    """fp4 (E2M1) elements. Rounding is to nearest even and saturates at ±6."""

    def random(self) -> MXFP4Tensor:
        """Fill with uniformly random codes in place; returns self."""
        self.data.random_(0, 16)
        return self

    def _encoded(self, x: Any) -> Any:
        torch = _torch()
        numbers = torch.tensor(E2M1, device=x.device)
        between = (numbers[1:] + numbers[:-1]) / 2
        # Ties go to the even code: a tie counts as above every odd boundary.
        size = x.abs()
        above = size[..., None] > between
        tie = (size[..., None] == between) & (torch.arange(7, device=x.device) % 2 == 1)
        code = (above | tie).sum(-1).to(torch.uint8)
        return code + 8 * torch.signbit(x).to(torch.uint8)

    def _decoded(self) -> Any:
        numbers = _torch().tensor((*E2M1, *(-x for x in E2M1)), device=self.data.device)
        return numbers[self.data.long()]

    def to_packed_tensor(self, dim: int) -> Any:
        """Pack two codes per byte along an axis, the first in the low nibble; an odd axis is padded
        with 0."""
        torch = _torch()
        rank = self.data.ndim
        assert -rank <= dim < rank, f"dim {dim} is outside a tensor of rank {rank}"
        codes = self.data.movedim(dim, -1)
        if codes.shape[-1] % 2:
            codes = torch.nn.functional.pad(codes, (0, 1))
        return (codes[..., ::2] | codes[..., 1::2] << 4).movedim(-1, dim).contiguous()

    def unpack_packed_tensor(
        self, packed_tensor: Any, dim: int, original_shape: Sequence[int]
    ) -> Any:
        """The codes, one per byte, of a tensor that `to_packed_tensor` packed along `dim`."""
        packed = packed_tensor.movedim(dim, -1)
        codes = _torch().stack((packed & 15, packed >> 4), -1).flatten(-2)
        return codes[..., : original_shape[dim]].movedim(-1, dim).contiguous()


class MXScaleTensor(_Codes):
    """E8M0 scales: powers of two. Other positive numbers are rounded down; zero, negative and
    non-finite numbers become NaN."""

    def random(self, low: float | None = None, high: float | None = None) -> MXScaleTensor:
        """Fill with random powers of two in [low, high], by default in the range of the format;
        returns self.

        Raises:
            ValueError: the interval contains no power of two.
        """
        low = SMALLEST if low is None else max(low, SMALLEST)
        high = LARGEST if high is None else min(high, LARGEST)
        lowest = ceil(log2(low)) + BIAS
        highest = floor(log2(high)) + BIAS if high > 0 else -1
        if lowest > highest:
            raise ValueError(f"there is no power of two from {low} to {high}")
        self.data.random_(lowest, highest + 1)
        return self

    def _encoded(self, x: Any) -> Any:
        torch = _torch()
        valid = x.isfinite() & (x > 0)
        _, exponent = torch.where(valid, x, 1.0).frexp()  # x is in [0.5, 1) * 2**exponent
        code = (exponent - 1 + BIAS).clamp(0, NAN - 1)
        return torch.where(valid, code, NAN).to(torch.uint8)

    def _decoded(self) -> Any:
        torch = _torch()
        codes = self.data.to(torch.int32)
        # The code is the exponent field of an fp32 number; code 0, 2**-127, is subnormal in fp32.
        numbers = torch.where(codes == 0, 1 << 22, codes << 23).view(torch.float32)
        return torch.where(codes == NAN, torch.nan, numbers)
