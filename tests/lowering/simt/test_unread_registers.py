"""Addresses and masks that no access reads are not emitted, and nothing else is left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from
from tests.gpu_machine import gpu_machine
from tests.ir_values import same_bits
from tests.lowering.simt.emulator import EmulatedHardware
from tests.lowering.simt.harness import laid_out, run_emulated
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret
from tilewright.ir.passes import PassContext
from tilewright.lowering.simt.kernel import Kernel
from tilewright.ops.memory import Load, Store

# Bodies with rows and columns of a tile of 8 x 32, whose columns run along registers.
BODIES = {
    "copied": "tl.store(y + at, tl.load(x + at))",
    "masked": "tl.store(y + at, tl.load(x + at, mask=column < n, other=3), mask=column < n)",
    "the mask as a value": "tl.store(y + at, (column < n).to(tl.int32), mask=column < n)",
    "the offset as a value": "tl.store(y + at, tl.load(x + at) + at)",
    "other loaded": "tl.store(y + at, tl.load(x + at, mask=column < n, other=at * 2))",
    "from behind": "tl.store(y + at, tl.load(x + 255 - at))",
    "narrow and wide": "tl.store(y + at, tl.load(z + at).to(tl.int32) + tl.load(x + at))",
    "one address, two masks": "tl.store(y + at, tl.load(x + at, mask=column < n, other=0)"
    " + tl.load(x + at, mask=(column & 1) == 0, other=5))",
    "carried by a loop": "p = x + at\n"
    "    total = at * 0\n"
    "    for i in range(n // 16):\n"
    "        total += tl.load(p)\n"
    "        p += 0\n"
    "    tl.store(y + at, total)",
    "in a branch": "if n > 0:\n        tl.store(y + at, tl.load(x + at))",
    "added atomically": "tl.atomic_add(y + at, tl.load(x + at), mask=column < n)",
}


def kernel_of(body: str) -> Module:
    kernel = kernel_from(f"""def kernel(x, y, z, n):
    n = tl.multiple_of(n, 16)
    row = tl.arange(0, 8)[:, None]
    column = tl.arange(0, 32)[None, :]
    at = row * 32 + column
    {body}
""")
    attributes = [{"divisibility": 16}] * 3 + [{}]
    module = build(kernel, {"x": "*i32", "y": "*i32", "z": "*i8", "n": "i32"})
    module.entry.arg_attrs = attributes
    return module


def aligned(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy at an address that is a multiple of 16."""
    memory = np.zeros(values.nbytes + 16, np.uint8)
    start = -memory.ctypes.data % 16
    found = memory[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    found[...] = values
    return found


@pytest.mark.parametrize("name", BODIES)
def test_the_same_memory_as_the_interpreter(name: str) -> None:
    module = kernel_of(BODIES[name])
    numbers = np.arange(256, dtype=np.int32).reshape(8, 32) * 7 % 101
    for n in (0, 16, 32):
        given = [numbers, np.zeros((8, 32), np.int32), numbers.astype(np.int8)]
        expected: list[Any] = [*map(aligned, given), n]
        found: list[Any] = [*map(aligned, given), n]
        interpret(module, (1, 1, 1), expected)
        for warps, lanes in ((1, 1), (4, 8), (1, 4), (2, 32)):
            found[1][...] = 0
            run_emulated(module, (1, 1, 1), found, warps=warps, lanes=lanes)
            assert same_bits(found[1], expected[1]), f"n {n}, {warps} x {lanes}"


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("copied", [64, 64]),
        ("masked", [64, 64]),
        ("the offset as a value", [64, 64]),
        ("narrow and wide", [16, 64, 64]),
    ],
)
def test_one_address_is_read_for_each_access(name: str, read: list[int]) -> None:
    """The only thread has 256 elements, of which an access moves four, or sixteen of a byte."""
    module = laid_out(kernel_of(BODIES[name]), warps=1, lanes=1)
    context = PassContext(machine=gpu_machine(lanes=1, warps=1))
    kernel = Kernel(module.entry, EmulatedHardware(1), 1, ctx=context)
    accesses = [op for op in module.walk() if isinstance(op, Load | Store)]
    assert [len(kernel.read_registers(op.ptr)) for op in accesses] == read
    for op in accesses:
        if isinstance(op, Store):
            assert kernel.read_registers(op.value) == list(range(256))
