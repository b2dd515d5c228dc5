"""Asynchronous compilation on the threads of an executor.

    with ThreadPoolExecutor() as executor, AsyncCompileMode(executor):
        kernels = [kernel.warmup(..., BLOCK=block, grid=(1,)) for block in (64, 128, 256)]
    # all of them are compiled here

Within the block, compilations are submitted to the executor, and the kernel's variants hold a
`FutureKernel` until they finish. A launch waits only for its own variant.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any

from tilewright.base.locks import Lock

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

_active: ContextVar[AsyncCompileMode | None] = ContextVar("active_async_compile", default=None)


class FutureKernel:
    """A kernel that is being compiled. Any access waits for the compilation.

    Args:
        future: the compilation.
        finish: called once with the kernel, on first access.
    """

    def __init__(self, future: Future[Any], finish: Callable[[Any], Any]) -> None:
        self._future = future
        self._finish: Callable[[Any], Any] | None = finish
        self._finishing = Lock()

    def result(self, ignore_errors: bool = False) -> Any:
        """Wait for the kernel.

        Args:
            ignore_errors: return None if the compilation fails.

        Raises:
            Exception: the compilation failed.
        """
        try:
            kernel = self._future.result()
        except Exception:
            if ignore_errors:
                return None
            raise
        with self._finishing:
            finish, self._finish = self._finish, None
            if finish is not None:
                finish(kernel)
        return kernel

    def __getattr__(self, name: str) -> Any:
        return getattr(self.result(), name)

    def __getitem__(self, grid: Any) -> Any:
        return self.result()[grid]


class AsyncCompileMode:
    """Compiles kernels on an executor within a block; the end of the block waits for all of them.

    Args:
        executor: a thread executor, since tasks cannot be sent to another process.
        ignore_errors: do not raise compilation errors at the end.

    Raises:
        RuntimeError: nested in another `AsyncCompileMode`.
    """

    def __init__(self, executor: Executor, *, ignore_errors: bool = False) -> None:
        self.executor = executor
        self.ignore_errors = ignore_errors
        self.future_kernels: dict[Any, FutureKernel] = {}
        self.raw_futures: list[Future[Any]] = []
        self._submitting = Lock()
        self._token: Token[AsyncCompileMode | None] | None = None

    def submit(
        self, key: Any, compile: Callable[[], Any], finish: Callable[[Any], Any]
    ) -> FutureKernel:
        """Submit a compilation, once per key.

        Args:
            key: the key of the kernel.
            compile: compiles it, on a thread of the executor.
            finish: called with the kernel on first access, or at the end of the block.
        """
        with self._submitting:
            result = self.future_kernels.get(key)
            if result is None:
                future = self.executor.submit(compile)
                self.raw_futures.append(future)
                result = self.future_kernels[key] = FutureKernel(future, finish)
            return result

    def __enter__(self) -> AsyncCompileMode:
        if _active.get() is not None:
            raise RuntimeError("Another AsyncCompileMode is already active")
        self._token = _active.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        assert self._token is not None
        _active.reset(self._token)
        for kernel in list(self.future_kernels.values()):
            kernel.result(self.ignore_errors)


def active_mode() -> AsyncCompileMode | None:
    """The mode whose block is active, or None."""
    return _active.get()
