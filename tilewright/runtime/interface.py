"""The interface of launchable objects: kernels, and wrappers such as autotuned kernels.

    kernel[grid](*args)                     # launch
    kernel.warmup(*args, grid=grid)         # compile only
    again = kernel.bind(*args, grid=grid)   # launch the same arguments repeatedly: again()

Kernels and the wrappers in this package are launched by native code (`runtime/native/`) where
possible; `run` is the equivalent in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.base.lazy_import import lazy_import
from tilewright.base.locks import Lock
from tilewright.runtime.wrappers import MockTensor

if TYPE_CHECKING:
    from tilewright.runtime.native import launcher
    from tilewright.runtime.native.launcher import Launcher, Stage
else:
    launcher = lazy_import("tilewright.runtime.native.launcher")


class KernelInterface:
    """A launchable object: `kernel[grid](*args)` is `kernel.run(*args, grid=grid)`."""

    def __class_getitem__(cls, function: Any) -> type:
        """Allows ``KernelInterface[T]``, which libraries use as a base class."""
        return cls

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        raise NotImplementedError

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return partial(self.run, grid=grid)

    def warmup(self, *args: Any, grid: Any = (1,), **kwargs: Any) -> Any:
        """Compile for these arguments without launching. An element type represents a tensor."""
        wrapped = map(MockTensor.wrap_dtype, args)
        named = {name: MockTensor.wrap_dtype(value) for name, value in kwargs.items()}
        return self.run(*wrapped, grid=grid, warmup=True, **named)

    def bind(self, *args: Any, grid: Any, **kwargs: Any) -> Callable[[], Any]:
        """A function without parameters that launches the same arguments on each call.

            step = kernel.bind(x, out, n, BLOCK=128, grid=(8,))
            for _ in range(1000):
                step()

        The arguments are analysed once, so that a call costs little more than the device's own
        launch. `bind` compiles and autotunes the kernel, but does not launch it. The result keeps
        the arguments alive; their memory must not move. The grid and the values computed by
        wrappers are evaluated once.

        Raises:
            the errors of a launch.
        """
        self.run(*args, grid=grid, warmup=True, **kwargs)
        return lambda: self.run(*args, grid=grid, **kwargs)


class Chain(NamedTuple):
    """A kernel and its wrappers.

    kernel: the kernel.
    stages: the wrappers, outermost first.
    """

    kernel: Any
    stages: list[Stage]


class NativeInterface(KernelInterface):
    """An object that native code can launch, described by `native_chain`."""

    _launcher: Launcher | None = None

    def native_chain(self) -> Chain | None:
        """The description for native code; None if only `run` can launch it."""
        return None

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """The launch function for a grid: native code for compiled variants, else `run`."""
        return self._bind(grid)

    def _bind(self, grid: Any) -> Callable[..., Any]:
        """Prepare launching, then act as `__getitem__`; replaced by the result of `_prepare`."""
        global _nothing_launched
        if _nothing_launched:
            _nothing_launched = False
            return _first_launch(self, grid)
        return self._prepare()(grid)

    def _prepare(self) -> Callable[[Any], Callable[..., Any]]:
        with _lock:
            if self._launcher is None:
                chain = self.native_chain()
                if chain is not None:
                    self._launcher = launcher.make_launcher(
                        chain.kernel, self.fall_back, chain.stages, self._warm
                    )
                if self._launcher is not None and chain is not None:
                    chain.kernel.launchers.add(self._launcher)
            bind = self._launcher.bind if self._launcher else super().__getitem__
            vars(self)["_bind"] = bind
            return bind

    def fall_back(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """A launch that native code delegates to Python."""
        return self.run(*args, **{"grid": grid, **kwargs})

    def _warm(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Compile and load without launching."""
        compiled = self.run(*args, **{**kwargs, "grid": grid, "warmup": True})
        if hasattr(compiled, "load"):  # a hook may have cancelled it
            compiled.load()
        return compiled

    def _forget(self) -> None:
        """Invalidate native caches of this object, alone or in wrappers."""
        inner: Any = self
        while not hasattr(inner, "launchers"):
            inner = inner.fn
        with _lock:
            launchers = list(inner.launchers)
        for one in launchers:
            one.forget()

    def bind(self, *args: Any, grid: Any, **kwargs: Any) -> Callable[[], Any]:
        self._prepare()

        def again() -> Any:
            return self.run(*args, grid=grid, **kwargs)

        bound = self._launcher.bound(again, grid, args, kwargs) if self._launcher else None
        return super().bind(*args, grid=grid, **kwargs) if bound is None else bound


def _first_launch(interface: NativeInterface, grid: Any) -> Callable[..., Any]:
    """The first launch in a process, which goes through Python like the first launch of each
    variant, so that a process with a single launch does not build native code.

    A caller that keeps the result launches natively afterwards, as a partial's function can be
    replaced.
    """
    called = False

    def launch(*args: Any, **kwargs: Any) -> Any:
        nonlocal called
        if not called:
            called = True
            return interface.fall_back(grid, *args, **kwargs)
        native = interface[grid]
        handle.__setstate__((native, (), {}, vars(handle)))
        return native(*args, **kwargs)

    handle: Any = partial(launch)  # its `__setstate__` is not in the stubs
    # The attribute keeps an enclosing partial from flattening this one, which would keep `launch`.
    vars(handle)["grid"] = grid
    return handle


_lock = Lock()
_nothing_launched = True
"""Whether no launch has happened in this process."""


def parameters_of(fn: Any, decorator: str) -> list[str]:
    """The parameters of the kernel that `decorator` wraps.

    Raises:
        TypeError: it is not a kernel, as where decorators are in the wrong order.
    """
    names = getattr(fn, "arg_names", None)
    if names is None:
        raise TypeError(
            f"{decorator} wraps a kernel, not the {type(fn).__name__} "
            f"{getattr(fn, '__name__', repr(fn))}; write @triton.{decorator} above @triton.jit"
        )
    return list(names)
