"""Derivation of a kernel for a launch: tile IR, proofs, compilation.

Imported by the first derivation of a process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.autodiff.derived import Derived
from tilewright.autodiff.forward import forward_mode
from tilewright.autodiff.marks import remove_marks
from tilewright.autodiff.regridded import Regridded
from tilewright.autodiff.reverse import reverse_mode
from tilewright.autodiff.saved import require_saved
from tilewright.autodiff.tapes import explained as explained_tapes
from tilewright.compiler.build import context_for
from tilewright.compiler.driver import compile_source
from tilewright.compiler.pipeline import STEPS
from tilewright.compiler.python_source import python_source
from tilewright.compiler.source import ArgPath, IRSource, runtime_arguments
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.core import Function, Module
from tilewright.ir.passes import PassContext, run
from tilewright.ir.passes import Step as PassStep
from tilewright.ir.types import FP64, DType, scalar_type, shape_of
from tilewright.language.elementary.derivatives import install_derivatives
from tilewright.ops.memory import pointee_of
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.canonicalize_pointers import canonicalize_pointers
from tilewright.passes.count_loops import count_loops
from tilewright.passes.cse import merge_equal_values
from tilewright.passes.dce import remove_dead_code
from tilewright.passes.expand_dot_scaled import expand_every_dot_scaled
from tilewright.passes.factor_products import factor_products
from tilewright.passes.inline import inline_calls
from tilewright.passes.licm import hoist_invariants
from tilewright.passes.order_products import order_products
from tilewright.passes.separate_arrays import separate_arrays
from tilewright.passes.sink_ops import sink_ops
from tilewright.passes.transpose_tiles import transpose_tiles
from tilewright.runtime.derived_launch import (
    Launch,
    Made,
    Numbers,
    Path,
    Plan,
    Request,
    Step,
)
from tilewright.runtime.grid import Grid
from tilewright.runtime.jit import JITFunction
from tilewright.runtime.kinds import DIVISIBLE
from tilewright.runtime.partial_sums import (
    SPAN,
)
from tilewright.runtime.proofs import Proofs
from tilewright.runtime.second_derivation import require_own_types, with_tangents
from tilewright.runtime.specialize import Key
from tilewright.runtime.variants import is_tensor_type

install_derivatives()

FIRST_STEPS = (
    PassStep(inline_calls),
    PassStep(expand_every_dot_scaled),
    PassStep(canonicalize),
    PassStep(hoist_invariants),
    PassStep(count_loops),
    PassStep(canonicalize_pointers),
    PassStep(separate_arrays),
    *STEPS,
)
"""What is done to a kernel before it is derived."""

FURTHER_STEPS = (
    PassStep(canonicalize),
    PassStep(merge_equal_values),
    PassStep(remove_dead_code),
    PassStep(factor_products),
    PassStep(transpose_tiles),
    PassStep(remove_dead_code),
    PassStep(order_products),
    PassStep(sink_ops),
)
"""What is done to a derived kernel, before the steps of any other."""


def derive(request: Request, launch: Launch, integers: tuple[ArgPath, ...]) -> Plan:
    """Derive and compile the kernel for a launch.

    Args:
        integers: see `Plan.integers`.

    Raises:
        the errors of a launch of a derivative, see `Gradient.run`.
    """
    setting, module, paths = _lowered(request, launch)
    of_tangents = request.mode == "second"
    if of_tangents:
        types = _element_types(request, launch)
        module, request = with_tangents(module, request, types, paths)
        run(module, STEPS, setting.context)
    types = _element_types(request, launch)
    proofs = Proofs(module, request, launch, paths, types, loads_results=not of_tangents)
    if request.mode == "reverse" and not of_tangents:
        require_saved(module.entry, request.outputs, proofs.stored)
    first = _derived(module, request, types, proofs)
    kernels = _others(module, request, launch, types, proofs)
    if first is not None:
        kernels.insert(0, (first, launch.grid, proofs.coarse.axes if proofs.coarse else ()))
    steps = [
        setting.step(derived, _arguments(derived, paths, request.positions), grid, axes)
        for derived, grid, axes in kernels
    ]
    numbers = _numbers(proofs.others, launch)
    for derived, _, _ in kernels:
        numbers |= derived.numbers
    return Plan(
        launch.grid, integers, tuple(steps), proofs.summed,
        _wide([derived for derived, _, _ in kernels]),
        proofs.covered(first), tuple(a.name for a in proofs.arrays if a.writes),
        bool(setting.key.aliases), _text(proofs, steps), numbers,
        first.saved if first is not None else (),
        _places(proofs.others),
        _groups(request.wrt, proofs.others),
    )  # fmt: skip


@dataclass(frozen=True)
class _Setting:
    """The target and options for which the kernels of a launch are compiled."""

    kernel: JITFunction
    key: Key
    device: Any
    options: Any

    @property
    def cache(self) -> Any:
        return self.kernel.device_caches[self.device]

    @property
    def context(self) -> PassContext:
        return context_for(self.cache.backend, self.options)

    def step(
        self, derived: Derived, arguments: tuple[Path | Made, ...], grid: Grid, axes: Sequence[int]
    ) -> Step:
        """A derived kernel, compiled, for a grid."""
        _declare_facts(derived.module, arguments, self.key, len(self.kernel.params))
        remove_marks(derived.module)
        run(derived.module, FURTHER_STEPS, self.context)
        options = _fewest_warps(derived.module.entry, self.options)
        compiled = compile_source(IRSource.of_module(derived.module), self.cache.target, options)
        compiled.device = self.device
        return Step(compiled, arguments, grid, tuple(axes), derived.tapes)


def _lowered(request: Request, launch: Launch) -> tuple[_Setting, Module, list[ArgPath]]:
    """The tile IR of the kernel for a launch, as it is differentiated, and where the arguments of
    its entry are among those of the launch."""
    kernel = request.kernel
    source, _, given = kernel.bound(*launch.args, **launch.kwargs)
    source.hash()  # records the global variables that the kernel uses
    key = Key(*launch.key)
    further = [f"{name}_{kind}" for kind, name in request.positions]
    device = kernel.device_of(key.devices, launch.values, further)
    backend = kernel.device_caches[device].backend
    setting = _Setting(kernel, key, device, kernel.options_of(backend, source, given))
    front_end = replace(backend.frontend_options(setting.options), derivatives=True)
    module = source.module(front_end)
    run(module, FIRST_STEPS, setting.context)
    return setting, module, [path for path, _ in runtime_arguments(list(source.signature.values()))]


def _others(
    module: Module, request: Request, launch: Launch, types: Mapping[str, DType], proofs: Proofs
) -> list[tuple[Derived, Grid, Sequence[int]]]:
    """The kernels besides the first one, each with its grid and axes of workers."""
    found: list[tuple[Derived, Grid, Sequence[int]]] = []
    if proofs.rest:
        found.append((_of_rest(module, request, types, proofs), launch.grid, ()))
    others = proofs.others
    for schedule, derived in zip(others.schedules, others.kernels, strict=True):
        found.append((derived, (schedule.programs, 1, 1), ()))
    return found


def _fewest_warps(fn: Function, options: Any) -> Any:
    """The options for a kernel: one warp if it has no tiles, as the one that adds the gradient of a
    label's element."""
    if any(shape_of(value.type) for op in fn.walk() for value in op.results):
        return options
    return replace(options, num_warps=1) if hasattr(options, "num_warps") else options


def _arguments(
    derived: Derived, paths: Sequence[ArgPath], more: Mapping[Made, int]
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


def _wide(kernels: Sequence[Derived]) -> frozenset[str]:
    """See `Plan.wide`."""
    return frozenset(
        role.name
        for derived in kernels
        for role, arg in zip(derived.roles, derived.module.entry.args, strict=True)
        if role.kind == "partial" and pointee_of(arg.type) == FP64
    )


def _text(proofs: Proofs, steps: Sequence[Step]) -> str:
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


def _groups(wrt: Sequence[str], others: Regridded) -> tuple[tuple[str, ...], ...]:
    """See `Plan.groups`."""
    found = [{name for name in wrt if name not in others.arrays}]
    for schedule in others.schedules:
        names = schedule.names
        same = [group for group in found if group & names]
        found = [group for group in found if group not in same] + [names.union(*same)]
    groups = [tuple(name for name in wrt if name in group) for group in found if group]
    return tuple(sorted(groups, key=lambda group: wrt.index(group[0])))


def integer_paths(kernel: JITFunction, launch: Launch) -> tuple[ArgPath, ...]:
    """Where a launch's arguments are that are integers at run time."""
    source, _, _ = kernel.bound(*launch.args, **launch.kwargs)
    return tuple(
        path
        for path, type in runtime_arguments(list(source.signature.values()))
        if not is_tensor_type(type) and not scalar_type(type).is_floating()
    )


def _element_types(request: Request, launch: Launch) -> dict[str, DType]:
    """The element types of the further arrays, by the array that each belongs to."""
    found: dict[str, DType] = {}
    for (kind, name), position in request.positions.items():
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
    module: Module, request: Request, types: Mapping[str, DType], proofs: Proofs
) -> Derived | None:
    """The kernel on the forward grid; None if it has no work."""
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
    if not wrt and others.schedules and others.saved is None:
        proofs.require((), types)
        return None
    derived = reverse_mode(
        module, wrt, request.outputs, request.aux,
        atomic=proofs.atomic, private=proofs.private, repeated=proofs.repeated_loads,
        last=proofs.last_loads, accumulate=request.accumulate, types=types,
        coarse=proofs.coarse, parts=proofs.parts, saved_adjoints=others.saved,
        sources=others.arrays, skip=proofs.omitted_loads, tapes=proofs.tapes, stored=proofs.stored,
    )  # fmt: skip
    proofs.require(derived.reached, types)
    return derived


def _of_rest(
    module: Module, request: Request, types: Mapping[str, DType], proofs: Proofs
) -> Derived:
    """The kernel that adds to gradients atomically for the loads that the first kernel omits."""
    names = tuple(proofs.rest)
    known = [op for a in proofs.arrays for op in a.loads if op not in proofs.rest.get(a.name, ())]
    return reverse_mode(
        module, names, request.outputs, request.aux, atomic=names, types=types, skip=known,
        tapes=proofs.tapes, stored=proofs.stored,
    )  # fmt: skip


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
