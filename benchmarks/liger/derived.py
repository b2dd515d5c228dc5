"""Derives the gradients of liger-kernel's forward kernels, and compares them with its own.

    pip install --no-deps --target SOMEWHERE liger-kernel packaging
    python -m benchmarks.liger.derived --path SOMEWHERE

The `forward` of each operator runs as an ordinary torch program, whose launches of kernels are
differentiated by `tilewright.grad`: torch's autograd does the rest. Its gradients are compared with
those of the operator's own backward, and with those of the reference in torch. On the CPU, in fp32,
with the small inputs of `operators.py` and of the variants below.

The exit status is 1 if a gradient is wrong. A kernel without a gradient is reported with the
compiler's reason.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import torch

import tilewright as tw
from benchmarks.liger.call import Call
from benchmarks.liger.make import Make
from benchmarks.liger.operators import OPERATORS, Operator
from tilewright.interop.torch_gradients import laid_out
from tilewright.runtime.interface import NativeInterface
from tilewright.runtime.jit import JITFunction

TOLERANCE = 2e-4  # in fp32, relative to the largest element of a gradient
Tensor = torch.Tensor
EXPERTS = ("expert_start_ptr", "tile_row_start_ptr", "tile_expert_ptr")
TABLES = {
    "_fused_up_proj_swiglu_kernel": ("x_gather_idx_ptr", *EXPERTS),
    "_fused_down_proj_kernel": EXPERTS,
    "_token_gather_weighted_sum_kernel": ("s_rev_ptr",),
}
"""The arrays of integers that gradients read; see `tilewright.grad`."""


# -- launches with derived gradients --------------------------------------------------------------


@dataclass
class Launch:
    """A launch of a kernel.

    Attributes:
        log: what became of the gradient of each kernel.
        stored: the parameters that the kernel stores to.
        tensors: those that are tensors.
    """

    kernel: Any
    grid: Any
    named: dict[str, Any]
    options: dict[str, Any]
    log: dict[str, str]
    stored: set[str] = field(init=False)
    tensors: list[str] = field(init=False)

    def __post_init__(self) -> None:
        compiled = self._run(warmup=True)
        self.stored = {compiled.metadata.arg_names[i] for i in compiled.metadata.written}
        self.tensors = [name for name, x in self.named.items() if isinstance(x, Tensor)]

    def _run(self, **how: Any) -> Any:
        return self.kernel.run(grid=self.grid, **self.named, **self.options, **how)

    def run(self) -> dict[str, Tensor]:
        """Launch. Returns the tensors as the gradient takes them: an input that is a result as
        well, by another name, as it was before."""
        given = {name: self.named[name] for name in self.tensors}
        results = [given[name].data_ptr() for name in self.stored if name in given]
        kept = {
            name: x.detach().clone()
            for name, x in given.items()
            if name not in self.stored and x.data_ptr() in results
        }
        self._run()
        return {**given, **kept}

    def gradients(
        self, named: dict[str, Tensor], grads: dict[str, Tensor | None], wrt: Sequence[str]
    ) -> dict[str, Tensor]:
        """The gradients of inputs, given those of results."""
        given = {k: laid_out(g, named[k]) for k, g in grads.items() if g is not None}
        floats = [name for name in grads if named[name].is_floating_point()]
        aux = tuple(name for name in floats if name not in given)
        into = {name: torch.zeros_like(named[name]) for name in wrt}
        tables = TABLES.get(self.kernel.__name__, ())
        derived = tw.grad(self.kernel, None, tuple(given), aux, tables=tables)
        derived[self.grid](**{**self.named, **named}, **self.options, grads=given, into=into)
        self.log[self.kernel.__name__] = "derived"
        return into


class Launched(torch.autograd.Function):
    """A launch of a kernel as a step of a torch program."""

    @staticmethod
    def forward(ctx: Any, launch: Launch, *tensors: Tensor) -> tuple[Tensor, ...]:
        named = launch.run()
        ctx.launch = launch
        ctx.names = [name for name in named if name in launch.stored]
        results = [x for n, x in zip(launch.tensors, tensors, strict=True) if n in ctx.names]
        ctx.mark_dirty(*results)
        ctx.mark_non_differentiable(*(x for x in results if not x.is_floating_point()))
        ctx.set_materialize_grads(False)
        ctx.tensors = named  # not saved for backward: later launches may store to some
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        launch: Launch = ctx.launch
        named: dict[str, Tensor] = ctx.tensors
        inputs = {
            x.data_ptr()
            for name, x in launch.named.items()
            if isinstance(x, Tensor) and name not in launch.stored
        }
        wrt = [
            name
            for name, need in zip(named, ctx.needs_input_grad[1:], strict=True)
            if need and (name not in launch.stored or launch.named[name].data_ptr() not in inputs)
        ]
        try:
            found = launch.gradients(named, dict(zip(ctx.names, grads, strict=True)), wrt)
        except Exception as error:
            launch.log[launch.kernel.__name__] = _reason(error)
            raise
        return None, *(found.get(name) for name in named)


@contextmanager
def differentiated(log: dict[str, str]) -> Generator[None]:
    """Let launches of kernels have derived gradients."""
    plain = NativeInterface.__getitem__

    def launcher(self: Any, grid: Any) -> Callable[..., Any]:
        if _inner(self).__module__.startswith("tilewright."):  # of a derived gradient
            return plain(self, grid)

        def launch(*args: Any, **kwargs: Any) -> None:
            given = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
            kernel, given = _inner(self), _with_defaults(self, given)
            names = kernel.arg_names
            named = {name: x for name, x in given.items() if name in names}
            options = {name: x for name, x in given.items() if name not in names}
            one = Launch(kernel, grid, named, options, log)
            log.setdefault(kernel.__name__, "no gradient is needed")
            if any(x.requires_grad for x in named.values() if isinstance(x, Tensor)):
                Launched.apply(one, *(named[name] for name in one.tensors))
            else:
                one.run()

        return launch

    NativeInterface.__getitem__ = launcher
    try:
        yield
    finally:
        NativeInterface.__getitem__ = plain


def _inner(kernel: Any) -> Any:
    """A kernel without its wrappers."""
    while not isinstance(kernel, JITFunction):
        kernel = kernel.fn
    return kernel


def _with_defaults(kernel: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments with those that a kernel's wrappers add: of an autotuned one, those of the
    first configuration."""
    while not isinstance(kernel, JITFunction):
        if hasattr(kernel, "configs"):
            given = {**given, **kernel.configs[0].all_kwargs()}
        else:
            for name, compute in kernel.values.items():
                given = {**given, name: compute(given)}
        kernel = kernel.fn
    return given


def _reason(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()] or [""]
    found = next((x for x in lines if not x.startswith((" ", "at ", "def ", "@"))), lines[0])
    return f"{type(error).__name__}: {found}"[:200]


# -- operators ------------------------------------------------------------------------------------


class Context:
    """What an operator's `forward` takes for the context of autograd."""

    def __init__(self, args: Sequence[Any]) -> None:
        self.needs_input_grad = tuple(isinstance(x, Tensor) and x.requires_grad for x in args)

    def save_for_backward(self, *tensors: Any) -> None:
        pass

    def mark_non_differentiable(self, *tensors: Any) -> None:
        pass

    def mark_dirty(self, *tensors: Any) -> None:
        pass

    def set_materialize_grads(self, value: bool) -> None:
        pass


def compare(
    operator: Operator, settings: dict[str, Any], log: dict[str, str]
) -> tuple[float, float]:
    """The errors of the derived gradients against the operator's own, and of both against torch's:
    the largest difference over the largest element."""
    module = import_module(f"liger_kernel.ops.{operator.name}")
    if operator.pose_as:
        vars(module)["infer_device"] = lambda: operator.pose_as
    vars(module).update(settings)
    for value in vars(module).values():
        if hasattr(value, "configs") and hasattr(value, "prune_configs"):
            value.configs = value.configs[:1]
    function = getattr(module, operator.function)

    def call(run: Callable[..., Any]) -> Call:
        return Call(run, operator.inputs(Make("cpu"), *operator.small))

    expected = call(operator.reference)
    exact = expected.forward()
    state = torch.Generator().manual_seed(3)
    weights = [torch.randn(x.shape, generator=state) for x in exact]

    def gradients(one: Call) -> list[Tensor]:
        results = one.forward(len(exact))
        pairs = zip(results, weights, strict=True)
        return one.backward(results, [w.reshape(x.shape).clone() for x, w in pairs])

    def forward(*args: Any) -> Any:
        return function.forward(Context(args), *args)

    with differentiated(log):
        derived = gradients(call(lambda *args: forward(*map(_no_leaf, args))))
    own, torchs = gradients(call(function.apply)), gradients(expected)
    return _largest(derived, own), _largest(derived, torchs)


def _no_leaf(value: Any) -> Any:
    """A copy of a tensor that requires a gradient, which kernels may store to."""
    return value.clone() if isinstance(value, Tensor) and value.requires_grad else value


def _largest(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    return max(
        ((a.reshape(b.shape) - b).abs().max() / b.abs().max().clamp(min=1e-30)).item()
        for a, b in zip(found, expected, strict=True)
    )


def _like(name: str, function: str = "") -> Operator:
    return next(x for x in OPERATORS if x.name == name and function in x.function)


VARIANTS: tuple[tuple[Operator, dict[str, Any]], ...] = (
    (replace(_like("rms_norm"), small=(32768, 12)), {}),
    (_like("swiglu", "SiLU"), {"_should_tile": lambda columns: True}),
)
"""Inputs, and settings of their modules, with which operators launch other kernels."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--path", default="", help="the folder of liger_kernel, if not installed")
    parser.add_argument("--only", default="", metavar="TEXT", help="operators whose names hold it")
    given = parser.parse_args(arguments)
    if given.path:
        sys.path.append(given.path)
    tw.install_as_triton()
    right: set[str] = set()
    other: dict[str, str] = {}
    wrong = 0
    cases: list[tuple[Operator, dict[str, Any]]] = [(operator, {}) for operator in OPERATORS]
    for operator, settings in (*cases, *VARIANTS):
        if given.only not in operator.label:
            continue
        if operator.needs_cuda:
            print(f"{operator.label}: {operator.needs_cuda}")
            continue
        log: dict[str, str] = {}
        try:
            own, torchs = compare(operator, settings, log)
        except Exception as error:  # reported, and the next one follows
            print(f"{operator.label}: {_reason(error)}; {log}", flush=True)
            other |= {k: text for k, text in log.items() if text != "derived"}
            continue
        ok = torchs < TOLERANCE and own < TOLERANCE
        wrong += not ok
        derived = [name for name, text in log.items() if text == "derived"]
        right |= set(derived) if ok else set()
        mark = "" if ok else " WRONG"
        print(
            f"{operator.label}: {own:.1e} from its own, {torchs:.1e} from torch's{mark}; {log}",
            flush=True,
        )
    print(f"{len(right)} kernels derived and right: {', '.join(sorted(right))}")
    print("others:")
    for name, text in other.items():
        if name not in right:
            print(f"  {name}: {text}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
