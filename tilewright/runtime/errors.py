"""The public errors of launching and autotuning."""

from tilewright.base.diagnostics import (
    AutotunerError,
    InterpreterError,
    OutOfResources,
    PTXASError,
)

__all__ = ["AutotunerError", "InterpreterError", "OutOfResources", "PTXASError"]
