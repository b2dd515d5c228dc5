"""The functions of a kernel: the program, and the entry point, which executes a range of programs.

The entry point has the launch ABI: ``void NAME(ptr args, ptr scratch, i64 first, i64 last, ptr
grid)`` executes programs first … last - 1 of the flattened grid (x fastest). It reads the argument
slots once, and calls ``NAME.program`` for each. There, pointers known to be disjoint are `noalias`.
Short programs are inlined.
"""

from __future__ import annotations

from tilewright.ir import types as ir
from tilewright.ir.core import Function
from tilewright.lowering.convert import cast_fp16
from tilewright.lowering.emit import I1, I32, I64, PTR, VOID, Builder, LType, V, const
from tilewright.lowering.lines import Lines
from tilewright.lowering.split_function import split_function
from tilewright.lowering.types import memory_type, register_type
from tilewright.targets.cpu import avx512
from tilewright.targets.cpu.kernel import Kernel
from tilewright.targets.cpu.level import Level
from tilewright.targets.cpu.steps import emit_region
from tilewright.targets.cpu.streaming import is_large

_INLINED = 150
"""Lines of LLVM IR up to which a program is inlined. An addition of two vectors has 77, and takes
3 % less time inlined, with data in the L3 cache."""

MOST_LIVE = 512
"""Words that are passed at most from one part of a long program to the next."""


def emit_kernel(kernel: Kernel) -> str:
    """The LLVM module as text."""
    name = f"{kernel.fn.name}.program"
    params = [*_params(kernel.fn), *[(I32, "")] * 6, (PTR, "noalias"), (I1, "")]
    attributes = kernel.machine.function_attributes
    program = kernel.module.function(name, VOID, params, attributes=attributes, linkage="internal")
    kernel.b = Builder(program, has_fma=kernel.machine.has_fma, fast_flags=kernel.fast_flags)
    kernel.b.saturates_vectors = kernel.machine.saturates_vectors
    if not kernel.machine.converts_fp16:
        kernel.b.own_cast = cast_fp16
    elif avx512.converts_bf16(kernel.machine):
        kernel.b.own_cast = avx512.cast_bf16
    if avx512.has_scale(kernel.machine):
        kernel.b.own_scale = avx512.scale
    if kernel.has_lines and kernel.fn.loc is not None:
        kernel.lines = Lines(kernel.module, program, kernel.fn.loc)
        kernel.b.location = kernel.lines.of(kernel.fn.loc)
    for arg, v in zip(kernel.fn.args, program.params, strict=False):
        kernel.env[arg] = v
    n = len(kernel.fn.args)
    kernel.program = (program.params[n], program.params[n + 1], program.params[n + 2])
    kernel.grid = (program.params[n + 3], program.params[n + 4], program.params[n + 5])
    kernel.scratch = program.params[n + 6]
    kernel.is_large = program.params[n + 7]
    kernel.entry = kernel.b.current
    body = kernel.b.block("body")
    kernel.b.at(body)
    emit_region(kernel, kernel.fn.body, Level(kernel, body))
    kernel.b.ret()
    kernel.b.at(kernel.entry)
    kernel.b.br(body)
    if sum(len(block.lines) for block in program.blocks) < _INLINED:
        program.add_attribute("alwaysinline")
    split_function(program, f"{attributes} noinline", MOST_LIVE)
    _entry_point(kernel, name)
    return kernel.module.text()


def _params(fn: Function) -> list[tuple[LType, str]]:
    """Parameter types; a pointer is `noalias` if no other argument can access its memory."""
    classes = [
        attrs.get("alias")
        for arg, attrs in zip(fn.args, fn.arg_attrs, strict=True)
        if ir.is_pointer(arg.type)
    ]
    result: list[tuple[LType, str]] = []
    for arg, attrs in zip(fn.args, fn.arg_attrs, strict=True):
        alone = None not in classes and classes.count(attrs.get("alias")) == 1
        t = register_type(arg.type)
        result.append((t, "noalias" if t is PTR and alone else ""))
    return result


def _entry_point(kernel: Kernel, program: str) -> None:
    params = [(PTR, ""), (PTR, "noalias"), (I64, ""), (I64, ""), (PTR, "")]
    attributes = kernel.machine.function_attributes
    entry = kernel.module.function(kernel.fn.name, VOID, params, attributes=attributes)
    slots, scratch, first, last, grid = entry.params
    b = Builder(entry)
    args = [_read_slot(b, slots, i, a.type) for i, a in enumerate(kernel.fn.args)]
    extents = [b.load(I32, b.gep(I32, grid, i)) for i in range(3)]
    wide = [b.zext(e, I64) for e in extents]
    large = is_large(b, kernel, wide)
    is_line = b.icmp("eq", b.or_(extents[1], extents[2]), 1)
    with b.loop(first, last) as loop:
        ids = _program_ids(b, loop.index, wide, is_line)
        b.location = kernel.lines.of_call_in(entry) if kernel.lines else None
        b.call(program, VOID, [*args, *ids, *extents, scratch, large])
        b.location = None
    if kernel.plan.streamed:
        # Non-temporal stores are weakly ordered: without a fence, the release by which this thread
        # reports its programs as complete would not order them, and the caller could read old data.
        fenced, done = b.block("fence"), b.block("done")
        b.cond_br(large, fenced, done)
        b.at(fenced)
        b.fence()
        b.br(done)
        b.at(done)
    b.ret()


def _read_slot(b: Builder, slots: V, i: int, type: ir.Type) -> V:
    at = b.gep(I64, slots, i)
    value = b.load(memory_type(type), at)
    return b.icmp("ne", value, 0) if register_type(type) is I1 else value


def _program_ids(b: Builder, number: V, extents: list[V], is_line: V) -> list[V]:
    """The indices along x, y and z of the program with a flattened index.

    In a grid along x only, the divisions are skipped, as the addresses of the first loads would
    depend on them.
    """
    before, divided, known = b.current, b.block("divided"), b.block("known")
    along_x = [b.trunc(number, I32), const(I32, 0), const(I32, 0)]
    b.cond_br(is_line, known, divided)
    b.at(divided)
    x, rest = b.urem(number, extents[0]), b.udiv(number, extents[0])
    found = [b.trunc(v, I32) for v in (x, b.urem(rest, extents[1]), b.udiv(rest, extents[1]))]
    b.br(known)
    b.at(known)
    return b.merge((before, along_x), (divided, found))
