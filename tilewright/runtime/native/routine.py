"""The embedded language in which the native code of a launch is written, on top of `Builder`.

    @routine(I1)
    def put_count(r: Routine, object: Object) -> None:
        r.require(r.is_a(object, "tuple"))
        r.frame.put("slots", 0, r.size_of(object))

The decorated function emits the body of an LLVM function. Its parameters' annotations are LLVM
types; one that is annotated as a structure (`layout.py`) is a `Ref` in the body. Within another
routine, ``put_count(r, value)`` emits a call. A plain Python function that takes a `Routine` emits
its instructions inline.

All state is in structures: Runtime (one per process), State (one per kernel), Record (one per
compiled variant) and Frame (one per call, on the stack). So calls from several threads, from
finalizers and from signal handlers do not interfere. The code has no external symbols: addresses
of functions are fields of Runtime, so the object code does not depend on the process.

Every call that the fast path does not support takes the slow path, before it has had side effects.
Hence nearly every step is a condition that must hold, else the routine exits with its `failure`
value: `require` for conditions, `tried` for calls of Python. References that are `owned` at that
point are released on the exit path.
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

UNLIKELY, LIKELY = (1, 2000), (2000, 1)
"""Branch weights of conditions that do not hold, and hold, on the fast path."""


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
        """A nested structure, or an element of an array of structures."""
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
Guard: TypeAlias = Annotated[Ref, "Guard"]
Bound: TypeAlias = Annotated[Ref, "Bound"]
Chain: TypeAlias = Annotated[Ref, "Chain"]
Knob: TypeAlias = Annotated[Ref, "Knob"]
Compiled: TypeAlias = Annotated[Ref, "Compiled"]
MapSet: TypeAlias = Annotated[Ref, "MapSet"]
MapPlan: TypeAlias = Annotated[Ref, "MapPlan"]
MapSum: TypeAlias = Annotated[Ref, "MapSum"]

CONTEXT = ("Runtime", "State", "Frame")
"""The leading parameters of every routine that is not an entry point."""


class Routine(Builder):
    """The builder of one routine.

    Args:
        function: the LLVM function that it emits into.
        failure: the result of an early exit.

    Attributes:
        rt, state, frame: the structures of the process, of the kernel and of the call.
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

    # -- early exits ----------------------------------------------------------------------------

    def require(self, condition: V, otherwise: int | None = None, clear: bool = False) -> None:
        """Exit the routine unless an i1 is true; releases the references that are owned here.

        Args:
            otherwise: the result in that case, if not `failure`.
            clear: clear Python's exception.
        """
        good = self.block("good")
        self.cond_br(condition, good, self._exit(otherwise, clear), LIKELY)
        self.at(good)

    def leave(self, otherwise: int | None = None, clear: bool = False) -> None:
        """Exit the routine, as `require` does."""
        self.br(self._exit(otherwise, clear))

    def _exit(self, otherwise: int | None, clear: bool) -> Block:
        """The exit block for a result and the references owned here; emitted by `finish`. Exits
        with equal results and references share a block."""
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
        """Complete the function: falling off its end returns true, or void."""
        if not self.current.closed:
            self.ret(None if self.function.ret is VOID else True)
        for block, fill in self._exits.values():
            self.at(block)
            fill()

    # -- references -----------------------------------------------------------------------------

    @contextmanager
    def owned(self, object: V, unless_left: bool = False) -> Generator[V]:
        """Own a reference inside the block: it is released at its end, by `ret`, and by exits.

        Args:
            unless_left: release it in early exits only; otherwise the block passes it on.
        """
        before = self._owned
        self._owned = (*before, (object, not unless_left))
        yield object
        if not self.current.closed and not unless_left:
            self.release(object)
        self._owned = before

    def release(self, object: V) -> None:
        """Py_DECREF."""
        self.api("Py_DecRef", object)

    def retain(self, object: V) -> V:
        """Py_INCREF; returns the object."""
        self.api("Py_IncRef", object)
        return object

    def ret(self, value: V | int | None = None) -> None:
        """Return a value or constant; releases owned references."""
        for object, always in reversed(self._owned):
            if always:
                self.release(object)
        super().ret(const(self.function.ret, value) if isinstance(value, int) else value)

    # -- Python's functions ---------------------------------------------------------------------

    def api(self, name: str, *args: Operand) -> V:
        """Call one of Python's C functions."""
        ret, *types = (TYPES[type] for type in FUNCTIONS[name].split())
        operands = [_of_type(type, arg) for type, arg in zip(types, args, strict=True)]
        return self.call(self.rt[name], ret, operands)

    def not_null(self, object: V, otherwise: int | None = None, clear: bool = False) -> V:
        """Exit the routine, as by `require`, if an address is null; returns the address."""
        self.require(self.ne(object, 0), otherwise, clear)
        return object

    def tried(self, name: str, *args: Operand) -> V:
        """Call a function that returns an object; if it raises, clear the exception and exit, so
        that the slow path raises instead."""
        return self.not_null(self.api(name, *args), clear=True)

    def raising(self, name: str, *args: Operand) -> V:
        """Call a function that returns an object; if it raises, exit with the exception set."""
        return self.not_null(self.api(name, *args))

    def python(self, function: V, *args: V) -> V:
        """Call a Python callable: returns a new reference, or null with an exception set."""
        room = self.alloca(PTR, max(1, len(args)))
        for i, arg in enumerate(args):
            self.store(arg, self.gep(PTR, room, i))
        return self.api("PyObject_Vectorcall", function, room, len(args), 0)

    @contextmanager
    def without_gil(self) -> Generator[None]:
        """Run the code of the block without the GIL. It may not touch Python's objects, nor exit
        the routine."""
        thread = self.api("PyEval_SaveThread")
        yield
        self.api("PyEval_RestoreThread", thread)

    # -- objects --------------------------------------------------------------------------------

    def type_of(self, object: V) -> V:
        """The class of an object."""
        return Ref(self, "Object", object)["type"]

    def is_a(self, object: V, *types: str) -> V:
        """Whether an object's exact class is one of the given fields of Runtime."""
        kind = self.type_of(object)
        return self.any([self.eq(kind, self.rt[type]) for type in types])

    def size_of(self, sequence: V) -> V:
        """The number of items of a tuple or list."""
        return Ref(self, "Tuple", sequence)["size"]

    def item(self, tuple: V, index: V | int) -> V:
        """An item of a tuple, as a borrowed reference."""
        return Ref(self, "Tuple", tuple).get("items", index)

    def int_of(self, object: V) -> tuple[V, V]:
        """An int as an i64, and an i32: 0, or the sign of an int that does not fit."""
        overflow = self.alloca(I32)
        number = self.api("PyLong_AsLongLongAndOverflow", object, overflow)
        return number, self.load(I32, overflow)

    # -- expressions and control flow -----------------------------------------------------------

    def ref(self, struct: str, address: V, index: V | int = 0) -> Ref:
        """A structure at an address, or an element of an array of structures."""
        offset = self.mul(index, const(I64, SIZES[struct])) if struct in SIZES else 0
        return Ref(self, struct, self.gep(I8, address, offset))

    def any(self, conditions: Sequence[V]) -> V:
        """Whether one of the conditions holds."""
        result = conditions[0]
        for condition in conditions[1:]:
            result = self.or_(result, condition)
        return result

    def all(self, conditions: Sequence[V]) -> V:
        """Whether all conditions hold."""
        result = conditions[0]
        for condition in conditions[1:]:
            result = self.and_(result, condition)
        return result

    def eq(self, a: Operand, b: Operand) -> V:
        """Whether two words are the same."""
        return self.icmp("eq", a, b)

    def ne(self, a: Operand, b: Operand) -> V:
        """Whether two words differ."""
        return self.icmp("ne", a, b)

    def has(self, bits: V, mask: int) -> V:
        """Whether any bit of the mask is set."""
        return self.ne(self.and_(bits, mask), 0)

    def bit_if(self, condition: V, bits: int) -> V:
        """An i64 with the given bits if the condition holds, else 0."""
        return self.select(condition, const(I64, bits), const(I64, 0))

    def choose(self, condition: V, then: Callable[[], V], otherwise: Callable[[], V]) -> V:
        """The value of one of two branches, which are emitted by callables."""
        blocks = self.block("then"), self.block("else")
        after = self.block("after")
        self.cond_br(condition, *blocks)
        sides: list[tuple[Block, list[V]]] = []
        for block, way in zip(blocks, (then, otherwise), strict=True):
            self.at(block)
            value = way()
            sides.append((self.current, [value]))
            self.br(after)
        self.at(after)
        return self.merge(*sides)[0]

    @contextmanager
    def repeated(self, *first: V) -> Generator[Repeated]:
        """A loop until `Repeated.stop_if`; `first` are the initial loop-carried values."""
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
        """Copy `count` words."""
        with self.loop(0, count) as loop:
            word = self.load(I64, self.gep(I64, start, loop.index))
            self.store(word, self.gep(I64, to, loop.index))


class Repeated:
    """A loop of `Routine.repeated`.

    Attributes:
        carried: loop-carried values of this iteration.
        following: their values in the next iteration, which the body must set.
    """

    def __init__(self, r: Routine, carried: list[V], after: Block) -> None:
        self._r, self._after = r, after
        self.carried = carried
        self.following: list[V] = []

    def stop_if(self, condition: V) -> None:
        """Exit the loop if an i1 is true."""
        onward = self._r.block("on")
        self._r.cond_br(condition, self._after, onward)
        self._r.at(onward)


# -- routines -------------------------------------------------------------------------------------

P = ParamSpec("P")


class Code(Module):
    """A module of routines.

    Attributes:
        routines: the function that emits each routine, by name.
    """

    __slots__ = ("routines",)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.routines: dict[str, Callable[[Module], None]] = {}


def routine(
    ret: LType, failure: int = 0, inline: bool = False, entry: bool = False
) -> Callable[[Callable[Concatenate[Routine, P], None]], Callable[Concatenate[Routine, P], V]]:
    """Turn a function that emits a routine's body into one that emits a call of the routine.

    Args:
        ret: the type of the result; I1: whether the routine succeeded.
        failure: the result of an early exit.
        inline: have LLVM inline it into its callers.
        entry: it is called by Python: it is exported, and has no context parameters.
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
            operands: list[Any] = [
                Ref(r, kind, value) if isinstance(kind, str) else value
                for kind, value in zip(kinds, function.params, strict=True)
            ]
            if not entry:
                r.rt, r.state, r.frame, *operands = operands
            body(r, *operands)  # pyright: ignore[reportCallIssue]
            r.finish()

        @wraps(body)
        def call(r: Routine, *args: P.args, **kwargs: P.kwargs) -> V:
            assert isinstance(r.module, Code)
            if r.module.routines.setdefault(body.__name__, define) is not define:
                raise ValueError(f"two routines are named {body.__name__}")
            operands: list[Any] = [r.rt, r.state, r.frame, *args]
            words = [arg.address if isinstance(arg, Ref) else arg for arg in operands]
            return r.call(body.__name__, ret, words)

        vars(call)["define"] = define
        return call

    return decorate


def text_of(name: str, entries: Sequence[Any]) -> str:
    """The LLVM IR of entry points and of all routines that they call, transitively."""
    module = Code(name)
    module.routines = {entry.__name__: entry.define for entry in entries}
    while left := [name for name in module.routines if not module.defines(name)]:
        for routine_name in left:
            module.routines[routine_name](module)
    return module.text()
