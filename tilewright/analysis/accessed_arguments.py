"""The arguments of a kernel that each of its memory accesses may go through.

Input: any tile IR, with calls of device functions or without. Unlike `pointers.base_of`, which
follows a chain, this follows pointers through loops, branches and calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tilewright.analysis.pointers import base_of
from tilewright.base.record import record
from tilewright.ir.core import Function, Module, Op, Region, Value
from tilewright.ir.types import Pointer, Type, element_of
from tilewright.ops.asm import InlineAsmEffect
from tilewright.ops.atomic import Writing
from tilewright.ops.control import Call, For, If, Return, While
from tilewright.ops.memory import Access, Store


@record
class ArgumentAccesses:
    """Indices of pointer arguments, for each access of memory in the order of the module.

    An access through a pointer of unknown origin, such as one that was loaded from memory, has
    those of all pointer arguments.

    Attributes:
        reads: for each load, and for each atomic operation.
        writes: for each store, and for each atomic operation.
    """

    reads: list[frozenset[int]]
    writes: list[frozenset[int]]

    @property
    def written(self) -> list[int]:
        """The arguments that may be written through, in order."""
        return sorted(frozenset[int]().union(*self.writes))


def first_stores(fn: Function) -> dict[int, Op]:
    """For each pointer argument that a function certainly writes through, the first op that does,
    by the argument's index."""
    result: dict[int, Op] = {}
    for op in fn.walk():
        if isinstance(op, Store | Writing):
            base = base_of(op.ptr)
            if base.owner is fn.body:
                result.setdefault(base.index, op)
    return result


def argument_accesses(module: Module) -> ArgumentAccesses:
    """The accesses of a module, by the arguments of its entry."""
    result = ArgumentAccesses([], [])
    for op, arguments in _accesses(module.entry, module.functions):
        if op.reads_memory:
            result.reads.append(arguments)
        if op.writes_memory:
            result.writes.append(arguments)
    return result


def accesses_of(fn: Function) -> dict[Op, frozenset[int]]:
    """The accesses of a function without calls, by the arguments that each may go through."""
    return dict(_accesses(fn, {fn.name: fn}))


def _accesses(
    entry: Function, functions: Mapping[str, Function]
) -> Iterator[tuple[Op, frozenset[int]]]:
    sources = _Sources(entry, functions)
    every = frozenset(arg.index for arg in entry.args if points(arg.type))
    for op in (op for function in functions.values() for op in function.walk()):
        if op.regions or op.local or isinstance(op, Call):
            continue
        if not (op.reads_memory or op.writes_memory):
            continue
        addresses = _addresses(op)
        if isinstance(op, InlineAsmEffect) and op.operands and not addresses:
            yield op, every  # its integers may be addresses
        elif addresses:
            yield op, sources.arguments(addresses, every)
        # The others are assertions and barriers.


def points(type: Type) -> bool:
    """Whether this is a pointer or a tile of pointers."""
    return isinstance(element_of(type), Pointer)


def _addresses(op: Op) -> list[Value]:
    if isinstance(op, Access):
        return [op.ptr]
    return [operand for operand in op.operands if points(operand.type)]


class _Sources:
    """The values that a value may be computed from, across regions and calls."""

    def __init__(self, entry: Function, functions: Mapping[str, Function]) -> None:
        self._entry = entry
        self._body_of: dict[Region, Function] = {f.body: f for f in functions.values()}
        self._calls: dict[str, list[Call]] = {}
        self._returns: dict[str, list[Return]] = {}
        for function in functions.values():
            for op in function.walk():
                if isinstance(op, Call):
                    self._calls.setdefault(op.callee, []).append(op)
                elif isinstance(op, Return):
                    self._returns.setdefault(function.name, []).append(op)

    def arguments(self, pointers: Sequence[Value], every: frozenset[int]) -> frozenset[int]:
        """The arguments of the entry that pointers are computed from; `every` if they may also
        point elsewhere."""
        result: set[int] = set()
        seen: set[Value] = set()
        pending = list(pointers)
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            op = value.op
            if value.owner is self._entry.body:
                if not points(value.type):
                    return every  # an address that was passed as a number
                result.add(value.index)
            elif op is not None and op.reads_memory and not op.regions:
                return every  # an address in memory
            else:
                pending += _relevant(value, self._of(value))
        return frozenset(result)

    def _of(self, value: Value) -> Iterable[Value]:
        owner, index = value.owner, value.index
        if isinstance(owner, Region):
            return self._of_argument(owner, index)
        match owner:
            case For():
                return owner.inits[index], owner.body.terminator.operands[index]
            case While():
                return (owner.before.terminator.operands[1 + index],)
            case If():
                return (region.terminator.operands[index] for region in owner.regions)
            case Call():
                return (r.operands[index] for r in self._returns.get(owner.callee, ()))
            case _:
                return _all_inputs(owner)

    def _of_argument(self, region: Region, index: int) -> Iterable[Value]:
        op = region.parent
        match op:
            case None:
                callers = self._calls.get(self._body_of[region].name, ())
                return (call.operands[index] for call in callers)
            case For():
                if index == 0:
                    return op.start, op.step
                return op.inits[index - 1], op.body.terminator.operands[index - 1]
            case While() if region is op.before:
                return op.inits[index], op.body.terminator.operands[index]
            case While():
                return (op.before.terminator.operands[1 + index],)
            case _:
                return _all_inputs(op)


def _relevant(value: Value, sources: Iterable[Value]) -> list[Value]:
    """The sources that determine where a pointer points: the pointers among them, or all if it is
    computed from integers."""
    known = list(sources)
    pointers = [source for source in known if points(source.type)]
    return pointers if pointers and points(value.type) else known


def _all_inputs(op: Op) -> Iterator[Value]:
    """All that the results of an op, and the arguments of its regions, may depend on."""
    yield from op.operands
    for region in op.regions:
        yield from region.terminator.operands
