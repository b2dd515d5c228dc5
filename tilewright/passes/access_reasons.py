"""Reasons why a memory access is not vectorised, for remarks.

Code generation calls this when it emits an access narrower than the machine's widest. A reason is
the part of the address or of the mask that limits the width. It names arguments of the kernel, or
the source line of another value:

    reasons = Reasons(fn, axis_info(fn))
    reasons.why_not_contiguous(op.ptr, axis=1)
    # "adjacent elements have the stride `stride`, which is not known to be 1 at compile time"

Each query follows one chain of at most `MAX_STEPS` definitions. The IR is not modified.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.analysis.axis_info import AxisMap
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.index_map import Along
from tilewright.ir.types import is_pointer, shape_of
from tilewright.ops import arith, control, memory
from tilewright.ops.view import View

MAX_STEPS = 64  # the longest chain of definitions that is followed


class Reasons:
    """The reasons for the accesses of one function.

    Args:
        fn: a function whose pointers are in canonical form (`canonicalize_pointers`).
        infos: its axis information.
    """

    def __init__(self, fn: Function, infos: AxisMap) -> None:
        self.fn = fn
        self.infos = infos

    # -- queries --------------------------------------------------------------------------------

    def why_not_contiguous(self, value: Value, axis: int) -> str:
        """The reason for which the elements of a tile are not known to be contiguous along an axis.

        Args:
            value: a tile of pointers or of offsets.
        """
        here = value.op.loc.line if value.op is not None and value.op.loc is not None else 0
        for _ in range(MAX_STEPS):
            op = value.op
            if op is None:
                return self._reason_of_argument(value, axis)
            moved = _through(op, axis)
            if moved is not None:
                value, axis = moved
                continue
            if isinstance(op, memory.AddPtr | arith.Add | arith.Sub):
                varying = [v for v in op.operands if self._varies(v, axis)]
                if not varying:
                    return "adjacent elements have the same address"
                value = next((v for v in varying if self._run(v, axis) == 1), varying[0])
                continue
            line = op.loc.line if op.loc is not None else here
            at = f" (line {line})" if line != here else ""
            return self._reason_of_op(op, axis) + at
        return "the computation of the addresses is too long to analyse"

    def why_unaligned(self, value: Value, widest: int) -> str:
        """The reason for which contiguous runs are not known to be more strictly aligned.

        Args:
            widest: the bytes of the widest access.
        """
        leaf = self._weakest(value)
        name, known = self.name(leaf), self._known(leaf)
        if isinstance(number := arith.constant_value(leaf), int):
            return f"the address advances in steps of {number}, only a multiple of {known}"
        if leaf.owner is self.fn.body and leaf in self.fn.args:
            if is_pointer(leaf.type):
                return f"{name} is not known to be aligned to {widest} bytes"
            return f"{name} is not known to be a multiple of {max(16, 2 * known)}"
        return f"{name} is added to the address and only known to be a multiple of {known}"

    def why_mask_varies(self, mask: Value, axis: int, length: int) -> str:
        """The reason for which a mask may differ within aligned groups of `length` elements."""
        leaves = list(self._leaves(mask, axis))
        irregular = [v for v, a in leaves if self._bound(v, a) is None]
        if irregular:
            return f"{_VARIES}{_line_of(irregular[0])}"
        bounds = [bound for v, a in leaves if (bound := self._bound(v, a)) is not None]
        bound = min(map(self._weakest, bounds), key=self._known, default=None)
        if bound is None or self._known(bound) % length == 0:
            return "the mask may begin within a vector"
        return (
            f"the mask may end within a vector: {self.name(bound)} is not known to be a multiple "
            f"of {length}"
        )

    def why_mask_unbounded(self, mask: Value, axis: int) -> str:
        """The reason for which no bound along an axis is known from which on a mask is false."""
        for leaf, a in self._leaves(mask, axis):
            if self._bound(leaf, a) is None:
                return f"{_VARIES}{_line_of(leaf)}"
        return "the bound of the mask is not analysed in this loop"

    def name(self, value: Value, depth: int = 2) -> str:
        """A description of a value in terms of the source: an argument, a constant, an expression
        of up to `depth` operators, or the line of its definition."""
        for _ in range(MAX_STEPS):
            op = value.op
            if op is None:
                break
            if _renames(op):
                value = op.operands[0]
                continue
            return self._name_of_result(op, depth)
        return self._name_of_argument(value)

    # -- implementation -------------------------------------------------------------------------

    def _run(self, value: Value, axis: int) -> int:
        contiguity = self.infos[value].contiguity
        return contiguity[min(axis, len(contiguity) - 1)]

    def _equal(self, value: Value, axis: int) -> int:
        constancy = self.infos[value].constancy
        return constancy[min(axis, len(constancy) - 1)]

    def _varies(self, value: Value, axis: int) -> bool:
        extents = shape_of(value.type)
        return bool(extents) and self._equal(value, axis) < extents[axis]

    def _reason_of_op(self, op: Op, axis: int) -> str:
        """The reason for which the result of an op, which is not a sum, does not have stride 1."""
        match op:
            case memory.Load():
                return "the addresses are loaded from memory"
            case arith.Mul(lhs, rhs):
                factor = rhs if self._varies(lhs, axis) else lhs
                if isinstance(number := arith.constant_value(factor), int):
                    return f"adjacent elements have the stride {number}"
                return (
                    f"adjacent elements have the stride {self.name(factor)}, which is not known to "
                    "be 1 at compile time"
                )
            case arith.Rem(_, by) | arith.IntDiv(_, by):
                what = "a remainder" if isinstance(op, arith.Rem) else "a quotient"
                return (
                    f"the addresses depend on {what} of a division by {self.name(by)}, whose "
                    "contiguous runs are not known at compile time"
                )
            case arith.Select():
                return "the addresses are selected element by element"
            case _:
                return f"the stride of the result of `{op.name}` is not known"

    def _reason_of_argument(self, value: Value, axis: int) -> str:
        """As `_reason_of_op`, for an argument of a region."""
        region = value.owner
        loop = region.parent if isinstance(region, Region) else None
        if isinstance(loop, control.For) and value.index:
            inits = loop.inits
            if self._run(inits[value.index - 1], axis) == 1:
                return self.why_not_contiguous(inits[value.index - 1], axis)
            return (
                "the addresses are loop-carried and advance by a value that may differ between "
                f"elements (line {loop.loc.line if loop.loc else '?'})"
            )
        return "the addresses depend on control flow that is not analysed"

    def _known(self, value: Value) -> int:
        return self.infos[value].multiple_of_all()

    def _weakest(self, value: Value) -> Value:
        """The term or factor that limits the known divisibility of a value."""
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
        """A rank of how little influence the kernel's author has on the divisibility of a value:
        0 for arguments, 1 for computed values, 2 for program ids and induction variables."""
        while value.op is not None and _renames(value.op):
            value = value.op.operands[0]
        if value.op is None:
            return 0 if value.owner is self.fn.body else 2
        return 2 if isinstance(value.op, control.ProgramId | control.NumPrograms) else 1

    def _start(self, value: Value) -> int:
        """The divisibility of the first element of each run."""
        return min(self.infos[value].divisibility)

    def _leaves(self, mask: Value, axis: int) -> Iterator[tuple[Value, int]]:
        """The distinct operands of the bitwise operations that compute a mask, each with its axis;
        only those that vary along the axis."""
        seen, work = set[tuple[Value, int]](), [(mask, axis)]
        while work:
            value, axis = leaf = work.pop()
            if leaf in seen or not self._varies(value, axis):
                continue
            seen.add(leaf)
            op = value.op
            moved = _through(op, axis) if op and not isinstance(op, arith.Cast) else None
            if moved is not None:
                work.append(moved)
            elif isinstance(op, arith.And | arith.Or | arith.Xor):
                work += [(operand, axis) for operand in reversed(op.operands)]
            else:
                yield leaf

    def _bound(self, leaf: Value, axis: int) -> Value | None:
        """The bound of a mask that compares consecutive integers with one; None for other masks."""
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
            return "the loop's induction variable"
        return "a loop-carried value"

    def _name_of_result(self, op: Op, depth: int) -> str:
        match op:
            case arith.Constant():
                return str(op.value)
            case control.ProgramId(axis):
                return f"program_id({axis})"
            case control.NumPrograms(axis):
                return f"num_programs({axis})"
            case memory.Load():
                return f"a value loaded in line {op.loc.line}" if op.loc else "a loaded value"
            case _:
                pass
        sign = _SIGNS.get(type(op))
        if sign is not None and depth:
            left, right = (self.name(v, depth - 1) for v in op.operands)
            return f"{left} {sign} {right}"
        return f"a value computed in line {op.loc.line}" if op.loc else "a computed value"


def _line_of(value: Value) -> str:
    loc = value.op.loc if value.op is not None else None
    return f" (line {loc.line})" if loc is not None else ""


_VARIES = "the mask may differ between adjacent elements"
_SIGNS: dict[type[Op], str] = {arith.Mul: "*", arith.Add: "+", arith.Sub: "-", arith.Rem: "%"}


def _renames(op: Op) -> bool:
    """Whether each element of the result is an element of the operand, possibly converted."""
    return isinstance(op, arith.Cast) or (isinstance(op, View) and op.aligned)


def _through(op: Op, axis: int) -> tuple[Value, int] | None:
    """The operand, and its axis, whose adjacent elements are those of the result; None if there is
    none."""
    if isinstance(op, arith.Cast):
        return op.src, axis
    found = op.index_maps()[0] if isinstance(op, View) and op.aligned else None
    term = found and found.inverse().axes[axis]
    return (op.operands[0], term.axis) if isinstance(term, Along) else None
