"""Numbers of the microscaling formats as torch's tensors: 4-bit elements, and the scales of blocks.

    w = MXFP4Tensor(data=weights)            # fp32 rounded to fp4, one code a byte
    packed = w.to_packed_tensor(dim=1)       # two codes a byte, for tl.dot_scaled
    scales = MXScaleTensor(size=(64, 2), device="cuda").random(high=32.0)

The formats are E2M1 and E8M0 of the OCP Microscaling Formats specification 1.0. Programs that use
this have imported torch already; nothing here does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import ceil, floor, log2
from typing import Any

__all__ = ["MXFP4Tensor", "MXScaleTensor"]

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The numbers by their codes; with 8 added to the code, they are negative."""

BIAS, NAN = 127, 255
"""A scale with the code e is 2 to the power e - BIAS; NAN is none."""

SMALLEST, LARGEST = 2.0**-BIAS, 2.0 ** (NAN - 1 - BIAS)


def _torch() -> Any:
    torch = sys.modules.get("torch")
    if torch is None:
        raise RuntimeError("numbers of the mx formats are tensors of torch, which is not imported")
    return torch


class _Codes:
    """Codes, a byte each, of the numbers of a tensor.

    Args:
        data: numbers to be rounded; None to have room for `size` codes.
        size: the shape.
        device: where.

    Attributes:
        data: the codes.
    """

    def __init__(
        self, data: Any = None, size: Sequence[int] | None = None, device: Any = None
    ) -> None:
        torch = _torch()
        if data is None and size is None:
            raise ValueError("give data, numbers to be rounded, or size, a shape to have codes for")
        if data is None:
            self.data = torch.zeros(tuple(size or ()), dtype=torch.uint8, device=device)
        else:
            if not (isinstance(data, torch.Tensor) and data.is_floating_point()):
                given = data.dtype if isinstance(data, torch.Tensor) else repr(data)
                raise TypeError(f"data must be a tensor of floating-point numbers, not {given}")
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
        """The numbers as a tensor of torch.float32.

        Raises:
            ValueError: another type is asked for.
        """
        if dtype != _torch().float32:
            raise ValueError(f"the numbers can be had as torch.float32, not as {dtype}")
        return self._decoded()


class MXFP4Tensor(_Codes):
    """fp4 numbers: a sign, two bits of exponent, one of mantissa. What is too large becomes ±6."""

    def random(self) -> MXFP4Tensor:
        """Fill with random codes, all equally likely; gives the tensor itself."""
        self.data.random_(0, 16)
        return self

    def _encoded(self, x: Any) -> Any:
        torch = _torch()
        numbers = torch.tensor(E2M1, device=x.device)
        between = (numbers[1:] + numbers[:-1]) / 2
        # Ties go to the even code: of numbers on a boundary, only some count as above it.
        size = x.abs()
        above = size[..., None] > between
        tie = (size[..., None] == between) & (torch.arange(7, device=x.device) % 2 == 1)
        code = (above | tie).sum(-1).to(torch.uint8)
        return code + 8 * torch.signbit(x).to(torch.uint8)

    def _decoded(self) -> Any:
        numbers = _torch().tensor((*E2M1, *(-x for x in E2M1)), device=self.data.device)
        return numbers[self.data.long()]

    def to_packed_tensor(self, dim: int) -> Any:
        """Two codes a byte along an axis, the first in the lower half; a last odd one beside 0."""
        torch = _torch()
        codes = self.data.movedim(dim, -1)
        if codes.shape[-1] % 2:
            codes = torch.nn.functional.pad(codes, (0, 1))
        return (codes[..., ::2] | codes[..., 1::2] << 4).movedim(-1, dim).contiguous()

    def unpack_packed_tensor(
        self, packed_tensor: Any, dim: int, original_shape: Sequence[int]
    ) -> Any:
        """The codes, one a byte, that `to_packed_tensor` packed along `dim`."""
        packed = packed_tensor.movedim(dim, -1)
        codes = _torch().stack((packed & 15, packed >> 4), -1).flatten(-2)
        return codes[..., : original_shape[dim]].movedim(-1, dim).contiguous()


class MXScaleTensor(_Codes):
    """Scales: powers of two, 8 bits of exponent. Others are rounded down; what is not positive or
    not finite is NaN."""

    def random(self, low: float | None = None, high: float | None = None) -> MXScaleTensor:
        """Fill with random powers of two from `low` to `high`, by default all there are.

        Raises:
            ValueError: there is none.
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
        fine = x.isfinite() & (x > 0)
        _, exponent = torch.where(fine, x, 1.0).frexp()  # x is in [0.5, 1) * 2**exponent
        code = (exponent - 1 + BIAS).clamp(0, NAN - 1)
        return torch.where(fine, code, NAN).to(torch.uint8)

    def _decoded(self) -> Any:
        torch = _torch()
        codes = self.data.to(torch.int32)
        # The code is the exponent's bits of an fp32 number; that of 0 stands for a subnormal one.
        numbers = torch.where(codes == 0, 1 << 22, codes << 23).view(torch.float32)
        return torch.where(codes == NAN, torch.nan, numbers)
