"""Memory that interpreted kernels reach through addresses kept in memory.

The interpreter knows the memory of a launch's arguments. A kernel that reads addresses from a
tensor, such as a product of a group of matrices, reaches more: `reachable` says what.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

_reachable: list[Any] = []


@contextmanager
def reachable(*tensors: Any) -> Generator[None]:
    """Let kernels that are interpreted within reach the memory of these tensors.

    Compiled kernels reach all memory and take no notice. Of a launch that cannot be changed,
    the setting `runtime.interpret_any_address` trusts every address instead.

    Args:
        tensors: of any library and on any device, as a launch takes them.

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
    """The tensors of all `reachable` around this point."""
    return list(_reachable)
