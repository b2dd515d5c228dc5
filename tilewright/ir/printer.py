"""Printer of the text form of the IR: one generic syntax for all ops, which `ir/parser.py` parses.

    func @scale(%0: ptr<fp32> {divisibility=16}, %1: i32) {
      %2 = tile.arange start=0, end=64 : () -> 64xi32
      %3, %4 = control.for %1, %5, %6, [%7, %8] : (i32, i32, i32, fp32, fp32) -> (fp32, fp32) {
        (%9: i32, %10: fp32, %11: fp32)
        control.yield [%10, %11] : (fp32, fp32) -> ()
      }
    }

An absent optional operand is printed as ``_``, variadic operands in brackets. The types of the
operands follow the colon, those of the results the arrow.

A type may be followed by the name of the value's layout, which is defined before the function:

    layout !0 = "register[1] lane[2 4 8 16 32] -> dim0:64"
    func @example(%0: i32) {
      %1 = tile.arange start=0, end=64 : () -> 64xi32 !0
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tilewright.base.diagnostics import Loc
from tilewright.ir.core import Function, Module, Op, Region, Value
from tilewright.ir.types import DType, Pointer, Shared, TensorMemory, Tile, Type, text_of

if TYPE_CHECKING:
    from tilewright.layout.linear import LinearLayout


class _Printer:
    def __init__(self, locations: bool) -> None:
        self.locations = locations
        self.names: dict[Value, str] = {}
        self.layouts: dict[LinearLayout, str] = {}
        self.lines: list[str] = []
        self.locs: list[Loc | None] = []  # for each line, the location of its op
        self.heads: dict[Op, str] = {}  # each op without its regions

    def add(self, line: str, loc: Loc | None) -> None:
        self.lines.append(line)
        self.locs.append(loc)

    def name(self, value: Value) -> str:
        name = self.names.get(value)
        if name is None:
            name = self.names[value] = f"%{len(self.names)}"
        return name

    def type(self, value: Value) -> str:
        text = text_of(value.type)
        if value.layout is None:
            return text
        name = self.layouts.setdefault(value.layout, f"!{len(self.layouts)}")
        return f"{text} {name}"

    def types(self, values: list[Value]) -> str:
        if len(values) == 1:
            return self.type(values[0])
        return "(" + ", ".join([self.type(v) for v in values]) + ")"

    def function(self, fn: Function) -> None:
        self.names.clear()
        start = len(self.lines)
        args = ", ".join(
            f"{self.name(a)}: {text_of(a.type)}{_attr_dict(attrs)}"
            for a, attrs in zip(fn.args, fn.arg_attrs, strict=True)
        )
        results = f" -> {_types(fn.result_types)}" if fn.result_types else ""
        attrs = f" attributes{_attr_dict(fn.attrs)}" if fn.attrs else ""
        self.add(f"func @{fn.name}({args}){results}{attrs} {{{self.loc(fn.loc)}", fn.loc)
        for op in fn.body:
            self.op(op, "  ")
        self.add("}", None)
        self.lines[start:start] = [f'layout {n} = "{layout}"' for layout, n in self.layouts.items()]
        self.locs[start:start] = [None] * len(self.layouts)
        self.layouts.clear()

    def loc(self, loc: Loc | None) -> str:
        if not self.locations or loc is None:
            return ""
        caller = f" from{self.loc(loc.caller)}" if loc.caller else ""
        return f' loc("{loc.file}":{loc.line}:{loc.column} in {loc.function or "_"}{caller})'

    def op(self, op: Op, indent: str) -> None:
        results = ", ".join([self.name(r) for r in op.results])
        head = f"{indent}{results} = {op.name}" if results else f"{indent}{op.name}"
        fields = ", ".join(self.fields(op))
        types = self.types(op.operands)
        outs = self.types(op.results)
        line = f"{head} {fields} : {types} -> {outs}" if fields else f"{head} : {types} -> {outs}"
        self.heads[op] = line.lstrip()
        if not op.regions:
            self.add(line + self.loc(op.loc), op.loc)
            return
        self.add(f"{line}{self.loc(op.loc)} {{", op.loc)
        for i, region in enumerate(op.regions):
            if i:
                self.add(f"{indent}}} {{", op.loc)
            self.region(region, indent + "  ", op.loc)
        self.add(f"{indent}}}", op.loc)

    def region(self, region: Region, indent: str, loc: Loc | None) -> None:
        if region.args:
            args = ", ".join(f"{self.name(a)}: {self.type(a)}" for a in region.args)
            self.add(f"{indent}({args})", loc)
        for op in region:
            self.op(op, indent)

    def fields(self, op: Op) -> list[str]:
        parts: list[str] = []
        start = 0
        for f in op.fields:
            if f.kind == "attr":
                parts.append(f"{f.name}={attr_text(getattr(op, f.name))}")
            elif f.kind != "region":
                count = op.spans[f.position]
                names = [self.name(v) for v in op.operands[start : start + count]]
                start += count
                if f.kind == "variadic":
                    parts.append(f"[{', '.join(names)}]")
                else:
                    parts.append(names[0] if names else "_")
        return parts


def attr_text(value: Any) -> str:
    """The text form of an attribute's value."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else {"inf": "+inf"}.get(s := str(value), s)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, DType | Pointer | Tile | Shared | TensorMemory):
        return text_of(value)
    if isinstance(value, tuple):
        return "(" + "".join(attr_text(v) + ", " for v in value).rstrip() + ")"
    raise TypeError(f"{value!r} can't be an attribute")


def _attr_dict(attrs: dict[str, Any]) -> str:
    if not attrs:
        return ""
    return " {" + ", ".join(f"{k}={attr_text(v)}" for k, v in sorted(attrs.items())) + "}"


def _types(types: list[Type]) -> str:
    if len(types) == 1:
        return text_of(types[0])
    return "(" + ", ".join([text_of(t) for t in types]) + ")"


def print_function(fn: Function, *, locations: bool = False) -> str:
    """The text of one function."""
    printer = _Printer(locations)
    printer.function(fn)
    return "\n".join(printer.lines) + "\n"


def printed_parts(fn: Function) -> tuple[dict[Op, str], dict[Value, str]]:
    """The printed form of each op of a function, without its regions, and the name of each value;
    for reports about the function."""
    printer = _Printer(False)
    printer.function(fn)
    return printer.heads, printer.names


def print_module(module: Module, *, locations: bool = False) -> str:
    """The text of all functions, the entry first.

    Args:
        locations: also print each op's source location.
    """
    return "\n".join(print_function(f, locations=locations) for f in module.functions.values())


def located_lines(module: Module) -> list[tuple[str, Loc | None]]:
    """The lines of `print_module`, each with the source location of its op."""
    result: list[tuple[str, Loc | None]] = []
    for function in module.functions.values():
        printer = _Printer(False)
        printer.function(function)
        result += [("", None)] if result else []
        result += zip(printer.lines, printer.locs, strict=True)
    return result
