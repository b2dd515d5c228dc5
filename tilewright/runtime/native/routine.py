"""How the native code of a launch is written: routines, in Python, with the typed `Builder`.

    @routine(I1)
    def put_count(r: Routine, object: Object) -> None:
        r.require(r.is_a(object, "tuple"))
        r.frame.put("slots", 0, r.size_of(object))

The annotations of its parameters are the routine's LLVM types; what is annotated as a structure
(`layout.py`) is a `Ref` in the body. Inside another routine ``put_count(r, value)`` is a call. A
plain function that takes a `Routine` writes its instructions where it is called.

All state is in the structures: Runtime (one in a process), State (one for each kernel), Record (one
for each compiled variant) and Frame (one for each call, on the stack), so that calls from several
threads, from finalisers and from signal handlers are apart. The code refers to nothing by name: it
may stand at any address.

Whatever is unusual is left to Python, before anything has happened. So nearly every step is one
that must succeed, else the routine is left: `require`, and `tried` for Python's functions. What it
owns is released on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Annotated, Any, Concatenate, ParamSpec, TypeAlias, get_type_hints

from tilewright.lowering.emit import (
    F64,
    I8,
    I32,
    I64,
    PTR,
    VOID,
    Block,
    Builder,
    Function,
    LType,
    Module,
    Operand,
    V,
    const,
)
from tilewright.runtime.native.layout import FIELDS, FUNCTIONS, SIZES

TYPES: dict[str, LType] = {"ptr": PTR, "i64": I64, "i32": I32, "double": F64, "void": VOID}

SELDOM, USUALLY = (1, 2000), (2000, 1)
"""Weights of branches by what launches of a usual kind do."""


class Ref:
    """A structure in memory: ``ref["count"]`` loads a field, ``ref["count"] = n`` stores one.

    Attributes:
        address: of the structure.
    """

    __slots__ = ("_r", "_struct", "address")

    def __init__(self, r: Routine, struct: str, address: V) -> None:
        self._r, self._struct, self.address = r, struct, address

    def at(self, field: str) -> V:
        """The address of a field."""
        return self._r.gep(I8, self.address, FIELDS[self._struct][field].offset)

    def part(self, field: str, index: V | int = 0) -> Ref:
        """A structure inside this one, or one of an array of them."""
        return self._r.ref(FIELDS[self._struct][field].type, self.at(field), index)

    def element(self, field: str, index: V | int) -> V:
        """The address of an element of an array."""
        return self._r.gep(TYPES[FIELDS[self._struct][field].type], self.at(field), index)

    def get(self, field: str, index: V | int) -> V:
        """An element of an array."""
        return self._r.load(TYPES[FIELDS[self._struct][field].type], self.element(field, index))

    def put(self, field: str, index: V | int, value: Operand) -> None:
        """Set an element of an array."""
        type = TYPES[FIELDS[self._struct][field].type]
        self._r.store(_of_type(type, value), self.element(field, index))

    def __getitem__(self, field: str) -> V:
        return self._r.load(TYPES[FIELDS[self._struct][field].type], self.at(field))

    def __setitem__(self, field: str, value: Operand) -> None:
        type = TYPES[FIELDS[self._struct][field].type]
        self._r.store(_of_type(type, value), self.at(field))


def _of_type(type: LType, value: Operand) -> V:
    value = value if isinstance(value, V) else const(type, value)
    if value.type is not type:
        raise TypeError(f"a field of type {type} cannot hold {value!r}")
    return value


# Types of routines' parameters.
Object: TypeAlias = Annotated[V, PTR]
"""A Python object, or any other address."""
Word: TypeAlias = Annotated[V, I64]
Record: TypeAlias = Annotated[Ref, "Record"]
Param: TypeAlias = Annotated[Ref, "Param"]
Stage: TypeAlias = Annotated[Ref, "Stage"]
Global: TypeAlias = Annotated[Ref, "Global"]
Bound: TypeAlias = Annotated[Ref, "Bound"]
Knob: TypeAlias = Annotated[Ref, "Knob"]

CONTEXT = ("Runtime", "State", "Frame")
"""The structures that every routine is given first, but for those that are reached from outside."""


class Routine(Builder):
    """The builder of one routine.

    Args:
        function: where it writes.
        failure: what the routine gives where it is left early.

    Attributes:
        rt, state, frame: the structures of the process, the kernel and the call.
    """

    __slots__ = ("_exits", "_failure", "_owned", "frame", "rt", "state")

    rt: Ref
    state: Ref
    frame: Ref

    def __init__(self, function: Function, failure: int) -> None:
        super().__init__(function)
        self._failure = failure
        self._owned: tuple[tuple[V, bool], ...] = ()
        self._exits: dict[tuple[Any, ...], tuple[Block, Callable[[], None]]] = {}

    # -- leaving --------------------------------------------------------------------------------

    def require(self, condition: V, otherwise: int | None = None, clear: bool = False) -> None:
        """Leave the routine unless an i1 holds, and release what is owned here.

        Args:
            otherwise: what the routine gives then, if not its `failure`.
            clear: forget Python's exception.
        """
        good = self.block("good")
        self.cond_br(condition, good, self._exit(otherwise, clear), USUALLY)
        self.at(good)

    def leave(self, otherwise: int | None = None, clear: bool = False) -> None:
        """Leave the routine, as `require` does."""
        self.br(self._exit(otherwise, clear))

    def _exit(self, otherwise: int | None, clear: bool) -> Block:
        """The block that leaves with a value from here; made by `finish`."""
        value = self._failure if otherwise is None else otherwise
        objects = tuple(object for object, _ in self._owned)
        key = (tuple(object.text for object in objects), value, clear)
        if key not in self._exits:

            def fill() -> None:
                for object in reversed(objects):
                    self.release(object)
                if clear:
                    self.api("PyErr_Clear")
                self.ret(None if self.function.ret is VOID else value)

            self._exits[key] = self.block("leave"), fill
        return self._exits[key][0]

    def finish(self) -> None:
        """Close the routine: one that comes to its end gives true, or nothing."""
        if not self.current.closed:
            self.ret(None if self.function.ret is VOID else True)
        for block, fill in self._exits.values():
            self.at(block)
            fill()

    # -- references -----------------------------------------------------------------------------

    @contextmanager
    def owned(self, object: V, unless_left: bool = False) -> Generator[V]:
        """Own a reference inside: it is released at the end, by `ret`, and where it is left.

        Args:
            unless_left: release it only where the routine is left early.
        """
        before = self._owned
        self._owned = (*before, (object, not unless_left))
        yield object
        if not self.current.closed and not unless_left:
            self.release(object)
        self._owned = before

    def release(self, object: V) -> None:
        """Give up a reference."""
        self.api("Py_DecRef", object)

    def retain(self, object: V) -> V:
        """Take one more reference."""
        self.api("Py_IncRef", object)
        return object

    def ret(self, value: V | int | None = None) -> None:
        """Return a value, or this number; what is owned is released."""
        for object, always in reversed(self._owned):
            if always:
                self.release(object)
        super().ret(const(self.function.ret, value) if isinstance(value, int) else value)

    # -- Python's functions ---------------------------------------------------------------------

    def api(self, name: str, *args: Operand) -> V:
        """Call one of Python's C functions."""
        ret, *types = (TYPES[type] for type in FUNCTIONS[name].split())
        given = [_of_type(type, arg) for type, arg in zip(types, args, strict=True)]
        return self.call(self.rt[name], ret, given)

    def given(self, object: V, otherwise: int | None = None, clear: bool = False) -> V:
        """An address that must not be null, else the routine is left as by `require`."""
        self.require(self.ne(object, 0), otherwise, clear)
        return object

    def tried(self, name: str, *args: Operand) -> V:
        """Call one that gives an object; where it raises, leave the call to Python."""
        return self.given(self.api(name, *args), clear=True)

    def raising(self, name: str, *args: Operand) -> V:
        """Call one that gives an object; where it raises, the launch does."""
        return self.given(self.api(name, *args))

    def python(self, function: V, *args: V) -> V:
        """Call a Python function: an owned object, or null with an exception set."""
        room = self.alloca(PTR, max(1, len(args)))
        for i, arg in enumerate(args):
            self.store(arg, self.gep(PTR, room, i))
        return self.api("PyObject_Vectorcall", function, room, len(args), 0)

    # -- objects --------------------------------------------------------------------------------

    def type_of(self, object: V) -> V:
        """The class of an object."""
        return Ref(self, "Object", object)["type"]

    def is_a(self, object: V, *types: str) -> V:
        """Whether an object's class is exactly one of these fields of Runtime."""
        kind = self.type_of(object)
        return self.any([self.eq(kind, self.rt[type]) for type in types])

    def size_of(self, tuple: V) -> V:
        """How many items a tuple has."""
        return Ref(self, "Tuple", tuple)["size"]

    def item(self, tuple: V, index: V | int) -> V:
        """An item of a tuple, borrowed."""
        return Ref(self, "Tuple", tuple).get("items", index)

    def int_of(self, object: V) -> tuple[V, V]:
        """An int as 64 bits, and 0, or the sign of one that does not fit."""
        overflow = self.alloca(I32)
        number = self.api("PyLong_AsLongLongAndOverflow", object, overflow)
        return number, self.load(I32, overflow)

    # -- small things ---------------------------------------------------------------------------

    def ref(self, struct: str, address: V, index: V | int = 0) -> Ref:
        """A structure at an address, or one of those that follow each other there."""
        offset = self.mul(index, const(I64, SIZES[struct])) if struct in SIZES else 0
        return Ref(self, struct, self.gep(I8, address, offset))

    def any(self, conditions: Sequence[V]) -> V:
        """Whether one of the conditions holds."""
        found = conditions[0]
        for condition in conditions[1:]:
            found = self.or_(found, condition)
        return found

    def all(self, conditions: Sequence[V]) -> V:
        """Whether all conditions hold."""
        found = conditions[0]
        for condition in conditions[1:]:
            found = self.and_(found, condition)
        return found

    def eq(self, a: Operand, b: Operand) -> V:
        """Whether two words are the same."""
        return self.icmp("eq", a, b)

    def ne(self, a: Operand, b: Operand) -> V:
        """Whether two words differ."""
        return self.icmp("ne", a, b)

    def has(self, bits: V, mask: int) -> V:
        """Whether bits that the mask has are set."""
        return self.ne(self.and_(bits, mask), 0)

    def bit_if(self, condition: V, bits: int) -> V:
        """These bits of a word where the condition holds, else 0."""
        return self.select(condition, const(I64, bits), const(I64, 0))

    def choose(self, condition: V, then: Callable[[], V], otherwise: Callable[[], V]) -> V:
        """What one of two ways gives."""
        blocks = self.block("then"), self.block("else")
        after = self.block("after")
        self.cond_br(condition, *blocks)
        values: list[tuple[V, Block]] = []
        for block, way in zip(blocks, (then, otherwise), strict=True):
            self.at(block)
            value = way()
            values.append((value, self.current))
            self.br(after)
        self.at(after)
        chosen = self.phi(values[0][0].type)
        for value, block in values:
            chosen.add(value, block)
        return chosen.value

    @contextmanager
    def repeated(self, *first: V) -> Generator[Repeated]:
        """Instructions that are repeated until `Repeated.stop_if`, with values that each pass gives
        to the next: the first has these."""
        before, head, after = self.current, self.block("again"), self.block("after")
        self.br(head)
        self.at(head)
        phis = [self.phi(value.type) for value in first]
        loop = Repeated(self, [phi.value for phi in phis], after)
        yield loop
        for phi, value, following in zip(phis, first, loop.following, strict=True):
            phi.add(value, before)
            phi.add(following, self.current)
        self.br(head)
        self.at(after)

    def copy(self, to: V, start: V, count: V) -> None:
        """Copy words."""
        with self.loop(0, count) as loop:
            word = self.load(I64, self.gep(I64, start, loop.index))
            self.store(word, self.gep(I64, to, loop.index))


class Repeated:
    """What `Routine.repeated` gives.

    Attributes:
        carried: the values of this pass.
        following: those of the next one, to be set.
    """

    def __init__(self, r: Routine, carried: list[V], after: Block) -> None:
        self._r, self._after = r, after
        self.carried = carried
        self.following: list[V] = []

    def stop_if(self, condition: V) -> None:
        """Leave the loop where an i1 holds."""
        onward = self._r.block("on")
        self._r.cond_br(condition, self._after, onward)
        self._r.at(onward)


# -- routines -------------------------------------------------------------------------------------

P = ParamSpec("P")


class Code(Module):
    """A module of routines.

    Attributes:
        routines: what defines each routine that is called, by name.
    """

    __slots__ = ("routines",)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.routines: dict[str, Callable[[Module], None]] = {}


def routine(
    ret: LType, failure: int = 0, inline: bool = False, entry: bool = False
) -> Callable[[Callable[Concatenate[Routine, P], None]], Callable[Concatenate[Routine, P], V]]:
    """Make what writes a routine's body what calls it; see the module's text.

    Args:
        ret: what it gives: I1 for whether it succeeded.
        failure: given where it is left.
        inline: put it into its callers.
        entry: it is reached from outside.
    """

    def decorate(
        body: Callable[Concatenate[Routine, P], None],
    ) -> Callable[Concatenate[Routine, P], V]:
        attributes = 'nounwind "frame-pointer"="all"' + " alwaysinline" * inline

        def define(module: Module) -> None:
            hints = list(get_type_hints(body, include_extras=True).items())[1:]
            kinds = [hint.__metadata__[0] for name, hint in hints if name != "return"]
            kinds = kinds if entry else [*CONTEXT, *kinds]
            types = [(PTR if isinstance(kind, str) else kind, "") for kind in kinds]
            linkage = "" if entry else "internal"
            function = module.function(body.__name__, ret, types, attributes, linkage)
            r = Routine(function, failure)
            given: list[Any] = [
                Ref(r, kind, value) if isinstance(kind, str) else value
                for kind, value in zip(kinds, function.params, strict=True)
            ]
            if not entry:
                r.rt, r.state, r.frame, *given = given
            body(r, *given)  # pyright: ignore[reportCallIssue]
            r.finish()

        @wraps(body)
        def call(r: Routine, *args: P.args, **kwargs: P.kwargs) -> V:
            assert isinstance(r.module, Code)
            if r.module.routines.setdefault(body.__name__, define) is not define:
                raise ValueError(f"two routines are named {body.__name__}")
            given: list[Any] = [r.rt, r.state, r.frame, *args]
            words = [arg.address if isinstance(arg, Ref) else arg for arg in given]
            return r.call(body.__name__, ret, words)

        vars(call)["define"] = define
        return call

    return decorate


def text_of(name: str, entries: Sequence[Any]) -> str:
    """The LLVM IR of routines that are reached from outside, and of all that they call."""
    module = Code(name)
    module.routines = {entry.__name__: entry.define for entry in entries}
    while left := [name for name in module.routines if not module.defines(name)]:
        for routine_name in left:
            module.routines[routine_name](module)
    return module.text()
