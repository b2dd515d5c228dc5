"""The scalars that a copying warp can compute: bounds, conditions and coordinates of its copies."""

from __future__ import annotations

from tilewright.analysis.pointers import may_write
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.types import Shared, TensorMemory, Tile
from tilewright.ops.atomic import synchronizes
from tilewright.ops.control import For, If
from tilewright.ops.gpu import Share, WaitLaunches
from tilewright.ops.memory import Load
from tilewright.passes.software_pipelining import up_to_end_of
from tilewright.targets.nvidia.tensor_copies import TensorCopy

_SHAPED = Tile, Shared, TensorMemory


class Unsupported(Exception):
    def __init__(self, why: str, op: Op | None = None) -> None:
        super().__init__(why)
        self.op = op


class Scalars:
    """The values of a function that the copying warp cannot compute: `other`.

    It can compute scalars that depend on arguments, program ids and scalars loaded from memory
    that the kernel does not write, also through loops and branches.
    """

    def __init__(self, fn: Function) -> None:
        self.fn = fn
        self.other: set[Value] = set()
        before = -1
        while len(self.other) > before:
            before = len(self.other)
            self._visit(fn.body)

    def _visit(self, region: Region) -> None:
        for op in region:
            match op:
                case _ if not op.regions:
                    if op.results and not self.can_clone(op):
                        self.other.update(op.results)
                case For():
                    self._visit_for(op)
                case If():
                    self._visit_if(op)
                case _:
                    self.other.update(op.results)

    def _visit_for(self, op: For) -> None:
        self.other.update(v for v in op.body.args if isinstance(v.type, _SHAPED))
        if not self.other.isdisjoint((op.start, op.stop, op.step)):
            self.other.update(op.body.args)
        yields = op.body.terminator.operands
        carried = zip(op.inits, yields, op.body.args[1:], op.results, strict=True)
        for init, yielded, arg, result in carried:
            if not self.other.isdisjoint((init, yielded, arg)):
                self.other.update((arg, result))
        self._visit(op.body)

    def _visit_if(self, op: If) -> None:
        self._visit(op.then)
        self._visit(op.otherwise)
        yields = zip(op.then.terminator.operands, op.otherwise.terminator.operands, strict=True)
        for (a, b), result in zip(yields, op.results, strict=True):
            if not self.other.isdisjoint((op.condition, a, b)):
                self.other.add(result)

    def can_clone(self, op: Op) -> bool:
        """Whether an op without regions can be cloned into the copying warp's code."""
        if op.regions or not op.results or not self.other.isdisjoint(op.operands):
            return False
        if any([isinstance(v.type, _SHAPED) for v in op.results]):
            return False
        if isinstance(op, Load):
            return not (
                op.volatile
                or any(may_overwrite(self.fn, op, o) for o in self.fn.walk())
                or any(synchronizes(o) for o in up_to_end_of(self.fn, op))
            )
        return op.pure


def require_scalars(loop: For, copy: TensorCopy, scalars: Scalars, share: Share) -> None:
    """Raise `Unsupported` unless the copying warp can compute bounds, conditions, coordinates."""
    around = [loop, *loop.ancestors()]
    needed: list[Value] = []
    for op in around:
        match op:
            case For():
                needed += [op.start, op.stop, op.step]
            case If():
                needed.append(op.condition)
            case _:
                raise Unsupported(f"the loop is in a {op.name}")
    for begin in copy.begins:
        for atom in begin.atoms():
            if isinstance(atom, Value):
                needed.append(atom)
            elif atom.loop not in around:
                raise Unsupported("a coordinate counts the iterations of another loop", share)
    if any(value in scalars.other for value in needed):
        raise Unsupported("bounds or coordinates depend on tiles, or on memory that is written")


def may_overwrite(fn: Function, load: Load, op: Op) -> bool:
    """Whether an op may write the memory that a load reads, if launches do not overlap."""
    return not isinstance(op, WaitLaunches) and may_write(fn, op, load.ptr)
