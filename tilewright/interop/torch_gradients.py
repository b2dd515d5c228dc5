"""Kernels as differentiable operators of torch.

    @tw.jit
    def gelu_kernel(x, y, n, BLOCK: tl.constexpr): ...

    gelu = tw.autograd_function(
        gelu_kernel,
        grid=lambda a: (tw.cdiv(a["n"], a["BLOCK"]),),
        outputs={"y": lambda a: torch.empty_like(a["x"])},
    )
    y = gelu(x, x.numel(), BLOCK=1024)
    y.sum().backward()

The launch becomes a `torch.library.custom_op`, and so does that of the derived gradient kernel.
torch therefore traces both as single operators: `torch.compile` neither breaks the graph nor looks
into the kernel, and fake tensors take the shapes from `outputs`.

torch requires the types of an operator's arguments at its definition, but a kernel's parameters are
untyped. So the operator takes lists of tensors and of numbers, and a string, the *layout*, that
assigns their elements to parameters: "x:t n:i BLOCK:i ACT='relu'". It ends with the batches that
`torch.vmap` adds.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from tilewright.interop.torch_batches import (
    Call,
    call_of,
    over_batches,
    split_batches,
    with_batch,
    with_batches,
)
from tilewright.interop.torch_transforms import Axes, Lists, Transformable
from tilewright.runtime.derived_launch import MOST_TAPE_BYTES, NarrowSumError
from tilewright.runtime.gradients import Gradient, grad
from tilewright.runtime.jit import JITFunction

Named = dict[str, Any]
NAMESPACE = "tilewright"
MOST_VARIANTS = 256  # of one function, for batches
_numbers = count()


def _torch() -> Any:
    import torch

    return torch


def autograd_function(
    kernel: JITFunction,
    *,
    grid: Callable[[Named], tuple[int, ...]] | tuple[int, ...],
    outputs: Mapping[str, Callable[[Named], Any]],
    name: str | None = None,
    deterministic: bool = False,
    tape_bytes: int = MOST_TAPE_BYTES,
    tables: Sequence[str] = (),
    atomic: Sequence[str] = (),
) -> AutogradFunction:
    """A kernel as a function of torch tensors with a gradient, derived from the kernel.

    The function takes the kernel's parameters but `outputs`, by position or by name, and returns
    the output, or a tuple of them. Gradients are those of all its tensors of floats.

    Args:
        kernel: a kernel that stores to `outputs` only, and to all of them.
        grid: of the launch, given the arguments by name.
        outputs: for each parameter that is a result, a function that allocates it, given the other
            arguments by name. It is called with fake tensors, too.
        name: of the operator, such as "my_library::gelu"; by default from the kernel's name.
        deterministic: raise an error where gradients would be added atomically, in any order.
        tape_bytes: the most memory that a launch takes to record what loops carry.
        tables: arrays of integers that each launch of the gradient reads; see `grad`.
        atomic: inputs whose gradients may be added atomically; see `grad`.

    Raises:
        ValueError: the kernel has no such parameter, or an operator of this name exists.
        TypeError: `kernel` is not a kernel.
    """
    gradient = Gradient(
        kernel, outputs=tuple(outputs),
        deterministic=deterministic, tape_bytes=tape_bytes, tables=tables, atomic=atomic,
    )  # fmt: skip
    return AutogradFunction(gradient, grid, outputs, name)


class AutogradFunction:
    """See `autograd_function`.

    Attributes:
        operator, backward_operator, second_operator: the operators of torch.
        gradient, second: the derived kernels, for `gradient.explain()`.
    """

    def __init__(
        self,
        gradient: Gradient,
        grid: Callable[[Named], tuple[int, ...]] | tuple[int, ...],
        outputs: Mapping[str, Callable[[Named], Any]],
        name: str | None,
    ) -> None:
        kernel = gradient.kernel
        self.gradient = gradient
        self.second = grad(gradient)
        self.kernel = kernel
        self._grid = grid
        self._outputs = dict(outputs)
        self._parameters = [p.name for p in kernel.params if p.name not in outputs]
        self._defaults = {
            p.name: p.default for p in kernel.params if p.has_default and p.name not in outputs
        }
        self._variants: dict[Any, _Variant] = {}
        self._plain = _Variant(kernel, gradient, self.second)
        self._register(name or f"{NAMESPACE}::{kernel.__name__}_{next(_numbers)}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Launch. See `autograd_function`.

        Raises:
            TypeError: an argument is missing or unknown.
        """
        named = self._bound(args, kwargs)
        tensors: list[Any] = []
        integers: list[Any] = []
        floats: list[Any] = []
        parts: list[str] = []
        for key, value in named.items():
            if hasattr(value, "data_ptr"):
                tensors.append(value)
                parts.append(f"{key}:t")
            elif isinstance(value, float):
                floats.append(value)
                parts.append(f"{key}:f")
            elif value is None or isinstance(value, bool | str):
                parts.append(f"{key}={value!r}")
            else:
                integers.append(value)
                parts.append(f"{key}:i")
        found = self._call([tensors], [integers, floats, " ".join(parts)])
        return found[0] if len(found) == 1 else tuple(found)

    def _bound(self, args: tuple[Any, ...], kwargs: Named) -> Named:
        if len(args) > len(self._parameters):
            raise TypeError(
                f"{self.kernel.__name__} takes {len(self._parameters)} arguments apart from its "
                f"outputs, not {len(args)}"
            )
        given = dict(zip(self._parameters, args, strict=False))
        for key in kwargs:
            if key not in self._parameters or key in given:
                what = "twice" if key in given else "and has no such parameter"
                raise TypeError(f"{self.kernel.__name__} is called with {key!r} {what}")
        given = {**given, **kwargs}
        missing = [p for p in self._parameters if p not in given and p not in self._defaults]
        if missing:
            raise TypeError(f"{self.kernel.__name__} needs the argument {missing[0]!r}")
        return {p: given.get(p, self._defaults.get(p)) for p in self._parameters}

    # -- operators ------------------------------------------------------------------------------

    def _register(self, name: str) -> None:
        library = _torch().library
        forward = f"(Tensor[] tensors, {_REST}) -> Tensor[]"
        backward = "Tensor[] grads, Tensor[] tensors, Tensor[] results"
        rest = f"{_REST}, int[] needed) -> Tensor[]"
        self.operator = library.custom_op(name, self._forward, mutates_args=(), schema=forward)
        self.operator.register_fake(self._allocated)
        self.backward_operator = library.custom_op(
            f"{name}_backward", self._backward, mutates_args=(), schema=f"({backward}, {rest}"
        )
        self.backward_operator.register_fake(_fake_gradients)
        self.second_operator = library.custom_op(
            f"{name}_double_backward", self._double_backward, mutates_args=(),
            schema=f"({backward}, Tensor[] directions, {rest}",
        )  # fmt: skip
        self.second_operator.register_fake(_fake_second_gradients)
        self._second = Transformable(self.second_operator, 4, _batched_gradients)
        self._first = Transformable(
            self.backward_operator, 3, _batched_gradients, self._second_gradients
        )
        self._call = Transformable(self.operator, 1, _batched_call, self._gradients)

    def _forward(
        self, tensors: list[Any], integers: list[int], floats: list[float], layout: str
    ) -> list[Any]:
        named, call = _called(tensors, integers, floats, layout)
        grid, results = self._grid_of(call.one), self._allocate(call)
        arrays = {name: named[name] for name in call.axes}
        kernel = self._variant(call, grid, {**arrays, **results}).kernel
        kernel[call.grid(kernel.__name__, grid)](**named, **results)
        return list(results.values())

    def _allocate(self, call: Call) -> Named:
        return call.results({name: new(call.one) for name, new in self._outputs.items()})

    def _allocated(
        self, tensors: list[Any], integers: list[int], floats: list[float], layout: str
    ) -> list[Any]:
        _, call = _called(tensors, integers, floats, layout)
        return list(self._allocate(call).values())

    def _grid_of(self, named: Named) -> tuple[int, ...]:
        return self._grid(named) if callable(self._grid) else self._grid

    def _variant(self, call: Call, grid: tuple[int, ...], arrays: Named) -> _Variant:
        """The kernels for a call.

        Args:
            grid: of one element.
            arrays: the arguments and results that are arrays.
        """
        if not call.batches:
            return self._plain
        over = call.over(self.kernel, grid, arrays)
        key = over._replace(strides=tuple(over.strides.items()))
        found = self._variants.get(key)
        if found is None:
            if len(self._variants) >= MOST_VARIANTS:
                self._variants.clear()
            gradient = self.gradient.of(over_batches(self.kernel, over))
            found = _Variant(gradient.kernel, gradient, grad(gradient))
            self._variants[key] = found
        return found

    def _backward(
        self,
        grads: list[Any],
        tensors: list[Any],
        results: list[Any],
        integers: list[int],
        floats: list[float],
        layout: str,
        needed: list[int],
    ) -> list[Any]:
        call = self._derivative(grads, tensors, results, integers, floats, layout, needed)
        call.launch(call.variant.gradient)
        return call.gradients()

    def _derivative(
        self,
        grads: Sequence[Any],
        tensors: Sequence[Any],
        results: Sequence[Any],
        integers: Sequence[int],
        floats: Sequence[float],
        layout: str,
        needed: Sequence[int],
    ) -> _Derivative:
        named, call = _called(tensors, integers, floats, layout)
        names, all_results = list(call.axes), dict(zip(self._outputs, results, strict=True))
        grid = self._grid_of(call.one)
        arrays = {name: named[name] for name in names}
        return _Derivative(
            self._variant(call, grid, {**arrays, **all_results}),
            call.grid(self.kernel.__name__, grid),
            named,
            all_results,
            {
                name: laid_out(grad, result)
                for (name, result), grad in zip(all_results.items(), grads, strict=True)
                if result.is_floating_point()
            },
            {names[i]: tensors[i] for i in needed},
            {names[i]: _into(names[i], tensors[i]) for i in needed},
        )

    def _gradients(
        self, lists: Lists, rest: list[Any], results: Sequence[Any], grads: Sequence[Any],
        needed: Sequence[Sequence[int]],
    ) -> Lists:  # fmt: skip
        """The gradients of the tensors of a call that require them."""
        (tensors,), needs = lists, list(needed[0])
        filled = [
            _torch().zeros_like(r) if g is None else g for g, r in zip(grads, results, strict=True)
        ]
        found = self._first([filled, tensors, list(results)], [*rest, needs]) if needs else []
        return [_placed(found, needs, len(tensors))]

    def _double_backward(
        self,
        grads: list[Any],
        tensors: list[Any],
        results: list[Any],
        directions: list[Any],
        integers: list[int],
        floats: list[float],
        layout: str,
        needed: list[int],
    ) -> list[Any]:
        call = self._derivative(grads, tensors, results, integers, floats, layout, needed)
        along = {
            name: laid_out(direction, tensor)
            for (name, tensor), direction in zip(call.needed.items(), directions, strict=True)
        }
        into_grads = {name: _like(grad) for name, grad in call.grads.items()}
        call.launch(call.variant.second, directions=along, into_grads=into_grads)
        return [
            *(
                into_grads[n] if n in into_grads else _torch().zeros_like(g)
                for n, g in zip(self._outputs, grads, strict=True)
            ),
            *call.gradients(),
        ]

    def _second_gradients(
        self, lists: Lists, rest: list[Any], results: Sequence[Any], grads: Sequence[Any],
        needed: Sequence[Sequence[int]],
    ) -> Lists:  # fmt: skip
        """The gradients of the tensors from which a gradient was computed."""
        cotangents, tensors, outputs = lists
        *_, needs = rest
        directions = [
            _torch().zeros_like(tensors[i]) if g is None else g
            for i, g in zip(needs, grads, strict=True)
        ]
        found = self._second([*lists, directions], rest)
        count = len(cotangents)
        of_tensors = _placed(found[count:], needs, len(tensors))
        return [list(found[:count]), of_tensors, [None] * len(outputs)]


class _Variant(NamedTuple):
    """The kernels of a call over batches."""

    kernel: JITFunction
    gradient: Gradient
    second: Any


_REST = "SymInt[] integers, float[] floats, str layout"


def _like(tensor: Any, dtype: Any = None) -> Any:
    """A tensor with the strides of another, which may have gaps, as a slice of columns has."""
    return _torch().empty_strided(
        tensor.shape, tensor.stride(), dtype=dtype or tensor.dtype, device=tensor.device
    )


def _into(name: str, tensor: Any) -> Any:
    """A tensor for the gradient of another."""
    extent = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride <= extent:
            raise ValueError(
                f"elements of {name} share memory, with shape {tuple(tensor.shape)} and strides "
                f"{tensor.stride()}: it has no gradient for each; pass {name}.contiguous()"
            )
        extent += stride * (size - 1)
    return _like(tensor)


class _Derivative(NamedTuple):
    """The arguments of the launch of a derivative.

    Attributes:
        variant: its kernels.
        grid: of the differentiated kernel.
        named, results: the arguments of the differentiated kernel: its inputs, its outputs.
        grads: the gradients of the outputs that are floats.
        needed: the inputs whose gradients are needed.
        into: the tensors for these.
    """

    variant: _Variant
    grid: tuple[int, ...]
    named: Named
    results: Named
    grads: Named
    needed: Named
    into: Named

    def launch(self, kernel: Any, **more: Named) -> None:
        """Launch the kernel of a derivative. Gradients that several programs add up are added in
        fp32, and rounded at the end."""
        launch = partial(kernel[self.grid], **self.named, **self.results, grads=self.grads, **more)
        try:
            launch(into=self.into)
        except NarrowSumError as error:
            for name in error.names:
                self.into[name] = _like(self.into[name], _torch().float32)
            launch(into=self.into)

    def gradients(self) -> list[Any]:
        """The gradients after the launch, in the types of their inputs."""
        return [_of_type(self.into[name], tensor) for name, tensor in self.needed.items()]


def _of_type(gradient: Any, tensor: Any) -> Any:
    """A gradient in the type of its tensor."""
    return gradient if gradient.dtype == tensor.dtype else _like(tensor).copy_(gradient)


def _called(
    tensors: Sequence[Any], integers: Sequence[Any], floats: Sequence[Any], layout: str
) -> tuple[Named, Call]:
    """The arguments of a call by name, and the call."""
    plain, batches = split_batches(layout)
    lists = {"t": iter(tensors), "i": iter(integers), "f": iter(floats)}
    named: Named = {}
    arrays: list[str] = []
    for part in plain.split(" "):
        name, sign, rest = part.partition("=")
        if sign:
            named[name] = literal_eval(rest)
            continue
        name, _, kind = part.partition(":")
        named[name] = next(lists[kind])
        if kind == "t":
            arrays.append(name)
    return named, call_of(named, arrays, batches)


def _placed(found: Sequence[Any], needed: Sequence[int], count: int) -> list[Any]:
    """Gradients at their places among those of `count` tensors."""
    placed: list[Any] = [None] * count
    for i, gradient in zip(needed, found, strict=True):
        placed[i] = gradient
    return placed


def laid_out(grad: Any, result: Any) -> Any:
    """A gradient with the strides of the result."""
    if grad.stride() == result.stride() and grad.shape == result.shape:
        return grad
    return _like(result).copy_(grad)


def _fake_gradients(
    grads: list[Any],
    tensors: list[Any],
    results: list[Any],
    integers: list[int],
    floats: list[float],
    layout: str,
    needed: list[int],
) -> list[Any]:
    return [_like(tensors[i]) for i in needed]


def _fake_second_gradients(
    grads: list[Any],
    tensors: list[Any],
    results: list[Any],
    directions: list[Any],
    integers: list[int],
    floats: list[float],
    layout: str,
    needed: list[int],
) -> list[Any]:
    return [
        *(_like(r if r.is_floating_point() else g) for r, g in zip(results, grads, strict=True)),
        *(_like(tensors[i]) for i in needed),
    ]


# -- calls over one more batch --------------------------------------------------------------------


def _batched_call(size: int, axes: Axes, lists: Lists, rest: list[Any]) -> tuple[Lists, list[Any]]:
    tensors, batch = with_batch(lists[0], axes[0], size)
    integers, floats, layout = rest
    return [tensors], [integers, floats, with_batches(layout, batch)]


def _batched_gradients(
    size: int, axes: Axes, lists: Lists, rest: list[Any]
) -> tuple[Lists, list[Any]]:
    """Each element has its own gradients, of all tensors that require them."""
    integers, floats, layout, needed = rest
    places = [range(len(given)) for given in lists]
    places[1] = needed
    moved = [
        with_batch(given, of_given, size, whole)
        for given, of_given, whole in zip(lists, axes, places, strict=True)
    ]
    layout = with_batches(layout, moved[1][1])
    return [tensors for tensors, _ in moved], [integers, floats, layout, needed]
