"""Kernels for tests of derivatives: built, differentiated and interpreted, in fp64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tests.autodiff.counting import counting_kernel
from tests.frontend.kernels import SHORT, kernel_from
from tilewright.analysis.blocks import BlockFinder
from tilewright.autodiff.arrays import Array, arrays_of
from tilewright.autodiff.coarsen import Coarsening, coarsening, parts_of
from tilewright.autodiff.derived import Derived
from tilewright.autodiff.distinct import Verdict, distinct
from tilewright.autodiff.enumerated import are_distinct
from tilewright.autodiff.forward import forward_mode
from tilewright.autodiff.points import Points
from tilewright.autodiff.regrid import regrids
from tilewright.autodiff.regridded import regridded_kernels
from tilewright.autodiff.reverse import reverse_mode
from tilewright.autodiff.saved import NOTHING_STORED, Stored
from tilewright.autodiff.tapes import TapePlan
from tilewright.compiler.pipeline import STEPS
from tilewright.frontend.build import build_module
from tilewright.frontend.options import FrontendOptions
from tilewright.frontend.source import SourceFunction
from tilewright.ir.core import Function, Module, Op
from tilewright.ir.interpret import Checks, interpret
from tilewright.ir.passes import PassContext, run
from tilewright.ir.types import numpy_of
from tilewright.ir.verify import verify_module

Arrays = dict[str, Any]
STEPS_OF_SLOPES = (1e-6, 1e-7)  # of differences; the shorter one for what curves more


def forward_module(
    kernel: SourceFunction | str, args: Mapping[str, Any], constexprs: Mapping[str, Any]
) -> Module:
    """The tile IR of a kernel for these arguments, after the tile passes."""
    fn = kernel_from(kernel) if isinstance(kernel, str) else kernel
    signature = {name: _type(value) for name, value in args.items()}
    options = FrontendOptions(derivatives=True)
    module = build_module(fn, signature, dict(constexprs), {}, options)
    names = module.entry.arg_names
    for i, name in enumerate(names):
        if isinstance(args[name], np.ndarray):
            module.entry.arg_attrs[i].update(alias=i)
    return cleaned(module)


def _type(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"*{SHORT[value.dtype]}"
    return "fp64" if isinstance(value, float) else "i32"


def cleaned(module: Module) -> Module:
    """The module after the tile passes, verified."""
    verify_module(module)
    run(module, STEPS, PassContext())
    verify_module(module)
    return module


def count(module: Module, kind: type[Op] | tuple[type[Op], ...]) -> int:
    return sum(isinstance(op, kind) for op in module.walk())


def run_forward(module: Module, grid: Any, args: Mapping[str, Any]) -> None:
    interpret(module, grid, [args[name] for name in module.entry.arg_names])


def run_derived(
    derived: Derived, grid: Any, args: Mapping[str, Any], more: Mapping[str, Mapping[str, Any]]
) -> None:
    """Interpret a derived kernel, on which the tile passes have run.

    Args:
        args: the forward kernel's arguments by name.
        more: arrays by kind of argument ("tangent", …), then by name.
    """
    values = [
        args[role.name] if role.kind == "argument" else more[role.kind][role.name]
        for role in derived.roles
    ]
    interpret(derived.module, grid, values, seed=1, checks=Checks(races=True))


def jvp(
    module: Module, grid: Any, args: Arrays, tangents: Arrays, outputs: Sequence[str],
    aux: Sequence[str] = (),
) -> Arrays:  # fmt: skip
    """The tangents of the outputs, by forward mode."""
    derived = forward_mode(module, tuple(tangents), tuple(outputs), tuple(aux))
    cleaned(derived.module)
    found = {name: np.full_like(args[name], np.nan) for name in outputs}
    for name in outputs:  # an element that is not stored keeps its tangent
        found[name][...] = tangents.get(name, 0.0)
    run_derived(derived, grid, copied(args), {"tangent": {**tangents, **found}})
    return found


def differences(
    module: Module, grid: Any, args: Arrays, tangents: Arrays, outputs: Sequence[str],
    step: float = 1e-6,
) -> Arrays:  # fmt: skip
    """The tangents of the outputs, by central differences."""
    ends: list[Arrays] = []
    for sign in (1.0, -1.0):
        moved = copied(args)
        for name, tangent in tangents.items():
            moved[name] += (sign * step * tangent).astype(moved[name].dtype)
        run_forward(module, grid, moved)
        ends.append(moved)
    return {name: (ends[0][name] - ends[1][name]) / (2 * step) for name in outputs}


def copied(args: Arrays) -> Arrays:
    return {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in args.items()}


def directions(rng: np.random.Generator, args: Arrays, names: Sequence[str]) -> Arrays:
    """Random arrays like those of the arguments."""
    return {name: rng.standard_normal(args[name].shape) for name in names}


def launch_points(module: Module, grid: Any, args: Mapping[str, Any]) -> Points:
    """The programs of a launch. The elements of arrays of integers are known if the kernel does not
    store them."""
    fn = module.entry
    x, y, z = (*((grid,) if isinstance(grid, int) else grid), 1, 1)[:3]
    scalars = {
        arg: args[name]
        for arg, name in zip(fn.args, fn.arg_names, strict=True)
        if isinstance(args[name], int)
    }
    arrays = arrays_of(fn)
    tables = {
        arg: args[array.name].ravel()
        for arg, array in arrays.items()
        if array.name.startswith("starts") and not array.writes
    }
    return Points(scalars, (x, y, z), tables)


@dataclass(frozen=True)
class Proven:
    """What is proven of a launch's arrays.

    Attributes:
        points: the programs of the launch.
        loads, stores: for each array of floats whether they touch no element twice.
        stored: the results that gradient kernels may load.
    """

    points: Points
    loads: Mapping[str, Verdict]
    stores: Mapping[str, Verdict]
    stored: Stored

    def private(self, wrt: Sequence[str]) -> list[str]:
        """The inputs whose elements are loaded several times, by one program each."""
        return [n for n in wrt if self.loads[n].private and not self.loads[n].distinct]

    def shared(self, module: Module, wrt: Sequence[str]) -> list[Array]:
        """The inputs whose elements several programs may load."""
        arrays = arrays_of(module.entry).values()
        return [a for a in arrays if a.name in wrt and not self.loads[a.name].private]


def proven(module: Module, grid: Any, args: Mapping[str, Any]) -> Proven:
    fn, points, finder = module.entry, launch_points(module, grid, args), BlockFinder()
    arrays = [a for a in arrays_of(fn).values() if a.is_float]
    loads = {a.name: distinct(fn, a.loads, points, finder) for a in arrays}
    stores = {a.name: _of_stores(fn, a, points, finder) for a in arrays}
    names = [a.name for a in arrays if stores[a.name].distinct and a.stores and not a.loads]
    single = [axis for axis, n in enumerate(points.grid) if n == 1]
    return Proven(points, loads, stores, Stored(names, single))


def _of_stores(fn: Function, array: Array, points: Points, finder: BlockFinder) -> Verdict:
    found = distinct(fn, array.stores, points, finder)
    by_all = not found.distinct and are_distinct(array.stores, points)
    return Verdict(True, private=True) if by_all else found


def stored_once(module: Module, grid: Any, args: Mapping[str, Any]) -> Stored:
    """The results that gradient kernels may load."""
    return proven(module, grid, args).stored


def launch_verdicts(
    module: Module, grid: Any, args: Mapping[str, Any]
) -> tuple[Mapping[str, Verdict], Mapping[str, Verdict]]:
    """For each array of floats whether its loads, and its stores, touch no element twice."""
    found = proven(module, grid, args)
    return found.loads, found.stores


def counts(module: Module, name: str, grid: Any, args: Arrays, *, stores: bool = False) -> Any:
    """How often each element of an array is loaded (or stored) in a launch."""
    counter = counting_kernel(module, name, stores=stores)
    found = np.zeros(args[name].shape, np.int32)
    given = copied(args)
    interpret(cleaned(counter), grid, [given[n] for n in module.entry.arg_names] + [found])
    return found


def tape_plan(points: Points) -> TapePlan:
    return TapePlan(points, points.count)


def tape_arrays(derived: Derived, grid: Any) -> dict[str, Mapping[str, Any]]:
    """Tapes for the programs of a derived kernel, and the numbers of their slots."""
    programs = int(np.prod(grid))
    tapes = {tape.name: np.empty(programs * tape.bytes, np.uint8) for tape in derived.tapes}
    for tape in tapes.values():
        tape.fill(0x7F)  # NaN, or large integers
    found: dict[str, Mapping[str, Any]] = {
        "tape": {tape.name: tapes[tape.name].view(numpy_of(tape.element)) for tape in derived.tapes}
    }
    for (kind, name), number in derived.numbers.items():
        found[kind] = {**found.get(kind, {}), name: number}
    return found


def vjp(
    module: Module, grid: Any, args: Arrays, cotangents: Arrays, wrt: Sequence[str],
    atomic: Sequence[str] | None = None, accumulate: bool = False, tape: Any = None,
    aux: Sequence[str] = (), known: Proven | None = None,
) -> Arrays:  # fmt: skip
    """The gradients, by reverse mode. The arguments must be as the forward kernel left them.

    Args:
        atomic: arrays whose gradients are added atomically; by default those that need it.
        tape: how loops are recorded; by default as for a launch.
        known: what is proven of the launch, if that is known.
    """
    known = known or proven(module, grid, args)
    for name in cotangents:
        assert known.stores[name].distinct, known.stores[name]
    private: list[str] = []
    stored = NOTHING_STORED
    if atomic is None:
        atomic = [name for name in wrt if not known.loads[name].private]
        private = known.private(wrt)
        stored = known.stored
    derived = reverse_mode(
        module, tuple(wrt), tuple(cotangents), tuple(aux),
        atomic=atomic, private=private, accumulate=accumulate, stored=stored,
        tapes=tape or tape_plan(known.points),
    )  # fmt: skip
    cleaned(derived.module)
    found = {name: np.zeros_like(args[name]) for name in wrt}
    more = {"cotangent": cotangents, "gradient": found, **tape_arrays(derived, grid)}
    run_derived(derived, grid, copied(args), more)
    return found


def coarse_vjp(
    module: Module, grid: Any, args: Arrays, cotangents: Arrays, wrt: Sequence[str],
    workers: Sequence[int], aux: Sequence[str] = (), known: Proven | None = None,
) -> list[Arrays]:  # fmt: skip
    """The gradients, those of shared arrays added up by workers, for several numbers of these; none
    if that is not possible."""
    known = known or proven(module, grid, args)
    shared = known.shared(module, wrt)
    coarse = coarsening(module.entry, shared, known.points, BlockFinder(), small=wrt)
    if coarse is None:
        return []
    derived = reverse_mode(
        module, tuple(wrt), tuple(cotangents), tuple(aux),
        atomic=[a.name for a in shared if a.name not in coarse.arrays],
        private=known.private(wrt), coarse=coarse, stored=known.stored,
        tapes=tape_plan(known.points),
    )  # fmt: skip
    cleaned(derived.module)
    return [
        _added_by(count, coarse, derived, known.points, args, cotangents, wrt) for count in workers
    ]


def _added_by(
    workers: int, coarse: Coarsening, derived: Derived, points: Points, args: Arrays,
    cotangents: Arrays, wrt: Sequence[str],
) -> Arrays:  # fmt: skip
    """The gradients by so many workers."""
    found = {name: np.zeros_like(args[name]) for name in wrt}
    partial = {name: np.zeros((workers, *args[name].shape)) for name in coarse.arrays}
    extents = list(points.grid)
    for axis in coarse.axes:
        extents[axis] = workers if axis == coarse.axes[0] else 1
    more: dict[str, Mapping[str, Any]] = {
        "cotangent": cotangents, "gradient": found, "partial": partial,
        "span": {name: args[name].size for name in coarse.arrays},
        "extent": {str(axis): points.grid[axis] for axis in coarse.axes},
        **tape_arrays(derived, tuple(extents)),
    }  # fmt: skip
    run_derived(derived, tuple(extents), copied(args), more)
    return {**found, **{name: rows.sum(0) for name, rows in partial.items()}}


def parts_vjp(
    module: Module, grid: Any, args: Arrays, cotangents: Arrays, wrt: Sequence[str],
    aux: Sequence[str] = (), accumulate: bool = False, known: Proven | None = None,
) -> Arrays | None:  # fmt: skip
    """The gradients, parts of those of shared arrays stored by each program; None if that is not
    possible."""
    known = known or proven(module, grid, args)
    points, shared = known.points, known.shared(module, wrt)
    if not shared:
        return None
    parts = parts_of(module.entry, shared, points, BlockFinder(), most=1 << 20)
    if parts is None:
        return None
    derived = reverse_mode(
        module, tuple(wrt), tuple(cotangents), tuple(aux), parts=parts, accumulate=accumulate,
        private=known.private(wrt), stored=known.stored, tapes=tape_plan(points),
    )  # fmt: skip
    cleaned(derived.module)
    found = {name: np.zeros_like(args[name]) for name in wrt}
    partial: Arrays = {}
    for name, axes in parts.axes.items():
        rows, size = prod(points.grid[axis] for axis in axes), args[name].size
        (loads,) = (a.loads for a in shared if a.name == name)
        whole = parts.verdicts[name].elements == size and all(op in derived.reached for op in loads)
        partial[name] = np.full((rows, *args[name].shape), np.nan if whole else 0.0)
    more: dict[str, Mapping[str, Any]] = {
        "cotangent": cotangents, "gradient": found, "partial": partial,
        "span": {name: args[name].size for name in partial}, **tape_arrays(derived, grid),
    }  # fmt: skip
    run_derived(derived, grid, copied(args), more)
    return {**found, **{name: rows.sum(0) for name, rows in partial.items()}}


def regrid_vjp(
    module: Module, grid: Any, args: Arrays, cotangents: Arrays, wrt: Sequence[str],
    aux: Sequence[str] = (), known: Proven | None = None,
) -> tuple[Arrays, list[Module]]:  # fmt: skip
    """The gradients of arrays that programs share in loops, by kernels on grids of their own, and
    these kernels; none where that is not possible."""
    known = known or proven(module, grid, args)
    points, stored = known.points, known.stored
    schedules = regrids(module.entry, known.shared(module, wrt), points, BlockFinder())
    if not schedules:
        return {}, []
    schedules, kernels, saved = regridded_kernels(
        module, tuple(wrt), tuple(cotangents), tuple(aux), schedules, stored=stored
    )
    if not schedules:
        return {}, []
    found = {name: np.zeros_like(args[name]) for s in schedules for name in s.loads}
    coordinates = schedules[0].coordinates
    more: dict[str, Mapping[str, Any]] = {
        "cotangent": cotangents, "gradient": found, "saved": {},
        "box": {str(i): n for i, n in enumerate(coordinates.extents)},
        "grid": {str(i): n for i, n in enumerate(points.grid)},
        "first": {s.key: s.first for s in schedules},
        "trips": {s.key: s.trips for s in schedules},
        "places": {s.key: s.places for s in schedules},
        "bounds": {s.bounds_key(part): part.bounds for s in schedules for part in s.parts},
    }  # fmt: skip
    if saved is not None:
        first = reverse_mode(
            module,
            (),
            tuple(cotangents),
            tuple(aux),
            saved_adjoints=saved,
            sources=tuple(found),
            tapes=tape_plan(points),
            stored=stored,
        )
        more |= tape_arrays(first, points.grid)
        more["saved"] = {
            s.name: np.full(prod(coordinates.extents) * s.lanes, np.nan, numpy_of(s.element))
            for s in first.saved
        }
        cleaned(first.module)
        run_derived(first, points.grid, copied(args), more)
        kernels = (first, *kernels)
    for derived, schedule in zip(kernels[saved is not None :], schedules, strict=True):
        cleaned(derived.module)
        run_derived(derived, schedule.programs, copied(args), more)
    return found, [derived.module for derived in kernels]


def _after(
    module: Module, grid: Any, args: Arrays, results: Sequence[str], rng: np.random.Generator
) -> Arrays:
    """The arguments as another compilation of the kernel leaves them, which rounds otherwise. What
    it does not store is NaN."""
    after, shifted = copied(args), copied(args)
    for name in results:
        shifted[name] += 3
    run_forward(module, grid, after)
    run_forward(module, grid, shifted)
    for name in results:
        if after[name].dtype.kind == "f":
            eps = np.finfo(after[name].dtype).eps
            after[name] *= 1 + rng.choice([-eps, eps], after[name].shape).astype(after[name].dtype)
            after[name][shifted[name] > after[name] + 1] = np.nan
    return after


def check_gradients(
    kernel: SourceFunction | str | Module, grid: Any, args: Arrays, wrt: Sequence[str],
    outputs: Sequence[str], constexprs: Mapping[str, Any] | None = None, seed: int = 0,
    rtol: float = 1e-9, slopes: bool = True, aux: Sequence[str] = (),
    schedules: dict[str, str] | None = None,
) -> Module:  # fmt: skip
    """Compare reverse mode with forward mode and central differences, and the schedule that is
    chosen with atomics only: <w, J v> = <Jᵀ w, v>. Returns the forward module. `slopes`: whether
    central differences are accurate enough."""
    rng = np.random.default_rng(seed)
    module = (
        kernel if isinstance(kernel, Module) else forward_module(kernel, args, constexprs or {})
    )
    taken = {} if schedules is None else schedules
    tangents, cotangents = directions(rng, args, wrt), directions(rng, args, outputs)
    forward = jvp(module, grid, args, tangents, outputs, aux)
    after = _after(module, grid, args, (*outputs, *aux), rng)
    known = proven(module, grid, after)
    chosen = vjp(module, grid, after, cotangents, wrt, aux=aux, known=known)
    reference = vjp(module, grid, after, cotangents, wrt, tuple(wrt), aux=aux, known=known)
    for name in wrt:
        np.testing.assert_allclose(chosen[name], reference[name], rtol=1e-12, atol=1e-13)
    for coarse in coarse_vjp(module, grid, after, cotangents, wrt, (1, 2, 4), aux, known):
        for name in wrt:
            np.testing.assert_allclose(coarse[name], reference[name], rtol=1e-11, atol=1e-13)
            taken[name] = "workers"
    for accumulate in (False, True):
        in_parts = parts_vjp(module, grid, after, cotangents, wrt, aux, accumulate, known)
        for name in wrt if in_parts is not None else ():
            assert in_parts is not None
            np.testing.assert_allclose(in_parts[name], reference[name], rtol=1e-11, atol=1e-13)
            taken[name] = "parts of programs"
    regridded, _ = regrid_vjp(module, grid, after, cotangents, wrt, aux, known)
    for name, gradient in regridded.items():
        np.testing.assert_allclose(gradient, reference[name], rtol=1e-10, atol=1e-12)
        taken[name] = "a grid of its own"
    by_tangents = sum(np.vdot(cotangents[n], forward[n]) for n in outputs)
    by_gradients = sum(np.vdot(chosen[n], tangents[n]) for n in wrt)
    size = max(1.0, abs(by_tangents))
    assert abs(by_gradients - by_tangents) <= rtol * size, (by_gradients, by_tangents)
    by_slopes: list[float] = []
    for step in STEPS_OF_SLOPES if slopes else ():
        found = differences(module, grid, args, tangents, outputs, step)
        by_slopes.append(sum(np.vdot(cotangents[n], found[n]) for n in outputs))
    near = [abs(by_gradients - slope) <= 1e-6 * size for slope in by_slopes]
    assert any(near) or not slopes, (by_gradients, by_slopes)
    return module
