"""Refuses what can't be compiled for these GPUs, in words of the kernel and with its line."""

from __future__ import annotations

import ast
import linecache
import re
from textwrap import dedent

from tilewright.base.diagnostics import CompilationError, Loc
from tilewright.ir.core import Function
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.lowering.registry import lowering_of
from tilewright.lowering.simt.kernel import emitter_of


@compiler_pass("check_kernel")
def check_kernel(fn: Function, ctx: PassContext) -> bool:
    """Raise `CompilationError` for an op that the passes behind this one do not expect.

    Needs: inlined calls, and that the lowering has been imported.  Leaves: everything as it is.
    """
    for op in fn.walk():
        if not (op.terminator or emitter_of(type(op), "cuda") or lowering_of(type(op), "cuda")):
            raise error_at(op.loc, f"{op.name} can't be compiled for NVIDIA GPUs")
    return False


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
