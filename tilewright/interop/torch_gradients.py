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

torch fixes the types of an operator's arguments when the operator is defined, and a kernel's
parameters have none. So the operator takes lists, of tensors and of numbers, and a text, the
*layout*, that says which parameter gets which element: "x:t n:i BLOCK:i ACT='relu'".
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from tilewright.runtime.derived_launch import MOST_TAPE_BYTES, NarrowSumError
from tilewright.runtime.gradients import Gradient, grad
from tilewright.runtime.jit import JITFunction

Named = dict[str, Any]
NAMESPACE = "tilewright"
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

    Raises:
        ValueError: the kernel has no such parameter, or an operator of this name exists.
        TypeError: `kernel` is not a kernel.
    """
    gradient = Gradient(
        kernel, outputs=tuple(outputs),
        deterministic=deterministic, tape_bytes=tape_bytes, tables=tables,
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
        full = name or f"{NAMESPACE}::{kernel.__name__}_{next(_numbers)}"
        self.operator: Any = None
        self.backward_operator: Any = None
        self.second_operator: Any = None
        self._register(full)

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
        found = self.operator(tensors, integers, floats, " ".join(parts))
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
        backward = f"(Tensor[] grads, Tensor[] tensors, Tensor[] results, {_REST}, int[] needed)"
        self.operator = library.custom_op(name, self._forward, mutates_args=(), schema=forward)
        self.operator.register_fake(self._allocated)
        self.backward_operator = library.custom_op(
            f"{name}_backward", self._backward, mutates_args=(), schema=f"{backward} -> Tensor[]"
        )
        self.backward_operator.register_fake(_fake_gradients)
        second = f"{backward[:-1]}, Tensor[] directions) -> Tensor[]"
        self.second_operator = library.custom_op(
            f"{name}_double_backward", self._double_backward, mutates_args=(), schema=second
        )
        self.second_operator.register_fake(_fake_second_gradients)
        self.backward_operator.register_autograd(self._second_gradients, setup_context=_save_second)
        self.operator.register_autograd(self._gradients, setup_context=_save)

    def _forward(
        self, tensors: list[Any], integers: list[int], floats: list[float], layout: str
    ) -> list[Any]:
        named = _by_name(tensors, integers, floats, layout)
        results = self._allocate(named)
        self.kernel[self._grid_of(named)](**named, **results)
        return list(results.values())

    def _allocate(self, named: Named) -> Named:
        return {name: allocate(named) for name, allocate in self._outputs.items()}

    def _allocated(
        self, tensors: list[Any], integers: list[int], floats: list[float], layout: str
    ) -> list[Any]:
        return list(self._allocate(_by_name(tensors, integers, floats, layout)).values())

    def _grid_of(self, named: Named) -> tuple[int, ...]:
        return self._grid(named) if callable(self._grid) else self._grid

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
        self._launch(self.gradient, call)
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
        names, all_results = _tensor_names(layout), dict(zip(self._outputs, results, strict=True))
        return _Derivative(
            _by_name(tensors, integers, floats, layout),
            all_results,
            {
                name: laid_out(grad, result)
                for (name, result), grad in zip(all_results.items(), grads, strict=True)
                if result.is_floating_point()
            },
            {names[i]: tensors[i] for i in needed},
            {names[i]: _into(names[i], tensors[i]) for i in needed},
        )

    def _launch(self, kernel: Any, call: _Derivative, **more: Named) -> None:
        """Launch the kernel of a derivative. Gradients that several programs add up are added in
        fp32, and rounded at the end."""
        launch = partial(
            kernel[self._grid_of(call.named)],
            **call.named,
            **call.results,
            grads=call.grads,
            **more,
        )
        try:
            launch(into=call.into)
        except NarrowSumError as error:
            for name in error.names:
                call.into[name] = _like(call.into[name], _torch().float32)
            launch(into=call.into)

    def _gradients(self, ctx: Any, grads: Sequence[Any]) -> tuple[Any, ...]:
        saved = list(ctx.saved_tensors)
        tensors, results = saved[: ctx.count], saved[ctx.count :]
        filled = [
            _torch().zeros_like(r) if g is None else g for g, r in zip(grads, results, strict=True)
        ]
        found = iter(
            self.backward_operator(filled, tensors, results, *ctx.rest, ctx.needed)
            if ctx.needed
            else ()
        )
        each = [next(found) if i in ctx.needed else None for i in range(ctx.count)]
        # torch takes an empty list of numbers for a list of tensors, and expects a list back.
        return each, *([] if rest == [] else None for rest in ctx.rest)

    def _double_backward(
        self,
        grads: list[Any],
        tensors: list[Any],
        results: list[Any],
        integers: list[int],
        floats: list[float],
        layout: str,
        needed: list[int],
        directions: list[Any],
    ) -> list[Any]:
        call = self._derivative(grads, tensors, results, integers, floats, layout, needed)
        along = {
            name: laid_out(direction, tensor)
            for (name, tensor), direction in zip(call.needed.items(), directions, strict=True)
        }
        into_grads = {name: _like(grad) for name, grad in call.grads.items()}
        self._launch(self.second, call, directions=along, into_grads=into_grads)
        return [
            *(
                into_grads[n] if n in into_grads else _torch().zeros_like(g)
                for n, g in zip(self._outputs, grads, strict=True)
            ),
            *call.gradients(),
        ]

    def _second_gradients(self, ctx: Any, directions: Sequence[Any]) -> tuple[Any, ...]:
        (grads_count, count), rest, needed = ctx.counts, ctx.rest, ctx.needed
        saved = list(ctx.saved_tensors)
        grads, tensors = saved[:grads_count], saved[grads_count : grads_count + count]
        results = saved[grads_count + count :]
        filled = [
            _torch().zeros_like(tensors[i]) if d is None else d
            for i, d in zip(needed, directions, strict=True)
        ]
        found = self.second_operator(grads, tensors, results, *rest, needed, filled)
        of_tensors: list[Any] = [None] * count
        for i, gradient in zip(needed, found[grads_count:], strict=True):
            of_tensors[i] = gradient
        none = [[] if r == [] else None for r in (*rest, needed)]
        return found[:grads_count], of_tensors, [None] * len(results), *none


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
    """What the kernel of a derivative is launched with.

    Attributes:
        named, results: the arguments of the differentiated kernel: its inputs, its outputs.
        grads: the gradients of the outputs that are floats.
        needed: the inputs whose gradients are needed.
        into: the tensors for these.
    """

    named: Named
    results: Named
    grads: Named
    needed: Named
    into: Named

    def gradients(self) -> list[Any]:
        """The gradients after the launch, in the types of their inputs."""
        return [_of_type(self.into[name], tensor) for name, tensor in self.needed.items()]


def _of_type(gradient: Any, tensor: Any) -> Any:
    """A gradient in the type of its tensor."""
    return gradient if gradient.dtype == tensor.dtype else _like(tensor).copy_(gradient)


def _by_name(
    tensors: Sequence[Any], integers: Sequence[Any], floats: Sequence[Any], layout: str
) -> Named:
    """The arguments by name, according to the layout."""
    lists = {"t": iter(tensors), "i": iter(integers), "f": iter(floats)}
    named: Named = {}
    for part in layout.split(" "):
        name, sign, rest = part.partition("=")
        if sign:
            named[name] = literal_eval(rest)
        else:
            name, _, kind = part.partition(":")
            named[name] = next(lists[kind])
    return named


def _tensor_names(layout: str) -> list[str]:
    return [part[:-2] for part in layout.split(" ") if part.endswith(":t")]


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


def _save(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Any]) -> None:
    tensors, *rest = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.count = len(tensors)
    ctx.rest = rest
    ctx.needed = [i for i, t in enumerate(tensors) if t.requires_grad and t.is_floating_point()]


def _fake_second_gradients(
    grads: list[Any],
    tensors: list[Any],
    results: list[Any],
    integers: list[int],
    floats: list[float],
    layout: str,
    needed: list[int],
    directions: list[Any],
) -> list[Any]:
    return [
        *(_like(r if r.is_floating_point() else g) for r, g in zip(results, grads, strict=True)),
        *(_like(tensors[i]) for i in needed),
    ]


def _save_second(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Any]) -> None:
    grads, tensors, results, *rest, needed = inputs
    ctx.save_for_backward(*grads, *tensors, *results)
    ctx.counts = len(grads), len(tensors)
    ctx.rest, ctx.needed = rest, needed
