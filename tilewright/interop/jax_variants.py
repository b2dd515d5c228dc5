"""Compilation of a kernel for a call in a JAX program, when the call is lowered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

from tilewright.base.diagnostics import CompilationError, Loc
from tilewright.base.located import error_at
from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.driver import compile_source
from tilewright.compiler.source import ArgPath, ASTSource, IRSource, runtime_arguments
from tilewright.interop.batched_kernels import Batches, batched
from tilewright.interop.batches import batched_grid
from tilewright.interop.jax_batches import MAP, own_shape, strides
from tilewright.interop.jax_lowering import Attributes
from tilewright.interop.jax_sites import Site, mocks_of
from tilewright.interop.jax_wrappers import Named, chosen_settings, grid_of
from tilewright.interop.stores import line_of_store
from tilewright.interop.xla_handlers import ALIGNED
from tilewright.interop.xla_kernels import offer, site_words
from tilewright.ir.core import Module
from tilewright.runtime.grid import Grid
from tilewright.runtime.jit import MockTensor
from tilewright.runtime.slots import at_path
from tilewright.runtime.variants import is_tensor_type

DIVISIBILITY = ["tt.divisibility", 16]


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
    own = [
        Array(own_shape(site.batches, i, array.shape), array.dtype)
        for i, array in enumerate(operands)
    ]
    named, options, grid = resolved(site, own, device)
    variant = _Variant(site, named, options, grid, device)
    kernel = variant.compile()
    _require_stores(variant, kernel)
    return Attributes(
        offer(kernel, partial(variant.compile, aligned=False)),
        site_words(
            kernel,
            batched_grid(kernel.name, site.batches, grid, MAP),
            variant.slots,
            variant.places(),
        ),
    )


class _Variant:
    """The compiled variant of a call.

    Attributes:
        site: the call.
        source: the kernel, for arrays that are aligned.
        arguments: paths and types of the compiled kernel's arguments in the kernel's parameters.
        slots: the values of these arguments; 0 for arrays.
    """

    def __init__(self, site: Site, named: Named, options: Named, grid: Grid, device: str) -> None:
        kernel = site.inner
        self.site = site
        self.source, values, given = kernel.bound(**named, **options)
        cache = kernel.device_caches[kernel.device_of(device, ())]
        if device != "cpu":
            given.setdefault("tensor_copies", False)  # tensor maps would hold addresses
        self._options = kernel.options_of(cache.backend, self.source, given)
        self._target, self._backend = cache.target, cache.backend
        self.arguments = list(runtime_arguments(list(self.source.signature.values())))
        leaves = [at_path(list(values.values()), path) for path, _ in self.arguments]
        self.slots = [0 if isinstance(leaf, MockTensor) else leaf for leaf in leaves]
        self._batches = Batches(
            max(grid[0], 1),
            tuple(batch.size for batch in site.batches),
            {
                i: strides(site.batches, self._operand(path), prod(leaves[i].shape))
                for i, path in self._arrays()
            },
        )

    def compile(self, aligned: bool = True) -> CompiledKernel:
        """The kernel.

        Args:
            aligned: whether the addresses of arrays are divisible by 16.
        """
        source = self.source if aligned else self._source_for_any_address()
        if self.site.batches:
            module = batched(self._module(source), self._batches)
            source = IRSource.of_module(module)
        return compile_source(source, self._target, self._options)

    def _source_for_any_address(self) -> ASTSource:
        attrs = dict(self.source.attrs)
        for _, path in self._arrays():
            attrs[path] = [fact for fact in attrs.get(path, []) if fact != DIVISIBILITY]
        return ASTSource(self.source.fn, self.source.signature, self.source.constants, attrs)

    def _module(self, source: ASTSource) -> Module:
        return source.module(self._backend.frontend_options(self._options))

    def line_of_store(self, index: int) -> Loc | None:
        """The location of the first store to an argument."""
        return line_of_store(self.source, self._backend, self._options, index)

    def name_of(self, path: Sequence[int]) -> str:
        """The parameter that an argument belongs to."""
        return self.site.inner.arg_names[path[0]]

    def _operand(self, path: Sequence[int]) -> int | None:
        """The index of the operand that is an argument; None for a result."""
        name = self.name_of(path)
        is_result = any(output.name == name for output in self.site.outputs)
        return None if is_result else self.site.operands.index(name)

    def _arrays(self) -> Iterator[tuple[int, ArgPath]]:
        """Index and path of each argument that is an array."""
        for index, (path, type) in enumerate(self.arguments):
            if is_tensor_type(type):
                yield index, path

    def places(self) -> dict[int, int]:
        """For each array among the arguments, the place of its buffer."""
        count = len(self.site.operands)
        buffers = {name: i for i, name in enumerate(self.site.operands)}
        # An operand in place is the same buffer as its result.
        buffers |= {o.name: count + i for i, o in enumerate(self.site.outputs)}
        result: dict[int, int] = {}
        for index, path in self._arrays():
            divisible = DIVISIBILITY in self.source.attrs.get(path, [])
            result[index] = buffers[self.name_of(path)] | (ALIGNED if divisible else 0)
        return result


def resolved(site: Site, operands: Sequence[Array], device: str) -> tuple[Named, Named, Grid]:
    """The arguments by name, the compile options and the grid, with what wrappers set."""
    named = mocks_of(site, operands)
    options = {name: static.value for name, static in site.options}
    settings = chosen_settings(site.kernel, named, options, site.grid, device)
    for name, value in settings.items():
        (named if name in site.inner.arg_names else options)[name] = value
    return named, options, grid_of(site.inner, site.grid, named)


# -- stores ---------------------------------------------------------------------------------------


def _require_stores(variant: _Variant, kernel: CompiledKernel) -> None:
    """Raise CompilationError unless the kernel stores to the outputs, and to no other arrays."""
    site = variant.site
    names = [variant.name_of(path) for path, _ in variant.arguments]
    outputs = {output.name for output in site.outputs}
    for index in kernel.metadata.written:
        if names[index] not in outputs:
            raise _undeclared(variant.line_of_store(index), names[index])
    reached = {names[index] for index in kernel.metadata.may_write}
    for output in site.outputs:
        if output.name not in reached and 0 not in output.shape:
            raise ValueError(
                f"{site.inner.__name__} does not store to {output.name!r}, which is an output of "
                f"this call: its outputs may be {', '.join(sorted(reached)) or 'none'}"
            )


def _undeclared(line: Loc | None, name: str) -> CompilationError:
    """The error for a store to an array that is not an output, at the line of the store."""
    return error_at(
        line,
        f"the kernel stores to {name!r}, which is an input of this call",
        [
            "help: arrays of JAX do not change. If it is a result, name it in out_shape; if the "
            f"kernel updates it in place, add input_output_aliases={{{name!r}: …}}"
        ],
    )
