"""A module of tile IR as TTIR."""

from __future__ import annotations

from tilewright.ir.core import Function, Module
from tilewright_triton.ttir import arith, atomic, control, dot, math, memory, reduce, shape
from tilewright_triton.ttir.types import location_text, type_text
from tilewright_triton.ttir.writer import Ref, Writer
from tilewright_triton.vendors import Vendor

ATTRIBUTES = "divisibility", "pointer_range"
"""The properties of arguments that TTIR has, by their names in both."""

REGISTERED = arith, atomic, control, dot, math, memory, reduce, shape


def print_ttir(module: Module, vendor: Vendor, *, locations: bool = False) -> str:
    """The text of a kernel, which the parser of Triton reads.

    The module has one function, without calls, and all extents of tiles are powers of two
    (`passes/pad_tiles`). Kernels that do not use what MLIR leaves undefined have the results that
    tile IR defines, but for the order in which reductions and products add up.

    Args:
        vendor: the names of functions of the back end.
        locations: also print each op's source location.

    Raises:
        CompilationError: at the line of an op that TTIR has no equivalent of.
    """
    fn = module.entry
    w = Writer(vendor)
    args = _arguments(w, fn)
    for op in fn.body:
        w.emit(op)
    head = f"tt.func public @{fn.name}({args}) attributes {{noinline = false}} {{"
    body = "\n".join(s.text(locations) for s in w.statements)
    end = location_text(fn.loc) if locations else ""
    return f"module {{\n  {head}\n{body}\n  }}{end}\n}}\n"


def _arguments(w: Writer, fn: Function) -> str:
    found: list[str] = []
    for value, attributes in zip(fn.args, fn.arg_attrs, strict=True):
        ref = Ref(f"%arg{value.index}", value.type)
        w.bind(value, ref)
        known = [f"tt.{n} = {attributes[n]} : i32" for n in ATTRIBUTES if attributes.get(n, 1) > 1]
        listed = f" {{{', '.join(known)}}}" if known else ""
        found.append(f"{ref.name}: {type_text(value.type)}{listed}")
    return ", ".join(found)
