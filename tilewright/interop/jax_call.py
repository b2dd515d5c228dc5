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

import ctypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.ffi
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from tilewright.interop.jax_sites import Batch, Site, bind
from tilewright.interop.jax_variants import Array, attributes
from tilewright.interop.xla_kernels import ATTRIBUTES, UnsupportedXla, handler

TARGET = "tilewright_kernel"
"""The name of the custom call."""

PLATFORMS = {"cpu": "cpu", "cuda": "CUDA"}
"""The platforms of JAX whose programs may call kernels, with XLA's names of them."""


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
        ValueError: a name or shape does not fit.
        CompilationError: when the program is lowered: the kernel is wrong, or stores to an array
            that is not an output.
    """
    leaves, tree = jax.tree.flatten(out_shape, is_leaf=_describes_array)
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
    _register(platform)


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
    return [ShapedArray((*site.batch_shape, *o.shape), o.dtype) for o in site.outputs]


def _batched(
    operands: Sequence[Any], axes: Sequence[Any], *, site: Site
) -> tuple[Sequence[Any], list[int]]:
    """The rule of `jax.vmap`: the kernel runs over one more batch."""
    mapped = [axis is not None for axis in axes]
    size = next(o.shape[a] for o, a, m in zip(operands, axes, mapped, strict=True) if m)
    updated = site.aliases.keys()
    moved = [
        jnp.moveaxis(operand, axis, 0)
        if is_mapped
        else jnp.broadcast_to(operand, (size, *operand.shape))
        if i in updated
        else operand
        for i, (operand, axis, is_mapped) in enumerate(zip(operands, axes, mapped, strict=True))
    ]
    batch = Batch(size, frozenset(i for i, m in enumerate(mapped) if m or i in updated))
    found = kernel_call.bind(*moved, site=replace(site, batches=(*site.batches, batch)))
    return found, [0] * len(found)


def _lower(platform: str, ctx: Any, *operands: Any, site: Site) -> Any:
    _register(platform)
    arrays = [Array(a.shape, a.dtype) for a in ctx.avals_in]
    found = attributes(site, arrays, "cpu" if platform == "cpu" else "cuda:0")
    rule = jax.ffi.ffi_lowering(TARGET, operand_output_aliases=site.aliases)
    return rule(ctx, *operands, **dict(zip(ATTRIBUTES, found, strict=True)))


def _lower_nowhere(ctx: Any, *operands: Any, site: Site) -> Any:
    platforms = ", ".join(ctx.module_context.platforms)
    raise NotImplementedError(
        f"kernels of tilewright run on {' and '.join(PLATFORMS)}, not on {platforms}: "
        f"{site.inner.__name__} is called in a program for it"
    )


def _no_derivative(*args: Any, site: Site, **kwargs: Any) -> Any:
    raise NotImplementedError(
        f"JAX cannot differentiate a call of the kernel {site.inner.__name__}: define the "
        "derivative with jax.custom_vjp"
    )


mlir.register_lowering(kernel_call, _lower_nowhere)
for _platform in PLATFORMS:
    mlir.register_lowering(kernel_call, partial(_lower, _platform), platform=_platform)
ad.primitive_jvps[kernel_call] = _no_derivative
batching.primitive_batchers[kernel_call] = _batched


@cache
def _register(platform: str) -> None:
    """Register the handler with XLA."""
    address = handler(platform, _xla_version())
    capsule = jax.ffi.pycapsule(ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address))
    jax.ffi.register_ffi_target(TARGET, capsule, platform=PLATFORMS[platform])


def _xla_version() -> tuple[int, int]:
    """The version of XLA's foreign function interface, from the header in jaxlib."""
    header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h")
    try:
        text = header.read_text("utf-8")
    except OSError as error:
        raise UnsupportedXla(f"jaxlib has no header of XLA's interface: {error}") from None
    found = [re.search(rf"#define XLA_FFI_API_{part} (\d+)", text) for part in ("MAJOR", "MINOR")]
    if None in found:
        raise UnsupportedXla(f"{header} defines no version of XLA's foreign function interface")
    major, minor = (int(match[1]) for match in found if match)
    return major, minor
