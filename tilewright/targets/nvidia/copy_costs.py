"""The time of tensor copies, in comparison with that of asynchronous copies by all threads.

Both read memory by requests to the L2 cache, each for bytes of one line. The threads of a warp copy
512 bytes at once, and request a line once. According to measured times, the unit for tensor copies
requests each row of a box separately, and requests for the same line delay each other: 64 rows of
16 bf16 elements, which are 16 lines if they are adjacent in memory, take 64 requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from tilewright.ir.passes import optional_part
from tilewright.ir.types import dtype_of, shape_of
from tilewright.ops.control import For
from tilewright.ops.gpu import Share
from tilewright.ops.nvidia import Sum, Wgmma
from tilewright.targets.nvidia.copied_scalars import Unsupported
from tilewright.targets.nvidia.tensor_copies import TensorCopy, swizzle_of

COSTS = optional_part("copy_costs")

LINE = 128  # bytes
REQUEST_CYCLES = 2  # a multiprocessor receives 64 bytes per cycle
PRODUCT_BYTES = 4096  # multiplied per cycle: 2048 pairs of fp16 or bf16 elements

# How much longer an iteration may take before other advantages of a copying warp do not outweigh
# it. A product of 64x128x64 with one of 64x16x64, 1.23 times as long by this estimate, took 175
# instead of 138 µs on an H200, and with one of 64x32x64, 1.14 times, 191 instead of 143.
MOST_SLOWDOWN = 1.1


class Requests(NamedTuple):
    """The requests for a block, by tensor copies and by threads."""

    tensor: int
    threads: int


def require_wide_rows(loop: For, copies: Sequence[tuple[Share, TensorCopy]]) -> None:
    """Raise `Unsupported` if the requests of tensor copies make a loop slower than if adjacent rows
    were requested together.

    A loop that also computes with its operands, or with results of products, takes longer than
    estimated: the requests are then hidden. It is up to the caller to exclude such loops.
    """
    products = [op for op in loop.body if isinstance(op, Wgmma)]
    if not products:
        return
    cycles = sum(map(_cycles, products))
    each = [requests(share, copy) for share, copy in copies]
    tensor = max(cycles, REQUEST_CYCLES * sum(r.tensor for r in each))
    threads = max(cycles, REQUEST_CYCLES * sum(r.threads for r in each))
    if tensor <= MOST_SLOWDOWN * threads:
        return
    worst = max(range(len(each)), key=lambda i: each[i].tensor - each[i].threads)
    share, copy = copies[worst]
    raise Unsupported(
        f"rows of {_row_bytes(share, copy)} bytes, adjacent in memory, would be requested one by "
        f"one: {each[worst].tensor} requests instead of {each[worst].threads}, for which the "
        "products would wait",
        share.src.op,
    )


def requests(share: Share, copy: TensorCopy) -> Requests:
    """The requests for a block that is copied to a shared buffer."""
    kind = share.result.type
    size = dtype_of(kind).nbytes_in_memory
    row = _row_bytes(share, copy)
    rows = prod(shape_of(kind)) * size // row
    tensor = rows * -(-row // LINE)
    distance = _distance(copy)
    if distance is None or distance * size >= LINE:
        return Requests(tensor, tensor)
    return Requests(tensor, min(tensor, -(-rows * distance * size // LINE)))


def _row_bytes(share: Share, copy: TensorCopy) -> int:
    """The bytes of a row of a box."""
    shape, layout = shape_of(share.result.type), share.result.layout
    size = dtype_of(share.result.type).nbytes_in_memory
    contiguous = copy.axes.index(0)
    assert layout is not None
    return swizzle_of(shape, 8 * size, contiguous, layout) or shape[contiguous] * size


def _distance(copy: TensorCopy) -> int | None:
    """The elements from one row of a block of two axes to the next one, if that is a constant."""
    strides: list[Sum] = [copy.strides[d] for d in copy.axes if d]
    if len(strides) != 1 or len(strides[0]) != 1:
        return None
    ((coefficient, factors),) = strides[0]
    return None if factors else coefficient


def _cycles(product: Wgmma) -> int:
    """The cycles for which a product occupies the tensor cores of a multiprocessor."""
    rows, columns = shape_of(product.result.type)
    right = product.rhs.type
    return rows * columns * shape_of(right)[0] * dtype_of(right).nbytes_in_memory // PRODUCT_BYTES
