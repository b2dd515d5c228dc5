"""Derivation of a kernel for a launch: tile IR, proofs, compilation.

Imported by the first derivation of a process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tilewright.analysis.blocks import BlockFinder
from tilewright.autodiff.arrays import Array, arrays_of
from tilewright.autodiff.coarsen import Coarsening, Parts, coarsening, parts_of
from tilewright.autodiff.derived import Derived, Role
from tilewright.autodiff.distinct import Verdict, distinct
from tilewright.autodiff.forward import forward_mode
from tilewright.autodiff.marks import remove_marks
from tilewright.autodiff.points import Points, UnknownNumber
from tilewright.autodiff.refusals import not_deterministic, stored_twice
from tilewright.autodiff.regrid import regrids
from tilewright.autodiff.regridded import Regridded, regridded_kernels
from tilewright.autodiff.reverse import reverse_mode
from tilewright.autodiff.saved import NOTHING_STORED, Stored, require_saved
from tilewright.autodiff.schedules import Regrid
from tilewright.autodiff.tapes import TapePlan
from tilewright.autodiff.tapes import explained as explained_tapes
from tilewright.autodiff.wraps import remove_wraps
from tilewright.base.located import line_of
from tilewright.compiler.build import context_for
from tilewright.compiler.driver import compile_source
from tilewright.compiler.pipeline import STEPS
from tilewright.compiler.python_source import python_source
from tilewright.compiler.source import ArgPath, IRSource, runtime_arguments
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.core import Function, Module, Op, Value
from tilewright.ir.passes import PassContext, run
from tilewright.ir.passes import Step as PassStep
from tilewright.ir.types import DType, is_int, scalar_type, shape_of
from tilewright.language.elementary.derivatives import install_derivatives
from tilewright.ops.control import If
from tilewright.ops.memory import Load
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.cse import merge_equal_values
from tilewright.passes.dce import remove_dead_code
from tilewright.passes.delay_ops import delay_ops
from tilewright.passes.expand_dot_scaled import expand_every_dot_scaled
from tilewright.passes.factor_products import factor_products
from tilewright.passes.inline import inline_calls
from tilewright.passes.order_products import order_products
from tilewright.passes.transpose_tiles import transpose_tiles
from tilewright.runtime.derived_launch import (
    Launch,
    Made,
    NarrowSumError,
    Numbers,
    Path,
    Plan,
    Request,
    Step,
)
from tilewright.runtime.jit import JITFunction, is_tensor_type
from tilewright.runtime.kinds import DIVISIBLE
from tilewright.runtime.partial_sums import (
    MOST_ELEMENTS,
    MOST_WORKERS,
    SPAN,
    can_hold,
    elements_of,
)
from tilewright.runtime.second_derivation import require_own_types, with_tangents
from tilewright.runtime.slots import at_path
from tilewright.runtime.specialize import Key
from tilewright.runtime.tensors import read

install_derivatives()

FIRST_STEPS = (PassStep(inline_calls), PassStep(expand_every_dot_scaled), *STEPS)
"""What is done to a kernel before it is derived."""

FURTHER_STEPS = (
    PassStep(canonicalize),
    PassStep(merge_equal_values),
    PassStep(remove_dead_code),
    PassStep(factor_products),
    PassStep(transpose_tiles),
    PassStep(remove_dead_code),
    PassStep(order_products),
    PassStep(delay_ops),
)
"""What is done to a derived kernel, before the steps of any other."""

_INDIRECT = "an index is not known before the launch"
SMALL = 32  # bits; narrower floats are not added up atomically


def derive(request: Request, launch: Launch, integers: tuple[ArgPath, ...]) -> Plan:
    """Derive and compile the kernel for a launch.

    Args:
        integers: see `Plan.integers`.

    Raises:
        the errors of a launch of a derivative, see `Gradient.run`.
    """
    kernel = request.kernel
    source, _, given = kernel.bound(*launch.args, **launch.kwargs)
    source.hash()  # records the global variables that the kernel uses
    key = Key(*launch.key)
    device = kernel.device_of(key.devices, launch.values)
    cache = kernel.device_caches[device]
    options = kernel.options_of(cache.backend, source, given)
    module = source.module(replace(cache.backend.frontend_options(options), derivatives=True))
    run(module, FIRST_STEPS, context_for(cache.backend, options))
    paths = [path for path, _ in runtime_arguments(list(source.signature.values()))]
    of_tangents = request.mode == "second"
    if of_tangents:
        types = _element_types(request, launch)
        module, request = with_tangents(module, request, types, paths)
        run(module, STEPS, context_for(cache.backend, options))
    types = _element_types(request, launch)
    proofs = _Proofs(module, request, launch, paths, types, loads_results=not of_tangents)
    if request.mode == "reverse" and not of_tangents:
        require_saved(module.entry, request.outputs, proofs.stored)
    first = _derived(module, request, types, proofs)
    coarse, others = proofs.coarse, proofs.others
    kernels = [] if first is None else [(first, launch.grid, coarse.axes if coarse else ())]
    if proofs.rest:
        kernels.append((_of_rest(module, request, types, proofs), launch.grid, ()))
    kernels += [
        (derived, (schedule.programs, 1, 1), ())
        for schedule, derived in zip(others.schedules, others.kernels, strict=True)
    ]
    more = _positions(request)
    numbers = _numbers(others, launch)
    steps: list[Step] = []
    for derived, grid, axes in kernels:
        arguments = _arguments(derived, paths, more)
        _declare_facts(derived.module, arguments, key, len(kernel.params))
        remove_marks(derived.module)
        run(derived.module, FURTHER_STEPS, context_for(cache.backend, options))
        chosen = _fewest_warps(derived.module.entry, options)
        compiled = compile_source(IRSource.of_module(derived.module), cache.target, chosen)
        compiled.device = device
        steps.append(Step(compiled, arguments, grid, axes, derived.tapes))
        numbers |= derived.numbers
    return Plan(
        launch.grid, integers, tuple(steps), proofs.summed,
        proofs.covered(first), tuple(a.name for a in proofs.arrays if a.writes),
        bool(key.aliases), _text(proofs, steps), numbers,
        first.saved if first is not None else (),
        _places(others),
    )  # fmt: skip


def _fewest_warps(fn: Function, options: Any) -> Any:
    """The options for a kernel: one warp if it has no tiles, as the one that adds the gradient of a
    label's element."""
    if any(shape_of(value.type) for op in fn.walk() for value in op.results):
        return options
    return replace(options, num_warps=1) if hasattr(options, "num_warps") else options


def _arguments(
    derived: Derived, paths: Sequence[ArgPath], more: Mapping[Role, int]
) -> tuple[Path | Made, ...]:
    """Where the arguments of a derived kernel come from; see `Step`."""
    return tuple(
        paths[i]
        if role.kind == "argument"
        else (more[role],)
        if role in more
        else (role.kind, role.name)
        for i, role in enumerate(derived.roles)
    )


def _text(proofs: _Proofs, steps: Sequence[Step]) -> str:
    """See `Plan.text`."""
    recorded = explained_tapes([tape for step in steps for tape in step.tapes])
    return "\n".join(filter(None, (proofs.text(), recorded)))


def _numbers(others: Regridded, launch: Launch) -> dict[Made, int]:
    """See `Plan.numbers`."""
    found: dict[Made, int] = {("grid", str(axis)): n for axis, n in enumerate(launch.grid)}
    for schedule in others.schedules:
        found |= {("box", str(i)): n for i, n in enumerate(schedule.coordinates.extents)}
        found["first", schedule.key] = schedule.first
        found["trips", schedule.key] = schedule.trips
    return found if others.schedules else {}


def _places(others: Regridded) -> dict[Made, Numbers]:
    """See `Plan.places`."""
    found: dict[Made, Numbers] = {}
    for schedule in others.schedules:
        if schedule.places is not None:
            found["places", schedule.key] = Numbers(schedule.places)
        for part in schedule.parts:
            if part.bounds is not None:
                found["bounds", schedule.bounds_key(part)] = Numbers(part.bounds)
    return found


def integer_paths(kernel: JITFunction, launch: Launch) -> tuple[ArgPath, ...]:
    """Where a launch's arguments are that are integers at run time."""
    source, _, _ = kernel.bound(*launch.args, **launch.kwargs)
    return tuple(
        path
        for path, type in runtime_arguments(list(source.signature.values()))
        if not is_tensor_type(type) and not scalar_type(type).is_floating()
    )


def _positions(request: Request) -> dict[Role, int]:
    """Where the further arrays are among the arguments."""
    first = len(request.kernel.params)
    return {Role(*role): first + i for i, role in enumerate(request.further)}


def _element_types(request: Request, launch: Launch) -> dict[str, DType]:
    """The element types of the further arrays, by the array that each belongs to."""
    found: dict[str, DType] = {}
    for (kind, name), position in _positions(request).items():
        if kind == "tangent" and request.mode == "reverse":
            continue
        type = Key(*launch.key).specs[position][0]
        if not is_tensor_type(type):
            raise TypeError(
                f"the derivative of {name} is {launch.values[position]!r}, not an array"
            )
        element = scalar_type(type.lstrip("*k"))
        if not element.is_floating():
            raise TypeError(f"the derivative of {name} has elements of {element}, not floats")
        found[name] = element
    return found


def _derived(
    module: Module, request: Request, types: Mapping[str, DType], proofs: _Proofs
) -> Derived | None:
    """The kernel on the forward grid; None if there is nothing for it to do."""
    if request.mode == "forward":
        require_own_types(proofs.arrays, types)
        return forward_mode(
            module,
            request.wrt,
            (*request.outputs, *request.in_place),
            request.aux,
            results=request.results,
        )
    others = proofs.others
    wrt = tuple(name for name in request.wrt if name not in others.arrays)
    if not wrt and others.schedules and others.cut is None:
        proofs.require((), types)
        return None
    derived = reverse_mode(
        module, wrt, request.outputs, request.aux,
        atomic=proofs.atomic, private=proofs.private, accumulate=request.accumulate, types=types,
        coarse=proofs.coarse, parts=proofs.parts, cut=others.cut, sources=others.arrays,
        skip=proofs.left_out, tapes=proofs.tapes, stored=proofs.stored,
    )  # fmt: skip
    proofs.require(derived.reached, types)
    return derived


def _of_rest(
    module: Module, request: Request, types: Mapping[str, DType], proofs: _Proofs
) -> Derived:
    """The kernel that adds atomically to gradients what the first kernel leaves out."""
    names = tuple(proofs.rest)
    known = [op for a in proofs.arrays for op in a.loads if op not in proofs.rest.get(a.name, ())]
    return reverse_mode(
        module, names, request.outputs, request.aux, atomic=names, types=types, skip=known,
        tapes=proofs.tapes, stored=proofs.stored,
    )  # fmt: skip


class _Proofs:
    """What is proven of the arrays of a launch in reverse mode.

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
        rest: of inputs whose other loads are private, the loads of which nothing is known, as that
            of a label's element of a row.
    """

    def __init__(
        self, module: Module, request: Request, launch: Launch, paths: Sequence[ArgPath],
        types: Mapping[str, DType], loads_results: bool,
    ) -> None:  # fmt: skip
        fn = module.entry
        self.loads_results = loads_results
        self.others = Regridded()
        self.rest: dict[str, list[Load]] = {}
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
                unknown = Verdict(False, False, str(error), next(iter(array.loads), None))
                self.loads |= {n: unknown for n in self.request.wrt if n == array.name}
                unknown = Verdict(False, False, str(error), next(iter(array.writes), None))
                self.stores |= {n: unknown for n in self.request.outputs if n == array.name}
            return None
        remove_wraps(fn, points)
        self.arrays = list(arrays_of(fn).values())
        finder = BlockFinder()
        for array in self.arrays:
            if array.name in self.request.wrt:
                self.loads[array.name] = self._of_loads(fn, array, points, finder)
            if array.name in self.request.outputs:
                self.stores[array.name] = distinct(fn, array.stores, points, finder)
        self.stored = self._stored(fn, points, finder)
        shared = [a for a in self.arrays if self._is_shared(a, launch)]
        small = [a.name for a in shared if self._is_small(a, launch)]
        self.others = regridded_kernels(
            module, request.wrt, request.outputs, request.aux,
            _parallel_ones(regrids(fn, shared, points, finder), points, small),
            accumulate=request.accumulate, types=types, stored=self.stored,
        )  # fmt: skip
        shared = [a for a in shared if a.name not in self.others.arrays]
        coarse = coarsening(fn, shared, points, finder, small)
        if shared and (coarse is None or len(coarse.verdicts) < len(shared)):
            self.parts = parts_of(fn, shared, points, finder, MOST_WORKERS)
        return coarse if self.parts is None else None

    def _summed(self, launch: Launch) -> dict[str, int]:
        """See `Plan.summed`."""
        if self.parts is None:
            return dict.fromkeys(self.coarse.arrays if self.coarse else (), 0)
        return {n: prod(launch.grid[i] for i in axes) for n, axes in self.parts.axes.items()}

    def _stored(self, fn: Function, points: Points, finder: BlockFinder) -> Stored:
        """See `_Proofs`."""
        if not self.loads_results:
            return NOTHING_STORED
        verdicts = {
            a.name: self.stores.get(a.name) or distinct(fn, a.stores, points, finder)
            for a in self.arrays
            if a.stores and not a.loads and not a.atomics and a.is_float
        }
        names = [name for name, verdict in verdicts.items() if verdict.distinct]
        return Stored(names, [axis for axis, n in enumerate(points.grid) if n == 1])

    def _tables(self, launch: Launch) -> dict[Value, Any]:
        """The elements of the tables that the kernel does not store."""
        known = dict(zip(self.request.tables, launch.tables, strict=True))
        return {a.arg: known[a.name] for a in self.arrays if a.name in known and not a.writes}

    @property
    def left_out(self) -> list[Load]:
        """The loads that the first kernel leaves out."""
        return [op for loads in self.rest.values() for op in loads]

    def _of_loads(self, fn: Function, array: Array, points: Points, finder: BlockFinder) -> Verdict:
        """The verdict on the loads of an array, or on those in loops or of tiles, if nothing is
        known of the others."""
        found = distinct(fn, array.loads, points, finder)
        if found.private:
            return found
        rest = [op for op in array.loads if not distinct(fn, [op], points, finder).private]
        known = [op for op in array.loads if op not in rest]
        verdict = distinct(fn, known, points, finder)
        if not known or not verdict.private or self._are_shared(rest):
            return found
        self.rest[array.name] = rest
        return verdict

    def _are_shared(self, loads: Sequence[Load]) -> bool:
        """Whether loads are more than one element for each program."""
        return any(shape_of(op.result.type) or _is_in_loop(op) for op in loads)

    def _is_shared(self, array: Array, launch: Launch) -> bool:
        verdict = self.loads.get(array.name)
        if verdict is None or verdict.private:
            return False
        position = _positions(self.request)[Role("gradient", array.name)]
        return can_hold(launch.values[position])

    def _is_small(self, array: Array, launch: Launch) -> bool:
        position = _positions(self.request)[Role("gradient", array.name)]
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
            if not adds and array.name not in self.rest:
                continue
            assert loads is not None
            if array.name in self.rest:
                loads = Verdict(False, False, _INDIRECT, self.rest[array.name][0])
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
            loads = [op for op in array.loads if op not in self.left_out]
            written = verdict is not None and reached.issuperset(loads)
            found[array.name] = verdict.elements if written and verdict else None
        return found

    def text(self) -> str:
        """What was decided, a line for each array."""
        lines: list[str] = []
        for array in self.arrays:
            if array.name in self.loads:
                lines.append(f"  {array.name}: {self._how(array.name)} ({_lines(array.loads)})")
            elif array.name in self.stores:
                lines.append(f"  {array.name}: its gradient is loaded ({_lines(array.stores)})")
        return "\n".join(lines)

    def _how(self, name: str) -> str:
        if name in self.rest:
            return f"stored, then added atomically for {_lines(self.rest[name])}: {_INDIRECT}"
        if self.loads[name].distinct:
            return "stored"
        if self.coarse is not None and name in self.coarse.arrays:
            axes = ", ".join(map(str, self.coarse.axes))
            where = ", in memory" if name in self.coarse.rows else ""
            return f"added up by workers, each for a range of programs along axis {axes}{where}"
        if self.parts is not None and name in self.parts.axes:
            axes = ", ".join(map(str, self.parts.axes[name]))
            return f"stored by each program along axis {axes} in a row of its own, then added up"
        if name in self.others.arrays:
            return "added up in registers by a kernel of its own, with a program for each tile"
        if self.loads[name].private:
            return "added up in memory by the only program that loads an element"
        return f"added atomically: {self.loads[name].reason}"


def _is_in_loop(op: Op) -> bool:
    around = op.parent_op()
    while isinstance(around, If):
        around = around.parent_op()
    return around is not None


def _parallel_ones(
    schedules: Sequence[Regrid], points: Points, small: Sequence[str]
) -> list[Regrid]:
    """The schedules of arrays all of whose schedules are parallel: an array that is loaded in
    several loops has one for each, which add up to its gradient."""
    serial = {name for s in schedules if not _is_parallel(s, points, small) for name in s.loads}
    return [made for s in schedules if (made := s.without(serial)).loads]


def _is_parallel(schedule: Regrid, points: Points, small: Sequence[str]) -> bool:
    """Whether a grid of its own has about as many programs as the kernel's, or workers could not
    have rows of partial sums."""
    return schedule.programs * 4 >= points.count or not set(schedule.loads) <= set(small)


def _lines(ops: Iterable[Any]) -> str:
    found = sorted({line_of(op.loc) for op in ops})
    return f"line{'s' if len(found) > 1 else ''} {', '.join(map(str, found))}"


def _declare_facts(module: Module, arguments: Sequence[Any], key: Key, first: int) -> None:
    """Record alignment and alias classes of the further arrays, as the launch has them."""
    fn = module.entry
    for i, argument in enumerate(arguments):
        facts = fn.arg_attrs[i]
        # A buffer that nothing else refers to.
        is_own = argument[0] in ("partial", "places", "bounds", "saved", "tape")
        if is_own or argument[0] in range(first, len(key.specs)):
            if is_own or not key.aliases:
                facts["alias"] = len(key.specs) + i
            if is_own or DIVISIBLE.key in key.specs[argument[0]][1]:
                facts["divisibility"] = 16
        elif argument[0] == "span":
            facts["divisibility"] = SPAN
        elif key.aliases:
            facts.pop("alias", None)


def require_apart(
    plan: Plan, named: Mapping[str, Any], of_wrt: Mapping[str, Any],
    of_outputs: Mapping[str, Any], mode: str,
) -> None:  # fmt: skip
    """Raise ValueError if an array that the kernel or its derivative writes shares bytes with
    another one."""
    own = {name: value for name, value in named.items() if hasattr(value, "shape")}
    of_wrt = {f"the derivative of {n}": a for n, a in of_wrt.items()}
    of_outputs = {f"the derivative of {n}": a for n, a in of_outputs.items()}
    given, found = (of_wrt, of_outputs) if mode == "forward" else (of_outputs, of_wrt)
    for name, array in found.items():
        rest = [(other, value) for other, value in found.items() if other != name]
        for other, value in (*own.items(), *given.items(), *rest):
            if _share(array, value):
                raise ValueError(f"{name} shares memory with {other}")
    for name in plan.stored:
        for other, value in own.items():
            if other != name and name in own and _share(own[name], value):
                raise ValueError(
                    f"{name}, which the kernel stores, shares memory with {other}: the derivative "
                    "needs the values from before the kernel ran"
                )


def _share(a: Any, b: Any) -> bool:
    (low, high), (other_low, other_high) = _range(a), _range(b)
    return low < other_high and other_low < high


def _range(array: Any) -> tuple[int, int]:
    """The bytes between an array's first and last element."""
    address = read(array)[0]
    strides = array.stride() if callable(getattr(array, "stride", None)) else None
    size: int = array.element_size() if strides is not None else array.itemsize
    steps = [s * size for s in strides] if strides is not None else list(array.strides)
    if 0 in array.shape:
        return address, address
    reaches = [(n - 1) * step for n, step in zip(array.shape, steps, strict=True)]
    low = address + sum(min(0, reach) for reach in reaches)
    return low, address + sum(max(0, reach) for reach in reaches) + size


def explained(name: str, mode: str, plans: Sequence[Plan]) -> str:
    """The text of `explain`."""
    if not plans:
        return f"{name}: nothing has been derived yet; launch it first"
    if mode == "forward":
        return f"{name}: the kernel with tangents, {len(plans)} variants"
    return "\n".join(f"{name}, variant {i}:\n{plan.text}" for i, plan in enumerate(plans))


def source_of(plans: Sequence[Plan]) -> str:
    """The text of `source`."""
    parts: list[str] = []
    for i, plan in enumerate(plans):
        for k, step in enumerate(plan.steps):
            assert isinstance(step.kernel.src, IRSource)
            module = step.kernel.src.module(FrontendOptions())
            run(module, STEPS, PassContext())
            where = f"# variant {i}" + (f", kernel {k}" if len(plan.steps) > 1 else "")
            parts.append(f"{where}\n{python_source(module)}")
    return "\n\n".join(parts)
