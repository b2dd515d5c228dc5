"""Derivatives of calls of kernels in JAX programs, by gradient kernels that tilewright derives.

JAX differentiates in reverse by linearising a program and transposing the result. The linear form
of a call is a primitive of its own, `linear_call`, that is never executed: its transpose is the
gradient kernel (`runtime/gradients.py`), `gradient_call`. That kernel is derived when JAX
transposes, as its results depend on what is proven of the call: a gradient that several programs
contribute to is summed by workers, and the sums of all workers are a result that JAX adds up. The
memory in which it records what loops carry is a result, too, which nothing uses.
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

from tilewright.autodiff.tapes import Tape
from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.driver import compile_source
from tilewright.compiler.source import IRSource
from tilewright.interop.batched_kernels import Batches as KernelBatches
from tilewright.interop.batched_kernels import batched
from tilewright.interop.jax_batches import (
    Batches,
    batch_shape,
    batched_grid,
    own_shape,
    strides,
    with_batch,
)
from tilewright.interop.jax_lowering import PLATFORMS, Attributes, lower_call, unsupported_platform
from tilewright.interop.jax_sites import Site
from tilewright.interop.jax_variants import Array, resolved
from tilewright.interop.xla_handlers import ALIGNED
from tilewright.interop.xla_kernels import offer, site_words
from tilewright.ir.core import Module
from tilewright.ir.types import is_pointer, numpy_of
from tilewright.runtime.derived_launch import Buffers, NarrowSumError, Plan, size_of
from tilewright.runtime.gradients import Gradient
from tilewright.runtime.grid import Grid
from tilewright.runtime.slots import at_path

# -- the gradient kernel --------------------------------------------------------------------------


class Result(NamedTuple):
    """An array that the kernel writes, for one element of a batch: a gradient, or a tape, in which
    it records what a loop carries.

    Attributes:
        operand: the index of the operand that a gradient belongs to; None of a tape.
        shape: of the operand.
        rows: of the result, a row for each worker; 0 if the kernel stores the gradient itself.
        length: of a row.
        dtype: of the result.
        zeroed: whether the kernel expects zeros in it.
    """

    operand: int | None
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
    their gradients, and an array of zeros for each result that is `zeroed`.

    Attributes:
        name: of the kernel that it was derived from.
        kernel: compiled, for one element of a batch.
        options: compile options, as parsed by the target.
        grid: of that kernel.
        places: for each argument that is an array, the index of the operand; of a result, that
            after all operands but the arrays of zeros.
        slots: the values of the other arguments; 0 for arrays.
        results: the gradients, then the tapes.
        operands: how many there are without the arrays of zeros.
    """

    name: str
    kernel: CompiledKernel
    options: Any
    grid: Grid
    places: Mapping[int, int]
    slots: tuple[Any, ...]
    results: tuple[Result, ...]
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
        grid = batched_grid(self.name, batches, self.grid)
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


_kernels: dict[Any, GradientKernel] = {}


def gradient_kernel(
    site: Site, operands: Sequence[Array], active: tuple[int, ...]
) -> GradientKernel:
    """The gradient kernel of a call, derived on first use.

    Args:
        site: without batches.
        operands: of the call.
        active: the operands that a gradient is computed for.

    Raises:
        the errors of `Gradient.run`.
    """
    key = site, tuple(operands), active
    found = _kernels.get(key)
    if found is None:
        found = _kernels[key] = _derived(site, operands, active)
    return found


def _derived(site: Site, operands: Sequence[Array], active: tuple[int, ...]) -> GradientKernel:
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
    return _laid_out(site, plan, launch, into, list(grads), active, parsed)


def _laid_out(
    site: Site,
    plan: Plan,
    launch: Any,
    into: Mapping[str, np.ndarray[Any, Any]],
    grads: Sequence[str],
    active: tuple[int, ...],
    options: Any,
) -> GradientKernel:
    """Say where the arguments of a derived kernel are in the custom call."""
    step, *others = plan.steps
    if plan.places or others:
        raise NotImplementedError(
            f"the gradient of {site.inner.__name__} has a table of its tiles, or several kernels, "
            "and a call of JAX is one kernel: define the derivative with jax.custom_vjp"
        )
    buffers = Buffers(plan, into)
    gradients = [
        _result(plan, buffers, name, array, active[i])
        for i, (name, array) in enumerate(into.items())
    ]
    programs = prod(buffers.grid_of(step))
    results = (*gradients, *(_tape(tape, programs) for tape in step.tapes))
    # The arguments of a launch: the kernel's parameters, `into`, `grads`.
    parameters = site.inner.arg_names
    order = [*site.operands, *(o.name for o in site.outputs)]
    count = len(order) + len(grads)
    place_of: dict[Any, int] = {parameters.index(name): i for i, name in enumerate(order)}
    first = len(parameters)
    place_of |= {first + i: count + i for i in range(len(into))}
    place_of |= {first + len(into) + i: len(order) + i for i in range(len(grads))}
    place_of |= {("partial", name): count + i for i, name in enumerate(into)}
    last = count + len(into)
    place_of |= {("tape", tape.name): last + i for i, tape in enumerate(step.tapes)}
    places: dict[int, int] = {}
    slots: list[Any] = []
    for i, argument in enumerate(step.arguments):
        key = argument if isinstance(argument[0], str) else argument[0]
        if key in place_of:
            places[i] = place_of[key]
            slots.append(0)
        elif isinstance(argument[0], str):
            slots.append(buffers.made[argument])  # pyright: ignore[reportArgumentType]
        else:
            slots.append(at_path(launch.slots, argument))  # pyright: ignore[reportArgumentType]
    grid = buffers.grid_of(step)
    return GradientKernel(
        site.inner.__name__, step.kernel, options, grid, places, tuple(slots), results, count
    )


def _result(plan: Plan, buffers: Buffers, name: str, array: Any, operand: int) -> Result:
    filled = plan.covered.get(name) == size_of(array) and 0 not in plan.grid
    if name in plan.summed:
        length = buffers.made["span", name]
        dtype = buffers.made["partial", name].dtype
        return Result(operand, array.shape, buffers.workers, length, dtype, not filled)
    return Result(operand, array.shape, 0, 0, array.dtype, not filled)


def _tape(tape: Tape, programs: int) -> Result:
    length = programs * max(1, tape.slots) * tape.lanes
    return Result(None, (length,), 0, 0, numpy_of(tape.element), False)


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
    """The gradients of the active operands, given those of the results."""
    count = len(site.operands)
    known = operands[: len(operands) - len(active)]
    own = [
        Array(own_shape(site.batches, i, operand.shape), operand.dtype)
        for i, operand in enumerate(known[:count])
    ]
    single = replace_batches(site, ())
    kernel = gradient_kernel(single, own, active)
    front = batch_shape(site.batches)
    cotangents = [
        jnp.zeros((*front, *o.shape), o.dtype) if isinstance(g, ad.Zero) else g
        for g, o in zip(gradients, float_outputs(site), strict=True)
    ]
    zeros = [
        jnp.zeros((*front, *kernel.results[i].stored_shape), kernel.results[i].dtype)
        for i in kernel.zeroed
    ]
    # All arrays but the call's own operands are in every batch.
    more = frozenset(range(count, len(known) + len(cotangents) + len(zeros)))
    batches = tuple(batch._replace(operands=batch.operands | more) for batch in site.batches)
    found = gradient_call.bind(*known, *cotangents, *zeros, gradient=kernel, batches=batches)
    return [None] * len(known) + [
        _summed(array, result, site, known[result.operand].dtype)
        for array, result in zip(found, kernel.results, strict=True)
        if result.operand is not None
    ]


def _summed(array: Any, result: Result, site: Site, dtype: Any) -> Any:
    """A gradient, of what the kernel stored for each element of a batch and by each worker."""
    levels = list(reversed(site.batches))
    shared = [axis for axis, b in enumerate(levels) if result.operand not in b.operands]
    if result.rows:
        shared.append(len(levels))
    total = jnp.sum(array, shared) if shared else array
    kept = tuple(b.size for b in levels if result.operand in b.operands)
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
