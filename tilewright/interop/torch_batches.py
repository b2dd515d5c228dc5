"""Kernels of torch's operators over batches, as `torch.vmap` adds them; see `batched_kernels`.

A call over batches calls the operator for each element. A batched array has an additional leading
axis, and the kernel adds the offset of the element to its address, so the strides of an element are
those of a single call.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from tilewright.compiler.source import ASTSource, runtime_arguments
from tilewright.frontend.options import FrontendOptions
from tilewright.interop.batched_kernels import Batches as KernelBatches
from tilewright.interop.batched_kernels import batched
from tilewright.interop.batches import Batch, Batches, batch_shape, batched_grid, with_axis
from tilewright.ir.core import Module
from tilewright.runtime.grid import extents_of
from tilewright.runtime.jit import JITFunction

_MARK = " @"
_IN_PARTS = "a loop, or torch.vmap's chunk_size,"


class BatchedSource(ASTSource):
    """A kernel over batches.

    Args:
        over: the batches, with strides by parameter of the kernel.
    """

    def __init__(self, *args: Any, over: KernelBatches) -> None:
        super().__init__(*args)
        self._over = over

    def hash(self) -> str:
        return f"{super().hash()} {self._over}"

    def module(self, options: FrontendOptions) -> Module:
        paths = [path for path, _ in runtime_arguments(list(self.signature.values()))]
        by_argument = {paths.index((i,)): found for i, found in self._over.strides.items()}
        return batched(super().module(options), self._over._replace(strides=by_argument))


def over_batches(kernel: JITFunction, over: KernelBatches) -> JITFunction:
    """A kernel over batches, whose strides are by parameter."""
    return kernel.with_source(partial(BatchedSource, over=over))


# -- the batches of a call, at the end of its layout ----------------------------------------------


def with_batches(layout: str, batch: Batch) -> str:
    """The layout of a call over one more batch: "x:t w:t n:i @4:0" of four elements of x."""
    return f"{layout}{_MARK}{batch.size}:{','.join(map(str, sorted(batch.operands)))}"


def split_batches(layout: str) -> tuple[str, Batches]:
    """A layout without its batches, and these; their operands are tensors."""
    plain, *marked = layout.split(_MARK)
    batches: list[Batch] = []
    for text in marked:
        size, _, operands = text.partition(":")
        batches.append(Batch(int(size), frozenset(map(int, filter(None, operands.split(","))))))
    return plain, tuple(batches)


# -- arrays ---------------------------------------------------------------------------------------


def with_batch(
    tensors: Sequence[Any], axes: Sequence[int | None], size: int, whole: Collection[int] = ()
) -> tuple[list[Any], Batch]:
    """The tensors of a call over one more batch, and that batch; see `with_axis`."""
    return with_axis(
        tensors, axes, size, whole,
        lambda tensor, axis: tensor.movedim(axis, 0), lambda tensor: repeated(tensor, (size,)),
    )  # fmt: skip


def repeated(tensor: Any, sizes: tuple[int, ...]) -> Any:
    """A tensor for each element of batches, with more axes in front, whose elements have the values
    and strides of a tensor."""
    shape, strides = list(tensor.shape), list(tensor.stride())
    span = 1 + sum(stride * max(n - 1, 0) for n, stride in zip(shape, strides, strict=True))
    for size in reversed(sizes):
        shape.insert(0, size)
        strides.insert(0, span)
        span *= max(size, 1)
    output = tensor.new_empty_strided(shape, strides)
    return output.copy_(tensor.expand(shape))


def element(tensor: Any, axes: int) -> Any:
    """The first element of a tensor with a number of axes of batches in front; of an empty batch,
    a tensor like it."""
    if 0 in tensor.shape[:axes]:
        return tensor.new_empty_strided(tensor.shape[axes:], tensor.stride()[axes:])
    return tensor[(0,) * axes] if axes else tensor


class Call(NamedTuple):
    """A call of a kernel over batches.

    Attributes:
        one: the arguments for one element, by name.
        batches: of the call.
        axes: of each argument that is an array, the batches that it is in.
    """

    one: dict[str, Any]
    batches: Batches
    axes: Mapping[str, tuple[bool, ...]]

    def results(self, single: Mapping[str, Any]) -> dict[str, Any]:
        """The results of the call, from those of one element."""
        sizes = batch_shape(self.batches)
        return {name: repeated(result, sizes) for name, result in single.items()}

    def grid(self, name: str, own: tuple[int, ...]) -> tuple[int, ...]:
        """The grid over all batches. See `batched_grid`."""
        return batched_grid(name, self.batches, extents_of(own), _IN_PARTS)

    def over(
        self, kernel: JITFunction, own: tuple[int, ...], arrays: Mapping[str, Any]
    ) -> KernelBatches:
        """The batches of the kernel, whose strides are by parameter.

        Args:
            own: the grid of one element.
            arrays: the arguments of the whole call that are arrays, and the results.
        """
        everywhere = (True,) * len(self.batches)
        strides = {
            kernel.arg_names.index(name): _strides(array, self.axes.get(name, everywhere))
            for name, array in arrays.items()
        }
        sizes = (*(batch.size for batch in self.batches[:-1]), 0)
        return KernelBatches(max(extents_of(own)[0], 1), sizes, strides)


def _strides(array: Any, axes: Sequence[bool]) -> tuple[int, ...]:
    """The stride of an array along each batch, the innermost one first; 0 if it is not in it."""
    axis = sum(axes)
    result: list[int] = []
    for present in axes:
        axis -= present
        result.append(array.stride(axis) if present else 0)
    return tuple(result)


def call_of(named: Mapping[str, Any], tensors: Sequence[str], batches: Batches) -> Call:
    """A call over batches.

    Args:
        named: the arguments by name.
        tensors: the names of those that are tensors, in the order of the batches' operands.
    """
    axes = {name: tuple(i in b.operands for b in batches) for i, name in enumerate(tensors)}
    one = {
        name: element(value, sum(axes[name])) if name in axes else value
        for name, value in named.items()
    }
    return Call(one, batches, axes)
