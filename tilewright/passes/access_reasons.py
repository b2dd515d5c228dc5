"""Why an access of memory is no wider: what is not known of its addresses or its mask, in words.

Code generation asks here when it takes fewer elements at once than it could. What is said names
the kernel's own arguments, and the line where a number comes from if it is another one:

    reasons = Reasons(fn, axis_info(fn))
    reasons.apart(op.ptr, axis=1)
    # "neighbours are `stride` elements apart, which is not known to be 1 when it is compiled"
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.analysis.axis_info import AxisMap
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.index_map import Along
from tilewright.ir.types import is_pointer, shape_of
from tilewright.ops import arith, control, memory
from tilewright.ops.view import View

MAX_STEPS = 64  # ops that a reason is looked for behind


class Reasons:
    """Finds reasons in one function.

    Args:
        fn: a function whose pointers have their canonical form.
        infos: its axis information.
    """

    def __init__(self, fn: Function, infos: AxisMap) -> None:
        self.fn = fn
        self.infos = infos

    # -- what is asked --------------------------------------------------------------------------

    def apart(self, value: Value, axis: int) -> str:
        """Why neighbours along an axis are not known to be adjacent.

        Args:
            value: a tile of pointers or of offsets.
        """
        here = value.op.loc.line if value.op is not None and value.op.loc is not None else 0
        for _ in range(MAX_STEPS):
            op = value.op
            if op is None:
                return self._apart_of_argument(value, axis)
            moved = _through(op, axis)
            if moved is not None:
                value, axis = moved
                continue
            if isinstance(op, memory.AddPtr | arith.Add | arith.Sub):
                varying = [v for v in op.operands if self._varies(v, axis)]
                if not varying:
                    return "neighbours have the same address"
                value = next((v for v in varying if self._run(v, axis) == 1), varying[0])
                continue
            line = op.loc.line if op.loc is not None else here
            at = f" (line {line})" if line != here else ""
            return self._apart_of(op, axis) + at
        return "the addresses are computed in too many steps to tell what their neighbours are"

    def unaligned(self, value: Value) -> str:
        """What keeps the address of a run from being known as a multiple of more bytes."""
        leaf = self._weakest(value)
        name, known = self.name(leaf), self._known(leaf)
        if isinstance(number := arith.constant_value(leaf), int):
            return f"the address moves in steps of {number}, which is a multiple of {known} only"
        if leaf.owner is self.fn.body and leaf in self.fn.args:
            wanted = "aligned to 16 bytes" if is_pointer(leaf.type) else "a multiple of 16"
            return f"{name} is not known to be {wanted}"
        return f"{name} is added to the address, and only known to be a multiple of {known}"

    def ragged(self, mask: Value, axis: int, length: int) -> str:
        """Why a mask may differ within `length` neighbours along an axis."""
        leaves = list(self._leaves(mask, axis))
        own = [v for v, a in leaves if self._compared(v, a) is None]
        if own:
            return f"{_CHANGES}{_line_of(own[0])}"
        bounds = [bound for v, a in leaves if (bound := self._compared(v, a)) is not None]
        bound = min(map(self._weakest, bounds), key=self._known, default=None)
        if bound is None or self._known(bound) % length == 0:
            return "the mask may begin within a vector"
        return (
            f"the mask may end within a vector: {self.name(bound)} is not known to be a multiple "
            f"of {length}"
        )

    def endless(self, mask: Value, axis: int) -> str:
        """Why it is not known where along an axis a mask ends, once and for all."""
        for leaf, a in self._leaves(mask, axis):
            if self._compared(leaf, a) is None:
                return f"{_CHANGES}{_line_of(leaf)}"
        return "where it ends is not looked for in this loop"

    def name(self, value: Value, depth: int = 2) -> str:
        """What a number is called in the source, as far as that can be told."""
        for _ in range(MAX_STEPS):
            op = value.op
            if op is None:
                break
            if _renames(op):
                value = op.operands[0]
                continue
            return self._name_of_result(op, depth)
        return self._name_of_argument(value)

    # -- how it is found ------------------------------------------------------------------------

    def _run(self, value: Value, axis: int) -> int:
        contiguity = self.infos[value].contiguity
        return contiguity[min(axis, len(contiguity) - 1)]

    def _equal(self, value: Value, axis: int) -> int:
        constancy = self.infos[value].constancy
        return constancy[min(axis, len(constancy) - 1)]

    def _varies(self, value: Value, axis: int) -> bool:
        extents = shape_of(value.type)
        return bool(extents) and self._equal(value, axis) < extents[axis]

    def _apart_of(self, op: Op, axis: int) -> str:
        """Of a value that is no sum, why its neighbours differ by something else than 1."""
        match op:
            case memory.Load():
                return "the addresses come from memory: they may be anywhere"
            case arith.Mul(lhs, rhs):
                factor = rhs if self._varies(lhs, axis) else lhs
                if isinstance(number := arith.constant_value(factor), int):
                    return f"neighbours are {number} elements apart"
                return (
                    f"neighbours are {self.name(factor)} elements apart, which is not known to be "
                    "1 when it is compiled"
                )
            case arith.Rem(_, by) | arith.IntDiv(_, by):
                what = "the remainder of" if isinstance(op, arith.Rem) else ""
                words = " ".join(f"{what} a division by".split())
                return (
                    f"{words} {self.name(by)} decides the addresses, and where its runs end is not "
                    "known when it is compiled"
                )
            case arith.Select():
                return "the addresses are chosen element by element"
            case _:
                return f"nothing is known of the neighbours that `{op.name}` gives"

    def _apart_of_argument(self, value: Value, axis: int) -> str:
        region = value.owner
        loop = region.parent if isinstance(region, Region) else None
        if isinstance(loop, control.For) and value.index:
            inits = loop.inits
            if self._run(inits[value.index - 1], axis) == 1:
                return self.apart(inits[value.index - 1], axis)
            return (
                "the loop carries the addresses, and moves them by what may differ from element "
                f"to element (line {loop.loc.line if loop.loc else '?'})"
            )
        return "the addresses are carried by control flow, of which nothing is known"

    def _known(self, value: Value) -> int:
        return self.infos[value].multiple_of_all()

    def _weakest(self, value: Value) -> Value:
        """The part of a sum or product that is a multiple of the least."""
        for _ in range(MAX_STEPS):
            op = value.op
            if op is None or arith.constant_value(value) is not None:
                return value
            if isinstance(op, memory.AddPtr):
                size = memory.pointee_of(op.ptr.type).nbytes_in_memory
                weak_offset = self._start(op.offset) * size < self._start(op.ptr)
                value = op.offset if weak_offset else op.ptr
            elif isinstance(op, arith.Add | arith.Sub):
                value = min(op.operands, key=self._start)
            elif isinstance(op, arith.Mul):
                value = min(op.operands, key=lambda v: (self._blame(v), self._start(v)))
            elif op.operands and (_renames(op) or _through(op, 0) is not None):
                value = op.operands[0]
            else:
                return value
        return value

    def _blame(self, value: Value) -> int:
        """How little the author can do to make the value a multiple of something: nothing about
        the number of a program or of an iteration, most about an argument."""
        while value.op is not None and _renames(value.op):
            value = value.op.operands[0]
        if value.op is None:
            return 0 if value.owner is self.fn.body else 2
        return 2 if isinstance(value.op, control.ProgramId | control.NumPrograms) else 1

    def _start(self, value: Value) -> int:
        """What divides the first element of each run."""
        return min(self.infos[value].divisibility)

    def _leaves(self, mask: Value, axis: int) -> Iterator[tuple[Value, int]]:
        """What a mask is made of by `and` and the like, as far as it varies along an axis."""
        op = mask.op
        moved = _through(op, axis) if op is not None and not isinstance(op, arith.Cast) else None
        if not self._varies(mask, axis):
            return
        if moved is not None:
            yield from self._leaves(*moved)
        elif isinstance(op, arith.And | arith.Or | arith.Xor):
            for operand in op.operands:
                yield from self._leaves(operand, axis)
        else:
            yield mask, axis

    def _compared(self, leaf: Value, axis: int) -> Value | None:
        """What a mask compares consecutive numbers with, if it does that."""
        if not isinstance(leaf.op, arith.Cmp):
            return None
        sides = [v for v in leaf.op.operands if self._varies(v, axis)]
        bounds = [v for v in leaf.op.operands if not self._varies(v, axis)]
        return bounds[0] if bounds and self._run(sides[0], axis) > 1 else None

    def _name_of_argument(self, value: Value) -> str:
        region = value.owner
        if region is self.fn.body and value.index < len(self.fn.arg_names):
            return f"`{self.fn.arg_names[value.index]}`"
        loop = region.parent if isinstance(region, Region) else None
        if isinstance(loop, control.For) and value.index == 0:
            return "the loop's counter"
        return "a number that a loop carries"

    def _name_of_result(self, op: Op, depth: int) -> str:
        match op:
            case arith.Constant():
                return str(op.value)
            case control.ProgramId(axis):
                return f"program_id({axis})"
            case control.NumPrograms(axis):
                return f"num_programs({axis})"
            case memory.Load():
                return f"a number loaded in line {op.loc.line}" if op.loc else "a loaded number"
            case _:
                pass
        sign = _SIGNS.get(type(op))
        if sign is not None and depth:
            left, right = (self.name(v, depth - 1) for v in op.operands)
            return f"{left} {sign} {right}"
        return f"a number computed in line {op.loc.line}" if op.loc else "a computed number"


def _line_of(value: Value) -> str:
    loc = value.op.loc if value.op is not None else None
    return f" (line {loc.line})" if loc is not None else ""


_CHANGES = "the mask may change from each element to the next"
_SIGNS: dict[type[Op], str] = {arith.Mul: "*", arith.Add: "+", arith.Sub: "-", arith.Rem: "%"}


def _renames(op: Op) -> bool:
    """Whether each element of the result is one of its operand, up to its type."""
    return isinstance(op, arith.Cast) or (isinstance(op, View) and op.aligned)


def _through(op: Op, axis: int) -> tuple[Value, int] | None:
    """The operand, and its axis, that has the result's neighbours; None if there is none."""
    if isinstance(op, arith.Cast):
        return op.src, axis
    found = op.index_maps()[0] if isinstance(op, View) and op.aligned else None
    term = found and found.inverse().axes[axis]
    return (op.operands[0], term.axis) if isinstance(term, Along) else None
