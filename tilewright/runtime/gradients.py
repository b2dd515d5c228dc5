"""Derivatives of kernels: `grad`, `vjp` and `jvp`.

    bwd = tilewright.grad(kernel)
    bwd[grid](x, y, n, BLOCK=128, grads={"y": dy}, into={"x": dx})

The kernel's arguments are those of its own launch, as that left them; the gradient kernel is
derived from the kernel's tile IR on the first launch of a variant (`runtime/derivation.py`) and
compiled like any other. What the derivation proves depends on the kernel's integers and on the
grid, so these are part of the variant's key: a launch with a known key costs no proof, and is one
call of native code (`runtime/hot_launch.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, overload

from tilewright.base import knobs
from tilewright.base.lazy_import import lazy_import
from tilewright.base.locks import Lock
from tilewright.frontend.source import KernelParam
from tilewright.runtime.autotuner import Autotuner
from tilewright.runtime.derived_launch import (
    MOST_TAPE_BYTES,
    NEW,
    Arrays,
    Checked,
    How,
    Launch,
    Path,
    Plan,
    Request,
    elements_of_table,
    not_written,
    require_same_layout,
    zero,
)
from tilewright.runtime.grid import extents_of
from tilewright.runtime.heuristics import Heuristics
from tilewright.runtime.jit import JITFunction
from tilewright.runtime.slots import at_path
from tilewright.runtime.specialize import Binder, make_binder
from tilewright.runtime.tuning.call import Prepared

if TYPE_CHECKING:
    from tilewright.compiler.artifact import CompiledKernel
    from tilewright.runtime import derivation, hot_launch
    from tilewright.runtime.hot_launch import Started
else:
    derivation = lazy_import("tilewright.runtime.derivation")
    hot_launch = lazy_import("tilewright.runtime.hot_launch")


MOST_LAUNCHERS = 1024  # of one derivative
RESERVED = frozenset(["accumulate", "warmup"])  # keywords that are no options of a kernel


class _Derivative:
    """The common part of `grad` and `jvp`: binding, plans, launching.

    Args:
        kernel: a kernel decorated with `jit`.
        wrt: the inputs that may be differentiated; by default all.
        outputs: the results; by default those for which a derivative is given at the launch.
        aux: arrays that the kernel stores, and whose derivatives are not needed.
        tables: arrays of integers that each launch reads on the host; see `grad`.
    """

    mode = ""
    further = ("", "")  # the kinds of the further arrays: of `wrt`, of `outputs`
    keywords = ("", "")  # of the launch, for these
    more: frozenset[str] = frozenset()  # keywords of the launch besides

    def __init__(
        self,
        kernel: Any,
        wrt: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        aux: Sequence[str] = (),
        *,
        deterministic: bool = False,
        tape_bytes: int = MOST_TAPE_BYTES,
        tables: Sequence[str] = (),
    ) -> None:
        if not isinstance(kernel, JITFunction):
            raise TypeError(f"{kernel!r} is not a kernel: pass a function decorated with @jit")
        if kernel.vjp is not None:
            raise TypeError(
                f"{kernel.__name__} has a derivative rule, {kernel.vjp.__name__}: that is for "
                "calls of it in a kernel, and does not replace the gradient of a launch"
            )
        self.kernel: JITFunction = kernel
        self.fn = kernel
        self.arg_names = kernel.arg_names
        self.__name__ = kernel.__name__
        self.wrt = None if wrt is None else tuple(wrt)
        self.outputs = None if outputs is None else tuple(outputs)
        self.aux = tuple(aux)
        self.deterministic = deterministic
        self.tape_bytes = tape_bytes
        self.tables = tuple(tables)
        self._binders: dict[tuple[tuple[str, ...], tuple[str, ...]], Binder] = {}
        self._plans: dict[Any, Plan] = {}
        self._integers: dict[Any, tuple[Path, ...]] = {}  # by key: where integers are
        self._native: dict[Any, Any] = {}  # by grid and names; True after the first launch
        self._latest: dict[Any, Callable[..., Any]] = {}  # of these, by grid
        self._lock = Lock()
        self._defaults = {p.name: p.default for p in kernel.params if p.has_default}
        for name in (*(self.wrt or ()), *(self.outputs or ()), *self.aux, *self.tables):
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

    def __getitem__(self, grid: Any) -> Any:
        if type(grid) is not tuple:
            return partial(self.run, grid=grid)
        try:
            return self._latest.get(grid) or self._bound(grid)
        except TypeError:  # not hashable
            return partial(self.run, grid=grid)

    def _bound(self, grid: tuple[Any, ...]) -> Callable[..., Any]:
        """What launches on a grid, natively as soon as that is possible."""
        run, latest = self.run, self._latest

        def launch(*args: Any, **kwargs: Any) -> Any:
            native = latest.get(grid)
            if native is None:
                return run(*args, grid=grid, **kwargs)
            return native(*args, **kwargs)

        return launch

    def run(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Launch."""
        raise NotImplementedError

    def _launch(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        grid: Any,
        of_wrt: Arrays,
        of_outputs: Arrays,
        how: How = NEW,
    ) -> None:
        if callable(grid):
            grid = grid(self._named(args, kwargs))
        native = self._native_launch(grid, of_wrt, of_outputs, how)
        if native is None or kwargs.keys() & RESERVED:
            self._start(args, kwargs, grid, of_wrt, of_outputs, how)
            return
        of_wrt_name, of_outputs_name = self.keywords
        more: dict[str, Any] = {of_wrt_name: of_wrt, of_outputs_name: of_outputs}
        if how.accumulate:
            more["accumulate"] = True
        native(*args, **more, **kwargs)

    def _start(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        grid: Any,
        of_wrt: Arrays,
        of_outputs: Arrays,
        how: How,
    ) -> Started | None:
        """Launch through Python. Returns what native code is to know of the launch."""
        found = self._checked(args, kwargs, grid, of_wrt, of_outputs, how)
        first = len(self.kernel.params)
        return hot_launch.start_plan(found, of_wrt, how.accumulate, first)

    def _native_launch(
        self, grid: Any, of_wrt: Arrays, of_outputs: Arrays, how: How
    ) -> Callable[..., Any] | None:
        """What launches natively on a grid, from its second launch on: native code is not loaded
        for a single one."""
        if type(grid) is not tuple or self.tables or how.in_place:
            return None
        names = hot_launch.Names(tuple(of_wrt), tuple(of_outputs), self.keywords)
        key = grid, names, how.results
        try:
            found = self._native.get(key, False)
        except TypeError:  # not hashable
            return None
        if found is False:
            if len(self._native) >= MOST_LAUNCHERS:
                self._native.clear()
                self._latest.clear()
            self._native[key] = True
        elif found is True:
            fallback = partial(self._by_python, names, how.results)
            found = hot_launch.native_launch(self.kernel, grid, names, fallback)
            self._native[key] = found
            if found is not None and how.results:
                self._latest[grid] = found
        return found if callable(found) else None

    def _by_python(
        self, names: hot_launch.Names, results: bool, grid: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """A launch that is unknown to the native launcher for derivatives of some arrays."""
        given: list[Any] = [kwargs.get(keyword) for keyword in self.keywords]
        known = [dict.fromkeys(names.wrt), dict.fromkeys(names.outputs)]
        same = [
            isinstance(g, Mapping) and g.keys() == k.keys()
            for g, k in zip(given, known, strict=True)
        ]
        if not all(same) or kwargs.keys() & RESERVED - self.more:
            return self.run(*args, grid=grid, **kwargs)
        rest = {k: v for k, v in kwargs.items() if k not in (*self.keywords, *self.more)}
        of_wrt, of_outputs = (
            {name: arrays[name] for name in k} for arrays, k in zip(given, known, strict=True)
        )
        how = How(bool(kwargs.get("accumulate")), results=results)
        return self._start(args, rest, grid, of_wrt, of_outputs, how)

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name, with defaults, for functions of them."""
        return {**self._defaults, **dict(zip(self.arg_names, args, strict=False)), **kwargs}

    def _checked(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        grid: Any,
        of_wrt: Arrays,
        of_outputs: Arrays,
        how: How,
    ) -> Checked:
        """The plan of a launch whose arrays have the layouts that it requires, and share no memory.
        Native launches have the key of one that was checked."""
        plan, launch = self._planned(args, kwargs, grid, of_wrt, of_outputs, how)
        named = dict(zip(self.kernel.arg_names, launch.values, strict=False))
        for name, array in (*of_wrt.items(), *of_outputs.items()):
            require_same_layout(name, named[name], array)
        if plan.overlapping:
            derivation.require_apart(plan, named, of_wrt, of_outputs, self.mode)
        return Checked(plan, launch, self._zeroed(plan, of_wrt, how))

    def _planned(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        grid: Any,
        of_wrt: Arrays,
        of_outputs: Arrays,
        how: How,
    ) -> tuple[Plan, Launch]:
        """The plan of a launch, derived on first use."""
        wrt = self._names(of_wrt, self.wrt, "of the inputs")
        outputs = self._names(of_outputs, self.outputs, "of the results")
        binder = self._binders.get((wrt, outputs)) or self._new_binder(wrt, outputs)
        more = {f"{name}_{self.further[0]}": array for name, array in of_wrt.items()}
        more |= {f"{name}_{self.further[1]}": array for name, array in of_outputs.items()}
        values, slots, key, options = binder(*args, **kwargs, **more)
        if callable(grid):
            grid = grid(dict(zip(self.kernel.arg_names, values, strict=False)))
        tables = tuple(
            elements_of_table(name, values[self.kernel.arg_names.index(name)])
            for name in self.tables
        )
        launch = Launch(args, kwargs, values, slots, key, options, extents_of(grid), tables)
        integers = self._integers.get(key)
        if integers is None:
            integers = self._integers[key] = derivation.integer_paths(self.kernel, launch)
        variant = (
            key, wrt, outputs, launch.grid, how, knobs.runtime.debug,
            tuple([at_path(slots, path) for path in integers]),
            tuple([(table.dtype.str, table.tobytes()) for table in tables]),
            tuple(sorted(map(repr, options.items()))) if options else (),
        )  # fmt: skip
        self.kernel.check_globals()
        plan = self._plans.get(variant)
        if plan is None:
            request = Request(
                self.mode, self.kernel, wrt, outputs, self.aux, how.in_place, how.accumulate,
                self.deterministic, self.tape_bytes, self.tables, how.results,
                (*((self.further[0], n) for n in wrt), *((self.further[1], n) for n in outputs)),
            )  # fmt: skip
            with self._lock:
                plan = self._plans.get(variant)
                if plan is None:
                    plan = self._plans[variant] = derivation.derive(request, launch, integers)
        return plan, launch

    def _zeroed(self, plan: Plan, of_wrt: Arrays, how: How) -> tuple[str, ...]:
        """The arrays of `of_wrt` that must be zeroed first."""
        return ()

    def _new_binder(self, wrt: tuple[str, ...], outputs: tuple[str, ...]) -> Binder:
        kernel = self.kernel
        names = [f"{name}_{self.further[0]}" for name in wrt]
        names += [f"{name}_{self.further[1]}" for name in outputs]
        more = [Parameter(name, Parameter.KEYWORD_ONLY) for name in names]
        signature = Signature([*kernel.signature.parameters.values(), *more])
        first = len(kernel.params)
        params = [*kernel.params, *(KernelParam(first + i, p) for i, p in enumerate(more))]
        binder = make_binder(kernel.__name__, signature, params)
        return self._binders.setdefault((wrt, outputs), binder)

    @property
    def kernels(self) -> list[CompiledKernel]:
        """The derived kernels so far, compiled."""
        return [step.kernel for plan in self._plans.values() for step in plan.steps]

    def explain(self) -> str:
        """For each variant that was launched: what is done with each array, and why."""
        return derivation.explained(self.kernel.__name__, self.mode, list(self._plans.values()))

    def source(self) -> str:
        """The derived kernels of the variants that were launched, as Python that compiles to the
        same tile IR: for each, the text of a module.

        Raises:
            NoSourceError: an op has no spelling in the language.
        """
        return derivation.source_of(list(self._plans.values()))


class Gradient(_Derivative):
    """The gradients of a kernel's inputs; see `grad`."""

    mode = "reverse"
    further = ("gradient", "cotangent")
    keywords = ("into", "grads")
    more = frozenset(["accumulate"])

    def run(
        self,
        *args: Any,
        grid: Any,
        grads: Arrays,
        into: Arrays,
        accumulate: bool = False,
        warmup: bool = False,
        **kwargs: Any,
    ) -> Prepared | None:
        """Launch.

        Args:
            args, kwargs: the arguments of the kernel's own launch, as that left them.
            grid: the grid of the kernel's own launch.
            grads: for each result, the gradient of a loss with respect to it: an array of the same
                shape and strides.
            into: for each input, the array that its gradient is written to, likewise.
            accumulate: add to what is in these arrays. By default they are overwritten.
            warmup: only derive and compile.

        Raises:
            CompilationError: the kernel has no gradient, or none that is known to be right.
            ValueError: an array has another layout than the one that it belongs to, arrays share
                memory, or a name is none of the kernel's.
            TypeError: an argument is missing, or has a type that it cannot have.
        """
        how = How(True) if accumulate else NEW
        if warmup:
            self._planned(args, kwargs, grid, into, grads, how)
            return Prepared(tuple(into.values()))
        self._launch(args, kwargs, grid, into, grads, how)
        return None

    def tuning_key(self, named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Which gradient is computed, for `autotune`."""
        into, grads = named.get("into", ()), named.get("grads", ())
        how = bool(named.get("accumulate")), self.deterministic
        return "gradient", tuple(into), tuple(grads), self.aux, *how

    def planned(
        self, *args: Any, grid: Any, grads: Arrays, into: Arrays, **kwargs: Any
    ) -> tuple[Plan, Launch]:
        """The plan of a launch with these arguments, see `run`, and its arguments; for callers
        that launch the derived kernel themselves."""
        return self._planned(args, kwargs, grid, into, grads, NEW)

    def _zeroed(self, plan: Plan, of_wrt: Arrays, how: How) -> tuple[str, ...]:
        return () if how.accumulate else not_written(plan, of_wrt)


class Tangents(_Derivative):
    """The kernel with tangents; see `jvp`."""

    mode = "forward"
    further = ("tangent", "tangent")
    keywords = ("tangents", "into")

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
        how = How(in_place=in_place) if in_place else NEW
        self._launch(args, kwargs, grid, tangents, results, how)

    def push(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any, tangents: Arrays,
        into: Arrays,
    ) -> None:  # fmt: skip
        """Launch the derivative alone: the kernel's own results are not stored."""
        self._launch(args, kwargs, grid, tangents, into, How(results=False))


class _OfTangents(Gradient):
    """The gradient of the kernel with tangents. Among `grads` are the directions, by input."""

    mode = "second"


class SecondGradient:
    """The gradient of a gradient, `grad(grad(kernel))`.

        dx = J(x)ᵀ dy,  and a loss with ∂loss/∂dx = v

        ∂loss/∂dy = J(x) v                      forward mode, in the direction v
        ∂loss/∂x  = ∂/∂x ⟨dy, J(x) v⟩           reverse mode of the kernel that computes J(x) v

    The kernel of forward mode accesses tangents where the kernel accesses its arrays. So its
    gradient is derived as that of any kernel, with the same schedules, and no derived kernel is
    differentiated that adds atomically or records a loop.
    """

    def __init__(self, gradient: Gradient) -> None:
        kernel, wrt, outputs, aux = gradient.kernel, gradient.wrt, gradient.outputs, gradient.aux
        self.kernel = kernel
        self.outputs = outputs
        self._reverse = _OfTangents(
            kernel, wrt, None, aux,
            deterministic=gradient.deterministic, tape_bytes=gradient.tape_bytes,
            tables=gradient.tables,
        )  # fmt: skip
        self._forward = Tangents(kernel, wrt, outputs, aux)

    def __getitem__(self, grid: Any) -> Any:
        return partial(self.run, grid=grid)

    def run(
        self,
        *args: Any,
        grid: Any,
        grads: Arrays,
        directions: Arrays,
        into: Arrays,
        into_grads: Arrays | None = None,
        **kwargs: Any,
    ) -> None:
        """Launch.

        Args:
            args, kwargs: the arguments of the kernel's own launch, as that left them.
            grid: the grid of the kernel's own launch.
            grads: what the gradient was launched with: by result, the gradient of a loss.
            directions: by input, the gradient of another loss with respect to what the gradient
                wrote to `into`.
            into: by input, the array for the gradient of this other loss.
            into_grads: by result, the array for its gradient with respect to `grads`.

        Raises:
            the errors of `Gradient.run`.
        """
        for name in grads:
            if self.outputs is not None and name not in self.outputs:
                raise ValueError(f"grads has {name!r}, which is not one of {list(self.outputs)}")
        if into:
            both = {**grads, **directions}
            self._reverse.run(*args, grid=grid, grads=both, into=into, **kwargs)
        if into_grads:
            for name, array in into_grads.items():
                zero(name, array)
            self._forward.push(args, kwargs, grid, directions, into_grads)

    def explain(self) -> str:
        """For each variant that was launched: what is done with each array, and why."""
        return self._reverse.explain()

    def source(self) -> str:
        """The derived kernels; see `Gradient.source`."""
        return "\n\n".join(filter(None, (self._reverse.source(), self._forward.source())))


@overload
def grad(kernel: Gradient) -> SecondGradient: ...
@overload
def grad(
    kernel: JITFunction,
    wrt: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    aux: Sequence[str] = (),
    *,
    deterministic: bool = False,
    tape_bytes: int = MOST_TAPE_BYTES,
    tables: Sequence[str] = (),
) -> Gradient: ...
@overload
def grad(
    kernel: Any,
    wrt: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    aux: Sequence[str] = (),
    *,
    deterministic: bool = False,
    tape_bytes: int = MOST_TAPE_BYTES,
    tables: Sequence[str] = (),
) -> Any: ...
def grad(
    kernel: Any,
    wrt: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    aux: Sequence[str] = (),
    *,
    deterministic: bool = False,
    tape_bytes: int = MOST_TAPE_BYTES,
    tables: Sequence[str] = (),
) -> Any:
    """The gradient kernel of a kernel, derived from it.

        bwd = tilewright.grad(gelu)
        gelu[grid](x, y, n, BLOCK=128)
        bwd[grid](x, y, n, BLOCK=128, grads={"y": dy}, into={"x": dx})

    computes dx = Jᵀ dy, with J the Jacobian of what the launch stored in y with respect to x. All
    arrays have the layout of those that they belong to; a gradient may have another float type.

    The gradient of a gradient, `second = grad(bwd)`, is launched with the arguments of `bwd`, and

        second[grid](x, y, n, BLOCK=128, grads={"y": dy}, directions={"x": ddx}, into={"x": gx},
                     into_grads={"y": gdy})

    computes gx and gdy, the gradients of ⟨ddx, dx⟩ with respect to x and dy.

    Compile-time values, such as tile sizes, need not be those of the kernel's launch. The gradient
    of an autotuned kernel is autotuned over the same configurations; for others, autotune the
    gradient: ``tilewright.autotune(configs, key)(tilewright.grad(kernel))``.

    Args:
        kernel: the kernel; its results must not overlap its inputs. Or a gradient, which brings the
            other arguments with it.
        wrt: the inputs that may be named in `into`; by default all arrays of floats.
        outputs: the results that may be named in `grads`.
        aux: arrays that the kernel stores and whose gradients count as zero.
        deterministic: raise an error where gradients would be added atomically, in any order.
        tape_bytes: the most memory that a launch takes to record what loops carry.
        tables: arrays of integers from which the kernel computes addresses and the bounds of loops,
            such as where sequences of several lengths begin. Each launch reads them on the host,
            which waits for their device, and has the gradient that is proven for their elements.

    Raises:
        TypeError: `kernel` is not a kernel.
        ValueError: it has no such parameter.
    """

    if isinstance(kernel, Gradient):
        if wrt is not None or outputs is not None or aux:
            raise ValueError("the gradient of a gradient takes wrt, outputs and aux from that")
        return SecondGradient(kernel)

    def derived(inner: Any) -> Any:
        match inner:
            case Autotuner():
                return inner.around(derived(inner.fn))
            case Heuristics():
                return Heuristics(derived(inner.fn), inner.arg_names, inner.values)
            case _:
                return Gradient(
                    inner, wrt, outputs, aux,
                    deterministic=deterministic, tape_bytes=tape_bytes, tables=tables,
                )  # fmt: skip

    return derived(kernel)


vjp = grad
"""`grad` under the name of its result: a vector-Jacobian product."""


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
