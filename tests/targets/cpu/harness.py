"""Runs tile IR on the CPU target and on the interpreter, and compares what memory holds after."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from tests.arrays import copied
from tests.fence import fenced
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret
from tilewright.ir.parser import parse_module
from tilewright.ir.passes import PassContext, Step, run
from tilewright.ir.types import E4B15
from tilewright.ir.verify import verify_module
from tilewright.ops.dot_scaled import DotScaled
from tilewright.passes.expand_dot_scaled import expand_dot_scaled
from tilewright.runtime.devices import cpu as device
from tilewright.targets.cpu import emit
from tilewright.targets.cpu.codegen import generate
from tilewright.targets.cpu.host import host_machine
from tilewright.targets.cpu.machine import Machine

PLAIN_AVX2 = (
    "avx,avx2,fma,f16c,sse,sse2,sse3,ssse3,sse4.1,sse4.2,"
    "bmi,bmi2,lzcnt,popcnt,cx16,cx8,fxsr,64bit,movbe,cmov"
)


# From before conversions of fp16 and fused products.
PLAIN_SSE2 = "sse,sse2,cx8,fxsr,64bit,cmov"


@cache
def host(features: str | None = None) -> Machine:
    """This machine, or one with fewer features that this machine can run."""
    if features is None:
        return host_machine()
    return host_machine("x86-64", features)


def places_ir(rows: int, columns: int) -> str:
    """IR for the elements of a matrix, row-major: `%row`, `%column` and `%offset`, tiles of i32 of
    its shape; `%r` and `%k` number rows and columns, and `%r1` rows as one column."""
    size = f"{rows}x{columns}"
    return f"""\
  %r = tile.arange start=0, end={rows} : () -> {rows}xi32
  %r1 = tile.expand_dims %r, axis=1 : {rows}xi32 -> {rows}x1xi32
  %row = tile.broadcast %r1, shape=({rows}, {columns}) : {rows}x1xi32 -> {size}xi32
  %k = tile.arange start=0, end={columns} : () -> {columns}xi32
  %k1 = tile.expand_dims %k, axis=0 : {columns}xi32 -> 1x{columns}xi32
  %column = tile.broadcast %k1, shape=({rows}, {columns}) : 1x{columns}xi32 -> {size}xi32
  %pitch = arith.constant value={columns}, type={size}xi32 : () -> {size}xi32
  %first = arith.mul %row, %pitch : ({size}xi32, {size}xi32) -> {size}xi32
  %offset = arith.add %first, %column : ({size}xi32, {size}xi32) -> {size}xi32"""


def slots(args: Sequence[Any]) -> ctypes.Array[Any]:
    """Arguments packed as the launch ABI requires: 8 bytes each."""
    packed = (ctypes.c_uint8 * (8 * max(1, len(args))))()
    for i, a in enumerate(args):
        raw = a.ctypes.data.to_bytes(8, "little") if _is_buffer(a) else np.asarray(a).tobytes()
        ctypes.memmove(ctypes.addressof(packed) + 8 * i, raw, len(raw))
    return packed


def _is_buffer(a: Any) -> bool:
    return isinstance(a, np.ndarray) and a.ndim > 0


def run_compiled(
    module: Module,
    grid: tuple[int, int, int],
    args: Sequence[Any],
    *,
    machine: Machine | None = None,
    fp_fusion: bool = False,
    threads: int = 1,
) -> str:
    """Compile for the CPU, run, and return the optimised LLVM IR."""
    target = machine or host()
    if any(isinstance(op, DotScaled) for op in module.walk()):
        module = module.clone()
        run(module, [Step(expand_dot_scaled)], PassContext())
    text, scratch = generate(module, target, fp_fusion=fp_fusion)
    return run_text(text, module.entry.name, scratch, grid, args, machine=target, threads=threads)


def run_text(
    text: str,
    name: str,
    scratch: int,
    grid: tuple[int, int, int],
    args: Sequence[Any],
    *,
    machine: Machine,
    threads: int = 1,
) -> str:
    """As `run_text_on`, with copies of the arrays behind which no byte can be accessed."""
    moved = fenced(args)
    optimised = run_text_on(moved, text, name, scratch, grid, machine=machine, threads=threads)
    for array, result in zip(args, moved, strict=True):
        if _is_buffer(array) and array.flags.writeable:
            array[...] = result
    return optimised


def run_text_on(
    args: Sequence[Any],
    text: str,
    name: str,
    scratch: int,
    grid: tuple[int, int, int],
    *,
    machine: Machine,
    threads: int = 1,
) -> str:
    """Run a result of `generate`, possibly changed by a test; returns the optimised LLVM IR."""
    optimised, code = _compiled(text, machine)
    loaded = device.LoadedCode(code, [name])
    packed = slots(args)
    device.launch(loaded[name], ctypes.addressof(packed), grid, scratch, threads)
    return optimised


@lru_cache(32)
def _compiled(text: str, machine: Machine) -> tuple[str, bytes]:
    """Optimised IR and code; cached for tests that run a kernel on several arguments."""
    return emit.compile_text(text, machine)


def both(
    module: Module | str,
    grid: tuple[int, int, int],
    args: Sequence[Any],
    run: Callable[..., object] = run_compiled,
    **options: Any,
) -> tuple[list[Any], list[Any]]:
    """The arrays after the compiled and the interpreted run, from equal starts.

    Args:
        run: runs the kernel on the arrays, in place, with `options`.
    """
    if isinstance(module, str):
        module = parse_module(module)
        verify_module(module)
    ours, theirs = copied(args), copied(args)
    run(module, grid, ours, **options)
    interpret(module, grid, theirs)
    return ours, theirs


def bits(array: Any) -> Any:
    """An array as integers, every NaN alike."""
    array = np.asarray(array)
    if array.dtype.kind in "iub":
        return array
    found = array.view(f"u{array.dtype.itemsize}").copy()
    if array.dtype == E4B15:  # it has no NaN
        return found
    with np.errstate(invalid="ignore"):  # signalling NaN
        found[np.isnan(array.astype(np.float64))] = np.iinfo(found.dtype).max
    return found


def assert_same(
    module: Module | str, grid: tuple[int, int, int], args: Any, **options: Any
) -> None:
    """Both runs must leave the same bits."""
    ours, theirs = both(module, grid, args, **options)
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if _is_buffer(a):
            x, y = bits(a), bits(b)
            bad = np.nonzero(x != y)
            where = [int(n[0]) for n in bad] if bad[0].size else []
            assert not where, f"argument {i} differs at {where}: {a[bad][0]!r} not {b[bad][0]!r}"
