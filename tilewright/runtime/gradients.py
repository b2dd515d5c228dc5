"""Derivatives of kernels: `grad`, `vjp` and `jvp`.

    bwd = tilewright.grad(kernel)
    bwd[grid](x, y, n, BLOCK=128, grads={"y": dy}, into={"x": dx})

The kernel's arguments are those of its own launch, as that left them; the gradient kernel is
derived from the kernel's tile IR on the first launch of a variant (`runtime/derivation.py`) and
compiled like any other. What the derivation proves depends on the kernel's integers and on the
grid, so these are part of the variant's key: a launch with a known key costs no proof.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import Parameter, Signature
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.base import knobs
from tilewright.base.lazy_import import lazy_import
from tilewright.base.locks import Lock
from tilewright.frontend.source import KernelParam
from tilewright.runtime.jit import JITFunction, constexpr_key
from tilewright.runtime.launch import Grid, at_path, extents_of, slot_of, start_with_hooks
from tilewright.runtime.partial_sums import Partials, add_up, partial_sums, workers_of
from tilewright.runtime.specialize import Binder, make_binder
from tilewright.runtime.tensors import find_reader

if TYPE_CHECKING:
    from tilewright.compiler.artifact import CompiledKernel
    from tilewright.runtime import derivation
else:
    derivation = lazy_import("tilewright.runtime.derivation")


Arrays = Mapping[str, Any]
Path = tuple[int, ...]


class NarrowSumError(TypeError):
    """Gradients that several programs add up would be rounded at each addition.

    Attributes:
        names: the inputs whose gradients need an array of fp32.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        super().__init__(
            f"the gradient of {', '.join(names)} is added up by several programs, and its elements "
            "are narrower than 32 bits: pass an array of fp32"
        )


class Plan(NamedTuple):
    """How one variant of a derivative is launched.

    Attributes:
        kernel: the compiled derived kernel.
        arguments: for each of its arguments where it is among those of the launch; or what it is,
            such as ("partial", name).
        axes: those of the grid over which workers add up gradients.
        summed: the arrays whose gradients they add up.
        covered: by array, how many elements the kernel writes, if it writes each of them once and
            no others; an array with so many elements need not be zeroed first.
        stored: the arrays that the kernel itself stores.
        overlapping: whether arrays may share memory, so that each launch compares their extents.
        text: what was decided and why, for `explain`.
    """

    kernel: CompiledKernel
    arguments: tuple[Any, ...]
    axes: tuple[int, ...]
    summed: tuple[str, ...]
    covered: Mapping[str, int | None]
    stored: tuple[str, ...]
    overlapping: bool
    text: str


class Request(NamedTuple):
    """What is to be derived.

    Attributes:
        mode: "reverse" or "forward".
        kernel: the kernel.
        wrt, outputs: the arrays whose derivatives are given or computed.
        aux: arrays that are stored, and count as constants.
        in_place: arrays of `wrt` that are results, too.
        accumulate: whether gradients are added to what is in memory.
        deterministic: whether atomic additions are an error.
    """

    mode: str
    kernel: JITFunction
    wrt: tuple[str, ...]
    outputs: tuple[str, ...]
    aux: tuple[str, ...]
    in_place: tuple[str, ...]
    accumulate: bool
    deterministic: bool


class Launch(NamedTuple):
    """The arguments of one launch.

    Attributes:
        args, kwargs: those of the kernel.
        values, slots, key, options: what the binder returned for these and the further arrays.
        grid: the launch's extents.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    values: tuple[Any, ...]
    slots: tuple[Any, ...]
    key: tuple[Any, ...]
    options: dict[str, Any]
    grid: Grid


class _Derivative:
    """What `grad` and `jvp` have in common: binding, plans, launching.

    Args:
        kernel: a kernel decorated with `jit`.
        wrt: the inputs that may be differentiated; by default all.
        outputs: the results; by default those for which a derivative is given at the launch.
        aux: arrays that the kernel stores, and whose derivatives are not needed.
    """

    mode = ""
    further = ("", "")  # the kinds of the further arrays: of `wrt`, of `outputs`

    def __init__(
        self,
        kernel: Any,
        wrt: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        aux: Sequence[str] = (),
        *,
        deterministic: bool = False,
    ) -> None:
        if not isinstance(kernel, JITFunction):
            raise TypeError(
                f"{kernel!r} is no kernel: pass a function decorated with @jit, without autotuning "
                "or heuristics around it"
            )
        self.kernel: JITFunction = kernel
        self.wrt = None if wrt is None else tuple(wrt)
        self.outputs = None if outputs is None else tuple(outputs)
        self.aux = tuple(aux)
        self.deterministic = deterministic
        self._binders: dict[tuple[tuple[str, ...], tuple[str, ...]], Binder] = {}
        self._plans: dict[Any, Plan] = {}
        self._integers: dict[Any, tuple[Path, ...]] = {}  # by key: where integers are
        self._lock = Lock()
        for name in (*(self.wrt or ()), *(self.outputs or ()), *self.aux):
            self._require_parameter(name)

    def _require_parameter(self, name: str) -> None:
        if name not in self.kernel.arg_names:
            raise ValueError(
                f"{self.kernel.__name__} has no parameter {name!r}; it has "
                f"{', '.join(self.kernel.arg_names)}"
            )

    def _names(self, given: Arrays, expected: tuple[str, ...] | None, what: str) -> tuple[str, ...]:
        names = tuple(given)
        for name in names:
            self._require_parameter(name)
        if expected is not None and set(names) - set(expected):
            wrong = sorted(set(names) - set(expected))
            raise ValueError(f"{what} has {wrong[0]!r}, which is not one of {list(expected)}")
        return names

    def _launch(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        grid: Any,
        of_wrt: Arrays,
        of_outputs: Arrays,
        accumulate: bool = False,
        in_place: tuple[str, ...] = (),
    ) -> Plan:
        wrt = self._names(of_wrt, self.wrt, "of the inputs")
        outputs = self._names(of_outputs, self.outputs, "of the results")
        binder = self._binders.get((wrt, outputs)) or self._new_binder(wrt, outputs)
        more = {f"{name}_{self.further[0]}": array for name, array in of_wrt.items()}
        more |= {f"{name}_{self.further[1]}": array for name, array in of_outputs.items()}
        values, slots, key, options = binder(*args, **kwargs, **more)
        if callable(grid):
            grid = grid(dict(zip(self.kernel.arg_names, values, strict=False)))
        launch = Launch(args, kwargs, values, slots, key, options, extents_of(grid))
        places = self._integers.get(key)
        if places is None:
            places = self._integers[key] = derivation.integer_paths(self.kernel, launch)
        variant = (
            key, wrt, outputs, launch.grid, accumulate, in_place, knobs.runtime.debug,
            tuple([_argument(slots, path, {}) for path in places]),
            tuple(sorted(map(repr, options.items()))) if options else (),
        )  # fmt: skip
        self.kernel.check_globals()
        plan = self._plans.get(variant)
        if plan is None:
            request = Request(
                self.mode, self.kernel, wrt, outputs, self.aux, in_place, accumulate,
                self.deterministic,
            )  # fmt: skip
            with self._lock:
                plan = self._plans.get(variant)
                if plan is None:
                    plan = self._plans[variant] = derivation.derive(request, launch)
        named = dict(zip(self.kernel.arg_names, values, strict=False))
        for name, array in (*of_wrt.items(), *of_outputs.items()):
            _require_same_layout(name, named[name], array)
        if plan.overlapping:
            derivation.require_apart(plan, named, of_wrt, of_outputs, self.mode)
        self._prepare(plan, of_wrt, launch.grid, accumulate)
        if 0 not in launch.grid:
            _start(plan, launch, of_wrt, accumulate)
        return plan

    def _prepare(self, plan: Plan, of_wrt: Arrays, grid: Grid, accumulate: bool) -> None:
        """Bring the further arrays into the state that the derived kernel expects."""

    def _new_binder(self, wrt: tuple[str, ...], outputs: tuple[str, ...]) -> Binder:
        kernel = self.kernel
        names = [f"{name}_{self.further[0]}" for name in wrt]
        names += [f"{name}_{self.further[1]}" for name in outputs]
        more = [Parameter(name, Parameter.KEYWORD_ONLY) for name in names]
        signature = Signature([*kernel.signature.parameters.values(), *more])
        first = len(kernel.params)
        params = [*kernel.params, *(KernelParam(first + i, p) for i, p in enumerate(more))]
        binder = make_binder(kernel.__name__, signature, params, constexpr_key)
        return self._binders.setdefault((wrt, outputs), binder)

    @property
    def kernels(self) -> list[CompiledKernel]:
        """The derived kernels so far, compiled."""
        return [plan.kernel for plan in self._plans.values()]

    def explain(self) -> str:
        """For each variant that was launched: what is done with each array, and why."""
        return derivation.explained(self.kernel.__name__, self.mode, list(self._plans.values()))


class Gradient(_Derivative):
    """The gradients of a kernel's inputs; see `grad`."""

    mode = "reverse"
    further = ("gradient", "cotangent")

    def __getitem__(self, grid: Any) -> Any:
        return partial(self.run, grid=grid)

    def run(
        self,
        *args: Any,
        grid: Any,
        grads: Arrays,
        into: Arrays,
        accumulate: bool = False,
        **kwargs: Any,
    ) -> None:
        """Launch.

        Args:
            args, kwargs: the arguments of the kernel's own launch, as that left them.
            grid: the grid of the kernel's own launch.
            grads: for each result, the gradient of a loss with respect to it: an array of the same
                shape and strides.
            into: for each input, the array that its gradient is written to, likewise.
            accumulate: add to what is in these arrays. By default they are overwritten.

        Raises:
            CompilationError: the kernel has no gradient, or none that is known to be right.
            ValueError: an array has another layout than the one that it belongs to, arrays share
                memory, or a name is none of the kernel's.
            TypeError: an argument is missing, or has a type that it cannot have.
        """
        self._launch(args, kwargs, grid, into, grads, accumulate)

    def _prepare(self, plan: Plan, of_wrt: Arrays, grid: Grid, accumulate: bool) -> None:
        if not accumulate:
            for name, array in of_wrt.items():
                written = plan.covered.get(name) == _size(array) or name in plan.summed
                if not written or 0 in grid:
                    _zero(name, array)


class Tangents(_Derivative):
    """The kernel with tangents; see `jvp`."""

    mode = "forward"
    further = ("tangent", "tangent")

    def __getitem__(self, grid: Any) -> Any:
        return partial(self.run, grid=grid)

    def run(self, *args: Any, grid: Any, tangents: Arrays, into: Arrays, **kwargs: Any) -> None:
        """Launch the kernel together with its derivative in a direction.

        Args:
            args, kwargs: the arguments of the kernel. It runs, too.
            grid: the grid of the kernel.
            tangents: for each input the direction: an array of the same shape and strides.
            into: for each result, the array for its derivative. Elements that the kernel does not
                store stay as they are. The arrays of a result that is an input are the same.

        Raises:
            the errors of `Gradient.run`.
        """
        for name in tangents.keys() & into.keys():
            if tangents[name] is not into[name]:
                raise ValueError(
                    f"{name} is an input and a result: tangents[{name!r}] and into[{name!r}] must "
                    "be the same array"
                )
        results = {name: array for name, array in into.items() if name not in tangents}
        in_place = tuple(name for name in into if name in tangents)
        self._launch(args, kwargs, grid, tangents, results, in_place=in_place)


def grad(
    kernel: JITFunction,
    wrt: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    aux: Sequence[str] = (),
    *,
    deterministic: bool = False,
) -> Gradient:
    """The gradient kernel of a kernel, derived from it.

        bwd = tilewright.grad(gelu)
        gelu[grid](x, y, n, BLOCK=128)
        bwd[grid](x, y, n, BLOCK=128, grads={"y": dy}, into={"x": dx})

    computes dx = Jᵀ dy, with J the Jacobian of what the launch stored in y with respect to x. All
    arrays have the layout of those that they belong to; a gradient may have another float type.

    Args:
        kernel: the kernel; its results must not overlap its inputs.
        wrt: the inputs that may be named in `into`; by default all arrays of floats.
        outputs: the results that may be named in `grads`.
        aux: arrays that the kernel stores and whose gradients count as zero.
        deterministic: raise an error where gradients would be added atomically, in any order.

    Raises:
        TypeError: `kernel` is no kernel.
        ValueError: it has no such parameter.
    """
    return Gradient(kernel, wrt, outputs, aux, deterministic=deterministic)


def vjp(
    kernel: JITFunction,
    wrt: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    aux: Sequence[str] = (),
    *,
    deterministic: bool = False,
) -> Gradient:
    """`grad` under the name that says what it computes: a vector-Jacobian product."""
    return Gradient(kernel, wrt, outputs, aux, deterministic=deterministic)


def jvp(
    kernel: JITFunction,
    wrt: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    aux: Sequence[str] = (),
) -> Tangents:
    """The kernel with forward-mode derivatives: a Jacobian-vector product.

        both = tilewright.jvp(gelu)
        both[grid](x, y, n, BLOCK=128, tangents={"x": tx}, into={"y": ty})

    computes y as the kernel does, and ty = J tx. See `grad` for the arguments.
    """
    return Tangents(kernel, wrt, outputs, aux)


# -- one launch -----------------------------------------------------------------------------------


def _start(plan: Plan, launch: Launch, of_wrt: Arrays, accumulate: bool) -> None:
    """Launch the kernel, and add up what workers have summed."""
    grid, found = launch.grid, dict[tuple[str, str], Any]()
    sums: dict[str, Partials] = {}
    if plan.axes:
        programs = prod(grid[axis] for axis in plan.axes)
        workers = workers_of(programs, [of_wrt[name] for name in plan.summed])
        for axis in plan.axes:
            found["extent", str(axis)] = grid[axis]
        grid = _coarse(grid, plan.axes, workers)
        for name in plan.summed:
            filled = plan.covered[name] == _size(of_wrt[name])
            sums[name] = partial_sums(of_wrt[name], workers, filled)
            found["partial", name], found["span", name] = sums[name].buffer, sums[name].span
    values = [_argument(launch.values, a, found) for a in plan.arguments]
    slots = [_argument(launch.slots, a, found, slot_of) for a in plan.arguments]
    if knobs.launch_hooks:
        start_with_hooks(plan.kernel, grid, values, slots)
    else:
        plan.kernel.run.start(grid, values, slots)
    for name, partials in sums.items():
        add_up(partials, of_wrt[name], accumulate)


def _argument(
    given: Sequence[Any], argument: tuple[Any, ...], found: Mapping[Any, Any],
    convert: Callable[[Any], Any] | None = None,
) -> Any:  # fmt: skip
    """An argument of the derived kernel: one of those of the launch, or one that was made."""
    first = argument[0]
    if type(first) is int:
        return given[first] if len(argument) == 1 else at_path(given, argument)
    made = found[argument]
    return made if convert is None else convert(made)


def _coarse(grid: Grid, axes: Sequence[int], workers: int) -> Grid:
    x, y, z = (
        workers if axis == axes[0] else 1 if axis in axes else n for axis, n in enumerate(grid)
    )
    return x, y, z


def _require_same_layout(name: str, array: Any, derivative: Any) -> None:
    """Raise ValueError unless a derivative is addressed like its array."""
    if find_reader(derivative) is None:
        raise TypeError(f"the derivative of {name} is {derivative!r}, not an array")
    mine, other = _layout(array), _layout(derivative)
    if mine is not None and other is not None and mine != other:
        raise ValueError(
            f"the derivative of {name} has shape {other[0]} and strides {other[1]} (in elements); "
            f"it must be laid out like {name}, with shape {mine[0]} and strides {mine[1]}"
        )


def _layout(array: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    shape: Any = getattr(array, "shape", None)
    stride_of: Any = getattr(array, "stride", None)
    if stride_of is not None:
        return tuple(shape), tuple(stride_of())
    in_bytes: Any = getattr(array, "strides", None)
    if shape is None or in_bytes is None:
        return None
    return tuple(shape), tuple(s // array.itemsize for s in in_bytes)


def _size(array: Any) -> Any:
    """The number of elements; None if the array does not say."""
    numel: Any = getattr(array, "numel", None)
    return getattr(array, "size", None) if numel is None else numel()


def _zero(name: str, array: Any) -> None:
    if hasattr(array, "zero_"):
        array.zero_()
    elif hasattr(array, "fill"):
        array.fill(0)
    else:
        raise TypeError(
            f"the gradient of {name} cannot be zeroed, as a {type(array).__name__} has neither "
            "zero_() nor fill(): pass an array of zeros, and accumulate=True"
        )
