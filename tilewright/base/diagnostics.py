"""Source locations and the public error classes.

The text of a :class:`CompilationError` has a fixed format: ``at LINE:COLUMN:``, the source of the
kernel up to the offending line, a caret, the message, and then any notes on separate lines. Lines
are counted from the kernel's ``def`` line as 1, so the text is independent of the kernel's position
in its file. A traceback shows the file and the line after it.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence
from typing import Any

from tilewright.base.record import record

CONTEXT_LINES = 12


@record
class Loc:
    """A location in user code: file, line and column (both from 1), and the enclosing function.

    `caller` is the call site if the function was inlined.
    """

    file: str
    line: int
    column: int
    function: str = ""
    caller: Loc | None = None

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}:{self.column}"
        return f"{text} (called from {self.caller})" if self.caller else text


class TritonError(Exception):
    """Base class of all errors that a kernel can cause."""


TilewrightError = TritonError


def _excerpt(src: str, line: int, column: int) -> str:
    lines = src.split("\n")
    shown = lines[max(0, line - CONTEXT_LINES) : line]
    return "\n".join([*shown, " " * column + "^"])


class CompilationError(TritonError):
    """A kernel does not compile.

    Args:
        src: the source of the function, from its ``def`` line; None if it is not available.
        node: the offending syntax node (anything with `lineno` and `col_offset`).
        error_message: the message; None if the cause has it.
        notes: lines after the message: the operands, their origins, suggestions.
        loc: the location in the file, which a traceback shows after the text.
    """

    def __init__(
        self,
        src: str | None,
        node: ast.AST,
        error_message: str | None = None,
        notes: Sequence[str] = (),
        loc: Loc | None = None,
    ) -> None:
        self.src = src
        self.node = node
        self.error_message = error_message
        self.notes = tuple(notes)
        self.loc = loc
        self.message = self._format()
        super().__init__(self.message)
        if loc is not None:
            self.add_note(f'  File "{loc.file}", line {loc.line}, in {loc.function}')

    def _format(self) -> str:
        line = getattr(self.node, "lineno", 1)
        column = getattr(self.node, "col_offset", 0)
        if self.src is None:
            text = f"at {line}:{column}: <source unavailable>"
        else:
            text = f"at {line}:{column}:\n{_excerpt(self.src, line, column)}"
        said = [self.error_message] if self.error_message else []
        return "\n".join([text, *said, *self.notes])

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.src, self.node, self.error_message, self.notes, self.loc)


class CompileTimeAssertionFailure(CompilationError):
    """A `static_assert` whose condition is false."""


class UnsupportedLanguageConstruct(CompilationError):
    """A Python construct that the kernel language does not support."""


class InterpreterError(TritonError):
    """A kernel failed in the interpreter, or one of the interpreter's checks failed."""


class OutOfResources(TritonError):
    """A kernel requires more of a resource than the device has."""

    def __init__(self, required: int, limit: int, name: str) -> None:
        self.required = required
        self.limit = limit
        self.name = name
        super().__init__(required, limit, name)

    def __str__(self) -> str:
        return (
            f"out of resource: {self.name}, Required: {self.required}, Hardware limit: "
            f"{self.limit}. Reducing block sizes or `num_stages` may help."
        )


class PTXASError(TritonError):
    """The assembler rejected the PTX of a kernel.

    Attributes:
        log: the assembler's output.
        path: a file with the PTX; None if it could not be written.
    """

    def __init__(self, message: str, log: str = "", path: str | None = None) -> None:
        self.message = message
        self.log = log
        self.path = path
        super().__init__(message, log, path)

    def __str__(self) -> str:
        return self.message


class AutotunerError(TritonError):
    """No configuration of an autotuned kernel is left after pruning, or none runs."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)

    def __str__(self) -> str:
        return f"Autotuner error: {self.message}"


class DeviceError(TritonError, RuntimeError):
    """A device or its driver is missing or reports a failure.

    Attributes:
        code: the driver's name of the failure, such as ``CUDA_ERROR_ILLEGAL_ADDRESS``; "" if
            unknown.
    """

    def __init__(self, message: str, code: str = "") -> None:
        self.code = code
        super().__init__(message, code)

    def __str__(self) -> str:
        return str(self.args[0])


class DeviceAssertionError(DeviceError):
    """A `device_assert` failed. The message has its location and text."""


class IRError(TritonError):
    """Invalid tile IR. `code` is a short stable name of the violated rule."""

    def __init__(self, code: str, message: str, loc: Loc | None = None) -> None:
        self.code = code
        self.loc = loc
        super().__init__(f"{loc}: {message} [{code}]" if loc else f"{message} [{code}]")


RERUN = "python -m tilewright rerun"  # the command that takes a reproducer


class InternalCompilerError(TritonError):
    """The compiler itself failed. The cause is the original exception.

    Attributes:
        kernel: the kernel that was being compiled.
        step: the pass or target that failed.
        reproducer: a file that reproduces the failure; None if it could not be written.
        provider: the plug-in that provides the target, in words; "" if it is built in.
    """

    def __init__(
        self,
        kernel: str,
        step: str,
        problem: str,
        reproducer: os.PathLike[str] | None,
        why: str = "",
        provider: str = "",
    ) -> None:
        self.kernel = kernel
        self.step = step
        self.problem = problem
        self.reproducer = reproducer
        self.why = why
        self.provider = provider
        super().__init__(kernel, step, problem, reproducer, why, provider)

    def __str__(self) -> str:
        text = (
            f"compiling {self.kernel} failed in {self.step!r}: {self.problem}\n"
            f"This is a fault of {self.provider or 'tilewright'}, not of the kernel."
        )
        if self.reproducer is None:
            return f"{text} No reproducer could be written: {self.why}"
        return (
            f"{text} Please report it with the file that repeats it:\n  {RERUN} {self.reproducer}"
        )
