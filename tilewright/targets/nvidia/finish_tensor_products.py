"""Waits for products in tensor memory, as waits for barriers."""

from __future__ import annotations

from tilewright.ir import types as ir
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ops.arith import Constant
from tilewright.ops.control import Barrier
from tilewright.ops.gpu import Allocate
from tilewright.ops.roles import DropBarriers, InitBarriers, WaitBarrier
from tilewright.ops.tensor_memory import CommitProducts, TensorWait


@compiler_pass("finish_tensor_products", required=True)
def finish_tensor_products(fn: Function, ctx: PassContext) -> bool:
    """Put a wait for a barrier at which products arrive before each wait for products.

    Needs: `specialize_warps`.  Leaves: `nvidia.tensor_wait`, for which there is no more to do; it
    ends the live ranges of the operands.

    Each wait initialises a barrier and drops it, so that the parity is known, also in loops. Where
    roles release the operands, that is once after a loop; without roles, in each iteration.
    """
    found = [op for op in fn.walk() if isinstance(op, TensorWait)]
    for op in found:
        b = Builder()
        with b.before(op):
            barriers = b.value(Allocate(ir.Shared((1,), ir.I64)))
            b.insert(InitBarriers(barriers, (1,)))
            b.insert(Barrier())
            zero = b.value(Constant(0, ir.I32))
            b.insert(CommitProducts(barriers, zero))
            b.insert(WaitBarrier(barriers, zero, zero))
            b.insert(Barrier())
            b.insert(DropBarriers(barriers))
    return bool(found)
