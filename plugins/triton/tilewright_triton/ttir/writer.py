"""The text of a function under construction.

An emitter receives the writer and an op, writes statements, and binds the op's results:

    @EMITTERS.of(arith.And)
    def emit_and(w: Writer, op: arith.And) -> None:
        w.bind(op.result, w.op("arith.andi", [w.use(op.lhs), w.use(op.rhs)]))

Statements keep their attributes apart from their text, so that a hint can add some to the statement
that defines its operand.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tilewright.base.diagnostics import CompilationError, Loc
from tilewright.base.located import error_at
from tilewright.ir.core import Op, Region, Value
from tilewright.ir.op_table import OpTable
from tilewright.ir.types import I64, Pointer, Type, element_of, with_element
from tilewright.ops.arith import Constant
from tilewright_triton.ttir.types import constant_text, location_text, type_text
from tilewright_triton.vendors import Vendor

Emitter = Callable[["Writer", Any], None]
EMITTERS: OpTable[Emitter] = OpTable("emitters of TTIR")


class Ref(NamedTuple):
    """An SSA value of the text, and its type in tile IR, which has the signedness."""

    name: str
    type: Type


@dataclass(slots=True)
class Statement:
    """One op of the text: ``%0 = arith.addi %1, %2 {attributes} : i32 loc(…)``.

    Attributes:
        head: all in front of the attributes.
        attributes: by name, as MLIR text; "" for a unit attribute.
        tail: all behind them.
        scope: the region that it is in.
    """

    head: str
    attributes: dict[str, str]
    tail: str
    loc: Loc | None
    scope: int
    indent: int

    def text(self, locations: bool) -> str:
        inner = ", ".join(f"{k} = {v}" if v else k for k, v in self.attributes.items())
        attributes = f" {{{inner}}}" if inner else ""
        return f"{'  ' * self.indent}{self.head}{attributes}{self.tail}{self.at(locations)}"

    def at(self, locations: bool) -> str:
        opens = (self.head + self.tail).endswith(("{", ":"))  # its end has the location
        return location_text(self.loc) if locations and not opens else ""


@dataclass(slots=True)
class _Scope:
    """A region of the text, and the constants that are defined in it."""

    number: int
    isolated: bool
    straight: bool = False
    constants: dict[str, Ref] = field(default_factory=dict)


class Writer:
    """Writes the statements of one function.

    Attributes:
        vendor: the names that depend on the back end.
    """

    def __init__(self, vendor: Vendor) -> None:
        self.vendor = vendor
        self.statements: list[Statement] = []
        self._refs: dict[Value, Ref] = {}
        self._definitions: dict[str, Statement] = {}
        self._scopes = [_Scope(0, isolated=True)]
        self._names = 0
        self._scope_count = 0
        self._indent = 2
        self._op: Op | None = None

    # -- values ---------------------------------------------------------------------------------

    def bind(self, value: Value, ref: Ref) -> None:
        """Define the text of a value of the tile IR."""
        self._refs[value] = Ref(ref.name, value.type)

    def use(self, value: Value) -> Ref:
        """The text of a value; a constant is defined in the region that first uses it."""
        if isinstance(value.op, Constant):
            return self.constant(value.op.value, value.type)
        return self._refs[value]

    def uses(self, values: Sequence[Value]) -> list[Ref]:
        return [self.use(v) for v in values]

    def new_name(self, prefix: str = "") -> str:
        self._names += 1
        return f"%{prefix}{self._names - 1}"

    def constant(self, value: bool | int | float, type: Type) -> Ref:
        """A constant scalar, or tile of equal elements."""
        element = element_of(type)
        if isinstance(element, Pointer):
            from_int = self.constant(int(value), with_element(type, I64))
            return self.cast("tt.int_to_ptr", from_int, type, arrow="->")
        text = constant_text(value, type)
        for scope in reversed(self._scopes):
            if text in scope.constants:
                return Ref(scope.constants[text].name, type)
            if scope.isolated:
                break
        ref = Ref(self.new_name("c"), type)
        self._add(f"{ref.name} = arith.constant", {}, f" {text}", [ref])
        self._scopes[-1].constants[text] = ref
        return ref

    @staticmethod
    def type(type: Type) -> str:
        """A type in MLIR."""
        return type_text(type)

    # -- statements -----------------------------------------------------------------------------

    def op(
        self,
        name: str,
        operands: Sequence[Ref] = (),
        result: Type | None = None,
        *,
        types: str = "",
        words: str = "",
        attributes: Mapping[str, str] | None = None,
    ) -> Ref:
        """A statement with one result.

        Args:
            result: its type; by default that of the first operand.
            types: the text after the colon; by default the type of the result.
            words: text between the operands and the attributes.
        """
        type = operands[0].type if result is None else result
        ref = Ref(self.new_name(), type)
        listed = ", ".join(r.name for r in operands)
        head = " ".join(part for part in (f"{ref.name} = {name}", listed) if part) + words
        self._add(head, attributes, f" : {types or type_text(type)}", [ref])
        return ref

    def cast(self, name: str, operand: Ref, to: Type, *, arrow: str = "to", words: str = "") -> Ref:
        """A statement whose types are those of its operand and its result."""
        types = f"{type_text(operand.type)} {arrow} {type_text(to)}"
        return self.op(name, [operand], to, types=types, words=words)

    def effect(
        self, text: str, types: str = "", attributes: Mapping[str, str] | None = None
    ) -> None:
        """A statement without results."""
        self._add(text, attributes, f" : {types}" if types else "", [])

    def results(
        self,
        types: Sequence[Type],
        head: str,
        tail: str,
        attributes: Mapping[str, str] | None = None,
    ) -> list[Ref]:
        """A statement with any number of results."""
        name = self.new_name()
        many = len(types) > 1
        refs = [Ref(f"{name}#{i}" if many else name, t) for i, t in enumerate(types)]
        bound = f"{name}:{len(types)} = " if many else f"{name} = " if refs else ""
        self._add(bound + head, attributes, tail, refs)
        return refs

    def line(self, text: str, attributes: Mapping[str, str] | None = None) -> None:
        """A line that defines nothing, such as the end of a region."""
        self._add(text, attributes, "", [])

    def _add(
        self, head: str, attributes: Mapping[str, str] | None, tail: str, defines: Sequence[Ref]
    ) -> None:
        loc = self._op.loc if self._op is not None else None
        given = dict(attributes or {})
        scope = self._scopes[-1].number
        statement = Statement(head, given, tail, loc, scope, self._indent)
        self.statements.append(statement)
        for ref in defines:
            self._definitions[ref.name] = statement

    def definition(self, ref: Ref) -> Statement | None:
        """The statement that defines a value in the current region; None for others."""
        found = self._definitions.get(ref.name)
        return found if found is not None and found.scope == self._scopes[-1].number else None

    # -- regions --------------------------------------------------------------------------------

    @contextmanager
    def region(self, *, isolated: bool = False, straight: bool = False) -> Generator[None]:
        """The statements of a region, one level deeper.

        Args:
            isolated: whether it must not use values from outside.
            straight: whether it must not have control flow.
        """
        self._scope_count += 1
        self._scopes.append(_Scope(self._scope_count, isolated, straight))
        self._indent += 1
        yield
        self._indent -= 1
        self._scopes.pop()

    @property
    def straight(self) -> bool:
        """Whether the current region must not have control flow."""
        return self._scopes[-1].straight

    def arguments(self, region: Region, prefix: str = "a") -> list[Ref]:
        """Names for the arguments of a region, which are bound to them."""
        found: list[Ref] = []
        for value in region.args:
            ref = Ref(self.new_name(prefix), value.type)
            self.bind(value, ref)
            found.append(ref)
        return found

    def body(self, region: Region) -> None:
        """All ops of a region except the terminator."""
        for op in region:
            if op is not region.terminator:
                self.emit(op)
        self._op = region.terminator

    def emit(self, op: Op) -> None:
        """Write one op.

        Raises:
            CompilationError: TTIR has no equivalent.
        """
        emitter = EMITTERS.get(type(op))
        if emitter is None:
            raise error_at(op.loc, f"Triton's back ends have no equivalent of {op.name}")
        outer, self._op = self._op, op
        emitter(self, op)
        self._op = outer

    def unsupported(self, message: str) -> CompilationError:
        """The error for the current op."""
        assert self._op is not None
        return error_at(self._op.loc, message)


@EMITTERS.of(Constant)
def emit_constant(w: Writer, op: Constant) -> None:
    """A constant is defined where it is used; see `Writer.use`."""
