"""CPU-specific functions; `libdevice` is the same for all targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.base.lazy_import import lazy_names
from tilewright.ir.types import shape_of
from tilewright.language import semantic
from tilewright.language.values import builtin, tensor

if TYPE_CHECKING:
    from tilewright.language.extra import libdevice as libdevice
else:
    __getattr__ = lazy_names(__name__, {"tilewright.language.extra": ("libdevice",)})

__all__ = ["libdevice", "vnni_decode"]


@builtin
def vnni_decode(arg0: tensor, *, _semantic: Any = None) -> tensor:
    """Convert a matrix from the VNNI layout of x86 dot-product instructions to row-major order.

    In the VNNI layout, 2 rows of 16-bit elements (4 rows of 8-bit elements) are interleaved:
    element n of each row, then element n + 1 of each. So ``[K / 2, 2 N]`` becomes ``[K, N]``.

    Raises:
        ValueError: the element type has another width, or the shape is not that of such a matrix.
    """
    bits, extents = arg0.dtype.primitive_bitwidth, shape_of(arg0.type)
    if bits not in (8, 16):
        raise ValueError(f"vnni_decode takes elements of 8 or 16 bits, not {arg0.dtype}")
    group = 32 // bits
    if len(extents) != 2 or extents[1] % group:
        raise ValueError(
            f"vnni_decode takes a matrix whose number of columns is a multiple of {group}, not "
            f"{arg0.type}"
        )
    rows, columns = extents[0], extents[1] // group
    split = semantic.shape.reshape(_semantic, arg0, (rows, columns, group))
    turned = semantic.shape.permute(_semantic, split, (0, 2, 1))
    return semantic.shape.reshape(_semantic, turned, (rows * group, columns))
