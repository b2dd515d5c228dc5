"""Op declarations: classes with typed fields.

    class Sum(Op, name="tile.sum", traits=PURE):
        \"\"\"Sum of `src` along `axis`.

            %1 = tile.sum %0, axis=1 : 4x8xfp32 -> 4xfp32
        \"\"\"

        src: Value = operand()
        axis: int = attr()

The declaration defines the constructor ``Sum(src, axis=1)``, the accessors ``op.src`` and
``op.axis``, and the pattern ``case Sum(src, axis)``; the printer, the parser, cloning and the key
for cse are derived from it. Operand fields come first, in printing order, also those of a class
whose base has attributes; `optional` ones may be None, and a `variadic` one holds any number of
operands.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, dataclass_transform

from tilewright.base.diagnostics import IRError
from tilewright.ir.core import Field, Region, Value
from tilewright.ir.core import Op as CoreOp
from tilewright.ir.traits import Trait
from tilewright.ir.types import Type, text_of

if TYPE_CHECKING:
    from tilewright.base.diagnostics import Loc

REGISTRY: dict[str, type[Op]] = {}
_MISSING: Any = object()


class _Spec(NamedTuple):
    kind: str
    default: Any


def operand() -> Any:
    """A required operand."""
    return _Spec("operand", _MISSING)


def optional() -> Any:
    """An operand that may be None."""
    return _Spec("optional", None)


def variadic() -> Any:
    """Any number of operands; the field is a list."""
    return _Spec("variadic", ())


def attr(default: Any = _MISSING) -> Any:
    """A compile-time attribute: int, float, str, bool, None, a type, or a tuple of these."""
    return _Spec("attr", default)


def region() -> Any:
    """A nested region."""
    return _Spec("region", _MISSING)


class _FixedOperand:
    """Accessor of an operand field in an op with required operands only."""

    def __init__(self, position: int) -> None:
        self.position = position

    def __get__(self, op: CoreOp | None, owner: Any = None) -> Any:
        return self if op is None else op.operands[self.position]


class _SpanOperand:
    """Accessor of an operand field in an op with optional or variadic fields."""

    def __init__(self, index: int, kind: str) -> None:
        self.index = index
        self.kind = kind

    def __get__(self, op: CoreOp | None, owner: Any = None) -> Any:
        if op is None:
            return self
        start = sum(op.spans[: self.index])
        found = op.operands[start : start + op.spans[self.index]]
        if self.kind == "variadic":
            return found
        return found[0] if found else None


class _RegionField:
    """Accessor of a region field."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __get__(self, op: CoreOp | None, owner: Any = None) -> Any:
        return self if op is None else op.regions[self.index]


def _collect_fields(cls: type[Op]) -> tuple[Field, ...]:
    fields: dict[str, Field] = {}
    counts = {"operand": 0, "region": 0, "attr": 0}
    for base in reversed(cls.__mro__):
        specs: dict[str, _Spec] = base.__dict__.get("_specs", {})
        for name, spec in specs.items():
            group = spec.kind if spec.kind in ("attr", "region") else "operand"
            fields[name] = Field(name, spec.kind, spec.default, counts[group])
            counts[group] += 1
    # Operands first, also those of a class whose base has attributes.
    return tuple(sorted(fields.values(), key=lambda f: f.kind in ("attr", "region")))


def _install_accessors(cls: type[Op]) -> None:
    operands = [f for f in cls.fields if f.kind in ("operand", "optional", "variadic")]
    fixed = all(f.kind == "operand" for f in operands)
    for f in operands:
        accessor = _FixedOperand(f.position) if fixed else _SpanOperand(f.position, f.kind)
        setattr(cls, f.name, accessor)
    for f in cls.fields:
        if f.kind == "region":
            setattr(cls, f.name, _RegionField(f.position))
        elif f.kind == "attr" and f.name in cls.__dict__:
            delattr(cls, f.name)


@dataclass_transform(field_specifiers=(operand, optional, variadic, attr, region))
class Op(CoreOp):
    """Base class of declared ops. See the module docstring."""

    def __init_subclass__(cls, *, name: str = "", traits: Trait = Trait.NONE) -> None:
        cls._specs = {k: v for k, v in cls.__dict__.items() if isinstance(v, _Spec)}
        cls.fields = _collect_fields(cls)
        cls.attr_names = tuple(f.name for f in cls.fields if f.kind == "attr")
        cls.__match_args__ = tuple(f.name for f in cls.fields)
        _install_accessors(cls)
        if not name:  # an abstract base shared by several ops
            return
        cls.name = name
        cls.elementwise = Trait.ELEMENTWISE in traits
        cls.commutative = Trait.COMMUTATIVE in traits
        cls.terminator = Trait.TERMINATOR in traits
        cls.in_flight = Trait.IN_FLIGHT in traits
        cls.local = Trait.LOCAL in traits
        cls.concurrent = Trait.CONCURRENT in traits
        cls.free_layout = Trait.FREE_LAYOUT in traits
        cls.reads_memory = Trait.READS in traits
        cls.writes_memory = Trait.WRITES in traits
        assert name not in REGISTRY, f"op {name} is declared twice"
        if cls.elementwise and cls.result_types is not CoreOp.result_types:
            raise TypeError(  # rewrites, lowerings and rules of derivatives take its only result
                f"{name}: an elementwise op has one result, of the type that `result_type` "
                "returns; for several, leave out ELEMENTWISE, and define `index_maps`"
            )
        REGISTRY[name] = cls

    def __init__(self, *args: Any, loc: Loc | None = None, **kwargs: Any) -> None:
        self.operands = []
        self.regions = []
        self.loc = loc
        self.parent = self.prev = self.next = None
        spans: list[int] = []
        for i, f in enumerate(self.fields):
            value = args[i] if i < len(args) else kwargs.pop(f.name, f.default)
            if value is _MISSING:
                raise TypeError(f"{self.name} needs {f.name}")
            self._set_field(f, value, spans)
        if kwargs or len(args) > len(self.fields):
            raise TypeError(f"{self.name} takes {[f.name for f in self.fields]}, got {kwargs}")
        self.spans = tuple(spans)
        self.results = [Value(t, self, i) for i, t in enumerate(self.result_types())]

    def _set_field(self, f: Field, value: Any, spans: list[int]) -> None:
        if f.kind == "attr":
            setattr(self, f.name, value)
        elif f.kind == "region":
            assert isinstance(value, Region)
            assert value.parent is None
            value.parent = self
            self.regions.append(value)
        else:
            values: Sequence[Value] = (
                value if f.kind == "variadic" else () if value is None else (value,)
            )
            assert all(isinstance(v, Value) for v in values), (
                f"{self.name}.{f.name} takes values, got {value!r}"
            )
            spans.append(len(values))
            self.add_operands(values)


def require(condition: object, op: CoreOp, code: str, message: str, **facts: object) -> None:
    """Raise `IRError` with this code unless the condition holds. `message` is a format string.

    A fact that is a type appears in the text form of the IR. It is rendered here, not by the
    caller: conditions hold, and the verifier has millions of them.
    """
    if not condition:
        shown = {name: text_of(f) if isinstance(f, Type) else f for name, f in facts.items()}
        raise IRError(code, f"{op.name}: {message.format(**shown)}", op.loc)


_STATEMENT = r"(?m)^ *(?:layout !|(?:%\w+.* = )?([a-z]\w*\.[a-z_0-9]+) )"


def example_of(cls: type[CoreOp]) -> str:
    """The IR example in the op's docstring: its text from the first line of IR on."""
    doc = cls.__doc__ or ""
    lines = (m for m in re.finditer(_STATEMENT, doc) if m[1] is None or m[1] in REGISTRY)
    found = next(lines, None)
    return textwrap.dedent(doc[found.start() :]).strip() if found else ""


def ops_of(family: ModuleType) -> list[type[Op]]:
    """The ops that a module of `ops/` declares."""
    return [op for op in REGISTRY.values() if op.__module__ == family.__name__]
