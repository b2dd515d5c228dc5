"""Writes LLVM IR as text.

LLVM parses text faster than Python can build an object graph of instructions, so an
instruction here is one formatted line in the list of its block, and a value is a name with
a type. The text is for LLVM 22: opaque pointers, ``splat (T c)`` constants, and masked memory
intrinsics whose alignment is a parameter attribute of the pointer.

    module = Module("example")
    function = module.function("axpy", VOID, [(PTR, "noalias"), (F32, "")])
    b = Builder(function)
    pointer, a = function.params
    with b.loop(0, 64, 16) as loop:
        address = b.gep(F32, pointer, loop.index)
        x = b.load(vector(F32, 16), address, align=64)
        b.store(b.fmul(x, b.splat(a, 16)), address, align=64)
    b.ret()
    text = module.text()

Every builder checks what it can check by identity (types are interned) and raises `TypeError`
or `ValueError`; whatever it lets pass, LLVM's own verifier refuses.
"""

from __future__ import annotations

import math
import struct as _struct
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Literal

# --------------------------------------------------------------------------------------------
# Types
# --------------------------------------------------------------------------------------------


class LType:
    """An LLVM type. Interned: equal types are the same object, so compare with ``is``.

    Attributes:
        text: as LLVM writes it, ``"<16 x float>"``.
        element: type of one lane; the type itself when it is not a vector.
        lanes: lane count of a vector, 0 otherwise.
        bits: bits of one element (a pointer has 64; an array or struct, the sum; void 0).
        is_float, is_int, is_ptr: about the element.
        mangled: as an overload suffix of an intrinsic, ``"v16f32"``.
    """

    __slots__ = ("bits", "element", "is_float", "is_int", "is_ptr", "lanes", "mangled", "text")

    def __init__(self, text: str, kind: str, bits: int, mangled: str) -> None:
        self.text = text
        self.element: LType = self
        self.lanes = 0
        self.bits = bits
        self.is_float = kind == "float"
        self.is_int = kind == "int"
        self.is_ptr = kind == "ptr"
        self.mangled = mangled

    def __repr__(self) -> str:
        return self.text


_TYPES: dict[str, LType] = {}


def _interned(text: str, kind: str, bits: int, mangled: str) -> LType:
    found = _TYPES.get(text)
    if found is None:
        # setdefault is atomic, so two threads that race here still share one object.
        found = _TYPES.setdefault(text, LType(text, kind, bits, mangled))
    return found


def int_type(bits: int) -> LType:
    """The integer type of `bits` bits: ``int_type(7)`` is ``i7``."""
    return _interned(f"i{bits}", "int", bits, f"i{bits}")


def pointer(space: int = 0) -> LType:
    """The pointer type of an address space (0 generic; on GPUs 1 global, 3 shared)."""
    text = f"ptr addrspace({space})" if space else "ptr"
    return _interned(text, "ptr", 64, f"p{space}")


def vector(element: LType, lanes: int) -> LType:
    """The vector of `lanes` of a scalar type: ``vector(F32, 16)`` is ``<16 x float>``."""
    if element.lanes or not (element.is_float or element.is_int or element.is_ptr):
        raise TypeError(f"a vector holds integers, floats or pointers, not {element}")
    if lanes < 1:
        raise ValueError(f"a vector has at least one lane, not {lanes}")
    text = f"<{lanes} x {element.text}>"
    found = _TYPES.get(text)
    if found is not None:
        return found
    made = LType(text, "", element.bits, f"v{lanes}{element.mangled}")
    made.element, made.lanes = element, lanes
    made.is_float, made.is_int, made.is_ptr = element.is_float, element.is_int, element.is_ptr
    return _TYPES.setdefault(text, made)


def like(element: LType, other: LType) -> LType:
    """`element` (a scalar type) with as many lanes as `other` has."""
    return vector(element, other.lanes) if other.lanes else element


def array(element: LType, count: int) -> LType:
    """``[count x element]``, for allocas and globals."""
    text = f"[{count} x {element.text}]"
    bits = count * element.bits * max(1, element.lanes)
    return _interned(text, "array", bits, f"a{count}{element.mangled}")


def struct(*members: LType) -> LType:
    """The literal struct of the members: what cmpxchg and multi-result calls return."""
    text = "{ " + ", ".join(m.text for m in members) + " }"
    bits = sum(m.bits * max(1, m.lanes) for m in members)
    return _interned(text, "struct", bits, "sl_" + "".join(m.mangled for m in members) + "s")


I1, I8, I16, I32, I64, I128 = (int_type(n) for n in (1, 8, 16, 32, 64, 128))
F16 = _interned("half", "float", 16, "f16")
BF16 = _interned("bfloat", "float", 16, "bf16")
F32 = _interned("float", "float", 32, "f32")
F64 = _interned("double", "float", 64, "f64")
PTR = pointer()
VOID = _interned("void", "void", 0, "isVoid")

# --------------------------------------------------------------------------------------------
# Values and constants
# --------------------------------------------------------------------------------------------


class V:
    """An LLVM value: the text that names it (``%v7``, ``@table``, ``4.0``) and its type.

    `number` is the value of an integer constant, or of each lane of a splat of one (signed,
    within the type; a bool is 0 or 1), and None for everything else. Folding reads it.
    """

    __slots__ = ("number", "text", "type")

    def __init__(self, text: str, type: LType, number: int | None = None) -> None:
        self.text = text
        self.type = type
        self.number = number

    def __repr__(self) -> str:
        return f"{self.type.text} {self.text}"


Number = int | float
Operand = V | int | float
"""A value, or a Python number that takes the type of the operand beside it."""

# Significand bits (with the hidden one) and the exponent of the smallest subnormal: IEEE 754
# binary16, bfloat16 (binary32 cut to 16 bits), binary32.
_NARROW_FLOATS = {
    F16: (11, -24, 65504.0),
    BF16: (8, -133, float.fromhex("0x1.fep127")),
    F32: (24, -149, float.fromhex("0x1.fffffep127")),
}
_NAN_BITS = {F16: 0x7E00, BF16: 0x7FC0}


def round_to(type: LType, number: float) -> float:
    """`number` rounded to nearest even in a float type, as a Python float; may overflow to inf."""
    if type.element is F64 or not math.isfinite(number) or number == 0.0:
        return number
    precision, smallest, largest = _NARROW_FLOATS[type.element]
    unit = max(math.frexp(number)[1] - precision, smallest)
    # Scaling by a power of two is exact here, and round() on a float is round-half-even.
    rounded = math.copysign(math.ldexp(round(math.ldexp(number, -unit)), unit), number)
    return rounded if abs(rounded) <= largest else math.copysign(math.inf, number)


def _float_text(type: LType, number: float) -> str:
    number = round_to(type, number)
    if number != number:
        negative = math.copysign(1.0, number) < 0
        if type.bits == 16:
            return f"0x{'H' if type is F16 else 'R'}{_NAN_BITS[type] | negative << 15:04X}"
        return "0xFFF8000000000000" if negative else "0x7FF8000000000000"
    if type is F16:
        return f"0xH{_struct.unpack('<H', _struct.pack('<e', number))[0]:04X}"
    if type is BF16:
        return f"0xR{_struct.unpack('<I', _struct.pack('<f', number))[0] >> 16:04X}"
    return f"0x{_struct.unpack('<Q', _struct.pack('<d', number))[0]:016X}"


def wrap(bits: int, number: int) -> int:
    """`number` modulo 2**bits, as the signed integer of that width (0 or 1 for one bit)."""
    number &= (1 << bits) - 1
    return number - (1 << bits) if bits > 1 and number >> (bits - 1) else number


def _scalar_text(type: LType, number: Number) -> tuple[str, int | None]:
    if type.is_float:
        return _float_text(type, float(number)), None
    if number != int(number):
        raise TypeError(f"{number} is no constant of type {type}")
    if type.is_ptr:
        if number:
            raise ValueError("the only pointer constant is null (0)")
        return "null", None
    wrapped = wrap(type.bits, int(number))
    return (("false", "true")[wrapped] if type is I1 else str(wrapped)), wrapped


def const(type: LType, number: Number) -> V:
    """The constant `number` of a type; in every lane of a vector type.

    Integers wrap to the type; floats are rounded to nearest even and written bit for bit.
    """
    element = type.element
    text, value = _scalar_text(element, number)
    if type.lanes:
        text = (
            "zeroinitializer" if value == 0 or text == "null" else f"splat ({element.text} {text})"
        )
    return V(text, type, value)


def zero(type: LType) -> V:
    """All bits zero, of any first-class type."""
    if type.is_int:
        return const(type, 0)
    if type.is_float and not type.lanes:
        return const(type, 0.0)
    return V("null" if type.is_ptr and not type.lanes else "zeroinitializer", type)


def undef(type: LType) -> V:
    """LLVM's undef; prefer `poison`, LLVM is retiring undef."""
    return V("undef", type)


def poison(type: LType) -> V:
    """LLVM's poison: any use that matters is undefined behaviour."""
    return V("poison", type)


def const_vector(element: LType, numbers: Sequence[Number]) -> V:
    """The constant vector of the given lanes."""
    lanes = ", ".join(f"{element.text} {_scalar_text(element, n)[0]}" for n in numbers)
    return V(f"<{lanes}>", vector(element, len(numbers)))


# --------------------------------------------------------------------------------------------
# Module, function, block
# --------------------------------------------------------------------------------------------


class Module:
    """An LLVM module in the making. `text()` may be taken at any time all blocks are closed."""

    __slots__ = (
        "_attributes", "_declarations", "_functions", "_globals", "_header", "_metadata",
        "_metadata_ids", "_named", "name",
    )  # fmt: skip

    def __init__(self, name: str, triple: str = "", data_layout: str = "") -> None:
        self.name = name
        self._header = [f"; ModuleID = '{name}'"]
        if data_layout:
            self._header.append(f'target datalayout = "{data_layout}"')
        if triple:
            self._header.append(f'target triple = "{triple}"')
        self._attributes: dict[str, str] = {}
        self._declarations: dict[str, str] = {}
        self._functions: dict[str, Function] = {}
        self._globals: dict[str, str] = {}
        self._metadata: list[str] = []
        self._metadata_ids: dict[str, str] = {}
        self._named: dict[str, list[str]] = {}

    def function(
        self,
        name: str,
        ret: LType,
        params: Sequence[tuple[LType, str]],
        attributes: str = "",
        linkage: str = "",
    ) -> Function:
        """Define a function; the result has its `params` as values and an open entry block.

        `params` pairs each type with its parameter attributes (``"noalias align 64"``).
        `attributes` is a function attribute list, kept once however many functions share it.
        `linkage` is all that LLVM writes before the type: linkage and calling convention
        (``"internal"``, ``"ptx_kernel"``). Raises ValueError when the name is taken.
        """
        if name in self._functions or name in self._globals:
            raise ValueError(f"@{name} is defined twice in module {self.name}")
        group = self.attribute_group(attributes)
        made = Function(self, name, ret, params, group, linkage)
        self._functions[name] = made
        return made

    def declare(self, name: str, ret: LType, args: Sequence[LType], attributes: str = "") -> None:
        """Declare an external function once. Raises ValueError if two declarations differ."""
        line = f"declare {ret.text} @{name}({', '.join(a.text for a in args)})"
        if attributes:
            line = f"{line} {self.attribute_group(attributes)}"
        known = self._declarations.setdefault(name, line)
        # A later use that states no attributes agrees with one that does.
        if known != line and not (known.startswith(line + " #") and not attributes):
            raise ValueError(f"@{name} is declared as both\n  {known}\n  {line}")

    def attribute_group(self, attributes: str) -> str:
        """``"#n"`` for a list of function attributes; the empty string for none."""
        if not attributes:
            return ""
        return self._attributes.setdefault(attributes, f"#{len(self._attributes)}")

    def global_constant(
        self, hint: str, element: LType, numbers: Sequence[Number], align: int = 64, space: int = 0
    ) -> V:
        """A private table of numbers; the result points to its first. Equal tables are shared."""
        body = ", ".join(f"{element.text} {_scalar_text(element, n)[0]}" for n in numbers)
        address_space = f"addrspace({space}) " if space else ""
        line = (
            f"private unnamed_addr {address_space}constant [{len(numbers)} x {element.text}] "
            f"[{body}], align {align}"
        )
        for name, known in self._globals.items():
            if known == line:
                return V(f"@{name}", pointer(space))
        name = f"{hint}.{len(self._globals)}"
        self._globals[name] = line
        return V(f"@{name}", pointer(space))

    def global_variable(
        self,
        name: str,
        type: LType,
        initializer: str = "zeroinitializer",
        align: int = 16,
        space: int = 0,
        linkage: str = "internal",
    ) -> V:
        """A mutable global, such as a GPU's shared memory (space 3, initializer ``poison``).

        With ``linkage="external"`` and an empty initializer it is a declaration.
        """
        if name in self._globals or name in self._functions:
            raise ValueError(f"@{name} is defined twice in module {self.name}")
        address_space = f"addrspace({space}) " if space else ""
        value = f"{type.text} {initializer}".rstrip()
        self._globals[name] = f"{linkage} {address_space}global {value}, align {align}"
        return V(f"@{name}", pointer(space))

    def metadata(self, text: str, distinct: bool = False) -> str:
        """The id (``"!4"``) of an unnamed node, written as in LLVM: ``'!{!"name", i32 1}'``.

        Equal nodes share an id unless `distinct`; in a distinct node ``!self`` is its own id.
        """
        if not distinct and text in self._metadata_ids:
            return self._metadata_ids[text]
        node = f"!{len(self._metadata)}"
        if distinct:
            self._metadata.append(f"{node} = distinct {text.replace('!self', node)}")
        else:
            self._metadata.append(f"{node} = {text}")
            self._metadata_ids[text] = node
        return node

    def named_metadata(self, name: str, node: str) -> None:
        """Append a node id to the named metadata ``!name``."""
        self._named.setdefault(name, []).append(node)

    def defines(self, name: str) -> bool:
        """Whether a function of that name is defined here."""
        return name in self._functions

    def text(self) -> str:
        """The module as LLVM assembly. Raises ValueError when a block has no terminator."""
        parts = list(self._header)
        parts += [f"@{name} = {line}" for name, line in self._globals.items()]
        parts += [line for name, line in self._declarations.items() if name not in self._functions]
        parts += [function.text() for function in self._functions.values()]
        parts += [f"attributes {group} = {{ {a} }}" for a, group in self._attributes.items()]
        parts += [f"!{name} = !{{{', '.join(nodes)}}}" for name, nodes in self._named.items()]
        parts += self._metadata
        return "\n".join(parts) + "\n"


class Function:
    """A function of a module: `params` are its parameters, `entry` its first block."""

    __slots__ = (
        "_head",
        "_serial",
        "allocas",
        "blocks",
        "entry",
        "module",
        "name",
        "params",
        "ret",
    )

    def __init__(
        self,
        module: Module,
        name: str,
        ret: LType,
        params: Sequence[tuple[LType, str]],
        attribute_group: str,
        linkage: str,
    ) -> None:
        self.module = module
        self.name = name
        self.ret = ret
        self.params = [V(f"%p{i}", type) for i, (type, _) in enumerate(params)]
        written = ", ".join(
            " ".join(filter(None, (type.text, attributes, f"%p{i}")))
            for i, (type, attributes) in enumerate(params)
        )
        before = f"{linkage} " if linkage else ""
        after = f" {attribute_group}" if attribute_group else ""
        self._head = f"define {before}{ret.text} @{name}({written}){after}"
        self.allocas: list[str] = []
        self._serial = 0
        self.blocks: list[Block] = []
        self.entry = Block(self, "entry")

    @property
    def value(self) -> V:
        """The function's address."""
        return V(f"@{self.name}", PTR)

    def attach(self, metadata: str) -> None:
        """Append to the header, such as ``"!dbg !4"``."""
        self._head = f"{self._head} {metadata}"

    def next_serial(self) -> int:
        """A number that makes a value's or a block's name unique in this function."""
        self._serial += 1
        return self._serial

    def text(self) -> str:
        """The definition as LLVM assembly."""
        parts = [self._head + " {"]
        for block in self.blocks:
            if not block.closed:
                raise ValueError(f"block {block.label} of @{self.name} has no terminator")
            parts.append(f"{block.label}:")
            if block is self.entry:
                parts += self.allocas
            parts += [phi.line() for phi in block.phis]
            parts += block.lines
        parts.append("}")
        return "\n".join(parts)


class Block:
    """A basic block. It takes its place in the function the first time a builder enters it."""

    __slots__ = ("closed", "function", "label", "lines", "phis", "placed")

    def __init__(self, function: Function, hint: str) -> None:
        self.function = function
        self.label = f"{hint}{function.next_serial()}"
        self.lines: list[str] = []
        self.phis: list[Phi] = []
        self.closed = False
        self.placed = False

    def place(self) -> None:
        """Put the block after those placed before it; nothing if it has a place."""
        if not self.placed:
            self.placed = True
            self.function.blocks.append(self)


class Phi:
    """A phi node; add an incoming value for each predecessor of its block."""

    __slots__ = ("_incoming", "_location", "value")

    def __init__(self, value: V, location: str) -> None:
        self.value = value
        self._incoming: list[str] = []
        self._location = location

    def add(self, value: V, block: Block) -> None:
        """`value` arrives when control comes from `block`."""
        if value.type is not self.value.type:
            raise TypeError(f"phi of {self.value.type} cannot take {value!r}")
        self._incoming.append(f"[ {value.text}, %{block.label} ]")

    def line(self) -> str:
        """The instruction. Raises ValueError when nothing was added."""
        if not self._incoming:
            raise ValueError(f"phi {self.value.text} has no incoming value")
        text, type = self.value.text, self.value.type.text
        return f"  {text} = phi {type} {', '.join(self._incoming)}{self._location}"


# --------------------------------------------------------------------------------------------
# Builder
# --------------------------------------------------------------------------------------------


class _ClosedLines(list[str]):
    """Stands for the lines of a closed block: appending says what is wrong."""

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


class Loop:
    """What `Builder.loop` gives: `index` and `carried` inside, `results` after the block."""

    __slots__ = ("_yielded", "carried", "index", "results")

    def __init__(self, index: V, carried: list[V]) -> None:
        self.index = index
        self.carried = carried
        self.results: list[V] = []
        self._yielded: list[V] | None = None

    def yield_(self, values: Sequence[V]) -> None:
        """Give the carried values of the next iteration; call once, at the end of the body."""
        if self._yielded is not None:
            raise ValueError("the loop body has yielded already")
        if [v.type for v in values] != [c.type for c in self.carried]:
            raise TypeError(f"the loop carries {self.carried}, the body yields {list(values)}")
        self._yielded = list(values)

    def yielded(self) -> list[V]:
        """What the body gave. Raises ValueError if it carries values and gave none."""
        if self._yielded is None and self.carried:
            raise ValueError("the loop carries values but its body never yielded")
        return self._yielded or []


class Builder:
    """Appends instructions to the blocks of one function, starting in its entry block.

    Attributes:
        function, module: where it writes.
        current: the block it appends to.
        fast_flags: fast-math flags of the float instructions, such as ``"contract"``.
        location: metadata id of a DILocation (``"!7"``) to attach to each instruction, or None.
        has_fma: whether the target fuses multiply and add in one instruction; `mul_add` and the
            functions of `lowering.math` read it.

    An operand may be a Python number where another operand gives it its type.
    Integer instructions on constants fold, and so do ``x + 0``, ``x * 1`` and the like.
    """

    __slots__ = (
        "_fast", "_lines", "current", "flag_text", "function", "has_fma", "location", "module",
    )  # fmt: skip

    def __init__(self, function: Function, has_fma: bool = True, fast_flags: str = "") -> None:
        self.function = function
        self.module = function.module
        self.has_fma = has_fma
        self.location: str | None = None
        self.fast_flags = fast_flags
        self._lines: list[str] = _CLOSED
        self.current = function.entry
        self.at(function.entry)

    # Where ------------------------------------------------------------------------------------

    @property
    def fast_flags(self) -> str:
        return self.flag_text

    @fast_flags.setter
    def fast_flags(self, flags: str) -> None:
        self.flag_text = flags
        self._fast = f"{flags} " if flags else ""

    @contextmanager
    def flags(self, fast_flags: str) -> Generator[None]:
        """Use other fast-math flags inside; ``flags("")`` for code that needs exact rounding."""
        saved = self.flag_text
        self.fast_flags = fast_flags
        try:
            yield
        finally:
            self.fast_flags = saved

    def block(self, hint: str = "b") -> Block:
        """A new block; it gets its place when the builder first moves to it."""
        return Block(self.function, hint)

    def at(self, block: Block) -> Block:
        """Append to the end of `block` from now on; returns it."""
        block.place()
        self.current = block
        self._lines = _CLOSED if block.closed else block.lines
        return block

    # Emission ---------------------------------------------------------------------------------

    def _dbg(self) -> str:
        return f", !dbg {self.location}" if self.location is not None else ""

    def _value(self, instruction: str, type: LType) -> V:
        name = f"%v{self.function.next_serial()}"
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
        return self._int("add", a, b, flags)

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

    def _divide(self, name: str, a: Operand, b: Operand, flags: str = "") -> V:
        """Folds only what cannot trap: a nonzero divisor, and no INT_MIN / -1."""
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
        return self._int(name, a, b, flags)

    def sdiv(self, a: Operand, b: Operand, flags: str = "") -> V:
        """Signed quotient, truncated; undefined for b = 0 and for the overflow MIN / -1."""
        return self._divide("sdiv", a, b, flags)

    def udiv(self, a: Operand, b: Operand, flags: str = "") -> V:
        """Unsigned quotient; undefined for b = 0."""
        return self._divide("udiv", a, b, flags)

    def srem(self, a: Operand, b: Operand) -> V:
        """Signed remainder, with the sign of a."""
        return self._divide("srem", a, b)

    def urem(self, a: Operand, b: Operand) -> V:
        """Unsigned remainder."""
        return self._divide("urem", a, b)

    def and_(self, a: Operand, b: Operand) -> V:
        """Bitwise and. ``x & 0`` is 0, ``x & ~0`` is x."""
        a, b = self._pair("and", a, b)
        if a.number is not None:
            a, b = b, a
        if a.number is not None and b.number is not None:
            return const(a.type, a.number & b.number)
        if b.number == 0:
            return b
        if b.number is not None and b.number == wrap(b.type.bits, -1):
            return a
        return self._int("and", a, b)

    def or_(self, a: Operand, b: Operand, flags: str = "") -> V:
        """Bitwise or. ``x | 0`` is x, ``x | ~0`` is ~0."""
        a, b = self._pair("or", a, b)
        if a.number is not None:
            a, b = b, a
        if a.number is not None and b.number is not None:
            return const(a.type, a.number | b.number)
        if b.number == 0:
            return a
        if b.number is not None and b.number == wrap(b.type.bits, -1):
            return b
        return self._int("or", a, b, flags)

    def xor(self, a: Operand, b: Operand) -> V:
        """Bitwise exclusive or. ``x ^ 0`` is x."""
        a, b = self._pair("xor", a, b)
        if a.number is not None:
            a, b = b, a
        if a.number is not None and b.number is not None:
            return const(a.type, a.number ^ b.number)
        if b.number == 0:
            return a
        return self._int("xor", a, b)

    def not_(self, a: V) -> V:
        """Every bit flipped."""
        return self.xor(a, -1)

    def neg(self, a: V) -> V:
        """Integer 0 - a."""
        return self.sub(0, a)

    def _shift(self, name: str, a: Operand, b: Operand, flags: str = "") -> V:
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
        return self._int(name, a, b, flags)

    def shl(self, a: Operand, b: Operand, flags: str = "") -> V:
        """Shift left; poison when b >= bits."""
        return self._shift("shl", a, b, flags)

    def lshr(self, a: Operand, b: Operand, flags: str = "") -> V:
        """Shift right, filling with zeros; poison when b >= bits."""
        return self._shift("lshr", a, b, flags)

    def ashr(self, a: Operand, b: Operand, flags: str = "") -> V:
        """Shift right, filling with the sign; poison when b >= bits."""
        return self._shift("ashr", a, b, flags)

    # Arithmetic on floats ---------------------------------------------------------------------

    def _float(self, name: str, a: Operand, b: Operand) -> V:
        a, b = self._pair(name, a, b)
        if not a.type.is_float:
            raise TypeError(f"{name} takes floats, not {a!r}")
        return self._value(f"{name} {self._fast}{a.type.text} {a.text}, {b.text}", a.type)

    def fadd(self, a: Operand, b: Operand) -> V:
        """Float a + b."""
        return self._float("fadd", a, b)

    def fsub(self, a: Operand, b: Operand) -> V:
        """Float a - b."""
        return self._float("fsub", a, b)

    def fmul(self, a: Operand, b: Operand) -> V:
        """Float a * b."""
        return self._float("fmul", a, b)

    def fdiv(self, a: Operand, b: Operand) -> V:
        """Float a / b, correctly rounded unless fast flags say otherwise."""
        return self._float("fdiv", a, b)

    def frem(self, a: Operand, b: Operand) -> V:
        """C's fmod(a, b)."""
        return self._float("frem", a, b)

    def fneg(self, a: V) -> V:
        """The sign flipped, of NaN too."""
        return self._value(f"fneg {self._fast}{a.type.text} {a.text}", a.type)

    def fma(self, a: Operand, b: Operand, c: Operand) -> V:
        """a * b + c rounded once, on any target (slow in software where `has_fma` is false)."""
        return self._multiply_add("llvm.fma", a, b, c)

    def mul_add(self, a: Operand, b: Operand, c: Operand) -> V:
        """a * b + c, rounded once where that is fast and twice elsewhere."""
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
        """a where the condition holds, else b; a scalar condition chooses whole vectors."""
        a, b = self._pair("select", a, b)
        wanted = condition.type
        if wanted is not I1 and wanted is not like(I1, a.type):
            raise TypeError(f"select of {a.type} by a condition of type {wanted}")
        if condition.number is not None:
            return a if condition.number else b
        if a.text == b.text:
            return a
        fast = self._fast if a.type.is_float else ""
        line = f"select {fast}{wanted.text} {condition.text}, {a!r}, {b!r}"
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
        """The same place as a pointer of another address space."""
        return self._cast("addrspacecast", value, type)

    def bitcast(self, value: V, type: LType) -> V:
        """The same bits as another type of the same size; lanes may change."""
        if type is value.type:
            return value
        if type.bits * max(1, type.lanes) != value.type.bits * max(1, value.type.lanes):
            raise TypeError(f"bitcast of {value!r} to {type} changes the size")
        return self._value(f"bitcast {value!r} to {type.text}", type)

    # Memory -----------------------------------------------------------------------------------

    def gep(self, element_type: LType, ptr: V, index: V | int, flags: str = "") -> V:
        """Address of element `index`; a vector of pointers if the pointer or index is one."""
        if isinstance(index, int):
            index = const(I64, index)
        type = ptr.type
        if index.type.lanes and not type.lanes:
            type = vector(type, index.type.lanes)
        if index.number == 0 and type is ptr.type:
            return ptr
        flags = f"{flags} " if flags else ""
        return self._value(f"getelementptr {flags}{element_type.text}, {ptr!r}, {index!r}", type)

    @staticmethod
    def _tail(align: int | None, type: LType, metadata: str) -> str:
        # Stated always: LLVM's default for a vector is the alignment of the whole vector.
        tail = f", align {align or max(1, type.bits // 8)}"
        return f"{tail}, {metadata}" if metadata else tail

    def load(
        self,
        type: LType,
        ptr: V,
        align: int | None = None,
        metadata: str = "",
        volatile: bool = False,
    ) -> V:
        """Load; `align` in bytes (default: of one element); metadata ``"!noalias !3"``."""
        keyword = "load volatile" if volatile else "load"
        return self._value(
            f"{keyword} {type.text}, {ptr!r}{self._tail(align, type, metadata)}", type
        )

    def store(
        self,
        value: V,
        ptr: V,
        align: int | None = None,
        metadata: str = "",
        volatile: bool = False,
    ) -> None:
        """Store; the options are those of `load`."""
        keyword = "store volatile" if volatile else "store"
        self._effect(f"{keyword} {value!r}, {ptr!r}{self._tail(align, value.type, metadata)}")

    def alloca(self, type: LType, count: int = 1, align: int | None = None) -> V:
        """Stack room for `count` of a type, in the entry block wherever the builder is."""
        name = f"%v{self.function.next_serial()}"
        size = f", i64 {count}" if count != 1 else ""
        tail = f", align {align}" if align else ""
        self.function.allocas.append(f"  {name} = alloca {type.text}{size}{tail}{self._dbg()}")
        return V(name, PTR)

    def _check_mask(self, mask: V, type: LType) -> None:
        if not type.lanes or mask.type is not like(I1, type):
            raise TypeError(f"a mask of type {mask.type} does not fit a vector of type {type}")

    def _masked(self, name: str, ret: LType, args: Sequence[str], types: Sequence[LType]) -> str:
        self.module.declare(name, ret, types)
        return f"call {ret.text} @{name}({', '.join(args)})"

    def masked_load(
        self,
        type: LType,
        ptr: V,
        mask: V,
        passthru: V | None = None,
        align: int | None = None,
        metadata: str = "",
    ) -> V:
        """Load the lanes whose mask is set; the others are `passthru` (default zero).

        Memory of the lanes not set is not touched.
        """
        self._check_mask(mask, type)
        other = passthru or zero(type)
        pointer_text = f"{ptr.type.text} align {align or type.bits // 8} {ptr.text}"
        name = f"llvm.masked.load.{type.mangled}.{ptr.type.mangled}"
        call = self._masked(
            name, type, [pointer_text, repr(mask), repr(other)], [ptr.type, mask.type, type]
        )
        return self._value(f"{call}, {metadata}" if metadata else call, type)

    def masked_store(
        self, value: V, ptr: V, mask: V, align: int | None = None, metadata: str = ""
    ) -> None:
        """Store the lanes whose mask is set."""
        type = value.type
        self._check_mask(mask, type)
        pointer_text = f"{ptr.type.text} align {align or type.bits // 8} {ptr.text}"
        name = f"llvm.masked.store.{type.mangled}.{ptr.type.mangled}"
        call = self._masked(
            name, VOID, [repr(value), pointer_text, repr(mask)], [type, ptr.type, mask.type]
        )
        self._effect(f"{call}, {metadata}" if metadata else call)

    def gather(
        self,
        type: LType,
        pointers: V,
        mask: V,
        passthru: V | None = None,
        align: int | None = None,
        metadata: str = "",
    ) -> V:
        """Load each lane from its own pointer where the mask is set, else `passthru` (zero)."""
        self._check_mask(mask, type)
        other = passthru or zero(type)
        pointer_text = f"{pointers.type.text} align {align or type.bits // 8} {pointers.text}"
        name = f"llvm.masked.gather.{type.mangled}.{pointers.type.mangled}"
        call = self._masked(
            name, type, [pointer_text, repr(mask), repr(other)], [pointers.type, mask.type, type]
        )
        return self._value(f"{call}, {metadata}" if metadata else call, type)

    def scatter(
        self, value: V, pointers: V, mask: V, align: int | None = None, metadata: str = ""
    ) -> None:
        """Store each lane to its own pointer where the mask is set, lowest lane first."""
        type = value.type
        self._check_mask(mask, type)
        pointer_text = f"{pointers.type.text} align {align or type.bits // 8} {pointers.text}"
        name = f"llvm.masked.scatter.{type.mangled}.{pointers.type.mangled}"
        call = self._masked(
            name, VOID, [repr(value), pointer_text, repr(mask)], [type, pointers.type, mask.type]
        )
        self._effect(f"{call}, {metadata}" if metadata else call)

    def atomicrmw(self, op: str, ptr: V, value: V, ordering: str = "seq_cst", scope: str = "") -> V:
        """Atomic read-modify-write; the old value. `scope` is a sync scope name, "" is system."""
        place = f'syncscope("{scope}") ' if scope else ""
        line = f"atomicrmw {op} {ptr!r}, {value!r} {place}{ordering}"
        return self._value(f"{line}, align {max(1, value.type.bits // 8)}", value.type)

    def cmpxchg(
        self, ptr: V, expected: V, new: V, ordering: str = "seq_cst", scope: str = ""
    ) -> tuple[V, V]:
        """Compare and swap (integers, pointers): the old value, and whether it swapped."""
        failure = {"release": "monotonic", "acq_rel": "acquire"}.get(ordering, ordering)
        place = f'syncscope("{scope}") ' if scope else ""
        type = struct(new.type, I1)
        both = self._value(
            f"cmpxchg {ptr!r}, {expected!r}, {new!r} {place}{ordering} {failure}, "
            f"align {max(1, new.type.bits // 8)}",
            type,
        )
        return self.extract_value(both, 0, new.type), self.extract_value(both, 1, I1)

    def fence(self, ordering: str = "seq_cst", scope: str = "") -> None:
        """A memory fence."""
        place = f'syncscope("{scope}") ' if scope else ""
        self._effect(f"fence {place}{ordering}")

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
        lanes = ", ".join(f"i32 {m}" if m >= 0 else "i32 poison" for m in mask)
        type = vector(a.type.element, len(mask))
        return self._value(f"shufflevector {a!r}, {b!r}, <{len(mask)} x i32> <{lanes}>", type)

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

    def call(self, name: str | V, ret: LType, args: Sequence[V], attributes: str = "") -> V:
        """Call a function by name (declared if need be) or through a pointer.

        The result of a VOID call must not be used. `attributes` are those of the call site.
        """
        if isinstance(name, V):
            target = name.text
        else:
            target = f"@{name}"
            if not self.module.defines(name):
                self.module.declare(name, ret, [a.type for a in args])
        line = f"call {ret.text} {target}({', '.join([repr(a) for a in args])})"
        if attributes:
            line = f"{line} {attributes}"
        if ret is VOID:
            self._effect(line)
            return V("void", VOID)
        return self._value(line, ret)

    def intrinsic(
        self, name: str, ret: LType, args: Sequence[V], overloads: Sequence[LType] = ()
    ) -> V:
        """Call an LLVM intrinsic: ``intrinsic("llvm.fma", t, [a, b, c], overloads=[t])``.

        The name is without its overload suffix, which `overloads` gives. Fast flags are put on
        calls that return floats.
        """
        full = ".".join([name, *(t.mangled for t in overloads)])
        if ret.is_float and self._fast:
            return self._call_value(full, ret, args, self._fast)
        return self.call(full, ret, args)

    def inline_asm(
        self,
        code: str,
        constraints: str,
        ret: LType,
        args: Sequence[V],
        side_effects: bool = False,
    ) -> V:
        """Target assembly, with LLVM's constraint string."""
        effect = "sideeffect " if side_effects else ""
        escaped = "".join(
            c if c.isprintable() and c not in '"\\' else f"\\{ord(c):02X}" for c in code
        )
        written = ", ".join([repr(a) for a in args])
        line = f'call {ret.text} asm {effect}"{escaped}", "{constraints}"({written})'
        if ret is VOID:
            self._effect(line)
            return V("void", VOID)
        return self._value(line, ret)

    # Control ----------------------------------------------------------------------------------

    def br(self, block: Block) -> None:
        """Jump."""
        self._terminate(f"br label %{block.label}")

    def cond_br(
        self,
        condition: V,
        then: Block,
        otherwise: Block,
        weights: tuple[int, int] | None = None,
        metadata: str = "",
    ) -> None:
        """Branch on an i1; `weights` are relative frequencies of the two ways."""
        if condition.type is not I1:
            raise TypeError(f"a branch condition is an i1, not {condition!r}")
        line = f"br {condition!r}, label %{then.label}, label %{otherwise.label}"
        if weights is not None:
            profile = f'!{{!"branch_weights", i32 {weights[0]}, i32 {weights[1]}}}'
            line = f"{line}, !prof {self.module.metadata(profile)}"
        self._terminate(f"{line}, {metadata}" if metadata else line)

    def phi(self, type: LType) -> Phi:
        """A phi at the head of the current block."""
        made = Phi(V(f"%v{self.function.next_serial()}", type), self._dbg())
        self.current.phis.append(made)
        return made

    def ret(self, value: V | None = None) -> None:
        """Return."""
        found = VOID if value is None else value.type
        if found is not self.function.ret:
            raise TypeError(f"@{self.function.name} returns {self.function.ret}, not {found}")
        self._terminate("ret void" if value is None else f"ret {value!r}")

    def unreachable(self) -> None:
        """Control never comes here."""
        self._terminate("unreachable")

    def _loop_metadata(
        self, unroll: Literal["disable", "full"] | int | None, vectorize: bool | None
    ) -> str:
        hints: list[str] = []
        if isinstance(unroll, int):
            hints.append(f'!{{!"llvm.loop.unroll.count", i32 {unroll}}}')
        elif unroll is not None:
            hints.append(f'!{{!"llvm.loop.unroll.{unroll}"}}')
        if vectorize is not None:
            flag = "true" if vectorize else "false"
            hints.append(f'!{{!"llvm.loop.vectorize.enable", i1 {flag}}}')
        if not hints:
            return ""
        nodes = ", ".join(["!self", *map(self.module.metadata, hints)])
        return f"!llvm.loop {self.module.metadata(f'!{{{nodes}}}', distinct=True)}"

    @contextmanager
    def loop(
        self,
        start: V | int,
        stop: V | int,
        step: V | int = 1,
        carried: Sequence[V] = (),
        unroll: Literal["disable", "full"] | int | None = None,
        vectorize: bool | None = None,
    ) -> Generator[Loop]:
        """A loop over ``range(start, stop, step)`` (signed, step > 0), whose body is the block.

        The index has the type of the first bound that is a value, i64 if none is. ``stop +
        step`` must not overflow that type. The body may open blocks of its own; the builder must
        be in the block that ends the iteration when it leaves.

            with b.loop(0, n, 16, carried=[acc]) as loop:
                loop.yield_([b.fadd(loop.carried[0], term(loop.index))])
            total = loop.results[0]

        The loop is emitted with its test at the bottom, guarded by one test before it, so it
        needs no loop rotation later.
        """
        type = next((x.type for x in (start, stop, step) if isinstance(x, V)), I64)
        start, stop, step = (x if isinstance(x, V) else const(type, x) for x in (start, stop, step))
        if step.number is not None and step.number <= 0:
            raise ValueError(f"a loop's step is positive, not {step.number}")
        before, body, after = self.current, self.block("loop"), self.block("done")
        enter = self.icmp("slt", start, stop)
        guarded = enter.number != 1
        if guarded:
            self.cond_br(enter, body, after)
            before = self.current
        else:
            self.br(body)
        self.at(body)
        index = self.phi(type)
        index.add(start, before)
        phis = [self.phi(c.type) for c in carried]
        for phi, c in zip(phis, carried, strict=True):
            phi.add(c, before)
        loop = Loop(index.value, [p.value for p in phis])
        yield loop

        yielded = loop.yielded()
        following = self.add(index.value, step, "nsw")
        latch = self.current
        again = self.icmp("slt", following, stop)
        self.cond_br(again, body, after, metadata=self._loop_metadata(unroll, vectorize))
        index.add(following, latch)
        for phi, y in zip(phis, yielded, strict=True):
            phi.add(y, latch)
        self.at(after)
        if not guarded:
            loop.results = yielded
            return
        for c, y in zip(carried, yielded, strict=True):
            merged = self.phi(c.type)
            merged.add(c, before)
            merged.add(y, latch)
            loop.results.append(merged.value)
