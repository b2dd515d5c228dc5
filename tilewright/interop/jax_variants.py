"""Compilation of a kernel for a call in a JAX program, when the call is lowered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.base.diagnostics import CompilationError
from tilewright.base.located import error_at
from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.build import context_for, first_stores
from tilewright.compiler.driver import compile_source
from tilewright.compiler.pipeline import STEPS
from tilewright.compiler.source import ASTSource
from tilewright.interop.jax_sites import Site, mocks_of
from tilewright.interop.jax_wrappers import Named, chosen_settings, grid_of
from tilewright.interop.xla_handlers import ALIGNED
from tilewright.interop.xla_kernels import offer, site_words
from tilewright.ir.passes import run
from tilewright.runtime.jit import MockTensor, is_tensor_type
from tilewright.runtime.launch import Grid

DIVISIBILITY = ["tt.divisibility", 16]


class Attributes(NamedTuple):
    """The attributes of the custom call; see `xla_handlers`."""

    kernel: str
    site: np.ndarray[Any, Any]


class Array(NamedTuple):
    """The shape and type of an operand."""

    shape: tuple[int, ...]
    dtype: Any


def attributes(site: Site, operands: Sequence[Array], device: str) -> Attributes:
    """Compile the kernel of a call for a device, such as "cpu".

    Raises:
        CompilationError: the kernel is wrong, or stores to an array that is not an output.
        TypeError: kernels have no such element type.
    """
    named, options, grid = _resolved(site, operands, device)
    variant = _compiled(site, named, options, device)
    _require_stores(site, variant)
    places = _places(site, variant)
    slots = [0 if isinstance(value, MockTensor) else value for value in variant.values]
    name = offer(variant.kernel, variant.compile_unaligned)
    return Attributes(name, site_words(variant.kernel, grid, slots, places))


class _Variant(NamedTuple):
    """A compiled kernel, with the source, options and values it was compiled for."""

    kernel: CompiledKernel
    source: ASTSource
    options: Any
    backend: Any
    values: tuple[Any, ...]

    def is_aligned(self, path: Sequence[int]) -> bool:
        """Whether the kernel is compiled for an argument divisible by 16."""
        return DIVISIBILITY in self.source.attrs.get(tuple(path), [])

    def compile_unaligned(self) -> CompiledKernel:
        """The kernel for arrays at any address."""
        attrs = dict(self.source.attrs)
        for path, type in self.kernel.metadata.arguments:
            if is_tensor_type(type):
                kept = [fact for fact in attrs.get(tuple(path), []) if fact != DIVISIBILITY]
                attrs[tuple(path)] = kept
        source = ASTSource(self.source.fn, self.source.signature, self.source.constants, attrs)
        return compile_source(source, self.kernel.metadata.target, self.options)


def _compiled(site: Site, named: Named, options: Named, device: str) -> _Variant:
    kernel = site.inner
    source, values, given = kernel.bound(**named, **options)
    cache = kernel.device_caches[kernel.device_of(device, ())]
    if device != "cpu":
        given.setdefault("tensor_copies", False)  # tensor maps would hold addresses
    parsed = kernel.options_of(cache.backend, source, given)
    compiled = compile_source(source, cache.target, parsed)
    return _Variant(compiled, source, parsed, cache.backend, tuple(values.values()))


def _resolved(site: Site, operands: Sequence[Array], device: str) -> tuple[Named, Named, Grid]:
    """The arguments by name, the compile options and the grid, with what wrappers set."""
    named = mocks_of(site, operands)
    options = {name: static.value for name, static in site.options}
    settings = chosen_settings(site.kernel, named, options, site.grid, device)
    for name, value in settings.items():
        (named if name in site.inner.arg_names else options)[name] = value
    return named, options, grid_of(site.inner, site.grid, named)


# -- stores ---------------------------------------------------------------------------------------


def _require_stores(site: Site, variant: _Variant) -> None:
    """Raise CompilationError unless the kernel stores to the outputs, and to no other arrays."""
    metadata = variant.kernel.metadata
    names = {i: _parameter(site, path) for i, (path, _) in enumerate(metadata.arguments)}
    outputs = {output.name for output in site.outputs}
    for index in metadata.written:
        if names[index] not in outputs:
            raise _undeclared(site, variant, index, names[index])
    reached = {names[index] for index in metadata.may_write}
    for output in site.outputs:
        if output.name not in reached and 0 not in output.shape:
            raise ValueError(
                f"{site.inner.__name__} does not store to {output.name!r}, which is an output of "
                f"this call: its outputs may be {', '.join(sorted(reached)) or 'none'}"
            )


def _undeclared(site: Site, variant: _Variant, index: int, name: str) -> CompilationError:
    """The error for a store to an array that is not an output, at the line of the store."""
    module = variant.source.make_ir(variant.backend.frontend_options(variant.options))
    run(module, STEPS, context_for(variant.backend, variant.options))
    op = first_stores(module.entry).get(index)
    return error_at(
        op.loc if op is not None else None,
        f"the kernel stores to {name!r}, which is an input of this call",
        [
            "help: arrays of JAX do not change. If it is a result, name it in out_shape; if the "
            f"kernel updates it in place, add input_output_aliases={{{name!r}: …}}"
        ],
    )


def _parameter(site: Site, path: Sequence[int]) -> str:
    return site.inner.arg_names[path[0]]


def _places(site: Site, variant: _Variant) -> dict[int, int]:
    """For each array among the compiled kernel's arguments, the place of its buffer."""
    count = len(site.operands)
    buffers = {name: i for i, name in enumerate(site.operands)}
    # An operand in place is the same buffer as its result.
    buffers |= {o.name: count + i for i, o in enumerate(site.outputs)}
    places: dict[int, int] = {}
    for index, (path, type) in enumerate(variant.kernel.metadata.arguments):
        name = _parameter(site, path)
        if is_tensor_type(type) and name in buffers:
            places[index] = buffers[name] | (ALIGNED if variant.is_aligned(path) else 0)
    return places
