"""The default hooks of an autotuner, called before and after trial runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ResetAndRestore:
    """Resets tensors before each run, and restores others after it.

    Attributes:
        reset_to_zero, restore_value: as given to `autotune`.
        copies: the contents of the tensors to restore, by parameter, during a run.
    """

    def __init__(self, reset_to_zero: Sequence[str], restore_value: Sequence[str]) -> None:
        self.reset_to_zero = reset_to_zero
        self.restore_value = restore_value
        self.copies: dict[str, Any] = {}

    def before(self, args: dict[str, Any], reset_only: bool = False) -> None:
        """Zero the tensors of `reset_to_zero`, and copy those of `restore_value` unless
        `reset_only`."""
        for name in self.reset_to_zero:
            if args[name] is not None:
                _clear(args[name])
        if not reset_only:
            tensors = {name: args[name] for name in self.restore_value}
            self.copies = {k: _copied(v) for k, v in tensors.items() if v is not None}

    def after(self, args: dict[str, Any], exception: Exception | None) -> None:
        """Restore the tensors of `restore_value`."""
        for name, copy in self.copies.items():
            _assign(args[name], copy)
        self.copies = {}


def _clear(tensor: Any) -> None:
    if hasattr(tensor, "zero_"):
        tensor.zero_()
    else:
        tensor[...] = 0


def _copied(tensor: Any) -> Any:
    return tensor.clone() if hasattr(tensor, "clone") else tensor.copy()


def _assign(tensor: Any, values: Any) -> None:
    if hasattr(tensor, "copy_"):
        tensor.copy_(values)
    else:
        tensor[...] = values
