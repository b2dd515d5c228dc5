"""Derivatives of calls of kernels in JAX programs, by gradient kernels that tilewright derives.

JAX differentiates in reverse mode by linearising a program and transposing the result. The linear
form of a call is a separate primitive, `linear_call`, that is never executed: its transpose
consists of the gradient kernels (`runtime/gradients.py`), each a `gradient_call`. They are derived
during the transposition, because they depend on what can be proven about the call. A gradient to
which several programs contribute is summed by workers, whose partial sums are a result that JAX
reduces; or it is computed by a kernel on a separate grid, which may read residuals that another
kernel has saved, and tables of its tiles. The tape on which a kernel records loop-carried values is
also a result, which is unused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.driver import compile_source
from tilewright.compiler.source import IRSource
from tilewright.interop.batched_kernels import Batches as KernelBatches
from tilewright.interop.batched_kernels import batched
from tilewright.interop.batches import Batches, batch_shape, batched_grid
from tilewright.interop.jax_batches import MAP, own_shape, strides, with_batch
from tilewright.interop.jax_lowering import PLATFORMS, Attributes, lower_call, unsupported_platform
from tilewright.interop.jax_sites import Site
from tilewright.interop.jax_variants import Array, resolved
from tilewright.interop.xla_handlers import ALIGNED
from tilewright.interop.xla_kernels import offer, site_words
from tilewright.ir.core import Module
from tilewright.ir.types import is_pointer, numpy_of
from tilewright.runtime.derived_buffers import BufferSizes
from tilewright.runtime.derived_launch import Made, NarrowSumError, Plan, Step, size_of
from tilewright.runtime.gradients import Gradient
from tilewright.runtime.grid import Grid
from tilewright.runtime.slots import at_path

# -- the gradient kernel --------------------------------------------------------------------------


class Result(NamedTuple):
    """An array that a kernel writes, for one element of a batch: a gradient, residuals for another
    kernel, or the tape of loop-carried values.

    Attributes:
        key: of the array among those of the call's gradient.
        shape: of the operand.
        rows: of the result, a row for each worker; 0 if the kernel stores the gradient itself.
        length: of a row.
        dtype: of the result.
        zeroed: whether the kernel expects zeros in it, or what another one has written.
    """

    key: Made
    shape: tuple[int, ...]
    rows: int
    length: int
    dtype: Any
    zeroed: bool

    @property
    def stored_shape(self) -> tuple[int, ...]:
        return (self.rows, self.length) if self.rows else self.shape


@dataclass(frozen=True, eq=False)
class GradientKernel:
    """A derived kernel for a call. Its operands are those of the call, the results of the call,
    their gradients, then `given`, and the initial array of each `zeroed` result.

    Attributes:
        name: of the kernel that it was derived from.
        kernel: compiled, for one element of a batch.
        options: compile options, as parsed by the target.
        grid: of that kernel.
        places: for each argument that is an array, the index of the operand; of a result, that
            after all operands but the arrays of zeros.
        slots: the values of the other arguments; 0 for arrays.
        results: the gradients, what is saved for others, then the tapes.
        given: the arrays of the call's gradient that it reads.
        operands: how many there are without the arrays that results start with.
    """

    name: str
    kernel: CompiledKernel
    options: Any
    grid: Grid
    places: Mapping[int, int]
    slots: tuple[Any, ...]
    results: tuple[Result, ...]
    given: tuple[Made, ...]
    operands: int

    @property
    def zeroed(self) -> list[int]:
        """The results that expect zeros."""
        return [i for i, result in enumerate(self.results) if result.zeroed]

    def attributes(self, batches: Batches, operands: Sequence[Array]) -> Attributes:
        """The attributes of the custom call, whose kernel is compiled over batches.

        Args:
            operands: all of them, with their batches.
        """
        module = _module(self.kernel)
        aligned = {
            i for i in self.places if module.entry.arg_attrs[i].get("divisibility", 1) % 16 == 0
        }
        more = len(self.zeroed)
        shift = {i: p + (more if p >= self.operands else 0) for i, p in self.places.items()}
        marked = {i: p | (ALIGNED if i in aligned else 0) for i, p in shift.items()}
        over = self._over(batches, operands)
        kernel = self._compiled(over, aligned=True)
        grid = batched_grid(self.name, batches, self.grid, MAP)
        name = offer(kernel, partial(self._compiled, over, aligned=False))
        return Attributes(name, site_words(kernel, grid, self.slots, marked))

    def _over(self, batches: Batches, operands: Sequence[Array]) -> KernelBatches:
        found: dict[int, tuple[int, ...]] = {}
        for i, place in self.places.items():
            if place < self.operands:
                size = prod(own_shape(batches, place, operands[place].shape))
                found[i] = strides(batches, place, size)
            else:
                size = prod(self.results[place - self.operands].stored_shape)
                found[i] = strides(batches, None, size)
        return KernelBatches(max(self.grid[0], 1), tuple(b.size for b in batches), found)

    def _compiled(self, over: KernelBatches, aligned: bool) -> CompiledKernel:
        if aligned and not over.sizes:
            return self.kernel
        module = _module(self.kernel)
        entry = module.entry
        if not aligned:
            for arg, facts in zip(entry.args, entry.arg_attrs, strict=True):
                if is_pointer(arg.type):
                    facts.pop("divisibility", None)
        if over.sizes:
            module = batched(module, over)
        source = IRSource.of_module(module)
        metadata = self.kernel.metadata
        return compile_source(source, metadata.target, self.options)


def _module(kernel: CompiledKernel) -> Module:
    assert isinstance(kernel.src, IRSource)
    return kernel.src.module(None)  # pyright: ignore[reportArgumentType]


class CallGradient(NamedTuple):
    """The gradient of a call.

    Attributes:
        kernels: in order; what one writes, later ones may read.
        tables: the arrays of integers that they read.
        wrt: the names of the inputs that have a gradient.
    """

    kernels: tuple[GradientKernel, ...]
    tables: Mapping[Made, Any]
    wrt: tuple[str, ...]


_gradients: dict[Any, CallGradient] = {}


def gradient_of(site: Site, operands: Sequence[Array], active: tuple[int, ...]) -> CallGradient:
    """The gradient of a call, derived on first use.

    Args:
        site: without batches.
        operands: of the call.
        active: the operands that a gradient is computed for.

    Raises:
        the errors of `Gradient.run`.
    """
    key = site, tuple(operands), active
    result = _gradients.get(key)
    if result is None:
        result = _gradients[key] = _derived(site, operands, active)
    return result


def _derived(site: Site, operands: Sequence[Array], active: tuple[int, ...]) -> CallGradient:
    named, options, grid = resolved(site, operands, "cpu")
    arrays = {name: operands[i] for i, name in enumerate(site.operands)}
    arrays |= {output.name: Array(output.shape, output.dtype) for output in site.outputs}
    # Memory that nothing reads: the derivation needs types, sizes and distinct addresses.
    named |= {name: np.empty(array.shape, array.dtype) for name, array in arrays.items()}
    floats = float_outputs(site)
    wrt = [site.operands[i] for i in active]
    gradient = Gradient(site.inner, wrt, [output.name for output in floats])
    into = {name: np.empty_like(named[name]) for name in wrt}
    grads = {output.name: np.empty_like(named[output.name]) for output in floats}
    call = partial(gradient.planned, **named, **options, grid=grid, grads=grads)
    try:
        plan, launch = call(into=into)
    except NarrowSumError as error:
        into |= {name: np.empty(into[name].shape, np.float32) for name in error.names}
        plan, launch = call(into=into)
    source, _, given = site.inner.bound(**named, **options)
    cache = site.inner.device_caches[site.inner.device_of("cpu", ())]
    parsed = site.inner.options_of(cache.backend, source, given)
    layout = _Layout(site, plan, launch, into, list(grads), parsed)
    kernels = tuple(layout.kernel(step) for step in plan.steps)
    tables = {key: layout.made[key] for key in plan.places}
    return CallGradient(kernels, tables, tuple(wrt))


class _Layout:
    """The places of the arguments of derived kernels in custom calls.

    Args:
        plan, launch: of the gradient.
        into, grads: the arrays of gradients by the input, and the results with gradients.
        options: compile options, as parsed by the target.
    """

    def __init__(
        self, site: Site, plan: Plan, launch: Any, into: Mapping[str, np.ndarray[Any, Any]],
        grads: Sequence[str], options: Any,
    ) -> None:  # fmt: skip
        self._site, self._plan, self._launch = site, plan, launch
        self._into, self._options = into, options
        self.sizes = BufferSizes(plan, into)
        self.made = self.sizes.allocated(into)
        self._written: set[Made] = set()
        # The arguments of a launch: the kernel's parameters, `into`, `grads`.
        parameters = site.inner.arg_names
        order = [*site.operands, *(o.name for o in site.outputs)]
        self._count = len(order) + len(grads)
        first = len(parameters) + len(into)
        self._places = {parameters.index(name): i for i, name in enumerate(order)}
        self._places |= {first + i: len(order) + i for i in range(len(grads))}
        self._gradients = {len(parameters) + i: name for i, name in enumerate(into)}

    def _key(self, argument: Any) -> Made | None:
        """The array that an argument is, besides those of the call."""
        kind, *rest = argument
        if kind == "partial":
            return ("gradient", *rest)
        if kind in ("tape", "saved", "places", "bounds"):
            return argument
        return ("gradient", self._gradients[kind]) if kind in self._gradients else None

    def kernel(self, step: Step) -> GradientKernel:
        """One of the kernels, after those before it."""
        keys = list(dict.fromkeys(filter(None, map(self._key, step.arguments))))
        read = [
            key
            for key in keys
            if key in self._plan.places or (key[0] == "saved" and key in self._written)
        ]
        results = tuple(self._result(key, step) for key in keys if key not in read)
        self._written.update(result.key for result in results)
        count = self._count + len(read)
        place_of = {key: self._count + i for i, key in enumerate(read)}
        place_of |= {result.key: count + i for i, result in enumerate(results)}
        places: dict[int, int] = {}
        slots: list[Any] = []
        for i, argument in enumerate(step.arguments):
            key = self._key(argument)
            place = self._places.get(argument[0]) if key is None else place_of[key]  # pyright: ignore[reportArgumentType]
            if place is not None:
                places[i] = place
                slots.append(0)
            elif isinstance(argument[0], str):
                slots.append(self.made[argument])  # pyright: ignore[reportArgumentType]
            else:
                slots.append(at_path(self._launch.slots, argument))  # pyright: ignore[reportArgumentType]
        return GradientKernel(
            self._site.inner.__name__, step.kernel, self._options, self.sizes.grid_of(step),
            places, tuple(slots), results, tuple(read), count,
        )  # fmt: skip

    def _result(self, key: Made, step: Step) -> Result:
        kind, name = key
        if kind == "tape":
            tape = next(tape for tape in step.tapes if tape.name == name)
            slots = prod(self.sizes.grid_of(step)) * max(1, tape.slots)
            return Result(key, (slots * tape.lanes,), 0, 0, numpy_of(tape.element), False)
        if kind == "saved":
            buffer = self.made[key]
            return Result(key, buffer.shape, 0, 0, buffer.dtype, False)
        plan, array = self._plan, self._into[name]
        filled = plan.covered.get(name) == size_of(array) and 0 not in plan.grid
        zeroed = not filled or key in self._written
        if name in plan.summed:
            dtype = self.made["partial", name].dtype
            length = self.made["span", name]
            return Result(key, array.shape, self.sizes.rows_of(name), length, dtype, zeroed)
        return Result(key, array.shape, 0, 0, array.dtype, zeroed)


def float_outputs(site: Site) -> list[Any]:
    """The results of a call that have derivatives."""
    return [o for o in site.outputs if jnp.issubdtype(o.dtype, jnp.floating)]


# -- the gradient kernel as a primitive -----------------------------------------------------------

gradient_call = Primitive("tilewright_gradient")
gradient_call.multiple_results = True


@gradient_call.def_impl
def _run(*operands: Any, gradient: GradientKernel, batches: Batches) -> Sequence[Any]:
    return _jitted(gradient, batches, *operands)


@partial(jax.jit, static_argnums=(0, 1))
def _jitted(gradient: GradientKernel, batches: Batches, *operands: Any) -> Sequence[Any]:
    return gradient_call.bind(*operands, gradient=gradient, batches=batches)


@gradient_call.def_abstract_eval
def _shapes(*operands: Any, gradient: GradientKernel, batches: Batches) -> list[Any]:
    front = batch_shape(batches)
    return [ShapedArray((*front, *r.stored_shape), np.dtype(r.dtype)) for r in gradient.results]


def _batched(
    operands: Sequence[Any], axes: Sequence[Any], *, gradient: GradientKernel, batches: Batches
) -> tuple[Sequence[Any], list[int]]:
    zeros = range(gradient.operands, len(operands))
    moved, batch = with_batch(operands, axes, zeros)
    found = gradient_call.bind(*moved, gradient=gradient, batches=(*batches, batch))
    return found, [0] * len(found)


def _lower(
    platform: str, ctx: Any, *operands: Any, gradient: GradientKernel, batches: Batches
) -> Any:
    arrays = [Array(a.shape, a.dtype) for a in ctx.avals_in]
    aliases = {gradient.operands + n: i for n, i in enumerate(gradient.zeroed)}
    return lower_call(platform, ctx, operands, gradient.attributes(batches, arrays), aliases)


def _lower_elsewhere(ctx: Any, *operands: Any, gradient: GradientKernel, **_: Any) -> Any:
    if any(platform in PLATFORMS for platform in ctx.module_context.platforms):
        raise NotImplementedError(
            f"gradients of {gradient.name} are derived for the CPU only: define the derivative "
            "for GPUs with jax.custom_vjp"
        )
    raise unsupported_platform(ctx, gradient.name)


def _no_second_derivative(*_: Any, gradient: GradientKernel, **__: Any) -> Any:
    raise NotImplementedError(
        f"the gradient of {gradient.name} is derived, and has no derivative itself: define both "
        "with jax.custom_vjp"
    )


mlir.register_lowering(gradient_call, _lower_elsewhere)
mlir.register_lowering(gradient_call, partial(_lower, "cpu"), platform="cpu")
batching.primitive_batchers[gradient_call] = _batched
ad.primitive_jvps[gradient_call] = _no_second_derivative


# -- the linear form of a call --------------------------------------------------------------------

linear_call = Primitive("tilewright_linear_call")
linear_call.multiple_results = True


def differentiate(
    kernel_call: Primitive, operands: Sequence[Any], tangents: Sequence[Any], *, site: Site
) -> tuple[Sequence[Any], list[Any]]:
    """JAX's rule for a call: its results, and their tangents as a linear form of the operands'.

    Raises:
        NotImplementedError: the kernel updates an array in place.
    """
    if site.aliases:
        raise NotImplementedError(
            f"the gradient of {site.inner.__name__} is not derived, as the kernel updates an array "
            "in place: store to another array, or define the derivative with jax.custom_vjp"
        )
    results = kernel_call.bind(*operands, site=site)
    active = tuple(i for i, t in enumerate(tangents) if not isinstance(t, ad.Zero))
    given = [ad.instantiate_zeros(tangents[i]) for i in active]
    floats = float_outputs(site)
    found = iter(linear_call.bind(*operands, *results, *given, site=site, active=active))
    return results, [
        next(found) if output in floats else ad.Zero(ShapedArray(result.shape, jax.dtypes.float0))
        for output, result in zip(site.outputs, results, strict=True)
    ]


@linear_call.def_abstract_eval
def _linear_shapes(*operands: Any, site: Site, active: tuple[int, ...]) -> list[Any]:
    front = batch_shape(site.batches)
    return [ShapedArray((*front, *o.shape), o.dtype) for o in float_outputs(site)]


def _transpose(
    gradients: Sequence[Any], *operands: Any, site: Site, active: tuple[int, ...]
) -> list[Any]:
    """The gradients of the active operands, from those of the results."""
    count = len(site.operands)
    known = operands[: len(operands) - len(active)]
    own = [
        Array(own_shape(site.batches, i, operand.shape), operand.dtype)
        for i, operand in enumerate(known[:count])
    ]
    single = replace_batches(site, ())
    gradient = gradient_of(single, own, active)
    front = batch_shape(site.batches)
    cotangents = [
        jnp.zeros((*front, *o.shape), o.dtype) if isinstance(g, ad.Zero) else g
        for g, o in zip(gradients, float_outputs(site), strict=True)
    ]
    arrays: dict[Made, Any] = {k: jnp.asarray(table) for k, table in gradient.tables.items()}
    results: dict[Made, Result] = {}
    for kernel in gradient.kernels:
        given = [*known, *cotangents, *(arrays[key] for key in kernel.given)]
        starts = [kernel.results[i] for i in kernel.zeroed]
        given += [
            arrays[r.key] if r.key in arrays else jnp.zeros((*front, *r.stored_shape), r.dtype)
            for r in starts
        ]
        # All arrays but the call's own operands and tables are in every batch.
        tables = {i for i, key in enumerate(kernel.given) if key in gradient.tables}
        first = len(known) + len(cotangents)
        more = frozenset(i for i in range(count, len(given)) if i - first not in tables)
        batches = tuple(batch._replace(operands=batch.operands | more) for batch in site.batches)
        found = gradient_call.bind(*given, gradient=kernel, batches=batches)
        arrays |= {r.key: array for r, array in zip(kernel.results, found, strict=True)}
        results |= {r.key: r for r in kernel.results}
    return [None] * len(known) + [
        _summed(arrays["gradient", name], results["gradient", name], site, i, known[i].dtype)
        for i, name in zip(active, gradient.wrt, strict=True)
    ]


def _summed(array: Any, result: Result, site: Site, operand: int, dtype: Any) -> Any:
    """A gradient, from the partial sums for each element of a batch and each worker."""
    levels = list(reversed(site.batches))
    shared = [axis for axis, b in enumerate(levels) if operand not in b.operands]
    if result.rows:
        shared.append(len(levels))
    total = jnp.sum(array, shared) if shared else array
    if result.rows:  # a row may be longer than the gradient: the next one is aligned
        total = total[..., : prod(result.shape)]
    kept = tuple(b.size for b in levels if operand in b.operands)
    return total.reshape((*kept, *result.shape)).astype(dtype)


def replace_batches(site: Site, batches: Batches) -> Site:
    """The call over other batches."""
    return Site(
        site.kernel, site.operands, site.outputs, site.statics, site.options, site.grid, batches
    )


def _no_forward_mode(*_: Any, site: Site, **__: Any) -> Any:
    raise NotImplementedError(
        f"derivatives of {site.inner.__name__} are derived in reverse mode only, for jax.grad and "
        "jax.vjp: for jax.jvp, define the derivative with jax.custom_jvp"
    )


linear_call.def_impl(_no_forward_mode)
mlir.register_lowering(linear_call, lambda ctx, *_, site, **__: _no_forward_mode(site=site))
batching.primitive_batchers[linear_call] = lambda *_, site, **__: _no_forward_mode(site=site)
ad.primitive_jvps[linear_call] = lambda *_, site, **__: _no_forward_mode(site=site)
ad.primitive_transposes[linear_call] = _transpose
