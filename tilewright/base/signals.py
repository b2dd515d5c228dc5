"""Detection of exceptions raised by signal handlers, in any code they interrupted.

A program may abort a long computation with a handler that raises, as with `signal.alarm`. Such an
exception is not a failure of the code that it passes through.
"""

from __future__ import annotations

import signal
from collections.abc import Set
from types import TracebackType


def from_signal_handler(error: BaseException) -> bool:
    """Whether a currently installed signal handler raised the exception or one of its causes."""
    handlers = {
        getattr(handler, "__code__", None)
        for handler in map(signal.getsignal, signal.valid_signals())
    } - {None}
    found: BaseException | None = error
    while found is not None:
        if _passed(found.__traceback__, handlers):
            return True
        found = found.__cause__
    return False


def _passed(trace: TracebackType | None, handlers: Set[object]) -> bool:
    """Whether a traceback contains a frame of one of these handlers."""
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False
