"""Registration of memory that interpreted kernels access through pointers stored in memory.

The interpreter rejects accesses outside the memory of a launch's arguments. A kernel that loads
addresses from a tensor, such as a grouped matrix product, accesses other memory: `reachable`
registers it.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

_reachable: list[Any] = []


@contextmanager
def reachable(*tensors: Any) -> Generator[None]:
    """Allow kernels interpreted within this context to access the memory of the tensors.

    It has no effect on compiled kernels. If the launching code cannot be changed, the setting
    `runtime.interpret_any_address` permits every address instead.

    Args:
        tensors: tensors of any library and on any device that launches accept.

    Example:
        addresses = torch.tensor([m.data_ptr() for m in matrices])
        with tw.runtime.reachable(*matrices):
            grouped[grid](addresses, len(matrices))
    """
    before = len(_reachable)
    _reachable.extend(tensors)
    try:
        yield
    finally:
        del _reachable[before:]


def reachable_tensors() -> list[Any]:
    """The tensors of all active `reachable` contexts."""
    return list(_reachable)
