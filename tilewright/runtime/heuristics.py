"""`heuristics`: compile-time parameters computed from the arguments of each launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.base.lazy_import import lazy_import
from tilewright.runtime.grid import computed
from tilewright.runtime.interface import Chain, NativeInterface, parameters_of

if TYPE_CHECKING:
    from tilewright.runtime.native import launcher
else:
    launcher = lazy_import("tilewright.runtime.native.launcher")


class Heuristics(NativeInterface):
    """A kernel with parameters that are computed at each launch. Created by `heuristics`.

    Attributes:
        fn: the wrapped kernel or wrapper.
        arg_names: the parameters of the kernel.
        values: functions that compute parameters, in order of evaluation.
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
        stage = launcher.Computed(self.values, [(own, name) for name in ("run", "fn", "values")])
        return Chain(inner.kernel, [stage, *inner.stages])

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Compute the parameters, then launch; see `JITFunction.run`."""
        named = dict(zip(self.arg_names, args, strict=False))
        for name, compute in self.values.items():
            kwargs[name] = computed(compute, {**named, **kwargs})
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
        values: by parameter name, a function of the dictionary of arguments. The functions are
            called in order, and each sees the results of the previous ones.

    Raises:
        TypeError: a value is not a function, or what is decorated is not a kernel.
    """
    for name, value in values.items():
        if not callable(value):
            raise TypeError(
                f"heuristics compute `{name}` by a function of the arguments, not {value!r}; "
                f"write lambda args: {value!r}"
            )

    def decorate(fn: Any) -> Heuristics:
        return Heuristics(fn, parameters_of(fn, "heuristics"), values)

    return decorate
