"""Small integers as floats without conversion instructions: their values, and the code of tiles."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

from tests.lowering.simt.tiles import tile, tile_kernel
from tests.targets.nvidia.lowered import ptx_of
from tilewright.ir import types as ir
from tilewright.ir.builder import Builder as IrBuilder
from tilewright.ir.core import Value
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
from tilewright.targets.nvidia.small_integers import from_integer

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
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
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
        result = np.zeros(integers.size, result_type)
        run(integers.ctypes.data, result.ctypes.data, integers.nbytes // 4)
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


def test_truth_values_are_not_bytes_of_integers() -> None:
    """A byte in memory that is not 0 is true, and 1.0."""
    module = Module("truth")
    b = Builder(module.function("run", VOID, [(I32, "")]), has_fma=True, fast_flags="")
    x = b.trunc(b.function.params[0], int_type(1))
    x.part = b.function.params[0], 0
    assert from_integer(b, x, ir.I1, ir.FP32) is None
