"""Refuses what can't be compiled for GPUs, in words of the kernel and with its line."""

from __future__ import annotations

import ast
import linecache
import re
from textwrap import dedent

from tilewright.base.diagnostics import CompilationError, Loc
from tilewright.ir.core import Function
from tilewright.ir.machine import GpuMachine
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import Tile, text_of
from tilewright.lowering.registry import lowering_of
from tilewright.lowering.simt.kernel import emitter_of
from tilewright.ops.dot import Dot

MOST_SUMS = 1024
"""Registers of a thread that the sums of a product may ask for: four times as many as it has. Up to
there the rest is spilled; beyond, code generation takes minutes (LLVM's part grows with the square:
0.6 s for 512 of them, 8.6 s for 2048) for code whose work is spilling."""


@compiler_pass("check_kernel")
def check_kernel(fn: Function, ctx: PassContext) -> bool:
    """Raise `CompilationError` for an op that the passes behind this one do not expect.

    Needs: inlined calls, and that the lowering has been imported.  Leaves: everything as it is.
    """
    target = ctx.gpu.target
    for op in fn.walk():
        if not (op.terminator or emitter_of(type(op), target) or lowering_of(type(op), target)):
            raise error_at(op.loc, f"{op.name} can't be compiled for {ctx.gpu.title}")
        if isinstance(op, Dot):
            _check_sums(op, ctx.gpu)
    return False


def _check_sums(op: Dot, gpu: GpuMachine) -> None:
    """Raise `CompilationError` for a product whose sums are far beyond a program's registers."""
    sums = op.acc.type
    assert isinstance(sums, Tile)
    registers = sums.numel * max(32, sums.element.primitive_bitwidth) // 32
    each = registers // gpu.threads
    if each > MOST_SUMS:
        raise error_at(
            op.loc,
            f"the product, {text_of(sums)}, has {registers} sums: {each} registers of each of "
            f"{gpu.threads} threads, which have {gpu.thread_registers}, and a multiprocessor has "
            f"{gpu.registers}. "
            "Make the tile smaller",
        )


def error_at(loc: Loc | None, message: str) -> CompilationError:
    """The error of a place in a kernel's file, which shows the source from its ``def`` on."""
    if loc is None:
        return CompilationError(None, ast.Pass(lineno=1, col_offset=0), message)
    lines = linecache.getlines(loc.file)[: loc.line]
    start = _definition(lines, loc.function)
    if start is None:
        node = ast.Pass(lineno=loc.line, col_offset=loc.column - 1)
        return CompilationError(None, node, f"{message} ({loc})")
    text = "".join(lines[start:])
    indent = len(text) - len(text.lstrip())
    node = ast.Pass(lineno=loc.line - start, col_offset=max(0, loc.column - 1 - indent))
    return CompilationError(dedent(text), node, message)


def _definition(lines: list[str], function: str) -> int | None:
    """The index of the last line that begins the function's definition; None if none does."""
    pattern = re.compile(rf"\s*def {re.escape(function)}\b")
    found = (i for i in reversed(range(len(lines))) if function and pattern.match(lines[i]))
    return next(found, None)
