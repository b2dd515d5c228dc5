"""Compiling in the threads of an executor while the program goes on.

    with ThreadPoolExecutor() as executor, AsyncCompileMode(executor):
        kernels = [kernel.warmup(..., BLOCK=block, grid=(1,)) for block in (64, 128, 256)]
    # here all are compiled

Inside, what has to be compiled is handed to the executor, and stands in the kernel's memory as a
`FutureKernel` until it is there. A launch waits for its own kernel.
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
    """A kernel that is being compiled. Whatever is asked of it waits for it.

    Args:
        future: gives the kernel.
        finish: called once with the kernel, by who first asks for it.
    """

    def __init__(self, future: Future[Any], finish: Callable[[Any], Any]) -> None:
        self._future = future
        self._finish: Callable[[Any], Any] | None = finish
        self._finishing = Lock()

    def result(self, ignore_errors: bool = False) -> Any:
        """The kernel, when it is compiled.

        Args:
            ignore_errors: give None for one that does not compile.

        Raises:
            Exception: it does not compile.
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
    """Has kernels compiled by an executor inside a block, at whose end all of them are there.

    Args:
        executor: of threads: what is submitted cannot be sent to another process.
        ignore_errors: do not raise, at the end, the errors of kernels that do not compile.

    Raises:
        RuntimeError: inside the block of another one.
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
        """Have a kernel compiled; one of the same key only once.

        Args:
            key: what names the kernel.
            compile: compiles it, in a thread of the executor.
            finish: called with the kernel once it is asked for, or at the block's end.
        """
        with self._submitting:
            found = self.future_kernels.get(key)
            if found is None:
                future = self.executor.submit(compile)
                self.raw_futures.append(future)
                found = self.future_kernels[key] = FutureKernel(future, finish)
            return found

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
    """The one whose block the present code is in."""
    return _active.get()
