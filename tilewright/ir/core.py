"""Values, ops, regions, functions, modules.

A :class:`Region` is a single block: a list of ops, with block arguments. Control flow is
structured, so there are no branches between blocks. The ops of a region form a doubly linked list,
and every value maintains its users. `ir/verify.py` checks the invariants:

- a definition dominates its uses: a value is used only after its definition, in the same region or
  in one nested within it;
- a region has exactly one terminator, its last op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from tilewright.base.diagnostics import IRError
from tilewright.ir.index_map import IndexMap, identity
from tilewright.ir.types import Tile, Type, shape_of

if TYPE_CHECKING:
    from tilewright.base.diagnostics import Loc
    from tilewright.layout.linear import LinearLayout


class Value:
    """A typed SSA value: a result of an op, or an argument of a region.

    `layout` maps the elements of a tile to the registers, lanes and warps of a GPU. It is None for
    scalars, before layouts are assigned, and on targets without layouts.
    """

    __slots__ = ("index", "layout", "owner", "type", "users")
    __match_args__ = ("op",)

    def __init__(self, type: Type, owner: Op | Region, index: int) -> None:
        self.type = type
        self.owner = owner
        self.index = index
        self.layout: LinearLayout | None = None
        self.users: dict[Op, int] = {}  # op -> number of its operands that are this value

    @property
    def op(self) -> Op | None:
        """The op that defines the value; None for a region's argument."""
        return self.owner if isinstance(self.owner, Op) else None

    @property
    def region(self) -> Region | None:
        """The region in which the value is defined; None for a result of a detached op."""
        return self.owner if isinstance(self.owner, Region) else self.owner.parent

    def replace_with(self, other: Value) -> None:
        """Replace all uses of this value by `other`, which takes over the layout unless it already
        has one."""
        if other.layout is None:
            other.layout = self.layout
        for user in list(self.users):
            user.replace_operand(self, other)

    def __repr__(self) -> str:
        where = self.owner.name if isinstance(self.owner, Op) else "argument"
        return f"<Value {self.index} of {where}: {self.type}>"


def is_tile(value: Value) -> bool:
    return isinstance(value.type, Tile)


def _not_evaluable(op: Op, *args: Any) -> Any:
    raise NotImplementedError(f"{op.name} has no `evaluate`: {op.no_evaluate}")


def _execute_as_evaluate(op: Op, state: Any, *args: Any) -> Any:
    return op.evaluate(*args)


def _exact_unknown(op: Op, *args: Any) -> None:
    return None


class Field(NamedTuple):
    """One declared field of an op."""

    name: str
    kind: str  # operand, optional, variadic, attr, region
    default: Any
    position: int  # among the operand fields, or among the regions


class Op:
    """An operation. Subclasses declare their fields; see `ir/define.py` and `docs/add-an-op.md`."""

    name: ClassVar[str] = ""
    fields: ClassVar[tuple[Field, ...]] = ()
    attr_names: ClassVar[tuple[str, ...]] = ()
    elementwise: ClassVar[bool] = False
    commutative: ClassVar[bool] = False
    terminator: ClassVar[bool] = False
    in_flight: ClassVar[bool] = False
    local: ClassVar[bool] = False
    concurrent: ClassVar[bool] = False
    free_layout: ClassVar[bool] = False
    takes_bits: ClassVar[bool] = False  # `evaluate` reads bit patterns, for any type
    reads_memory: ClassVar[bool] = False
    writes_memory: ClassVar[bool] = False
    no_evaluate: ClassVar[str] = ""  # the reason why the op has no `evaluate`
    no_index_maps: ClassVar[str] = ""  # the reason why the op has no `index_maps`

    operands: list[Value]
    results: list[Value]
    regions: list[Region]
    spans: tuple[int, ...]  # operands taken by each operand field
    loc: Loc | None
    parent: Region | None
    prev: Op | None
    next: Op | None

    # -- interface that subclasses implement ----------------------------------------------------

    def result_types(self) -> tuple[Type, ...]:
        """Types of the results, inferred from the operands and attributes."""
        return (self.result_type(),)

    def result_type(self) -> Type:
        """Type of the only result."""
        raise NotImplementedError(f"{self.name} does not define `result_type`")

    def verify(self) -> None:
        """Raise `IRError` (with `require`) unless the op is well formed."""

    # The following are methods. They are declared as callables because each op has its own
    # parameters, one per operand.

    evaluate: ClassVar[Callable[..., Any]] = _not_evaluable
    """The semantics of a pure op: NumPy arrays of the operands to the array of the result, or to a
    tuple of arrays if there are several results."""

    execute: ClassVar[Callable[..., Any]] = _execute_as_evaluate
    """The semantics of an op that accesses memory, reads program ids or runs nested regions. Its
    first parameter is the interpreter's `State`, followed by the operands."""

    exact: ClassVar[Callable[..., Any]] = _exact_unknown
    """For an op with wrapping integer arithmetic: the result without wrap-around, as an int64
    array; None for types for which int64 does not suffice. The overflow check compares it with
    `evaluate`."""

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        """For each operand, the map from elements of the result to the elements of the operand that
        they depend on; None where the result does not depend on the operand. See
        `ir/index_map.py`."""
        if self.operands and not self.elementwise:
            raise NotImplementedError(f"{self.name} has no index maps: {self.no_index_maps}")
        return (identity(shape_of(self.results[result].type)),) * len(self.operands)

    def reads(self) -> bool:
        """Whether the op, or one nested in it, reads memory."""
        if not self.regions:  # as most ops, of which passes ask this often
            return self.reads_memory
        return self.reads_memory or any(op.reads() for r in self.regions for op in r)

    def is_write(self) -> bool:
        """Whether the op itself, excluding nested ops, has an effect across which accesses must not
        be moved: it writes memory, or makes writes of other programs visible. Passes use this, not
        the trait `writes_memory`, to determine which ops may move."""
        return self.writes_memory

    def writes(self) -> bool:
        """Whether the op, or one nested in it, has an effect as of `is_write`."""
        if not self.regions:
            return self.is_write()
        return self.is_write() or any(op.writes() for r in self.regions for op in r)

    @property
    def pure(self) -> bool:
        return not (self.reads() or self.writes())

    # -- structure ------------------------------------------------------------------------------

    @property
    def result(self) -> Value:
        """The only result."""
        assert len(self.results) == 1, f"{self.name} has {len(self.results)} results"
        return self.results[0]

    @property
    def attributes(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.attr_names}

    def set_operand(self, index: int, value: Value) -> None:
        old = self.operands[index]
        if old is value:
            return
        _drop_use(old, self)
        self.operands[index] = value
        value.users[self] = value.users.get(self, 0) + 1

    def replace_operand(self, old: Value, new: Value) -> None:
        for i, operand in enumerate(self.operands):
            if operand is old:
                self.set_operand(i, new)

    def drop_operands(self) -> None:
        for operand in self.operands:
            _drop_use(operand, self)
        self.operands = []

    def remove(self) -> None:
        """Unlink the op from its region; it keeps its operands and may be inserted elsewhere."""
        region = self.parent
        assert region is not None
        if self.prev is None:
            region.first = self.next
        else:
            self.prev.next = self.next
        if self.next is None:
            region.last = self.prev
        else:
            self.next.prev = self.prev
        self.parent = self.prev = self.next = None

    def erase(self) -> None:
        """Unlink and delete the op with its nested ops. Its results must have no users."""
        assert not any(r.users for r in self.results), f"{self.name} still has users"
        if self.parent is not None:
            self.remove()
        for region in self.regions:
            region.clear()
        self.drop_operands()

    def clone(self, mapping: dict[Value, Value]) -> Op:
        """A detached deep copy, with operands (also of nested ops) replaced according to `mapping`.

        Adds the results of the copy to `mapping`.
        """
        new = object.__new__(type(self))
        new.operands = []
        new.spans = self.spans
        new.loc = self.loc
        new.parent = new.prev = new.next = None
        for name in self.attr_names:
            setattr(new, name, getattr(self, name))
        new.add_operands([mapping.get(v, v) for v in self.operands])
        new.regions = [region.clone(mapping) for region in self.regions]
        for region in new.regions:
            region.parent = new
        new.results = [Value(r.type, new, i) for i, r in enumerate(self.results)]
        for old, value in zip(self.results, new.results, strict=True):
            value.layout = old.layout
            mapping[old] = value
        return new

    def add_operands(self, values: Sequence[Value]) -> None:
        for value in values:
            self.operands.append(value)
            value.users[self] = value.users.get(self, 0) + 1

    def walk(self) -> Iterator[Op]:
        """This op, then all nested ops, in pre-order."""
        yield self
        for region in self.regions:
            yield from region.walk()

    def all_operands(self) -> Iterator[Value]:
        """The operands of this op and of all nested ops, in pre-order."""
        for op in self.walk():
            yield from op.operands

    def parent_op(self) -> Op | None:
        return self.parent.parent if self.parent is not None else None

    def ancestors(self) -> Iterator[Op]:
        """The ops that this one is nested in, the innermost first."""
        op = self.parent_op()
        while op is not None:
            yield op
            op = op.parent_op()

    def enclosing(self) -> Iterator[tuple[Op, Region]]:
        """The ops that this one is nested in, each with the one of its regions that this op is in;
        the innermost first."""
        region = self.parent
        while region is not None and region.parent is not None:
            yield region.parent, region
            region = region.parent.parent

    def contains(self, value: Value) -> bool:
        """Whether a value is defined in a region of this op, or in one nested in it."""
        return any(region.contains(value) for region in self.regions)

    def __repr__(self) -> str:
        return f"<{self.name} at {self.loc}>"


def _drop_use(value: Value, user: Op) -> None:
    count = value.users[user]
    if count == 1:
        del value.users[user]
    else:
        value.users[user] = count - 1


class Region:
    """A single block: a list of ops, with arguments. `parent` is the op that contains it; None for
    the body of a function."""

    __slots__ = ("args", "first", "last", "parent")

    def __init__(self, arg_types: Sequence[Type] = ()) -> None:
        self.parent: Op | None = None
        self.args = [Value(t, self, i) for i, t in enumerate(arg_types)]
        self.first: Op | None = None
        self.last: Op | None = None

    def add_arg(self, type: Type) -> Value:
        arg = Value(type, self, len(self.args))
        self.args.append(arg)
        return arg

    def __iter__(self) -> Iterator[Op]:
        """The ops in order. During the iteration the current op may be erased, and ops may be
        inserted before it."""
        op = self.first
        while op is not None:
            following = op.next
            yield op
            op = following

    def reversed(self) -> Iterator[Op]:
        op = self.last
        while op is not None:
            before = op.prev
            yield op
            op = before

    def walk(self) -> Iterator[Op]:
        """All ops, nested ones too, in pre-order; the current one may be erased."""
        # Without recursion: each level would hand every op of the levels within on.
        op, pending = self.first, list[Op | Region | None]()
        while True:
            while op is None:
                if not pending:
                    return
                rest = pending.pop()
                op = rest.first if isinstance(rest, Region) else rest
            following = op.next
            yield op
            if op.regions:
                pending += (following, *reversed(op.regions))
                following = None
            op = following

    @property
    def terminator(self) -> Op:
        """The last op. Raises `IRError` where the region does not end with a terminator."""
        last, parent = self.last, self.parent
        if last is None or not last.terminator:
            where = parent.name if parent is not None else "a function"
            loc = last.loc if last is not None else parent.loc if parent is not None else None
            raise IRError("terminator", f"a region of {where} does not end with a terminator", loc)
        return last

    def append(self, op: Op) -> None:
        assert op.parent is None
        op.parent = self
        op.prev = self.last
        op.next = None
        if self.last is None:
            self.first = op
        else:
            self.last.next = op
        self.last = op

    def insert_before(self, op: Op, anchor: Op) -> None:
        assert op.parent is None
        assert anchor.parent is self
        op.parent = self
        op.next = anchor
        op.prev = anchor.prev
        if anchor.prev is None:
            self.first = op
        else:
            anchor.prev.next = op
        anchor.prev = op

    def insert_after(self, op: Op, anchor: Op) -> None:
        if anchor.next is None:
            self.append(op)
        else:
            self.insert_before(op, anchor.next)

    def clear(self) -> None:
        """Erase all ops, last first."""
        for op in self.reversed():
            for result in op.results:
                result.users.clear()
            op.erase()

    def clone(self, mapping: dict[Value, Value]) -> Region:
        new = Region([a.type for a in self.args])
        for old, arg in zip(self.args, new.args, strict=True):
            arg.layout = old.layout
            mapping[old] = arg
        for op in self:
            new.append(op.clone(mapping))
        return new

    def is_within(self, other: Region) -> bool:
        """Whether this region is `other` or nested in it."""
        region: Region | None = self
        while region is not None:
            if region is other:
                return True
            region = region.parent.parent if region.parent is not None else None
        return False

    def contains(self, value: Value) -> bool:
        """Whether a value is defined in this region or in one nested in it."""
        region = value.region
        return region is not None and region.is_within(self)

    def find_ancestor(self, op: Op) -> Op | None:
        """The op directly in this region that `op` is or is nested in; None if it is outside."""
        result: Op | None = op
        while result is not None and result.parent is not self:
            result = result.parent_op()
        return result

    def users_of(self, op: Op) -> set[Op | None]:
        """The ops directly in this region that use a result of `op` or contain a use; None among
        them if there are uses outside."""
        return {self.find_ancestor(user) for result in op.results for user in result.users}


class Function:
    """A function: the kernel if it is the module's entry, a device function otherwise.

    `arg_attrs` holds, for each argument, properties guaranteed by the caller: ``divisibility`` (an
    int: a divisor of the integer, or of the address in bytes), ``alias`` (an int, the alias class:
    accesses through pointers of different classes do not overlap) and ``pointer_range`` (32: all
    accesses through the pointer are less than 2**31 bytes from it).
    """

    def __init__(
        self,
        name: str,
        arg_types: Sequence[Type],
        result_types: Sequence[Type] = (),
        arg_attrs: Sequence[dict[str, Any]] | None = None,
        loc: Loc | None = None,
        arg_names: Sequence[str] | None = None,
    ) -> None:
        self.name = name
        self.body = Region(arg_types)
        self.result_types = list(result_types)
        self.arg_attrs = [dict(a) for a in arg_attrs] if arg_attrs else [{} for _ in arg_types]
        self.arg_names = list(arg_names) if arg_names else []
        self.attrs: dict[str, Any] = {}
        self.loc = loc

    @property
    def args(self) -> list[Value]:
        return self.body.args

    def walk(self) -> Iterator[Op]:
        return self.body.walk()

    def clone(self) -> Function:
        new = Function(self.name, [], self.result_types, self.arg_attrs, self.loc, self.arg_names)
        new.arg_attrs = [dict(a) for a in self.arg_attrs]
        new.attrs = dict(self.attrs)
        new.body = self.body.clone({})
        return new


class Module:
    """Functions by name. The first one is the entry."""

    def __init__(self, functions: Sequence[Function] = ()) -> None:
        self.functions: dict[str, Function] = {}
        for function in functions:
            self.add(function)

    def add(self, function: Function) -> None:
        assert function.name not in self.functions, f"function @{function.name} is defined twice"
        self.functions[function.name] = function

    @property
    def entry(self) -> Function:
        return next(iter(self.functions.values()))

    def walk(self) -> Iterator[Op]:
        for function in self.functions.values():
            yield from function.walk()

    def clone(self) -> Module:
        return Module([f.clone() for f in self.functions.values()])
