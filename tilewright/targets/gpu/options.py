"""Checks of the options that kernels of all GPU targets have."""

from __future__ import annotations

from typing import Any


def check(holds: bool, message: str) -> None:
    """Raise ValueError with the message unless the condition holds."""
    if not holds:
        raise ValueError(message)


def check_common_options(options: Any) -> None:
    check(options.num_stages >= 0, f"num_stages must be 0 or more, not {options.num_stages}")
    check(
        options.default_dot_input_precision in options.allowed_dot_input_precisions,
        f"default_dot_input_precision must be one of {options.allowed_dot_input_precisions}, not "
        f"{options.default_dot_input_precision!r}",
    )
    check(not options.extern_libs, "extern_libs are not supported")
