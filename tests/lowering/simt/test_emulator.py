"""The emulated GPU executes kernels like hardware, and detects undefined behaviour."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from
from tests.lowering.simt.emulator import Emulated, EmulatedHardware, EmulationError
from tests.lowering.simt.harness import assert_same, laid_out
from tests.lowering.simt.tiles import load, pointers, tile_kernel
from tilewright.base.target_names import declare_target
from tilewright.ir import types as ir
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Value
from tilewright.lowering.emit import I8, I32, const
from tilewright.lowering.simt.kernel import Kernel, emits
from tilewright.lowering.simt.shared_memory import SCRATCH
from tilewright.ops import control, memory, shape
from tilewright.ops.arith import Add, Mul

WARPS, LANES = 2, 4


def compiled(name: str, module: Module) -> Emulated:
    ready = laid_out(module, warps=WARPS, lanes=LANES)
    return Emulated(ready, EmulatedHardware(LANES, name), WARPS)


def with_barrier() -> Module:
    fn = Function("kernel", [])
    b = Builder(fn.body)
    b.insert(control.Barrier())
    b.insert(control.Return([]))
    return Module([fn])


@emits(control.Barrier, target=declare_target("meets in one warp"))
def _barrier_of_one_warp(kernel: Kernel, op: control.Barrier) -> None:
    with kernel.only_if(kernel.b.icmp("eq", kernel.warp, 0)):
        kernel.barrier()


@emits(control.Barrier, target=declare_target("shuffles in one lane"))
def _shuffle_of_one_lane(kernel: Kernel, op: control.Barrier) -> None:
    with kernel.only_if(kernel.b.icmp("eq", kernel.lane, 0)):
        kernel.hw.shuffle_xor(kernel.b, const(I32, 1), 1)


@emits(control.Barrier, target=declare_target("reads a missing lane"))
def _shuffle_from_nowhere(kernel: Kernel, op: control.Barrier) -> None:
    kernel.hw.shuffle(kernel.b, const(I32, 1), kernel.b.add(kernel.lane, 1))


@pytest.mark.parametrize(("name", "message"), [
    ("meets in one warp", r"in vain: .*'ended': \[4, 5, 6, 7\], 'at a barrier': \[0, 1, 2, 3\]"),
    ("shuffles in one lane", r"wait in vain: .*'at a shuffle': \[0, 4\]"),
    ("reads a missing lane", "a shuffle from a lane that is not there"),
])  # fmt: skip
def test_divergent_barriers_are_found(name: str, message: str) -> None:
    with pytest.raises(EmulationError, match=message):
        compiled(name, with_barrier()).launch((1, 1, 1), [])


def test_all_threads_reach_a_barrier() -> None:
    compiled("emulator", with_barrier()).launch((2, 1, 1), [])


@emits(shape.Flip, target=declare_target("writes too far"))
def _writes_too_far(kernel: Kernel, op: shape.Flip) -> None:
    b = kernel.b
    b.store(const(I8, 1), b.gep(I8, kernel.shared.address(b, op), SCRATCH[shape.Flip](op) + 8))
    kernel.bind(op, kernel.env[op.src])


@emits(shape.Flip, target=declare_target("lacks a barrier"))
def _forgets_a_barrier(kernel: Kernel, op: shape.Flip) -> None:
    """Each thread writes its number, and reads that of the thread across."""
    b = kernel.b
    base = kernel.shared.address(b, op)
    b.store(kernel.thread, b.gep(I32, base, kernel.thread))
    other = b.xor(kernel.thread, WARPS * LANES - 1)
    kernel.bind(op, [b.load(I32, b.gep(I32, base, other))])


def flipping() -> Module:
    def build(b: Builder, x: Value) -> list[Value]:
        return [b.value(shape.Flip(x, 0))]

    return tile_kernel(build, [ir.Tile((WARPS * LANES,), ir.I32)])


def test_a_write_outside_shared_memory_is_found() -> None:
    args = [np.arange(8, dtype=np.int32), np.zeros(8, np.int32)]
    with pytest.raises(EmulationError, match="beside the shared memory"):
        compiled("writes too far", flipping()).launch((1, 1, 1), args)


def test_a_missing_barrier_gives_other_results() -> None:
    found: list[bytes] = []
    for seed in (0, 1):
        out = np.zeros(8, np.int32)
        module = flipping()
        compiled("lacks a barrier", module).launch((1, 1, 1), [np.arange(8), out], seed)
        found.append(out.tobytes())
    assert found[0] != found[1]
    assert np.arange(8, dtype=np.int32)[::-1].tobytes() not in found


def test_a_misaligned_access_is_found() -> None:
    """The attribute promises what the argument does not keep."""
    fn = Function("kernel", [ir.Pointer(ir.FP32)] * 2, arg_attrs=[{"divisibility": 16}] * 2)
    b = Builder(fn.body)
    x = load(b, pointers(b, fn.args[0], (64,)))
    b.insert(memory.Store(pointers(b, fn.args[1], (64,)), b.value(Add(x, x)), None, "", ""))
    b.insert(control.Return([]))
    data, out = np.ones(68, np.float32), np.zeros(64, np.float32)
    kernel = compiled("emulator", Module([fn]))
    kernel.launch((1, 1, 1), [data, out])
    assert (out == 2).all()
    with pytest.raises(EmulationError, match="misaligned"):
        kernel.launch((1, 1, 1), [data[1:], out])


def test_programs_have_their_indices() -> None:
    fn = Function("kernel", [ir.Pointer(ir.I32)])
    b = Builder(fn.body)
    ids = [b.value(control.ProgramId(axis)) for axis in range(3)]
    counts = [b.value(control.NumPrograms(axis)) for axis in range(3)]
    row = b.value(Add(b.value(Mul(ids[2], counts[1])), ids[1]))
    place = b.value(Add(b.value(Mul(row, counts[0])), ids[0]))
    b.insert(memory.Store(b.value(memory.AddPtr(fn.args[0], place)), place, None, "", ""))
    b.insert(control.Return([]))
    out = np.full(24, -1, np.int32)
    compiled("emulator", Module([fn])).launch((2, 3, 4), [out])
    assert (out == np.arange(24)).all()


def test_extrema_of_numbers_and_nan() -> None:
    """Of a NaN and a converted integer, which LLVM knows to be none, it is the number."""
    kernel = kernel_from("""
        def kernel(y, x, n):
            i = tl.arange(0, 8)
            tl.store(y + i, tl.maximum(tl.load(x + i), (i - n).to(tl.int16).to(tl.float16)))
    """)
    module = build(kernel, {"y": "*fp16", "x": "*fp16", "n": "i32"})
    x = np.where(np.arange(8) % 2, np.nan, 2.5).astype(np.float16)
    assert_same(module, (1, 1, 1), [np.zeros(8, np.float16), x, np.int32(4)], warps=1, lanes=4)
