"""Programs that are started before their input is there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from tilewright.targets.nvidia.toolkit import (
    File,
    Outcome,
    outcome_of,
    start_program,
    temporary_file,
)

if sys.platform == "linux":
    import fcntl


class StartedProgram:
    """A program that starts before the content of its input is known.

        with StartedProgram([ptxas, "-arch=sm_90a", INPUT, "-o", OUTPUT]) as started:
            ptx = …                            # meanwhile it loads its code and fills its tables
            ended = started.finish(ptx.encode())

    ptxas takes 6 ms until it reads its input, which is a quarter of a short kernel's compilation.

    The input's path is that of a descriptor of this process, which is a pipe until the content is
    known, and then a file: with line information, ptxas opens its input twice. If this process
    ends, so does the pipe, and with it the program.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._exit = ExitStack()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> StartedProgram:
        try:
            self._start()
        except OSError:  # `finish` has no result then
            self._exit.close()
        except BaseException:
            self._exit.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._exit.close()

    def finish(self, content: bytes) -> Outcome | None:
        """The result for an input; None if it must be run again, as it has failed or not started,
        or as the input is too long for a pipe. Call it once."""
        process, self._process = self._process, None
        if process is None or not self._hand_over(content):
            return None
        ended = outcome_of(process, self._target)
        return ended if ended.status == 0 else None

    def _start(self) -> None:
        if sys.platform != "linux":
            return
        self._target = self._exit.enter_context(temporary_file())
        # The procfs may number the processes of another namespace.
        folder = f"/proc/{os.readlink('/proc/self')}/fd"
        self._read, write = os.pipe()
        self._exit.callback(os.close, self._read)
        self._write = _Writer(write)
        self._exit.callback(self._write.close)
        source = File(f"{folder}/{self._read}")
        self._process = start_program(self._command, source, self._target)
        self._exit.callback(_end, self._process)

    def _hand_over(self, content: bytes) -> bool:
        """Make the input readable, unless it does not fit into the pipe."""
        assert sys.platform == "linux"
        descriptor, pipe = self._write.descriptor, self._read
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, len(content))
        except OSError:
            return False
        if fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ) < len(content):
            return False
        kept = os.dup(pipe)  # without a reader, writing would fail
        self._exit.callback(os.close, kept)
        with temporary_file(content) as file:
            os.dup2(file.inherited[0], pipe, inheritable=False)
        os.write(descriptor, content)
        self._write.close()
        return True


def _end(process: subprocess.Popen[str]) -> None:
    """End a process, unless it has ended, and close its files."""
    process.kill()
    with process:
        pass


class _Writer:
    """The end of a pipe that is written to. Other processes do not keep it, as the reader of a pipe
    waits for all of them; a process that this one forks closes it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        _writers.add(self)

    def close(self) -> None:
        if self in _writers:
            _writers.remove(self)
            os.close(self.descriptor)


_writers: set[_Writer] = set()


def _close_writers() -> None:
    for writer in list(_writers):
        writer.close()


if sys.platform == "linux":
    os.register_at_fork(after_in_child=_close_writers)
