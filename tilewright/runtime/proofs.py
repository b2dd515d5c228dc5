"""Proofs for the launch of a derivative in reverse mode, which determine the schedule of each
gradient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

from tilewright.analysis.blocks import BlockFinder
from tilewright.autodiff.arrays import Array, arrays_of
from tilewright.autodiff.coarsen import Coarsening, Parts, coarsening, parts_of
from tilewright.autodiff.derived import Derived
from tilewright.autodiff.distinct import (
    Verdict,
    distinct,
    lanes_are_distinct,
    turns_are_ordered,
)
from tilewright.autodiff.enumerated import FEW_ACCESSES, are_distinct, sharing
from tilewright.autodiff.errors import not_deterministic, stored_twice
from tilewright.autodiff.in_place import is_updated_in_place
from tilewright.autodiff.lane_sums import can_sum
from tilewright.autodiff.points import Points, UnknownNumber
from tilewright.autodiff.regrid import regrids
from tilewright.autodiff.regridded import Regridded, regridded_kernels
from tilewright.autodiff.saved import NOTHING_STORED, Stored
from tilewright.autodiff.schedules import Regrid
from tilewright.autodiff.tapes import TapePlan
from tilewright.autodiff.wraps import remove_wraps
from tilewright.base.located import line_of
from tilewright.compiler.source import ArgPath
from tilewright.ir.core import Function, Module, Op, Value
from tilewright.ir.types import DType, is_int, shape_of
from tilewright.ops.control import For, If
from tilewright.ops.memory import Load
from tilewright.runtime.derived_launch import Launch, NarrowSumError, Request
from tilewright.runtime.partial_sums import MOST_ELEMENTS, MOST_WORKERS, can_hold, elements_of
from tilewright.runtime.slots import at_path

SMALL = 32  # bits; narrower floats are not added up atomically
_INDIRECT = "an index is not known before the launch"


class Proofs:
    """The facts proven about the arrays of a launch in reverse mode.

    Attributes:
        arrays: those of the kernel.
        others: the kernels on grids of their own.
        coarse: the inputs that programs share and whose gradients workers add up.
        parts: those of whose gradients each program stores a part.
        summed: both; see `Plan`.
        private: the inputs of which elements are loaded several times, by one program each.
        atomic: the other inputs of which elements may be loaded more than once.
        tapes: how loops are recorded.
        stored: the results that gradient kernels may load.
        loads_results: whether the launch has the results of the kernel's own launch: tangents may
            not have been computed.
        repeated: by input, the loads of which several lanes may have the same element; these are
            added up first.
        rest: of inputs whose other loads are private, the loads of which nothing is known, as that
            of a label's element of a row.
        last: likewise, the loads that are known to have no element of another program, as that of a
            label's element if its mask requires the label to be one of the row.
    """

    def __init__(
        self, module: Module, request: Request, launch: Launch, paths: Sequence[ArgPath],
        types: Mapping[str, DType], loads_results: bool,
    ) -> None:  # fmt: skip
        fn = module.entry
        self.loads_results = loads_results
        self.others = Regridded()
        self.rest: dict[str, list[Load]] = {}
        self.last: dict[str, list[Load]] = {}
        self.repeated: dict[str, list[Load]] = {}
        self.stored = NOTHING_STORED
        self.request = request
        self.arrays: list[Array] = list(arrays_of(fn).values())
        self.loads: dict[str, Verdict] = {}
        self.stores: dict[str, Verdict] = {}
        scalars = {
            arg: int(at_path(launch.slots, path))
            for arg, path in zip(fn.args, paths, strict=True)
            if is_int(arg.type)
        }
        self.points: Points | None = None
        self.coarse: Coarsening | None = None
        self.parts: Parts | None = None
        if request.mode == "reverse":
            self.coarse = self._prove(module, scalars, launch, types)
        self.summed = self._summed(launch)
        kept = {*self.summed, *self.others.arrays}
        self.atomic = [n for n, v in self.loads.items() if not v.private and n not in kept]
        self.private = [n for n, v in self.loads.items() if v.private and not v.distinct]
        axes = self.coarse.axes if self.coarse else ()
        workers = min(MOST_WORKERS, prod(launch.grid[axis] for axis in axes))
        programs = workers * prod(n for axis, n in enumerate(launch.grid) if axis not in axes)
        self.tapes = TapePlan(self.points, programs, request.tape_bytes)

    def _prove(
        self, module: Module, scalars: Mapping[Value, int], launch: Launch,
        types: Mapping[str, DType],
    ) -> Coarsening | None:  # fmt: skip
        fn, request = module.entry, self.request
        try:
            points = self.points = Points(scalars, launch.grid, self._tables(launch))
        except UnknownNumber as error:
            for array in self.arrays:
                at: Op | None = next(iter(array.loads), None)
                unknown = Verdict(False, reason=str(error), at=at)
                self.loads |= {n: unknown for n in self.request.wrt if n == array.name}
                unknown = Verdict(False, reason=str(error), at=next(iter(array.writes), None))
                self.stores |= {n: unknown for n in self.request.outputs if n == array.name}
            return None
        remove_wraps(fn, points)
        self.arrays = list(arrays_of(fn).values())
        finder = BlockFinder()
        for array in self.arrays:
            if array.name in self.request.wrt:
                self.loads[array.name] = self._of_loads(fn, array, points, finder)
            if array.name in self.request.outputs:
                self.stores[array.name] = self._of_stores(fn, array, points, finder)
        self.stored = self._stored(fn, points, finder)
        shared = [a for a in self.arrays if self._is_shared(a, launch)]
        small = [a.name for a in shared if self._is_small(a, launch)]
        self.others = regridded_kernels(
            module, request.wrt, request.outputs, request.aux,
            _parallel_ones(regrids(fn, shared, points, finder), points, small),
            accumulate=request.accumulate, types=types, stored=self.stored,
            atomic=[name for name in request.atomic if name in request.wrt],
        )  # fmt: skip
        for name in self.others.added:
            self.rest.pop(name, None)
            self.last.pop(name, None)
        shared = [a for a in shared if a.name not in self.others.arrays]
        coarse = coarsening(fn, shared, points, finder, small, self.repeated)
        if shared and (coarse is None or len(coarse.verdicts) < len(shared)):
            self.parts = parts_of(fn, shared, points, finder, MOST_WORKERS)
        return coarse if self.parts is None else None

    def _summed(self, launch: Launch) -> dict[str, int]:
        """See `Plan.summed`."""
        if self.parts is None:
            return dict.fromkeys(self.coarse.arrays if self.coarse else (), 0)
        return {n: prod(launch.grid[i] for i in axes) for n, axes in self.parts.axes.items()}

    def _stored(self, fn: Function, points: Points, finder: BlockFinder) -> Stored:
        """See `Proofs`."""
        if not self.loads_results:
            return NOTHING_STORED
        floats = [a for a in self.arrays if a.stores and not a.atomics and a.is_float]
        in_place = [a.name for a in floats if is_updated_in_place(fn, a, points, finder)]
        verdicts = {
            a.name: self.stores.get(a.name) or distinct(fn, a.stores, points, finder)
            for a in floats
            if not a.loads or a.name in in_place
        }
        names = [name for name, verdict in verdicts.items() if verdict.distinct]
        return Stored(names, [axis for axis, n in enumerate(points.grid) if n == 1], in_place)

    def _tables(self, launch: Launch) -> dict[Value, Any]:
        """The elements of the tables that the kernel does not store."""
        known = dict(zip(self.request.tables, launch.tables, strict=True))
        return {a.arg: known[a.name] for a in self.arrays if a.name in known and not a.writes}

    @property
    def repeated_loads(self) -> list[Load]:
        """All loads of `repeated`."""
        return [op for loads in self.repeated.values() for op in loads]

    @property
    def last_loads(self) -> list[Load]:
        """All loads of `last`."""
        return [op for loads in self.last.values() for op in loads]

    @property
    def omitted_loads(self) -> list[Load]:
        """The loads that the first kernel leaves out."""
        return [op for loads in self.rest.values() for op in loads]

    def _of_stores(
        self, fn: Function, array: Array, points: Points, finder: BlockFinder
    ) -> Verdict:
        found = distinct(fn, array.stores, points, finder)
        by_all = not found.distinct and are_distinct(array.stores, points)
        return Verdict(True, private=True) if by_all else found

    def _of_loads(self, fn: Function, array: Array, points: Points, finder: BlockFinder) -> Verdict:
        """The verdict on the loads of an array, or on those in loops or of tiles, if nothing is
        known about the others."""
        found = distinct(fn, array.loads, points, finder)
        if found.private:
            return found
        known = self._in_common(array, found, points, finder)
        if known is not None and known.private:
            return known
        rest = [op for op in array.loads if not distinct(fn, [op], points, finder).private]
        known = [op for op in array.loads if op not in rest]
        verdict = distinct(fn, known, points, finder)
        if not known or not verdict.private:
            return found
        if self._can_follow(array, rest, known, points, finder):
            self.last[array.name] = rest
        elif self._are_shared(rest):
            return found
        else:
            self.rest[array.name] = rest
        return verdict

    def _can_follow(
        self, array: Array, rest: Sequence[Load], known: Sequence[Load], points: Points,
        finder: BlockFinder,
    ) -> bool:  # fmt: skip
        """Whether the elements of scalar loads of which little is known can be added to in memory
        at the end of the region that they are in, behind the stores of all others: nothing outside
        of the region, and no other iteration or program that runs it, has any of the elements."""
        region = rest[0].parent
        if region is None or array.writes or any(shape_of(op.result.type) for op in rest):
            return False
        inside = all(op.parent is region for op in rest) and all(
            region.contains(op.result) for op in known
        )
        loops = [op for op in rest[0].ancestors() if isinstance(op, For)]
        return inside and turns_are_ordered(loops, array.loads, points, finder)

    def _in_common(
        self, array: Array, by_form: Verdict, points: Points, finder: BlockFinder
    ) -> Verdict | None:
        """The verdict on loads of which it is not known by their form; None if an address is not
        known, or a tile is too large to add up lanes that have the same element."""
        lanes = lanes_are_distinct(array.loads, points, finder)
        if lanes and by_form.shared:
            return None
        found = sharing(array.loads, points, FEW_ACCESSES)
        if found is None or lanes:
            return Verdict(found.distinct, True) if found is not None and found.private else None
        if not all(can_sum(op.ptr) for op in found.repeated):
            return None
        if not found.distinct:
            self.repeated[array.name] = [op for op in array.loads if op in found.repeated]
        return Verdict(found.distinct, found.private)

    def _are_shared(self, loads: Sequence[Load]) -> bool:
        """Whether loads are more than one element for each program."""
        return any(shape_of(op.result.type) or _is_in_loop(op) for op in loads)

    def _is_shared(self, array: Array, launch: Launch) -> bool:
        verdict = self.loads.get(array.name)
        if verdict is None or verdict.private:
            return False
        position = self.request.positions["gradient", array.name]
        return can_hold(launch.values[position])

    def _is_small(self, array: Array, launch: Launch) -> bool:
        position = self.request.positions["gradient", array.name]
        return elements_of(launch.values[position]) <= MOST_ELEMENTS

    def require(self, reached: Sequence[Load], types: Mapping[str, DType]) -> None:
        """Raise if gradients cannot be computed as they are.

        Args:
            reached: see `Derived`.
        """
        narrow: list[str] = []
        for array in self.arrays:
            stores, loads = self.stores.get(array.name), self.loads.get(array.name)
            if stores is not None and not stores.distinct:
                raise stored_twice(array, stores)
            adds = array.name in self.atomic and set(reached).intersection(array.loads)
            adds = adds or array.name in self.others.added
            if not adds and array.name not in self.rest:
                continue
            assert loads is not None
            if array.name in self.rest:
                loads = Verdict(False, reason=_INDIRECT, at=self.rest[array.name][0])
            if self.request.deterministic:
                raise not_deterministic(array, loads)
            if types[array.name].primitive_bitwidth < SMALL:
                narrow.append(array.name)
        if narrow:
            raise NarrowSumError(narrow)

    def covered(self, derived: Derived | None) -> dict[str, int | None]:
        """See `Plan.covered`."""
        reached = set(derived.reached) if derived is not None else set[Load]()
        schedules = self.others.schedules
        found: dict[str, int | None] = {}
        for array in self.arrays:
            verdict = self.loads.get(array.name)
            if self.coarse is not None and array.name in self.coarse.arrays:
                verdict = self.coarse.verdicts.get(array.name)
            elif self.parts is not None and array.name in self.parts.axes:
                verdict = self.parts.verdicts[array.name]
            if array.name in self.others.arrays:
                only = [s.verdicts[array.name] for s in schedules if array.name in s.loads]
                found[array.name] = only[0].elements if len(only) == 1 else None
                continue
            loads = [op for op in array.loads if op not in self.omitted_loads]
            written = verdict is not None and reached.issuperset(loads)
            found[array.name] = verdict.elements if written and verdict else None
        return found

    def text(self) -> str:
        """The schedule of each array, a line for each."""
        lines: list[str] = []
        for array in self.arrays:
            if array.name in self.loads:
                lines.append(f"  {array.name}: {self._how(array.name)} ({_lines(array.loads)})")
            elif array.name in self.stores:
                lines.append(f"  {array.name}: its gradient is loaded ({_lines(array.writes)})")
        return "\n".join(lines)

    def _how(self, name: str) -> str:
        if name in self.rest:
            return f"stored, then added atomically for {_lines(self.rest[name])}: {_INDIRECT}"
        if name in self.others.added:
            return "added atomically by a separate kernel, with that of other inputs"
        if name in self.last:
            how = "stored" if self.loads[name].distinct else "accumulated in memory"
            return f"{how}, then added by the same program for {_lines(self.last[name])}"
        if self.loads[name].distinct:
            return "stored"
        if self.coarse is not None and name in self.coarse.arrays:
            axes = ", ".join(map(str, self.coarse.axes))
            where = ", in memory" if name in self.coarse.rows else ""
            return f"accumulated by workers, each for a range of programs along axis {axes}{where}"
        if self.parts is not None and name in self.parts.axes:
            axes = ", ".join(map(str, self.parts.axes[name]))
            return f"stored by each program along axis {axes} in its own row, then summed"
        if name in self.others.arrays:
            return "accumulated in registers by a separate kernel, with a program for each tile"
        if self.loads[name].private:
            return "accumulated in memory by the only program that loads an element"
        return f"added atomically: {self.loads[name].reason}"


def _is_in_loop(op: Op) -> bool:
    return any(not isinstance(around, If) for around in op.ancestors())


def _parallel_ones(
    schedules: Sequence[Regrid], points: Points, small: Sequence[str]
) -> list[Regrid]:
    """The schedules of arrays all of whose schedules are parallel: an array that is loaded in
    several loops has one for each, which add up to its gradient."""
    serial = {name for s in schedules if not _is_parallel(s, points, small) for name in s.loads}
    return [made for s in schedules if (made := s.without(serial)).loads]


def _is_parallel(schedule: Regrid, points: Points, small: Sequence[str]) -> bool:
    """Whether a separate grid has about as many programs as the kernel's, or workers could not have
    rows of partial sums."""
    return schedule.programs * 4 >= points.count or not set(schedule.loads) <= set(small)


def _lines(ops: Iterable[Any]) -> str:
    found = sorted({line_of(op.loc) for op in ops})
    return f"line{'s' if len(found) > 1 else ''} {', '.join(map(str, found))}"
