"""Operators of torch on lists of tensors, under autograd, `torch.vmap` and `torch.func`.

Autograd and vmap are registered with the operator, for programs that torch compiles as well. The
transforms of `torch.func` that differentiate accept no operator with a registered gradient, so
within them a call is that of an `autograd.Function`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain, islice
from typing import Any, NamedTuple

Lists = list[list[Any]]
Axes = Sequence[Sequence[int | None]]

Batched = Callable[[int, Axes, Lists, list[Any]], tuple[Lists, list[Any]]]
"""Given the size of a batch, the axis of each tensor in it, and the arguments of a call for one
element: the arguments of the call for all of them, whose results have the batch as first axis."""

Gradients = Callable[
    [Lists, list[Any], Sequence[Any], Sequence[Any], Sequence[Sequence[int]]], Lists
]
"""Given the arguments of a call, its results, their gradients, and where gradients are needed: the
gradients of all tensors, None where they are not needed."""


class Transformable:
    """An operator of lists of tensors, then of further arguments, that returns a list of tensors.

    Args:
        operator: a `CustomOpDef`.
        lists: how many lists of tensors it takes.
        batched: a call over a batch.
        gradients: of a call; None if there are none.
    """

    def __init__(
        self, operator: Any, lists: int, batched: Batched, gradients: Gradients | None = None
    ) -> None:
        self.operator = operator
        self.lists = lists
        self.batched = batched
        self.gradients = gradients
        operator.register_vmap(self._vmap)
        if gradients is not None:
            operator.register_autograd(self._backward, setup_context=self._save)

    def __call__(self, lists: Lists, rest: list[Any]) -> Sequence[Any]:
        import torch

        if torch.compiler.is_compiling() or not _within_transforms():
            return self.operator(*lists, *rest)
        counts = tuple(map(len, lists))
        return _function().apply(_Applied(self, counts, tuple(rest)), *chain(*lists))

    # -- registered with the operator -----------------------------------------------------------

    def _vmap(self, info: Any, axes: Sequence[Any], *args: Any) -> tuple[Sequence[Any], list[int]]:
        lists = [list(given) for given in args[: self.lists]]
        of_lists = [
            [None] * len(given) if of_given is None else of_given
            for given, of_given in zip(lists, axes, strict=False)
        ]
        lists, rest = self.batched(info.batch_size, of_lists, lists, list(args[self.lists :]))
        found = self(lists, rest)
        return found, [0] * len(found)

    def _save(self, ctx: Any, inputs: tuple[Any, ...], output: Sequence[Any]) -> None:
        lists, ctx.rest = inputs[: self.lists], inputs[self.lists :]
        ctx.counts = [len(given) for given in lists]
        ctx.needed = [_needed([t.requires_grad for t in given], given) for given in lists]
        ctx.save_for_backward(*chain(*lists), *output)

    def _backward(self, ctx: Any, grads: Sequence[Any]) -> tuple[Any, ...]:
        *lists, results = _split(ctx.saved_tensors, ctx.counts)
        assert self.gradients is not None
        found = self.gradients(lists, list(ctx.rest), results, grads, ctx.needed)
        # torch takes an empty list of numbers for a list of tensors, and expects a list back.
        return *found, *([] if given == [] else None for given in ctx.rest)


def _within_transforms() -> bool:
    """Whether a transform of `torch.func` is being applied."""
    import torch

    return torch._C._are_functorch_transforms_active()  # pyright: ignore[reportPrivateUsage]


def _needed(given: Sequence[bool], tensors: Sequence[Any]) -> list[int]:
    pairs = zip(given, tensors, strict=True)
    return [i for i, (need, t) in enumerate(pairs) if need and t.is_floating_point()]


def _split(flat: Sequence[Any], counts: Sequence[int]) -> Lists:
    """Lists of these lengths, and the rest."""
    left = iter(flat)
    return [*(list(islice(left, count)) for count in counts), list(left)]


class _Applied(NamedTuple):
    """The non-tensor data of a call within transforms.

    Attributes:
        called: the operator.
        counts: the lengths of its lists.
        rest: its further arguments.
    """

    called: Transformable
    counts: tuple[int, ...]
    rest: tuple[Any, ...]


@cache
def _function() -> Any:
    import torch

    class Function(torch.autograd.Function):
        """A call of an operator, as torch transforms it."""

        @staticmethod
        def forward(applied: _Applied, *tensors: Any) -> tuple[Any, ...]:
            *lists, _ = _split(tensors, applied.counts)
            return tuple(applied.called.operator(*lists, *applied.rest))

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
            ctx.applied, *tensors = inputs
            ctx.save_for_backward(*tensors, *output)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
            called, counts, rest = ctx.applied
            *lists, results = _split(ctx.saved_tensors, counts)
            if called.gradients is None:
                raise RuntimeError(f"there is no derivative of {called.operator}")
            needs = _split(ctx.needs_input_grad[1:], counts)
            needed = [_needed(n, given) for n, given in zip(needs, lists, strict=False)]
            return None, *chain(*called.gradients(lists, list(rest), results, grads, needed))

        @staticmethod
        def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
            applied, *tensors = args
            called, counts, rest = applied
            *lists, _ = _split(tensors, counts)
            *of_lists, _ = _split(in_dims[1:], counts)
            lists, rest = called.batched(info.batch_size, of_lists, lists, list(rest))
            found = called(lists, rest)
            return tuple(found), (0,) * len(found)

    return Function
