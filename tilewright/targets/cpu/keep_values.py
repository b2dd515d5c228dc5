"""Decides which lazy values are materialised in a buffer (*kept*), and which loop nest fills it.

A lazy value is rematerialised in every nest that uses it, and there at every distinct point at
which its consumers evaluate it: `x + flip(x)` computes x twice. Multiplicities multiply along a
chain of such ops, so they are bounded by a cost. A value is kept if

- several nests evaluate it, and it costs more than `KEEP_COST`, unless it is the address or index
  of adjacent elements;
- one nest evaluates it at several points, and the repetition costs more than `COST_LIMIT`;
- a nested loop uses it, and it loads, or costs more than index arithmetic;
- it loads from memory that is written before or during its use;
- its consumer reads it in another order (gather, scan, sort).

Consumers are decided before producers, so that the multiplicity of a value is known. Unless it is
kept, all evaluations of a value cost at most `COST_LIMIT` more than a single one. Therefore the
size of a kernel's code, and its compile time, are linear in the number of its ops.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

from tilewright.analysis.affine import AffineForms
from tilewright.ir.core import Op, Region, Value, is_tile
from tilewright.ir.types import element_of, is_int, is_pointer, shape_of
from tilewright.ops import debug, dot, memory, reduce, shape, sort
from tilewright.targets.cpu.alias import Base, MemoryOrder, same_elements
from tilewright.targets.cpu.lazy import COST_LIMIT, is_lazy, loads_in, moves_elements
from tilewright.targets.cpu.plan import Group, Plan, Step, is_contiguous
from tilewright.targets.cpu.points import Point, Points, identity

LOOP_COST = 12  # the most costly index arithmetic that a nested loop may recompute
KEEP_COST = 10  # a value used by several groups is kept if it costs more
MOST_POINTS = 16  # the most points of one nest for cheap values: index arithmetic, moved elements
MOST_SITES = 32  # recorded for a value; if there are more, only the first and the last are

Sites = dict[Step | None, set[Point]]
"""The steps that evaluate a value, with the points at which each does. None stands for the end of
the region."""


def keep_values(plan: Plan, region: Region, steps: list[Step], order: MemoryOrder) -> list[Step]:
    """The steps of a region, with groups to fill buffers inserted. Adds kept values to the plan."""
    keeper = _Keeper(plan, region, steps, order)
    for op in region.reversed():
        if is_lazy(op):
            for value in op.results:
                if is_tile(value) and value.users:
                    keeper.consider(value)
    return list(keeper.sequence)


class _Sequence:
    """Steps in execution order, with insertion and comparison of positions in constant time.

    A linked list with order-maintenance labels: gaps of 2^32, halved by insertions; all are
    renumbered when a gap is exhausted.
    """

    def __init__(self, steps: list[Step]) -> None:
        linked: list[Step | None] = [None, *steps, None]
        self._next: dict[Step | None, Step | None] = dict(pairwise(linked))
        self._previous = dict(zip(linked[1:], linked, strict=False))
        self._label: dict[Step | None, int] = {}
        self._relabel()

    def __iter__(self) -> Iterator[Step]:
        step = self._next[None]
        while step is not None:
            yield step
            step = self._next[step]

    def _relabel(self) -> None:
        for number, step in enumerate([*self, None], 1):
            self._label[step] = number << 32

    def place(self, step: Step | None) -> int:
        """The position of a step, as a number that increases in execution order; None: the end."""
        return self._label[step]

    def before(self, step: Step | None) -> Step | None:
        return self._previous[step]

    def insert(self, new: Step, following: Step | None) -> None:
        """Insert a step directly before another."""
        previous = self._previous[following]
        self._next[previous], self._next[new] = new, following
        self._previous[new], self._previous[following] = previous, new
        low = 0 if previous is None else self._label[previous]
        self._label[new] = (low + self._label[following]) // 2
        if self._label[new] == low:
            self._relabel()


class _Writers:
    """The writing ops of a region, by base pointer, searchable by position."""

    def __init__(
        self, region: Region, steps: list[Step], order: MemoryOrder, forms: AffineForms
    ) -> None:
        self.order = order
        self.forms = forms
        self.position = {op: i for i, op in enumerate(region)}
        self.all = [(op, s) for s in steps for op in s.ops() if order.writes_in(op)]
        self.known: dict[Base, tuple[list[int], list[tuple[Op, Step]]]] = {}

    def of(self, base: Base) -> tuple[list[int], list[tuple[Op, Step]]]:
        """The ops that may write through a base, in the order of steps, and the running maximum of
        their positions in the region, for bisection."""
        if base not in self.known:
            found = [entry for entry in self.all if self.order.may_write(entry[0], base)]
            last, reached = -1, list[int]()
            for op, _ in found:
                last = max(last, self.position[op])
                reached.append(last)
            self.known[base] = reached, found
        return self.known[base]

    def first_after(self, load: memory.Load) -> Step | None:
        """The first step after the load that may overwrite its memory, except for updates in place
        (`same_elements`)."""
        reached, found = self.of(self.order.base(load.ptr))
        here = self.position[load]
        for op, step in found[bisect_right(reached, here) :]:
            if self.position[op] < here:
                continue
            if isinstance(op, memory.Store) and same_elements(load, op, self.forms):
                continue
            return step
        return None


class _Keeper:
    """Decides for the values of one region, consumers before producers."""

    def __init__(self, plan: Plan, region: Region, steps: list[Step], order: MemoryOrder) -> None:
        self.plan = plan
        self.region = region
        self.sequence = _Sequence(steps)
        self.writers = _Writers(region, steps, order, plan.forms)
        self.step_of = {op: step for step in steps for op in step.ops()}
        self.points = Points()
        self.sites: dict[Value, Sites] = {}
        self.filled: set[Group] = set()  # groups inserted to fill buffers

    def consider(self, value: Value) -> None:
        """Decide for a value; its consumers must be decided."""
        sites, nested, forced = self.sites_of(value)
        ordered = sorted(sites, key=self.sequence.place) if len(sites) > 1 else list(sites)
        limit = None
        if isinstance(value.op, memory.Load):
            limit = self.writers.first_after(value.op)
        overwritten = limit is not None and self._precedes(limit, ordered)
        if overwritten or forced or self.is_cheaper_kept(value, sites, nested):
            home = self.keep(value, sites, ordered[0] if ordered else None, limit)
            self.sites[value] = {home: {identity(len(home.shape))}}
        else:
            if len(ordered) > MOST_SITES:
                sites = {s: sites[s] for s in (ordered[0], ordered[-1])}
            self.sites[value] = sites

    def _precedes(self, limit: Step, sites: list[Step | None]) -> bool:
        """Whether a step precedes or is the last of `sites`, which are in order."""
        place = self.sequence.place
        return bool(sites) and place(limit) <= place(sites[-1])

    def is_cheaper_kept(self, value: Value, sites: Sites, nested: bool) -> bool:
        """Whether the cost model prefers a buffer to recomputation."""
        repeats = sum([len(points) - 1 for points in sites.values()])
        if not nested and len(sites) <= 1 and not repeats:
            return False
        kept = self.plan.kept
        cost = self.plan.costs.of(value, kept)
        if nested and (cost > LOOP_COST or any(loads_in([value], kept))):
            return True
        if len(sites) > 1 and cost > KEEP_COST and not self._is_contiguous(value):
            return True
        if not repeats or not cost:
            return False
        if repeats >= MOST_POINTS:
            return True
        # Ops that only move elements leave the decision to their operands. A buffer of addresses or
        # indices would hide from accesses that these are contiguous.
        if moves_elements(value.op) or self._is_index(value):
            return False
        return repeats * cost > COST_LIMIT

    def _is_contiguous(self, value: Value) -> bool:
        """Whether a value consists of addresses or indices of adjacent elements, along some axis:
        most of its cost is that of numbers which a nest computes once."""
        element = element_of(value.type)
        if not is_pointer(element) and not is_int(element):
            return False
        axes = range(len(shape_of(value.type)))
        return any(is_contiguous(self.plan, value, axis) for axis in axes)

    def _is_index(self, value: Value) -> bool:
        if is_pointer(element_of(value.type)):
            return True
        return is_int(value.type) and None not in self.plan.forms.constant_strides(value)

    def sites_of(self, value: Value) -> tuple[Sites, bool, bool]:
        """The steps that evaluate the value, whether one of them is a nested loop, and whether a
        consumer requires a buffer."""
        found: Sites = {}
        nested = forced = False
        here = identity(len(shape_of(value.type)))
        for user in value.users:
            if user.parent is not self.region:
                nested = True
                outer = self.region.find_ancestor(user)
                assert outer is not None
                found.setdefault(self.step_of[outer], set()).add(here)
            elif user.terminator:
                found.setdefault(None, set()).add(here)
            elif is_lazy(user) and is_tile(user.results[0]):
                self._add_operand_sites(found, user, value)
                forced |= isinstance(user, shape.Gather) and user.src is value
            elif isinstance(user, dot.Dot):
                points = found.setdefault(self.step_of[user], set())
                for i, operand in enumerate(user.operands):  # each is packed separately
                    if operand is value:
                        points.add(self.points.apart(("dot", user, i), len(here)))
            else:
                found.setdefault(self.step_of[user], set()).add(here)
                forced |= isinstance(user, reduce.Scan | sort.Sort | debug.Print)
        return found, nested, forced

    def _add_operand_sites(self, found: Sites, user: Op, value: Value) -> None:
        """Add the steps and points at which a lazy consumer evaluates the value."""
        for result in user.results:
            for step, points in self.sites.get(result, {}).items():
                mine = found.setdefault(step, set())
                for point in points:
                    for operand, at in self.points.operands(result, point):
                        if operand is value:
                            mine.add(at)

    def keep(self, value: Value, sites: Sites, first: Step | None, limit: Step | None) -> Group:
        """Choose the group that fills the value's buffer, and return it.

        It is the first nest that uses the value, if that evaluates it at its own points only, or
        else a nest before it; in any case one before the memory that the value loads is written.

        Args:
            first: the first step that uses the value; None for the end of the region.
            limit: the first step that may overwrite what the value loads; None if there is none.
        """
        self.plan.kept.add(value)
        shape = shape_of(value.type)
        following = first
        if limit is not None and self.sequence.place(limit) <= self.sequence.place(first):
            following = limit
        if following is first and following is not limit:
            here = {identity(len(shape))}
            if isinstance(first, Group) and first.shape == shape and sites[first] == here:
                first.keep.append(value)
                return first
            before = self.sequence.before(following)
            if isinstance(before, Group) and before in self.filled and before.shape == shape:
                before.keep.append(value)
                return before
        self.check_before(value, following)
        group = Group(shape, keep=[value])
        self.sequence.insert(group, following)
        if following is not limit and any(len(points) > 1 for points in sites.values()):
            self.filled.add(group)
        return group

    def check_before(self, value: Value, step: Step | None) -> None:
        """Let the assertions of a step precede a group that fills the buffer of a value which is
        defined after them: it may load memory at addresses that they are about."""
        if not isinstance(step, Group) or value.op is None:
            return
        checks = step.checks_before(value.op, self.writers.position)
        if checks is not None:
            self.step_of.update(dict.fromkeys(checks.roots, checks))
            self.sequence.insert(checks, step)
