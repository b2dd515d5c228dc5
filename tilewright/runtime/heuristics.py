"""`heuristics`: compile-time parameters that are computed from the arguments of each launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.base.late import late
from tilewright.runtime.interface import Chain, NativeInterface

_computed = late("tilewright.runtime.native.launcher:Computed")


class Heuristics(NativeInterface):
    """A kernel some of whose parameters are computed just before a launch. `heuristics` makes it.

    Attributes:
        fn: what it wraps: the kernel, or another wrapper of it.
        arg_names: the kernel's parameters.
        values: what computes each parameter, in the order in which they are computed.
    """

    def __init__(
        self, fn: Any, arg_names: list[str], values: Mapping[str, Callable[[dict[str, Any]], Any]]
    ) -> None:
        self.fn = fn
        self.arg_names = arg_names
        self.values = values
        self.__name__ = getattr(fn, "__name__", type(fn).__name__)

    def native_chain(self) -> Chain | None:
        inner = self.fn.native_chain() if isinstance(self.fn, NativeInterface) else None
        if inner is None or type(self).run is not Heuristics.run or type(self.values) is not dict:
            return None
        own = vars(self)
        stage = _computed(self.values, [(own, name) for name in ("run", "fn", "values")])
        return Chain(inner.kernel, [stage, *inner.stages])

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Compute the parameters, then launch; see `JITFunction.run`."""
        named = dict(zip(self.arg_names, args, strict=False))
        for name, compute in self.values.items():
            kwargs[name] = compute({**named, **kwargs})
        if warmup:
            return self.fn.run(*args, grid=grid, warmup=True, **kwargs)
        return self.fn[grid](*args, **kwargs)


def heuristics(
    values: Mapping[str, Callable[[dict[str, Any]], Any]],
) -> Callable[[Any], Heuristics]:
    """Compute parameters of a kernel from the arguments of each launch.

        @tilewright.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
        @tilewright.jit
        def kernel(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
            ...

    Args:
        values: by the name of a parameter, a function of the arguments by name. They are called in
            order, and each sees what those before it have computed.
    """

    def decorate(fn: Any) -> Heuristics:
        return Heuristics(fn, fn.arg_names, values)

    return decorate
