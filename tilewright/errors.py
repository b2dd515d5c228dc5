"""The errors that a kernel can cause, by the names users import."""

from tilewright.base.diagnostics import (
    AutotunerError,
    CompilationError,
    CompileTimeAssertionFailure,
    InterpreterError,
    OutOfResources,
    PTXASError,
    TilewrightError,
    TritonError,
    UnsupportedLanguageConstruct,
)

__all__ = [
    "AutotunerError",
    "CompilationError",
    "CompileTimeAssertionFailure",
    "InterpreterError",
    "OutOfResources",
    "PTXASError",
    "TilewrightError",
    "TritonError",
    "UnsupportedLanguageConstruct",
]
