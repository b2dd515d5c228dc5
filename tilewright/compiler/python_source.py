"""Tile IR as the Python text of a kernel, which compiles to the same tile IR.

    print(python_source(module))

Used to read derived kernels. The text is that of a module: the imports, the combine functions of
reductions and scans, and the kernel. The IR is expected as the tile passes leave it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

from tilewright.ir.core import Function, Module, Op, Region, Value
from tilewright.ir.types import (
    FP16,
    FP32,
    FP64,
    I32,
    I64,
    DType,
    Type,
    element_of,
    is_pointer,
    shape_of,
    text_of,
)
from tilewright.ops import arith, marks, memory, reduce, shape
from tilewright.ops import math as math_ops
from tilewright.ops.atomic import AtomicRMW
from tilewright.ops.control import (
    Barrier,
    Condition,
    For,
    If,
    NumPrograms,
    ProgramId,
    While,
    Yield,
)
from tilewright.ops.debug import Assert
from tilewright.ops.dot import Dot
from tilewright.ops.histogram import Histogram
from tilewright.ops.sort import Sort

HEAD = "import tilewright as tw\nimport tilewright.language as tl\n"
LONGEST = 60  # characters of an expression that is not given a name
_SYMBOLS: Mapping[type[Op], str] = {
    arith.Add: "+", arith.Sub: "-", arith.Mul: "*", arith.IntDiv: "//", arith.Rem: "%",
    arith.And: "&", arith.Or: "|", arith.Xor: "^", arith.Shl: "<<", arith.Shr: ">>",
}  # fmt: skip
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
FUNCTIONS: dict[type[Op], str] = {
    math_ops.Exp: "exp", math_ops.Exp2: "exp2", math_ops.Log: "log", math_ops.Log2: "log2",
    math_ops.Sin: "sin", math_ops.Cos: "cos", math_ops.Erf: "erf", math_ops.Floor: "floor",
    math_ops.Ceil: "ceil", arith.Abs: "abs", marks.StopGradient: "stop_gradient",
    arith.MulHi: "umulhi", arith.Fma: "fma", shape.Join: "join", shape.Split: "split",
    math_ops.Tan: "extra.libdevice.tan",
    math_ops.Tanh: "extra.libdevice.tanh", math_ops.Log1p: "extra.libdevice.log1p",
    math_ops.Log10: "extra.libdevice.log10", math_ops.Expm1: "extra.libdevice.expm1",
    math_ops.Rint: "extra.libdevice.rint", math_ops.Trunc: "extra.libdevice.trunc",
}  # fmt: skip


class NoSourceError(ValueError):
    """An op that the language has no spelling for."""


def python_source(module: Module) -> str:
    """The text of a module with one function, the kernel.

    Raises:
        NoSourceError: an op has no spelling in the language.
    """
    fn = module.entry
    helpers: dict[str, str] = {}
    kernel = _Writer(helpers).kernel(fn)
    functions = [f"@tw.jit\ndef {name}{text}" for text, name in helpers.items()]
    return "\n\n".join([HEAD, *[f"{text}\n" for text in functions], f"@tw.jit\n{kernel}\n"])


class _Writer:
    """Writes one function.

    Args:
        helpers: the names of combine functions, by their text without the name.
    """

    def __init__(self, helpers: dict[str, str]) -> None:
        self._helpers = helpers
        self._names: dict[Value, str] = {}
        self._lines: list[str] = []
        self._indent = "    "
        self._count = 0

    def kernel(self, fn: Function) -> str:
        """The text of a function."""
        names = [_parameter(name) for name in fn.arg_names]
        self._names.update(zip(fn.args, names, strict=True))
        self._region(fn.body)
        facts = [f"    # {n}: {text_of(a.type)}" for n, a in zip(names, fn.args, strict=True)]
        parameters = _wrapped(f"def {fn.name}(", names)
        return "\n".join([parameters, *facts, *(self._lines or ["    pass"])])

    def _line(self, text: str) -> None:
        self._lines.append(f"{self._indent}{text}")

    def _new_name(self, value: Value) -> str:
        self._count += 1
        kind = "at" if value.type == I32 or element_of(value.type) == I32 else "x"
        if is_pointer(element_of(value.type)):
            kind = "ptr"
        name = f"{kind}{self._count}"
        self._names[value] = name
        return name

    # -- statements -------------------------------------------------------------------------------

    def _region(self, region: Region) -> None:
        for op in region:
            if op.terminator:
                break
            self._op(op)

    def _nested(self, write: Callable[[], None]) -> None:
        before, self._indent = len(self._lines), self._indent + "    "
        write()
        if len(self._lines) == before:
            self._line("pass")
        self._indent = self._indent[:-4]

    def _op(self, op: Op) -> None:
        match op:
            case arith.Constant():
                pass
            case For():
                self._for(op)
            case While():
                self._while(op)
            case If():
                self._if(op)
            case memory.Store():
                rest = self._options(op, cache="cache_modifier", evict="eviction_policy")
                self._line(f"tl.store({self._bare(op.ptr)}, {self._bare(op.value)}{rest})")
            case AtomicRMW() if op.kind == "add":
                rest = self._options(op)
                text = f"tl.atomic_add({self._bare(op.ptr)}, {self._bare(op.value)}{rest}, "
                text += f"sem={op.sem!r}, scope={op.scope!r})"
                self._line(f"{self._new_name(op.result)} = {text}" if op.result.users else text)
            case Barrier():
                self._line("tl.debug_barrier()")
            case Assert():
                self._line(f"tl.device_assert({self._of(op.condition)}, {op.message!r})")
            case _:
                self._value(op)

    def _value(self, op: Op) -> None:
        """An op with results: a statement, unless it is part of an expression."""
        text = self._expression(op)
        if len(op.results) == 1 and _is_part(op) and len(text) <= LONGEST:
            self._names[op.result] = text
            return
        names = ", ".join(self._new_name(r) for r in op.results)
        self._line(f"{names} = {_bare(text)}")

    def _for(self, op: For) -> None:
        carried = self._carried(op.inits)
        counter = self._new_name(op.body.args[0])
        bounds = ", ".join(self._number(v) for v in (op.start, op.stop, op.step))
        more = f", num_stages={op.num_stages}" if op.num_stages else ""
        more += f", loop_unroll_factor={op.unroll}" if op.unroll else ""
        for hint in op.hints:
            name, sign, number = hint.partition("=")
            more += f", {name}={number if sign else True}"
        self._line(f"for {counter} in tl.range({bounds}{more}):")
        self._names.update(zip(op.body.args[1:], carried, strict=True))
        self._nested(lambda: self._body(op.body, carried))
        self._names.update(zip(op.results, carried, strict=True))

    def _while(self, op: While) -> None:
        end = op.before.terminator
        assert isinstance(end, Condition)
        if end.values != op.before.args:
            raise NoSourceError("the condition of a while loop passes on other values")
        carried = self._carried(op.inits)
        for values in (op.before.args, op.body.args, op.results):
            self._names.update(zip(values, carried, strict=True))
        for inner in op.before:
            if not inner.terminator and not isinstance(inner, arith.Constant):
                self._names[inner.result] = self._expression(inner)
        self._line(f"while {self._bare(end.condition)}:")
        self._nested(lambda: self._body(op.body, carried))

    def _carried(self, inits: Sequence[Value]) -> list[str]:
        """Name the carried values of a loop, and initialise them."""
        names: list[str] = []
        for init in inits:
            self._count += 1
            names.append(f"c{self._count}")
            self._line(f"{names[-1]} = {self._bare(init)}")
        return names

    def _body(self, region: Region, carried: Sequence[str]) -> None:
        self._region(region)
        if carried:
            following = ", ".join(self._bare(v) for v in region.terminator.operands)
            self._line(f"{', '.join(carried)} = {following}")

    def _if(self, op: If) -> None:
        results = [self._new_name(r) for r in op.results]
        for region, head in ((op.then, f"if {self._bare(op.condition)}:"), (op.otherwise, "else:")):
            if region is op.then or results or not isinstance(region.first, Yield):
                self._line(head)

                def branch(region: Region = region) -> None:
                    self._region(region)
                    for name, value in zip(results, region.terminator.operands, strict=True):
                        self._line(f"{name} = {self._bare(value)}")

                self._nested(branch)

    # -- expressions ------------------------------------------------------------------------------

    def _of(self, value: Value) -> str:
        """A value, as an operand."""
        if isinstance(value.op, arith.Constant):
            return _constant(value)
        return self._names[value]

    def _bare(self, value: Value) -> str:
        """The text of a value in a context that needs no parentheses."""
        return _bare(self._of(value))

    def _number(self, value: Value) -> str:
        """A bound of a loop, as an i32 literal if it is a constant."""
        if isinstance(value.op, arith.Constant) and value.type == I32:
            return repr(value.op.value)
        return self._of(value)

    def _side(self, value: Value, other: Value) -> str:
        """The text of an operand of a binary operator; a literal takes the type of the other
        operand."""
        constant = value.op
        is_literal = isinstance(constant, arith.Constant) and not isinstance(
            other.op, arith.Constant
        )
        if is_literal and element_of(value.type) in (I32, I64, FP32, FP64):
            assert isinstance(constant, arith.Constant)
            return _literal(constant.value)
        return self._of(value)

    def _sides(self, lhs: Value, rhs: Value) -> str:
        """Two arguments of one type."""
        return f"{_bare(self._side(lhs, rhs))}, {_bare(self._side(rhs, lhs))}"

    def _options(self, op: Op, **names: str) -> str:
        """The keywords of a memory access."""
        mask: Value | None = getattr(op, "mask", None)
        text = f", mask={self._bare(mask)}" if mask is not None else ""
        for attribute, keyword in names.items():
            if getattr(op, attribute):
                text += f", {keyword}={getattr(op, attribute)!r}"
        return text

    def _expression(self, op: Op) -> str:
        symbol, function = _SYMBOLS.get(type(op)), FUNCTIONS.get(type(op))
        if isinstance(op, math_ops.FastFunction) and op.fast:
            function = f"extra.libdevice.fast_{op.name.removeprefix('math.')}f"
        if symbol is not None:
            lhs, rhs = op.operands
            return f"({self._side(lhs, rhs)} {symbol} {self._side(rhs, lhs)})"
        if function is not None:
            return f"tl.{function}({', '.join(self._bare(v) for v in op.operands)})"
        return self._arithmetic(op) or self._shape(op) or self._memory(op)

    def _arithmetic(self, op: Op) -> str:
        match op:
            case arith.Div(lhs, rhs):
                if op.ieee:
                    return f"tl.div_rn({self._of(lhs)}, {self._of(rhs)})"
                return f"({self._side(lhs, rhs)} / {self._side(rhs, lhs)})"
            case arith.Cmp(lhs, rhs, predicate):
                sides = self._side(lhs, rhs), self._side(rhs, lhs)
                return f"({sides[0]} {_COMPARISONS[predicate]} {sides[1]})"
            case arith.Select(condition, a, b):
                return f"tl.where({self._bare(condition)}, {self._sides(a, b)})"
            case arith.Max(lhs, rhs) | arith.Min(lhs, rhs):
                name = "maximum" if isinstance(op, arith.Max) else "minimum"
                nan = ", propagate_nan=tl.PropagateNan.ALL" if op.propagate_nan else ""
                return (
                    f"tl.{name}({_bare(self._side(lhs, rhs))}, {_bare(self._side(rhs, lhs))}{nan})"
                )
            case arith.Neg(src):
                return f"(-{self._of(src)})"
            case arith.Cast(src, to) if op.rounding in ("rtne", "rtz"):
                down = ', fp_downcast_rounding="rtz"' if op.rounding == "rtz" else ""
                return f"{self._of(src)}.to({_dtype(to)}{down})"
            case arith.Bitcast(src) if not is_pointer(element_of(src.type)):
                return f"{self._of(src)}.to({_dtype(element_of(op.result.type))}, bitcast=True)"
            case math_ops.Sqrt(src) | math_ops.Rsqrt(src):
                name = "rsqrt" if isinstance(op, math_ops.Rsqrt) else "sqrt"
                return f"tl.{name}{'_rn' if getattr(op, 'ieee', False) else ''}({self._bare(src)})"
            case _:
                return ""

    def _shape(self, op: Op) -> str:
        match op:
            case shape.Arange(start, end):
                return f"tl.arange({start}, {end})"
            case shape.Splat(src) | shape.Broadcast(src):
                return f"tl.broadcast_to({self._bare(src)}, {list(shape_of(op.result.type))})"
            case shape.ExpandDims(src, axis):
                return f"tl.expand_dims({self._bare(src)}, {axis})"
            case shape.Reshape(src):
                return f"tl.reshape({self._bare(src)}, {list(shape_of(op.result.type))})"
            case shape.Permute(src, order):
                return f"tl.permute({self._bare(src)}, {list(order)})"
            case shape.Flip(src, axis):
                return f"tl.flip({self._bare(src)}, {axis})"
            case shape.Cat(lhs, rhs, axis):
                return f"tl.cat({self._bare(lhs)}, {self._bare(rhs)}, dim={axis})"
            case Histogram(src, mask, bins):
                more = f", mask={self._bare(mask)}" if mask is not None else ""
                return f"tl.histogram({self._bare(src)}, {bins}{more})"
            case Sort(src, descending, merge) if not merge:
                return f"tl.sort({self._bare(src)}, descending={descending})"
            case shape.Gather(src, index, axis):
                return f"tl.gather({self._of(src)}, {self._of(index)}, {axis})"
            case reduce.Reduce() | reduce.Scan():
                name = "associative_scan" if isinstance(op, reduce.Scan) else "reduce"
                values = ", ".join(self._bare(v) for v in op.srcs)
                values = values if len(op.srcs) == 1 else f"({values})"
                more = ", reverse=True" if isinstance(op, reduce.Scan) and op.reverse else ""
                return f"tl.{name}({values}, {op.axis}, {self._combine(op)}{more})"
            case _:
                return ""

    def _memory(self, op: Op) -> str:
        match op:
            case ProgramId(axis):
                return f"tl.program_id({axis})"
            case NumPrograms(axis):
                return f"tl.num_programs({axis})"
            case memory.AddPtr(ptr, offset):
                return f"({self._of(ptr)} + {self._of(offset)})"
            case memory.Load():
                rest = self._options(op, cache="cache_modifier", evict="eviction_policy")
                if op.other is not None:
                    rest += f", other={self._of(op.other)}"
                rest += ", volatile=True" if op.volatile else ""
                return f"tl.load({self._bare(op.ptr)}{rest})"
            case Dot(lhs, rhs, acc):
                text = f"tl.dot({self._of(lhs)}, {self._of(rhs)}, {self._of(acc)}"
                if element_of(acc.type) == FP16:
                    text += ", out_dtype=tl.float16"
                return f"{text}, input_precision={op.precision!r})"
            case _:
                raise NoSourceError(f"the language has no spelling for {op.name}")

    def _combine(self, op: reduce.Reduce | reduce.Scan) -> str:
        """The name of a combine function, which is written once."""
        inner = _Writer(self._helpers)
        args = op.combine_region.args
        names = [f"{'a' if i < len(args) // 2 else 'b'}{i % (len(args) // 2)}"
                 for i in range(len(args))]  # fmt: skip
        inner._names.update(zip(args, names, strict=True))
        inner._region(op.combine_region)
        results = ", ".join(inner._bare(v) for v in op.combine_region.terminator.operands)
        lines = [f"({', '.join(names)}):", *inner._lines, f"    return {results}"]
        text = "\n".join(lines)
        return self._helpers.setdefault(text, f"combine{len(self._helpers)}")


def _is_part(op: Op) -> bool:
    """Whether an op is written where its only use is, in the same region."""
    users = list(op.result.users)
    return (
        op.elementwise
        and len(users) == 1
        and op.result.users[users[0]] == 1
        and users[0].parent is op.parent
        and not isinstance(users[0], For | While | If)
    )


def _bare(text: str) -> str:
    """An expression without parentheses around all of it."""
    depth = 0
    for i, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return text[1:-1] if i == len(text) - 1 and text.startswith("(") else text
    return text


def _parameter(name: str) -> str:
    """The name of an argument, such as "0.1_tape", as a name of Python."""
    parts = re.sub(r"\W", "_", name)
    return parts if parts.isidentifier() else "_".join(reversed(parts.rsplit("_", 1)))


def _wrapped(head: str, names: Sequence[str]) -> str:
    line = f"{head}{', '.join(names)}):"
    if len(line) <= 100:
        return line
    return head + "\n    " + ",\n    ".join(names) + ",\n):"


def _dtype(type: Type) -> str:
    element = element_of(type)
    if not isinstance(element, DType):
        raise NoSourceError(f"a value of type {text_of(type)} is converted")
    name = element.name
    if element.is_floating():
        name = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}.get(
            element.short, name
        )
    return f"tl.{name}"


def _literal(number: bool | float) -> str:
    if isinstance(number, float) and not math.isfinite(number):
        return f'float("{number}")'
    return f"({number!r})" if number < 0 else repr(number)


def _constant(value: Value) -> str:
    assert isinstance(value.op, arith.Constant)
    lengths = list(shape_of(value.type))
    return f"tl.full({lengths}, {_literal(value.op.value)}, {_dtype(value.type)})"
