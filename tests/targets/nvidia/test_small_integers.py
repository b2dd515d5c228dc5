"""Small integers as floats without conversion instructions: their values, and the code of tiles."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

from tests.lowering.simt.tiles import tile, tile_kernel
from tests.targets.nvidia.lowered import ptx_of
from tilewright.ir import types as ir
from tilewright.ir.builder import Builder as IrBuilder
from tilewright.ir.core import Function, Value
from tilewright.lowering.emit import (
    F16,
    F32,
    I16,
    I32,
    I64,
    PTR,
    VOID,
    Builder,
    LType,
    Module,
    V,
    int_type,
    vector,
)
from tilewright.ops import arith
from tilewright.targets.nvidia.small_integers import from_integer, from_range

Convert = Callable[[np.ndarray], np.ndarray]

INTEGERS = {ir.I8: np.int8, ir.U8: np.uint8, ir.I16: np.int16, ir.U16: np.uint16}
FLOATS = {
    ir.FP32: (F32, np.float32),
    ir.FP16: (F16, np.float16),
    ir.BF16: (I16, ml_dtypes.bfloat16),
}
CONVERSION = re.compile(r"\bcvt\.rn\.\w+\.[su]\d+\b")


class HostBuilder(Builder):
    """Emits what the only instruction in inline assembly does, which the host has not."""

    def inline_asm(
        self,
        code: str,
        constraints: str,
        ret: LType,
        args: Sequence[V],
        side_effects: bool = False,
        convergent: bool = False,
    ) -> V:
        assert code == "sub.rn.f16x2 $0, $1, $2;"
        x, y = (self.bitcast(operand, vector(F16, 2)) for operand in args)
        return self.bitcast(self.fsub(x, y), ret)


def on_host(source: ir.DType, to: ir.DType) -> Convert:
    """The conversion of all integers of an array that fills words."""
    kind, result_type = FLOATS[to]
    bits = source.primitive_bitwidth
    module = Module("words")
    function = module.function("run", VOID, [(PTR, ""), (PTR, ""), (I64, "")])
    b = HostBuilder(function, has_fma=True, fast_flags="contract")
    words, out, count = function.params
    with b.loop(0, count, 1) as loop:
        word = b.load(I32, b.gep(I32, words, loop.index))
        for lane in range(32 // bits):
            x = b.trunc(b.lshr(word, lane * bits), int_type(bits))
            x.part = word, lane * bits
            found = from_integer(b, x, source, to)
            assert found is not None
            place = b.add(b.mul(loop.index, 32 // bits), lane)
            b.store(found, b.gep(kind, out, place))
    b.ret()
    return compiled(module, result_type, 32 // bits)


def compiled(module: Module, result_type: Any, each: int) -> Convert:
    """The function of a module, which converts so many elements of each of its inputs."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    parsed = llvm.parse_assembly(module.text())
    parsed.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )
    engine = llvm.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    types = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    run = ctypes.CFUNCTYPE(None, *types)(engine.get_function_address("run"))

    def convert(integers: np.ndarray) -> np.ndarray:
        assert engine is not None  # it owns the code
        count = integers.nbytes // 4
        result = np.zeros(count * each, result_type)
        run(integers.ctypes.data, result.ctypes.data, count)
        return result

    return convert


@pytest.mark.parametrize("to", FLOATS, ids=str)
@pytest.mark.parametrize("source", INTEGERS, ids=str)
def test_every_integer_at_every_place(source: ir.DType, to: ir.DType) -> None:
    """Bit for bit, so that 0 is +0. Those of 16 bits are rounded to nearest even."""
    bits = source.primitive_bitwidth
    every = np.arange(1 << bits).astype(f"u{bits // 8}").view(INTEGERS[source])
    convert = on_host(source, to)
    for shift in range(32 // bits):
        integers = np.roll(every, shift)
        with np.errstate(over="ignore"):
            expected = integers.astype(np.float32).astype(FLOATS[to][1])
        np.testing.assert_array_equal(convert(integers).view("u1"), expected.view("u1"))


@pytest.mark.parametrize("to", FLOATS, ids=str)
@pytest.mark.parametrize("source", INTEGERS, ids=str)
def test_loaded_tiles_have_no_conversion(source: ir.DType, to: ir.DType) -> None:
    def build(b: IrBuilder, x: Value) -> list[Value]:
        return [b.value(arith.Cast(x, to, "rtne"))]

    assert not CONVERSION.search(ptx_of(tile_kernel(build, [tile(source, 1024)]), num_warps=4))


RANGES = [(0, 15), (0, 127), (-16, 15), (-100, 27), (5, 100)]


def within(b: IrBuilder, x: Value, low: int, high: int) -> Value:
    """Integers that are known to be in a range."""
    smallest, largest = (b.value(arith.Constant(n, x.type)) for n in (low, high))
    raised = b.value(arith.Max(x, smallest, propagate_nan=False))
    return b.value(arith.Min(raised, largest, propagate_nan=False))


@pytest.mark.parametrize(("to", "lanes"), [(ir.FP32, 0), (ir.FP16, 0), (ir.FP16, 2)], ids=str)
@pytest.mark.parametrize(("low", "high"), [*RANGES, (0, 1023), (-511, 512)])
def test_integers_of_a_known_range(low: int, high: int, to: ir.DType, lanes: int) -> None:
    """Each of them, alone and beside each other of the range."""
    integer = tile(ir.I32, 4)
    function = Function("f", [integer])
    b = IrBuilder(function.body)
    op = arith.Cast(within(b, function.args[0], low, high), to, "rtne")
    convert = numbers_on_host(op, lanes)
    every = np.arange(low, high + 1, dtype=np.int32)
    for shift in range(3):
        integers = np.stack([every, np.roll(every, 7 * shift)], 1).reshape(-1)
        found = convert(integers)
        assert found.tobytes() == integers.astype(FLOATS[to][1]).tobytes()


def numbers_on_host(op: arith.Cast, lanes: int) -> Convert:
    """The conversion of an array of an even number of integers."""
    kind, result_type = FLOATS[op.to]
    module = Module("numbers")
    function = module.function("run", VOID, [(PTR, ""), (PTR, ""), (I64, "")])
    b = HostBuilder(function, has_fma=True, fast_flags="contract")
    source, out, count = function.params
    step = lanes or 1
    with b.loop(0, count, step) as loop:
        x = b.load(vector(I32, lanes) if lanes else I32, b.gep(I32, source, loop.index), align=4)
        found = from_range(b, op, x)
        assert found is not None
        b.store(found, b.gep(kind, out, loop.index), align=2)
    b.ret()
    return compiled(module, result_type, 1)


@pytest.mark.parametrize("to", FLOATS, ids=str)
@pytest.mark.parametrize(("low", "high"), RANGES)
def test_tiles_of_a_known_range_have_no_conversion(low: int, high: int, to: ir.DType) -> None:
    def build(b: IrBuilder, x: Value) -> list[Value]:
        return [b.value(arith.Cast(within(b, x, low, high), to, "rtne"))]

    text = ptx_of(tile_kernel(build, [tile(ir.I32, 1024)]), num_warps=4)
    assert not CONVERSION.search(text)
    assert ("x2" in text) == (to != ir.FP32)


@pytest.mark.parametrize(("to", "high"), [(ir.FP32, 1 << 23), (ir.FP16, 1024), (ir.BF16, 128)])
def test_larger_ranges_are_converted(to: ir.DType, high: int) -> None:
    def build(b: IrBuilder, x: Value) -> list[Value]:
        return [b.value(arith.Cast(within(b, x, 0, high), to, "rtne"))]

    assert CONVERSION.search(ptx_of(tile_kernel(build, [tile(ir.I32, 1024)]), num_warps=4))


def test_truth_values_are_not_bytes_of_integers() -> None:
    """A byte in memory that is not 0 is true, and 1.0."""
    module = Module("truth")
    b = Builder(module.function("run", VOID, [(I32, "")]), has_fma=True, fast_flags="")
    x = b.trunc(b.function.params[0], int_type(1))
    x.part = b.function.params[0], 0
    assert from_integer(b, x, ir.I1, ir.FP32) is None
