"""Axis information of the values of a function: contiguity, divisibility and constancy of tiles.

The terms, the rules for each op and what these assume are in `axis_rules.py`. This is the forward
dataflow analysis over the structured control flow. For loop-carried values it computes the greatest
fixed point: it starts from the initial values, takes the meet with the yielded values, and repeats;
after `MAX_ROUNDS` rounds the values become unknown. A nested loop is revisited only if its
inputs have changed. Linear in the number of ops times the rounds of the enclosing loops. The
IR is not modified.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from tilewright.analysis.access_order import in_order
from tilewright.analysis.affine import AffineForms
from tilewright.analysis.axis_rules import (
    DIVISIONS,
    RULES,
    AxisInfo,
    meet,
    only_constancy,
    power_of_two_in,
    through_view,
    uniform,
    unit_of,
    unknown,
)
from tilewright.analysis.ranges import WRAPPING, may_wrap, value_range, wraps
from tilewright.analysis.signs import is_repeated_scalar, not_negative
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.types import Tile
from tilewright.ops import arith, control
from tilewright.ops.view import View

MAX_ROUNDS = 8  # over the body of a loop, until what it carries is a fixed point


class AxisMap:
    """The information of each value of a function; `unknown` for others.

    Args:
        trust_divisors: whether the assumption about divisors is made.
        trust_hints: whether hints on tiles are believed.
    """

    def __init__(self, *, trust_divisors: bool = True, trust_hints: bool = True) -> None:
        self.trust_divisors = trust_divisors
        self.trust_hints = trust_hints
        self._infos: dict[Value, AxisInfo] = {}
        self._visited: dict[Op, list[AxisInfo]] = {}
        self._sources: dict[Op, list[Value]] = {}
        self._forms = AffineForms()

    def __getitem__(self, value: Value) -> AxisInfo:
        result = self._infos.get(value)
        if result is None:
            result = self._infos[value] = unknown(value)
        return result

    def order(self, pointers: Value) -> tuple[int, ...]:
        """The axes of an access by preference for vectors and lanes: by the number of elements
        known to be adjacent, then by strides (`access_order`)."""
        info = self[pointers]
        runs = [axis for axis in info.order if info.contiguity[axis] > 1]
        alone = [axis for axis in info.order if info.contiguity[axis] == 1]
        if len(alone) > 1:
            form, size = self._forms.of(pointers), unit_of(pointers)
            alone = in_order(alone, form, size, lambda scalar: self[scalar].multiple_of_all())
        return *runs, *alone

    def access_length(self, ptr: Value, mask: Value | None, axis: int, size: int) -> int:
        """The maximum number of consecutive elements along an axis of one aligned access of
        elements of `size` bytes, all of them masked off or none."""
        length = self[ptr].vector_length(axis, size)
        return length if mask is None else min(length, self[mask].constancy[axis])

    def set(self, value: Value, info: AxisInfo) -> None:
        self._infos[value] = info

    def is_visited(self, op: Op, known: list[AxisInfo]) -> bool:
        """Whether an op was visited before with the same information of its operands, so that its
        results are up to date: in a loop, most ops do not depend on carried values."""
        if self._visited.get(op) == known:
            return True
        self._visited[op] = known
        return False

    def is_visited_loop(self, loop: Op) -> bool:
        """As `is_visited`, for a loop and its body: otherwise a loop nested in d others would be
        visited 2^d times, as each needs a second round to detect convergence."""
        sources = self._sources.get(loop)
        if sources is None:
            inside = list(loop.walk())
            defined = {v for op in inside for v in op.results}
            defined.update(v for op in inside for region in op.regions for v in region.args)
            used = dict.fromkeys(v for op in inside for v in op.operands)
            sources = self._sources[loop] = [v for v in used if v not in defined]
        return self.is_visited(loop, [self[v] for v in sources])


def axis_info(fn: Function, *, trust_divisors: bool = True, trust_hints: bool = True) -> AxisMap:
    """The information of all values of the function.

    The divisibility of arguments is ``divisibility`` in `Function.arg_attrs` (for pointers, in
    bytes).

    Args:
        trust_divisors: whether to make the assumption about divisors (see `axis_rules`), or to
            require a proof.
        trust_hints: whether to believe hints on tiles, or to require a proof. Many of them are
            false beyond the 16 bytes that an access of a GPU has at most, for which kernels are
            tested: ``max_contiguous(i % n, BLOCK)`` is, unless `n` is a multiple of the block.
    """
    infos = AxisMap(trust_divisors=trust_divisors, trust_hints=trust_hints)
    for arg, attrs in zip(fn.args, fn.arg_attrs, strict=True):
        divisibility = power_of_two_in(int(attrs.get("divisibility", 1)))
        if not isinstance(arg.type, Tile):
            infos.set(arg, uniform(arg, divisibility))
    _visit(fn.body, infos)
    return infos


def _visit(region: Region, infos: AxisMap) -> None:
    for op in region:
        if op.regions:
            _visit_control(op, infos)
            continue
        known = [infos[v] for v in op.operands]
        if infos.is_visited(op, known):
            continue
        if _has_rule(op):
            info = _by_rule(op, known, infos)
            if info is not None:
                info = _without_wraps(op.results[0], info)
                infos.set(op.results[0], _normalised(op.results[0], info))
        elif isinstance(op, View):
            for result in op.results:
                infos.set(result, _normalised(result, through_view(op, result, known[0])))
        elif op.elementwise and op.operands:
            infos.set(op.results[0], only_constancy(op, known))


def _has_rule(op: Op) -> bool:
    return type(op) in RULES or type(op) in DIVISIONS


def _by_rule(op: Op, known: Sequence[AxisInfo], infos: AxisMap) -> AxisInfo | None:
    divide = DIVISIONS.get(type(op))
    if divide is not None:
        return divide(op, known, _is_plain_division(op, trust_divisors=infos.trust_divisors))
    if isinstance(op, arith.Hint) and isinstance(op.result.type, Tile) and not infos.trust_hints:
        return known[0]
    rule = RULES.get(type(op))
    assert rule is not None
    return rule(op, known)


def _is_plain_division(op: Op, *, trust_divisors: bool) -> bool:
    """Whether the dividend is not negative, and the divisor of a remainder is not 0."""
    dividend, divisor = op.operands
    if not not_negative(dividend, trust_divisors=trust_divisors):
        return False
    if isinstance(op, arith.IntDiv) or (trust_divisors and is_repeated_scalar(divisor)):
        return True  # the quotients by 0 are all 0
    low, high = value_range(divisor)
    return low > 0 or high < 0


def _without_wraps(value: Value, info: AxisInfo) -> AxisInfo:
    """Runs of integers that wrap (`ranges.may_wrap`), cut at multiples of a power of two,
    where they may: one that starts at a multiple of its length does not wrap."""
    if not may_wrap(value) or not isinstance(value.op, WRAPPING) or not wraps(value):
        return info
    runs = tuple(gcd(c, d) for c, d in zip(info.contiguity, info.divisibility, strict=True))
    multiples = tuple(
        d if run == c else run
        for run, c, d in zip(runs, info.contiguity, info.divisibility, strict=True)
    )
    return info._replace(contiguity=runs, divisibility=multiples)


def _normalised(value: Value, info: AxisInfo) -> AxisInfo:
    """Raise the divisibility along axes without runs, where it applies to every element, to the
    divisibility known for all elements along any axis."""
    if info.rank == 1 or 1 not in info.contiguity:
        return info
    whole = info.multiple_of_all(unit_of(value))
    divisibility = tuple(
        [
            max(d, whole) if c == 1 else d
            for c, d in zip(info.contiguity, info.divisibility, strict=True)
        ]
    )
    return AxisInfo(info.contiguity, divisibility, info.constancy, info.constant)


def _visit_control(op: Op, infos: AxisMap) -> None:
    match op:
        case control.For() | control.While() if infos.is_visited_loop(op):
            pass
        case control.For():
            _visit_for(op, infos)
        case control.If():
            for region in op.regions:
                _visit(region, infos)
            _meet_into(op.results, [r.terminator.operands for r in op.regions], infos)
        case control.While():
            _visit_while(op, infos)
        case _:  # a combine region: its arguments are unknown scalars
            for region in op.regions:
                _visit(region, infos)


def _meet_into(values: Sequence[Value], sources: Sequence[Sequence[Value]], infos: AxisMap) -> bool:
    """Set each value to the meet of its sources. Returns whether anything changed."""
    changed = False
    for i, value in enumerate(values):
        info = infos[sources[0][i]]
        for source in sources[1:]:
            info = meet(info, infos[source[i]], unit_of(value))
        changed |= infos[value] != info
        infos.set(value, info)
    return changed


def _visit_for(op: Op, infos: AxisMap) -> None:
    body = op.regions[0]
    start, step = infos[op.operands[0]], infos[op.operands[2]]
    infos.set(body.args[0], uniform(body.args[0], gcd(start.divisibility[0], step.divisibility[0])))
    inits = op.operands[3:]
    carried = body.args[1:]
    for arg, init in zip(carried, inits, strict=True):
        infos.set(arg, infos[init])
    for _ in range(MAX_ROUNDS):
        _visit(body, infos)
        if not _meet_into(carried, [carried, body.terminator.operands], infos):
            break
    else:
        for arg in carried:
            infos.set(arg, unknown(arg))
        _visit(body, infos)
    _meet_into(op.results, [inits, body.terminator.operands], infos)


def _visit_while(op: Op, infos: AxisMap) -> None:
    before, body = op.regions
    passed = before.terminator.operands[1:]
    for arg, init in zip(before.args, op.operands, strict=True):
        infos.set(arg, infos[init])
    for _ in range(MAX_ROUNDS):
        _visit(before, infos)
        _meet_into(body.args, [passed], infos)
        _visit(body, infos)
        if not _meet_into(before.args, [before.args, body.terminator.operands], infos):
            break
    else:
        for arg in before.args:
            infos.set(arg, unknown(arg))
        _visit(before, infos)
        _meet_into(body.args, [passed], infos)
        _visit(body, infos)
    _meet_into(op.results, [passed], infos)
