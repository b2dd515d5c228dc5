"""The errors of launches and of tuning, under the names that users import."""

from tilewright.base.diagnostics import (
    AutotunerError,
    InterpreterError,
    OutOfResources,
    PTXASError,
)

__all__ = ["AutotunerError", "InterpreterError", "OutOfResources", "PTXASError"]
