"""The part of canonicalize_pointers on control flow: replaces loop-carried pointers, and pointers
that branches yield, by offsets from a common base."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tilewright.ir.core import Region, Value
from tilewright.ir.rewriter import insert_before
from tilewright.ir.types import I64, Tile, Type, is_pointer, shape_of, with_element
from tilewright.ops.arith import Add, Constant, IntDiv, Mul, Sub
from tilewright.ops.control import For, If
from tilewright.passes.pointer_parts import Parts, PointerAlgebra
from tilewright.rewrites.control import rebuilt_if, remove_args, set_yields, take_region
from tilewright.rewrites.patterns import known


def convert_regions(algebra: PointerAlgebra, region: Region) -> bool:
    """Replace the pointers that loops carry and branches yield, inner loops first. Returns whether
    anything changed."""
    changed = False
    for op in region:
        for nested in op.regions:
            changed |= convert_regions(algebra, nested)
        if isinstance(op, For) and _has_pointers(op.inits):
            changed |= _LoopRewrite(algebra, op).run()
        elif isinstance(op, If) and _has_pointers(op.results):
            changed |= _convert_if(algebra, op)
    return changed


def _has_pointers(values: Sequence[Value]) -> bool:
    return any(is_pointer(v.type) for v in values)


class _Moved(NamedTuple):
    """A replaced pointer: `start` plus offsets, which are given by their indices among the
    additional loop-carried values of a loop, or results of an `if`; None for no offset."""

    start: Value
    uniform: int | None
    varying: int | None


class _LoopRewrite:
    """Replaces the loop-carried pointers of a `for`.

    Attributes:
        inits, nexts: the initial and the yielded values of the loop-carried offsets.
    """

    def __init__(self, algebra: PointerAlgebra, loop: For) -> None:
        self.algebra = algebra
        self.loop = loop
        assert loop.body.first is not None
        self.first = loop.body.first
        self.end = loop.body.terminator
        self.inits: list[Value] = []
        self.nexts: list[Value] = []
        self._iteration: Value | None = None

    def run(self) -> bool:
        moved = [self._replace_argument(i) for i in range(len(self.loop.inits))]
        keep = [m is None for m in moved]
        if all(keep):
            return False
        loop = self.loop
        yields = [v for v, k in zip(self.end.operands, keep, strict=True) if k]
        set_yields(loop.body, yields + self.nexts)
        remove_args(loop.body, [True, *keep, *[True] * len(self.inits)])
        inits = [v for v, k in zip(loop.inits, keep, strict=True) if k] + self.inits
        new = insert_before(loop.rebuilt(inits, take_region(loop, 0)), loop)
        _replace_results(self.algebra, loop, new, moved)
        return True

    def _replace_argument(self, index: int) -> _Moved | None:
        """Replace a loop-carried pointer in the body; None if it is not one that can be
        replaced."""
        algebra, loop = self.algebra, self.loop
        init, arg = loop.inits[index], loop.body.args[index + 1]
        if not is_pointer(init.type):
            return None
        after = algebra.parts(self.end.operands[index])
        if after.base is arg:
            moved, now = self._by_steps(init, after, bool(loop.results[index].users))
        else:
            before = algebra.parts(init)
            if before.base is not after.base or isinstance(before.base.type, Tile):
                return None
            moved, now = self._by_offsets(before, after, init.type)
        with algebra.build.before(self.first):
            arg.replace_with(algebra.pointer(moved.start, *now, shape_of(init.type)))
        algebra.forget()
        return moved

    def _by_steps(
        self, init: Value, step: Parts, last_is_used: bool
    ) -> tuple[_Moved, tuple[Value | None, Value | None]]:
        """A pointer that advances by a step: carry the sum of steps, or compute it from the
        iteration number. Returns also the uniform and varying offset in the body."""
        algebra = self.algebra
        uniform = varying = None
        now: list[Value | None] = [None, None]
        if step.uniform:
            is_fixed = not any(self.loop.contains(v) for v in step.uniform)
            if is_fixed and not last_is_used and (iteration := self._iterations()) is not None:
                with algebra.build.before(self.loop):
                    by = algebra.sum_uniform(step.uniform) or algebra.number(0)
                with algebra.build.before(self.first):
                    now[0] = algebra.new(Mul(iteration, by))
            else:
                uniform, now[0] = self._carry(
                    None, I64, lambda arg: self._sum(arg, algebra.sum_uniform(step.uniform))
                )
        if step.varying:
            type = with_element(init.type, I64)
            varying, now[1] = self._carry(
                None, type, lambda arg: self._sum(arg, algebra.sum_varying(step.varying, True))
            )
        return _Moved(init, uniform, varying), (now[0], now[1])

    def _by_offsets(
        self, before: Parts, after: Parts, type: Type
    ) -> tuple[_Moved, tuple[Value | None, Value | None]]:
        """A pointer that each iteration recomputes from the same base: carry its offsets."""
        algebra = self.algebra
        uniform = varying = None
        now: list[Value | None] = [None, None]
        with algebra.build.before(self.loop):
            first = algebra.sum_uniform(before.uniform)
            first_tile = algebra.sum_varying(before.varying, True)
        if before.uniform or after.uniform:
            uniform, now[0] = self._carry(
                first, I64, lambda arg: algebra.sum_uniform(after.uniform)
            )
        if before.varying or after.varying:
            varying, now[1] = self._carry(
                first_tile,
                with_element(type, I64),
                lambda arg: algebra.sum_varying(after.varying, True),
            )
        return _Moved(before.base, uniform, varying), (now[0], now[1])

    def _sum(self, a: Value, b: Value | None) -> Value:
        return a if b is None else self.algebra.new(Add(a, b))

    def _carry(
        self, init: Value | None, type: Type, following: Callable[[Value], Value | None]
    ) -> tuple[int, Value]:
        """Add a loop-carried value with the initial value `init` (None: 0). Returns its index and
        the argument of the body."""
        build, new = self.algebra.build, self.algebra.new
        with build.before(self.loop):
            self.inits.append(init or new(Constant(0, type)))
        arg = self.loop.body.add_arg(type)
        with build.before(self.end):
            self.nexts.append(following(arg) or new(Constant(0, type)))
        return len(self.inits) - 1, arg

    def _iterations(self) -> Value | None:
        """The iteration number, from 0, in i64; None if it needs a division that is expensive or
        may be inexact."""
        if self._iteration is not None:
            return self._iteration
        algebra, loop = self.algebra, self.loop
        step = known(loop.step)
        # The wrapped difference i - start is correct modulo 2**64, but its quotient is not.
        if step is None or step < 1 or (step > 1 and loop.step.type.scalar.primitive_bitwidth > 32):
            return None
        with algebra.build.before(self.first):
            count = algebra.wide(loop.body.args[0])
            if known(loop.start) != 0:
                count = algebra.new(Sub(count, algebra.wide(loop.start)))
            if step != 1:
                count = algebra.new(IntDiv(count, algebra.number(int(step))))
        self._iteration = count
        return count


def _replace_results(
    algebra: PointerAlgebra, old: For | If, new: For | If, moved: Sequence[_Moved | None]
) -> None:
    """Replace the results of the old op by those of the new one, whose last results are offsets."""
    kept = moved.count(None)
    offsets = new.results[kept:]
    following = iter(new.results)
    with algebra.build.before(old):
        for result, m in zip(old.results, moved, strict=True):
            if m is None:
                result.replace_with(next(following))
            elif result.users:
                uniform = None if m.uniform is None else offsets[m.uniform]
                varying = None if m.varying is None else offsets[m.varying]
                shape = shape_of(result.type)
                result.replace_with(algebra.pointer(m.start, uniform, varying, shape))
    old.erase()
    algebra.forget()


def _convert_if(algebra: PointerAlgebra, op: If) -> bool:
    """Replace pointers whose base is the same in both branches by that base and offsets."""
    ends = (op.then.terminator, op.otherwise.terminator)
    yields: tuple[list[Value], list[Value]] = ([], [])
    extra: tuple[list[Value], list[Value]] = ([], [])
    moved: list[_Moved | None] = []
    for i, result in enumerate(op.results):
        parts = [algebra.parts(end.operands[i]) for end in ends] if is_pointer(result.type) else []
        if not _share_base(op, parts):
            moved.append(None)
            for end, values in zip(ends, yields, strict=True):
                values.append(end.operands[i])
            continue
        uniform, varying = len(extra[0]), None
        for end, values, p in zip(ends, extra, parts, strict=True):
            with algebra.build.before(end):
                values.append(algebra.sum_uniform(p.uniform) or algebra.number(0))
        if any(p.varying for p in parts):
            varying = len(extra[0])
            type = with_element(result.type, I64)
            for end, values, p in zip(ends, extra, parts, strict=True):
                with algebra.build.before(end):
                    tile = algebra.sum_varying(p.varying, True)
                    values.append(tile or algebra.new(Constant(0, type)))
        moved.append(_Moved(parts[0].base, uniform, varying))
    if not any(moved):
        return False
    for region, values, more in zip(op.regions, yields, extra, strict=True):
        set_yields(region, values + more)
    new = insert_before(rebuilt_if(op), op)
    _replace_results(algebra, op, new, moved)
    return True


def _share_base(op: If, parts: Sequence[Parts]) -> bool:
    if not parts or parts[0].base is not parts[1].base:
        return False
    base = parts[0].base
    return not isinstance(base.type, Tile) and not op.contains(base)
