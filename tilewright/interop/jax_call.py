"""`call`: a kernel as an operation of a JAX program.

    y = tilewright.jax.call(
        gelu_kernel, x, n=x.size, BLOCK=1024, grid=(tilewright.cdiv(x.size, 1024),),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
    )

A call is one primitive of JAX, whose parameter is a `Site`. It is compiled when a program that
contains it is lowered, and becomes a custom call of XLA's typed foreign function interface, which
native code executes (`xla_handlers.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from tilewright.interop.batches import batch_shape
from tilewright.interop.jax_batches import with_batch
from tilewright.interop.jax_gradients import differentiate
from tilewright.interop.jax_lowering import (
    PLATFORMS,
    device_of,
    lower_call,
    register,
    unsupported_platform,
)
from tilewright.interop.jax_sites import Site, bind
from tilewright.interop.jax_variants import Array, attributes


def call(
    kernel: Any,
    *args: Any,
    out_shape: Any,
    grid: Any,
    input_output_aliases: Mapping[int | str, int | str] | None = None,
    **kwargs: Any,
) -> Any:
    """Call a kernel in a JAX program; works in `jax.jit` and outside of it.

        def add(x, y):
            return tilewright.jax.call(
                add_kernel, x, y, n=x.size, BLOCK=1024,
                out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
                grid=lambda meta: (tilewright.cdiv(meta["n"], meta["BLOCK"]),),
            )

    Args:
        kernel: a kernel, which may be autotuned or have heuristics.
        args, kwargs: its arguments but the outputs, and compile options such as `num_warps`. Arrays
            of JAX and NumPy are passed by address. All other arguments are known when the program
            is traced, and the kernel is specialised for them as in a launch.
        out_shape: the results: a `jax.ShapeDtypeStruct`, or anything else with a shape and a dtype;
            or a pytree of them. Results are stored to the first parameters that have no argument,
            in order. In a dict, the keys are the parameters that the results are stored to.
        grid: one to three extents, or a function of the arguments by name that returns them.
        input_output_aliases: arguments that the kernel updates in place, by position in `args` or
            by name, each with the result that it becomes: its position in `out_shape` or its key.
            Such a result is not a parameter of its own. JAX copies the argument first if it is used
            elsewhere.

    Returns:
        a pytree like `out_shape`, of arrays. Elements that the kernel does not store are undefined.

    Raises:
        TypeError: an argument is missing, or has the wrong kind: such as a traced array for a
            compile-time parameter, or an output of type float64 while JAX's x64 mode is off.
        ValueError: a name or shape does not fit, or there are no results.
        CompilationError: when the program is lowered: the kernel is wrong, or stores to an array
            that is not an output.
    """
    leaves, tree = jax.tree.flatten(out_shape, is_leaf=_describes_array)
    if not leaves:
        raise ValueError(
            "out_shape has no results, and JAX removes calls without results. Of a kernel that "
            "updates an array in place, that array is a result: input_output_aliases has it"
        )
    keys = sorted(out_shape) if isinstance(out_shape, dict) else None
    if keys is not None and len(keys) != len(leaves):
        raise TypeError("a dict as out_shape has one array for each parameter")
    site, operands = bind(
        kernel, args, kwargs, leaves, keys, input_output_aliases or {}, grid
    )  # fmt: skip
    return jax.tree.unflatten(tree, kernel_call.bind(*operands, site=site))


def _describes_array(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def enable(platform: str = "cpu") -> None:
    """Let XLA run exported programs that call kernels, in a process that has traced none of them.

        tilewright.jax.enable()
        jax.export.deserialize(data).call(x)

    Kernels are loaded from tilewright's cache. `call` does this by itself.

    Args:
        platform: "cpu" or "cuda".

    Raises:
        ValueError: kernels do not run on this platform.
        UnsupportedXla: jaxlib has an unknown version of XLA's interface.
    """
    if platform not in PLATFORMS:
        raise ValueError(f"kernels run on {' and '.join(PLATFORMS)}, not on {platform!r}")
    register(platform)


# -- the primitive --------------------------------------------------------------------------------

kernel_call = Primitive("tilewright_call")
kernel_call.multiple_results = True


@kernel_call.def_impl
def _run(*operands: Any, site: Site) -> Sequence[Any]:
    return _jitted(site, *operands)


@partial(jax.jit, static_argnums=0)
def _jitted(site: Site, *operands: Any) -> Sequence[Any]:
    return kernel_call.bind(*operands, site=site)


@kernel_call.def_abstract_eval
def _shapes(*operands: Any, site: Site) -> list[Any]:
    return [ShapedArray((*batch_shape(site.batches), *o.shape), o.dtype) for o in site.outputs]


def _batched(
    operands: Sequence[Any], axes: Sequence[Any], *, site: Site
) -> tuple[Sequence[Any], list[int]]:
    """The rule of `jax.vmap`: the kernel runs over one more batch."""
    moved, batch = with_batch(operands, axes, site.aliases.keys())
    found = kernel_call.bind(*moved, site=replace(site, batches=(*site.batches, batch)))
    return found, [0] * len(found)


def _lower(platform: str, ctx: Any, *operands: Any, site: Site) -> Any:
    arrays = [Array(a.shape, a.dtype) for a in ctx.avals_in]
    found = attributes(site, arrays, device_of(platform))
    return lower_call(platform, ctx, operands, found, site.aliases)


def _lower_elsewhere(ctx: Any, *operands: Any, site: Site) -> Any:
    raise unsupported_platform(ctx, site.inner.__name__)


mlir.register_lowering(kernel_call, _lower_elsewhere)
for _platform in PLATFORMS:
    mlir.register_lowering(kernel_call, partial(_lower, _platform), platform=_platform)
ad.primitive_jvps[kernel_call] = partial(differentiate, kernel_call)
batching.primitive_batchers[kernel_call] = _batched
