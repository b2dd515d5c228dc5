"""What can be launched: kernels, and wrappers of them such as tuned kernels.

    kernel[grid](*args)                     # launch
    kernel.warmup(*args, grid=grid)         # compile only
    again = kernel.bind(*args, grid=grid)   # launch these arguments again and again: again()

Kernels and the wrappers of this package are launched by native code (`runtime/native/`) where it
can; `run` is the same in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.base.late import late
from tilewright.base.locks import Lock
from tilewright.runtime.wrappers import MockTensor

if TYPE_CHECKING:
    from tilewright.runtime.native.launcher import Launcher, Stage

make_launcher = late("tilewright.runtime.native.launcher:make_launcher")


class KernelInterface:
    """What can be launched: `kernel[grid](*args)` is `kernel.run(*args, grid=grid)`."""

    def __class_getitem__(cls, function: Any) -> type:
        """Libraries write ``KernelInterface[T]`` for their own kernels' base."""
        return cls

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        raise NotImplementedError

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return partial(self.run, grid=grid)

    def warmup(self, *args: Any, grid: Any = (1,), **kwargs: Any) -> Any:
        """Compile for such arguments without launching. An element type stands for a tensor."""
        wrapped = map(MockTensor.wrap_dtype, args)
        named = {name: MockTensor.wrap_dtype(value) for name, value in kwargs.items()}
        return self.run(*wrapped, grid=grid, warmup=True, **named)

    def bind(self, *args: Any, grid: Any, **kwargs: Any) -> Callable[[], Any]:
        """A function without parameters that launches these arguments each time it is called.

            step = kernel.bind(x, out, n, BLOCK=128, grid=(8,))
            for _ in range(1000):
                step()

        What a launch asks of its arguments is found out once, so that the call costs little more
        than the device's own. The kernel is compiled, and tuned, but not launched. The function
        keeps the arguments; their memory must stay where it is, and what `grid` gives, and wrappers
        compute, is what they do now.

        Raises:
            what a launch raises.
        """
        self.run(*args, grid=grid, warmup=True, **kwargs)
        return lambda: self.run(*args, grid=grid, **kwargs)


class Chain(NamedTuple):
    """A kernel and what is around it.

    kernel: the kernel itself.
    stages: what wrappers add, the outermost first.
    """

    kernel: Any
    stages: list[Stage]


class NativeInterface(KernelInterface):
    """What native code launches. A subclass says by `native_chain` what there is to launch."""

    _launcher: Launcher | None = None

    def native_chain(self) -> Chain | None:
        """What native code needs to know of this; None where only `run` can launch it."""
        return None

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """What launches on a grid: native code for variants that have run, else `run`."""
        return self._bind(grid)

    def _bind(self, grid: Any) -> Callable[..., Any]:
        """Find out how launches are made, then as `__getitem__`; `_prepare` takes its place."""
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
                    self._launcher = make_launcher(
                        chain.kernel, self.fall_back, chain.stages, self._warm
                    )
                if self._launcher is not None and chain is not None:
                    chain.kernel.launchers.add(self._launcher)
            launcher = self._launcher
            bind = launcher.bind if launcher else super().__getitem__
            vars(self)["_bind"] = bind
            return bind

    def fall_back(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """A launch that native code leaves to Python."""
        return self.run(*args, **{"grid": grid, **kwargs})

    def _warm(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Compile and load without launching."""
        compiled = self.run(*args, **{**kwargs, "grid": grid, "warmup": True})
        if hasattr(compiled, "run"):  # a hook may have stopped it
            _ = compiled.run
        return compiled

    def _forget(self) -> None:
        """What native code has found out of this, alone or inside wrappers, is no longer so."""
        inner: Any = self
        while not hasattr(inner, "launchers"):
            inner = inner.fn
        with _lock:
            launchers = list(inner.launchers)
        for launcher in launchers:
            launcher.forget()

    def bind(self, *args: Any, grid: Any, **kwargs: Any) -> Callable[[], Any]:
        self._prepare()

        def again() -> Any:
            return self.run(*args, grid=grid, **kwargs)

        bound = self._launcher.bound(again, grid, args, kwargs) if self._launcher else None
        return super().bind(*args, grid=grid, **kwargs) if bound is None else bound


def _first_launch(interface: NativeInterface, grid: Any) -> Callable[..., Any]:
    """What launches first in a process. That goes through Python, as each variant's first does, and
    so does not wait for native code, which a process that launches once does not need.

    Who keeps it launches natively from then on: what a partial calls can be replaced.
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
    # A partial without attributes would be left out by one around it, which then kept `launch`.
    vars(handle)["grid"] = grid
    return handle


_lock = Lock()
_nothing_launched = True
"""In this process."""
