"""Ranges for the `for` loops of kernels."""

from __future__ import annotations

import builtins
from typing import Any

from tilewright.base.codes import coded
from tilewright.language.values import builtin, constexpr, tensor, unwrap

__all__ = ["condition", "range", "static_range"]


class range:
    """``range(stop)``, ``range(start, stop, step=1)``: a run-time loop with optimisation hints.

    A compile-time step may be negative, as in Python, but not zero. One that is known at run time
    only must be positive: otherwise the loop does not run, and with the option `debug`, an
    assertion fails.

    Args:
        num_stages: number of pipeline stages, the iterations whose loads are in flight.
        loop_unroll_factor: the unroll factor.
        disallow_acc_multi_buffer, flatten, warp_specialize, disable_licm: hints for GPU targets.
        ad_checkpoint: how often a gradient kernel stores what the loop carries, if it needs that:
            every so many iterations, between which it computes it again. 1 stores each iteration.
            By default, memory decides.
    """

    def __init__(
        self,
        arg1: Any,
        arg2: Any = None,
        step: Any = None,
        num_stages: Any = None,
        loop_unroll_factor: Any = None,
        disallow_acc_multi_buffer: Any = False,
        flatten: Any = False,
        warp_specialize: Any = False,
        disable_licm: Any = False,
        ad_checkpoint: Any = None,
        **others: Any,
    ) -> None:
        others.pop("_semantic", None)
        if others:
            raise coded(
                "arguments",
                TypeError(f"range() got an unexpected keyword argument {next(iter(others))!r}"),
            )
        second = unwrap(arg2) if isinstance(arg2, constexpr) else arg2
        self.start = constexpr(0) if second is None else arg1
        self.stop = arg1 if second is None else arg2
        self.step = constexpr(1) if step is None else step
        self.num_stages = unwrap(num_stages) or 0
        self.unroll = unwrap(loop_unroll_factor) or 0
        flags = {
            "disallow_acc_multi_buffer": disallow_acc_multi_buffer,
            "flatten": flatten,
            "warp_specialize": warp_specialize,
            "disable_licm": disable_licm,
        }
        self.hints = builtins.tuple(n for n, on in flags.items() if unwrap(on))
        every = unwrap(ad_checkpoint)
        if every is not None:
            if not isinstance(every, int) or every < 1:
                raise coded(
                    "arguments",
                    ValueError(f"range() takes a positive integer as ad_checkpoint, not {every!r}"),
                )
            self.hints = (*self.hints, f"ad_checkpoint={every}")

    def __repr__(self) -> str:
        bounds = (self.start, self.stop, self.step)
        return f"range({', '.join(str(unwrap(b)) for b in bounds)})"

    def __iter__(self) -> Any:
        raise RuntimeError("tl.range can only be used in @triton.jit'd functions")

    def __next__(self) -> Any:
        raise RuntimeError("tl.range can only be used in @triton.jit'd functions")


class static_range(range):
    """``static_range(start, stop, step)``: an unrolled loop; all arguments must be constexpr."""

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None, **others: Any) -> None:
        for name, value in (("start", arg1), ("end", arg2), ("step", step)):
            if isinstance(value, tensor):
                raise coded(
                    "needs-constant",
                    TypeError(f"{value} used as tl.static_range {name} value is not a constexpr"),
                )
        super().__init__(arg1, arg2, step, **others)

    def values(self) -> builtins.range:
        """The compile-time indices."""
        return builtins.range(unwrap(self.start), unwrap(self.stop), unwrap(self.step))


@builtin
def condition(arg1: Any, disable_licm: Any = False, *, _semantic: Any = None) -> Any:
    """The condition of a ``while``; `disable_licm` is a hint for GPU targets."""
    return arg1
