"""The base class of the builder: its position, and instructions that compute on values.

`lowering.emit` adds memory, calls and control flow; its `Builder` is the class to use.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

from tilewright.lowering.llvm_module import Block, Function
from tilewright.lowering.llvm_values import (
    I1,
    I64,
    PTR,
    LType,
    Operand,
    V,
    const,
    like,
    poison,
    vector,
    wrap,
)

T = TypeVar("T")


class _ClosedLines(list[str]):
    """The lines of a closed block, to which appending is an error."""

    def append(self, object: str, /) -> None:
        raise ValueError(f"instruction after a terminator: {object.strip()}")


_CLOSED = _ClosedLines()

_COMPARE: dict[str, Callable[[int, int, int], bool]] = {
    "eq": lambda a, b, _: a == b,
    "ne": lambda a, b, _: a != b,
    "slt": lambda a, b, _: a < b,
    "sle": lambda a, b, _: a <= b,
    "sgt": lambda a, b, _: a > b,
    "sge": lambda a, b, _: a >= b,
    "ult": lambda a, b, m: a & m < b & m,
    "ule": lambda a, b, m: a & m <= b & m,
    "ugt": lambda a, b, m: a & m > b & m,
    "uge": lambda a, b, m: a & m >= b & m,
}
_FCMP = frozenset(
    (*(o + c for o in "ou" for c in ("eq", "ne", "lt", "le", "gt", "ge")), "ord", "uno")
)


@lru_cache(256)
def _mask_text(mask: tuple[int, ...]) -> str:
    """The mask of a shuffle."""
    lanes = ", ".join([f"i32 {m}" if m >= 0 else "i32 poison" for m in mask])
    return f"<{len(mask)} x i32> <{lanes}>"


OwnCast = Callable[[Any, V, str, str], "V | None"]
"""A target's own conversions between floats: (builder, value, from, to) -> result or None.

The types are named as in the language, such as ``"bf16"``; floats are rounded to nearest even, and
fp8 saturates.
"""

OwnScale = Callable[[Any, V, V], V]
"""A target's instruction for x * 2**floor(y), rounded once: (builder, x, y) -> result.

y is any float. If it is infinite and x is NaN, the result is 2**y, which is the value of an
exponential whose argument reduction overflowed.
"""


class ValueBuilder:
    """The base of `emit.Builder`, which documents attributes and operands.

    It has the position, the fast-math flags, and the instructions that compute on values:
    arithmetic, comparison, conversion, and permutation of lanes.
    """

    __slots__ = (
        "_fast", "_known", "_lines", "current", "flag_text", "float_fence", "function", "has_fma",
        "location", "module", "own_cast", "own_scale", "rounds_to_bf16", "saturates_vectors",
    )  # fmt: skip

    def __init__(
        self,
        function: Function,
        has_fma: bool = True,
        fast_flags: str = "",
        rounds_to_bf16: bool = False,
    ) -> None:
        self.function = function
        self.module = function.module
        self.has_fma = has_fma
        self.own_cast: OwnCast | None = None
        self.own_scale: OwnScale | None = None
        self.float_fence = "llvm.arithmetic.fence"
        self.rounds_to_bf16 = rounds_to_bf16
        self.saturates_vectors = True
        self.location: str | None = None
        self.fast_flags = fast_flags
        self._lines: list[str] = _CLOSED
        self._known: dict[Hashable, Any] = {}
        self.current = function.entry
        self.at(function.entry)

    # Position and flags -----------------------------------------------------------------------

    @property
    def fast_flags(self) -> str:
        return self.flag_text

    @fast_flags.setter
    def fast_flags(self, flags: str) -> None:
        self.flag_text = flags
        self._fast = f"{flags} " if flags else ""

    @contextmanager
    def flags(self, fast_flags: str) -> Generator[None]:
        """Use other fast-math flags within; ``flags("")`` for code that depends on rounding."""
        saved = self.flag_text
        self.fast_flags = fast_flags
        try:
            yield
        finally:
            self.fast_flags = saved

    @contextmanager
    def located(self, location: str) -> Generator[None]:
        """Attach another location to the instructions within."""
        saved, self.location = self.location, location
        try:
            yield
        finally:
            self.location = saved

    def block(self, hint: str = "b") -> Block:
        """A new block, which is added to the function when the builder first moves to it."""
        return Block(self.function, hint)

    def at(self, block: Block) -> Block:
        """Append to the end of `block` from now on; returns it."""
        block.place()
        self._known = {}
        self.current = block
        self._lines = _CLOSED if block.closed else block.lines
        return block

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result of `make`, memoised by a key while the builder stays in a block: registers of
        an op share common subexpressions. LLVM would find them, too, at the cost of parsing."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    # Emission ---------------------------------------------------------------------------------

    def _dbg(self) -> str:
        return f", !dbg {self.location}" if self.location is not None else ""

    def _value(self, instruction: str, type: LType) -> V:
        name = f"%v{self.function.next_serial()}"
        self.function.types[name] = type
        if self.location is None:
            self._lines.append(f"  {name} = {instruction}")
        else:
            self._lines.append(f"  {name} = {instruction}, !dbg {self.location}")
        return V(name, type)

    def _effect(self, instruction: str) -> None:
        self._lines.append(f"  {instruction}{self._dbg()}")

    def _terminate(self, instruction: str) -> None:
        self._effect(instruction)
        self.current.closed = True
        self._lines = _CLOSED

    # Arithmetic on integers -------------------------------------------------------------------

    @staticmethod
    def _pair(name: str, a: Operand, b: Operand) -> tuple[V, V]:
        if not isinstance(a, V):
            if not isinstance(b, V):
                raise TypeError(f"{name} of two Python numbers has no type")
            a = const(b.type, a)
        elif not isinstance(b, V):
            b = const(a.type, b)
        if a.type is not b.type:
            raise TypeError(f"{name} of different types: {a!r}, {b!r}")
        return a, b

    def _int(self, name: str, a: V, b: V, flags: str = "") -> V:
        if not a.type.is_int:
            raise TypeError(f"{name} takes integers, not {a!r}")
        flags = f"{flags} " if flags else ""
        return self._value(f"{name} {flags}{a.type.text} {a.text}, {b.text}", a.type)

    def add(self, a: Operand, b: Operand, flags: str = "") -> V:
        """Integer a + b; `flags` such as ``"nsw"``. ``x + 0`` is x."""
        a, b = self._pair("add", a, b)
        if b.number == 0:
            return a
        if a.number == 0:
            return b
        if a.number is not None and b.number is not None:
            return const(a.type, a.number + b.number)
        result = self._int("add", a, b, flags)
        if b.number is not None:
            rest, number = a.parts or (a, 0)
            result.parts = rest, number + b.number
        return result

    def sub(self, a: Operand, b: Operand, flags: str = "") -> V:
        """Integer a - b. ``x - 0`` is x."""
        a, b = self._pair("sub", a, b)
        if b.number == 0:
            return a
        if a.number is not None and b.number is not None:
            return const(a.type, a.number - b.number)
        return self._int("sub", a, b, flags)

    def mul(self, a: Operand, b: Operand, flags: str = "") -> V:
        """Integer a * b. ``x * 1`` is x, ``x * 0`` is 0."""
        a, b = self._pair("mul", a, b)
        if a.number is not None:
            a, b = b, a
        if b.number == 1 and b.type.bits > 1:
            return a
        if b.number == 0:
            return b
        if a.number is not None and b.number is not None:
            return const(a.type, a.number * b.number)
        return self._int("mul", a, b, flags)

    def _divide(self, name: str, a: Operand, b: Operand) -> V:
        """Folds unless the instruction is undefined: division by zero, INT_MIN / -1."""
        a, b = self._pair(name, a, b)
        signed, remainder = name[0] == "s", name.endswith("rem")
        if b.number == 1 and b.type.bits > 1:
            return const(a.type, 0) if remainder else a
        if a.number is not None and b.number and not (signed and b.number == -1):
            x, y = a.number, b.number
            if not signed:
                ones = (1 << a.type.bits) - 1
                x, y = x & ones, y & ones
            quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
            return const(a.type, x - quotient * y if remainder else quotient)
        return self._int(name, a, b)

    def sdiv(self, a: Operand, b: Operand) -> V:
        """Signed quotient, truncated; undefined for b = 0 and for the overflow MIN / -1."""
        return self._divide("sdiv", a, b)

    def udiv(self, a: Operand, b: Operand) -> V:
        """Unsigned quotient; undefined for b = 0."""
        return self._divide("udiv", a, b)

    def srem(self, a: Operand, b: Operand) -> V:
        """Signed remainder, with the sign of a."""
        return self._divide("srem", a, b)

    def urem(self, a: Operand, b: Operand) -> V:
        """Unsigned remainder."""
        return self._divide("urem", a, b)

    def _bitwise(
        self,
        name: str,
        operands: tuple[Operand, Operand],
        fold: Callable[[int, int], int],
        identity: int,
        absorbing: int | None = None,
    ) -> V:
        """A commutative operation: with `identity` it is the other operand, with `absorbing` that
        constant itself."""
        a, b = self._pair(name, *operands)
        if a.number is not None:
            a, b = b, a
        if b.number is None:
            return self._int(name, a, b)
        if a.number is not None:
            return const(a.type, fold(a.number, b.number))
        if b.number == wrap(b.type.bits, identity):
            return a
        if absorbing is not None and b.number == wrap(b.type.bits, absorbing):
            return b
        return self._int(name, a, b)

    def and_(self, a: Operand, b: Operand) -> V:
        """Bitwise and. ``x & 0`` is 0, ``x & ~0`` is x."""
        return self._bitwise("and", (a, b), operator.and_, identity=-1, absorbing=0)

    def or_(self, a: Operand, b: Operand) -> V:
        """Bitwise or. ``x | 0`` is x, ``x | ~0`` is ~0."""
        return self._bitwise("or", (a, b), operator.or_, identity=0, absorbing=-1)

    def xor(self, a: Operand, b: Operand) -> V:
        """Bitwise exclusive or. ``x ^ 0`` is x."""
        return self._bitwise("xor", (a, b), operator.xor, identity=0)

    def not_(self, a: V) -> V:
        """Bitwise complement."""
        return self.xor(a, -1)

    def neg(self, a: V) -> V:
        """Integer 0 - a."""
        return self.sub(0, a)

    def _shift(self, name: str, a: Operand, b: Operand) -> V:
        a, b = self._pair(name, a, b)
        if b.number == 0:
            return a
        # A shift by the width or more is poison: leave it to LLVM.
        if a.number is not None and b.number is not None and 0 < b.number < a.type.bits:
            if name == "shl":
                return const(a.type, a.number << b.number)
            signed = name == "ashr"
            return const(
                a.type, (a.number if signed else a.number & ((1 << a.type.bits) - 1)) >> b.number
            )
        return self._int(name, a, b)

    def shl(self, a: Operand, b: Operand) -> V:
        """Shift left; poison when b >= bits."""
        return self._shift("shl", a, b)

    def lshr(self, a: Operand, b: Operand) -> V:
        """Shift right, filling with zeros; poison when b >= bits."""
        return self._shift("lshr", a, b)

    def ashr(self, a: Operand, b: Operand) -> V:
        """Shift right, filling with the sign; poison when b >= bits."""
        return self._shift("ashr", a, b)

    # Arithmetic on floats ---------------------------------------------------------------------

    def _float(self, name: str, a: Operand, b: Operand, metadata: str = "") -> V:
        a, b = self._pair(name, a, b)
        if not a.type.is_float:
            raise TypeError(f"{name} takes floats, not {a!r}")
        tail = f", {metadata}" if metadata else ""
        return self._value(f"{name} {self._fast}{a.type.text} {a.text}, {b.text}{tail}", a.type)

    def fadd(self, a: Operand, b: Operand) -> V:
        """Float a + b."""
        return self._float("fadd", a, b)

    def fsub(self, a: Operand, b: Operand) -> V:
        """Float a - b."""
        return self._float("fsub", a, b)

    def fmul(self, a: Operand, b: Operand) -> V:
        """Float a * b."""
        return self._float("fmul", a, b)

    def fdiv(self, a: Operand, b: Operand, metadata: str = "") -> V:
        """Float a / b, correctly rounded unless fast flags or metadata (``"!fpmath !3"``) say
        otherwise."""
        return self._float("fdiv", a, b, metadata)

    def fneg(self, a: V) -> V:
        """The sign bit inverted, of NaN too."""
        return self._value(f"fneg {self._fast}{a.type.text} {a.text}", a.type)

    def fma(self, a: Operand, b: Operand, c: Operand) -> V:
        """a * b + c rounded once, on any target (slow, in software, unless `has_fma`)."""
        return self._multiply_add("llvm.fma", a, b, c)

    def mul_add(self, a: Operand, b: Operand, c: Operand) -> V:
        """a * b + c, rounded once if `has_fma`, else twice."""
        if self.has_fma:
            return self._multiply_add("llvm.fma", a, b, c)
        return self.fadd(self.fmul(a, b), c)

    def _multiply_add(self, name: str, a: Operand, b: Operand, c: Operand) -> V:
        type = next((x.type for x in (a, b, c) if isinstance(x, V)), None)
        if type is None:
            raise TypeError("fma of three Python numbers has no type")
        operands = [x if isinstance(x, V) else const(type, x) for x in (a, b, c)]
        if any(x.type is not type for x in operands):
            raise TypeError(f"fma of different types: {operands}")
        return self._call_value(f"{name}.{type.mangled}", type, operands, self._fast)

    # Comparison and choice --------------------------------------------------------------------

    def icmp(self, predicate: str, a: Operand, b: Operand) -> V:
        """Integer or pointer comparison, lane by lane; `predicate` as in LLVM (``"slt"``)."""
        a, b = self._pair("icmp", a, b)
        if predicate not in _COMPARE:
            raise ValueError(f"icmp has no predicate {predicate!r}")
        if not (a.type.is_int or a.type.is_ptr):
            raise TypeError(f"icmp takes integers or pointers, not {a!r}")
        if a.number is not None and b.number is not None:
            x, y = a.number, b.number
            if a.type.bits == 1 and predicate[0] == "s":  # one bit, signed: true is -1
                x, y = -x, -y
            ones = (1 << a.type.bits) - 1
            return const(like(I1, a.type), _COMPARE[predicate](x, y, ones))
        line = f"icmp {predicate} {a.type.text} {a.text}, {b.text}"
        return self._value(line, like(I1, a.type))

    def fcmp(self, predicate: str, a: Operand, b: Operand) -> V:
        """Float comparison; `predicate` as in LLVM: ``"olt"`` false, ``"ult"`` true for NaN."""
        a, b = self._pair("fcmp", a, b)
        if predicate not in _FCMP:
            raise ValueError(f"fcmp has no predicate {predicate!r}")
        if not a.type.is_float:
            raise TypeError(f"fcmp takes floats, not {a!r}")
        line = f"fcmp {self._fast}{predicate} {a.type.text} {a.text}, {b.text}"
        return self._value(line, like(I1, a.type))

    def select(self, condition: V, a: Operand, b: Operand) -> V:
        """a where the condition is true, else b; a scalar condition selects whole vectors."""
        a, b = self._pair("select", a, b)
        kind = condition.type
        if kind is not I1 and kind is not like(I1, a.type):
            raise TypeError(f"select of {a.type} by a condition of type {kind}")
        if condition.number is not None:
            return a if condition.number else b
        if a.text == b.text:
            return a
        fast = self._fast if a.type.is_float else ""
        line = f"select {fast}{kind.text} {condition.text}, {a!r}, {b!r}"
        return self._value(line, a.type)

    # Conversion -------------------------------------------------------------------------------

    def _cast(self, name: str, value: V, element: LType) -> V:
        """`element` may be given with or without the lanes of the value."""
        type = like(element.element, value.type)
        if element.lanes and element is not type:
            raise TypeError(f"{name} of {value!r} to {element} changes the number of lanes")
        if type is value.type:
            return value
        if value.number is not None and name in ("trunc", "sext", "zext"):
            number = value.number
            if name == "zext":
                number &= (1 << value.type.bits) - 1
            elif name == "sext" and value.type.bits == 1:
                number = -number
            return const(type, number)
        return self._value(f"{name} {value!r} to {type.text}", type)

    def trunc(self, value: V, type: LType) -> V:
        """The low bits of an integer."""
        return self._cast("trunc", value, type)

    def zext(self, value: V, type: LType) -> V:
        """A wider integer, high bits zero."""
        return self._cast("zext", value, type)

    def sext(self, value: V, type: LType) -> V:
        """A wider integer, high bits copies of the sign."""
        return self._cast("sext", value, type)

    def fptrunc(self, value: V, type: LType) -> V:
        """A narrower float, rounded to nearest even."""
        return self._cast("fptrunc", value, type)

    def fpext(self, value: V, type: LType) -> V:
        """A wider float, exactly."""
        return self._cast("fpext", value, type)

    def fptosi(self, value: V, type: LType) -> V:
        """Float to signed integer, truncated; poison when out of range."""
        return self._cast("fptosi", value, type)

    def fptoui(self, value: V, type: LType) -> V:
        """Float to unsigned integer, truncated; poison when out of range."""
        return self._cast("fptoui", value, type)

    def sitofp(self, value: V, type: LType) -> V:
        """Signed integer to float, rounded to nearest even."""
        return self._cast("sitofp", value, type)

    def uitofp(self, value: V, type: LType) -> V:
        """Unsigned integer to float, rounded to nearest even."""
        return self._cast("uitofp", value, type)

    def inttoptr(self, value: V, type: LType = PTR) -> V:
        """The pointer of an address."""
        return self._cast("inttoptr", value, type)

    def ptrtoint(self, value: V, type: LType = I64) -> V:
        """The address of a pointer."""
        return self._cast("ptrtoint", value, type)

    def addrspacecast(self, value: V, type: LType) -> V:
        """The same address as a pointer of another address space."""
        return self._cast("addrspacecast", value, type)

    def bitcast(self, value: V, type: LType) -> V:
        """The same bits as another type of the same size; lanes may change."""
        if type is value.type:
            return value
        if type.bits * max(1, type.lanes) != value.type.bits * max(1, value.type.lanes):
            raise TypeError(f"bitcast of {value!r} to {type} changes the size")
        return self._value(f"bitcast {value!r} to {type.text}", type)

    # Lanes and aggregates ---------------------------------------------------------------------

    def extract(self, v: V, i: V | int) -> V:
        """Lane `i` of a vector."""
        if not v.type.lanes:
            raise TypeError(f"extract takes a vector, not {v!r}")
        if v.number is not None:
            return const(v.type.element, v.number)
        index = const(I64, i) if isinstance(i, int) else i
        return self._value(f"extractelement {v!r}, {index!r}", v.type.element)

    def insert(self, v: V, x: V, i: V | int) -> V:
        """The vector with lane `i` replaced."""
        if x.type is not v.type.element:
            raise TypeError(f"insert of {x!r} into {v!r}")
        index = const(I64, i) if isinstance(i, int) else i
        return self._value(f"insertelement {v!r}, {x!r}, {index!r}", v.type)

    def shuffle(self, a: V, b: V | None, mask: Sequence[int]) -> V:
        """Lane i is lane ``mask[i]`` of a followed by b; -1 leaves it poison; b None is poison."""
        if not a.type.lanes:
            raise TypeError(f"shuffle takes vectors, not {a!r}")
        a, b = self._pair("shuffle", a, b or poison(a.type))
        type = vector(a.type.element, len(mask))
        return self._value(f"shufflevector {a!r}, {b!r}, {_mask_text(tuple(mask))}", type)

    def splat(self, v: V, lanes: int) -> V:
        """The scalar in each of `lanes` lanes; the scalar itself for 0 lanes."""
        if v.type.lanes:
            raise TypeError(f"splat takes a scalar, not {v!r}")
        if not lanes:
            return v
        type = vector(v.type, lanes)
        if v.number is not None:
            return const(type, v.number)
        if v.text[0] not in "%@":
            return V(f"splat ({v!r})" if v.text != "null" else "zeroinitializer", type)
        first = self._value(f"insertelement {type.text} poison, {v!r}, i64 0", type)
        return self.shuffle(first, None, [0] * lanes)

    def extract_value(self, aggregate: V, index: int, type: LType) -> V:
        """Member `index` of a struct or array, which has the given type."""
        return self._value(f"extractvalue {aggregate!r}, {index}", type)

    # Calls ------------------------------------------------------------------------------------

    def _call_value(self, name: str, ret: LType, args: Sequence[V], fast: str = "") -> V:
        if not self.module.defines(name):
            self.module.declare(name, ret, [a.type for a in args])
        written = ", ".join([repr(a) for a in args])
        return self._value(f"call {fast}{ret.text} @{name}({written})", ret)
