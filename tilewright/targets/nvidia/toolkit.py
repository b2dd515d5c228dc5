"""Finds NVIDIA's programs and libraries, and runs programs without temporary files on disk.

They may be installed as Python wheels, with a CUDA toolkit, or anywhere on PATH. A path given by
the user is used exclusively; otherwise these are searched in order:

    wheels          SITE-PACKAGES/nvidia/*/bin, such as nvidia/cu13/bin or nvidia/cuda_nvcc/bin
    a toolkit       $CUDA_HOME/bin
    PATH
    /usr/local/cuda/bin

and the same with `lib` and `lib64` for libraries. Wheels take precedence: they were installed
together with the packages in use, whereas the toolkit of a machine may be of any age.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tilewright.base import knobs
from tilewright.base.record import record

USUAL_TOOLKIT = Path("/usr/local/cuda")
TUNABLES = "GLIBC_TUNABLES"

# Settings of glibc's allocator for the programs that are run: memory in pages of 2 MiB where the
# system permits, taken from it in few large pieces and kept. ptxas touches 3,000 pages for a kernel
# of 270 lines, of which 500 remain: it takes 12.5 instead of 16.3 ms of processor time.
_ALLOCATION = (
    "glibc.malloc.hugetlb=1",
    f"glibc.malloc.top_pad={16 << 20}",
    f"glibc.malloc.mmap_threshold={1 << 30}",
    f"glibc.malloc.trim_threshold={1 << 30}",
)

# Placeholders in a command for its input and output files.
INPUT = "<input>"
OUTPUT = "<output>"


def find_program(name: str, given: str | None = None) -> str | None:
    """The path of a program such as ``ptxas``; None if it is not found.

    Args:
        given: the path given by the user; if set, nothing else is searched.

    Raises:
        FileNotFoundError: `given` is not a program.
    """
    if given:
        found = shutil.which(given)
        if found is None:
            raise FileNotFoundError(
                f"a setting specifies {given} as {name}, which is not an executable file"
            )
        return found
    for root in _toolkits():
        if found := shutil.which(name, path=root / "bin"):
            return found
    return shutil.which(name) or shutil.which(name, path=USUAL_TOOLKIT / "bin")


def find_library(pattern: str, given: str | None = None) -> str | None:
    """The path of a shared library such as ``libnvJitLink.so.*``; None if it is not found.

    Raises:
        FileNotFoundError: `given` is not a file.
    """
    if given:
        if not Path(given).is_file():
            raise FileNotFoundError(
                f"a setting specifies {given} as {pattern}, which is not a file"
            )
        return given
    for root in (*_toolkits(), USUAL_TOOLKIT):
        for folder in (root / "lib", root / "lib64"):
            # The highest version: file names differ only in that.
            if found := sorted(folder.glob(pattern)):
                return str(found[-1])
    return None


def _toolkits() -> Iterator[Path]:
    """The folders of wheels, then that of the user's toolkit; each contains `bin` and `lib`."""
    for entry in sys.path:
        yield from sorted(Path(entry, "nvidia").glob("*"))
    if knobs.nvidia.cuda_home:
        yield Path(knobs.nvidia.cuda_home)


@record
class Outcome:
    """The result of a program: exit status, messages, and the content of its output file."""

    status: int
    stdout: str
    stderr: str
    output: bytes


def run_program(command: Sequence[str], content: bytes) -> Outcome:
    """Run a program that reads one file and may write one.

        run_program([ptxas, "-arch=sm_90a", INPUT, "-o", OUTPUT], ptx.encode()).output

    On Linux the files are in memory (memfd), so that nothing remains even if this process is
    killed, and no disk is accessed.
    """
    with (
        temporary_file(content) as source,
        temporary_file() as target,
        start_program(command, source, target) as process,
    ):
        return outcome_of(process, target)


@record
class File:
    """A file for a child process: its path there, and the descriptors to inherit."""

    path: str
    inherited: tuple[int, ...] = ()


def start_program(command: Sequence[str], source: File, target: File) -> subprocess.Popen[str]:
    """A program that reads one file and may write one, for `outcome_of`."""
    paths = {INPUT: source.path, OUTPUT: target.path}
    return subprocess.Popen(
        [paths.get(part, part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        pass_fds=(*source.inherited, *target.inherited),
        # glibc takes the last setting of a name: those of this process take precedence.
        env=knobs.environment_with(TUNABLES, _ALLOCATION),
    )


def outcome_of(process: subprocess.Popen[str], target: File) -> Outcome:
    """The result of a process, which is killed if it cannot be waited for."""
    try:
        stdout, stderr = process.communicate()
    except BaseException:
        process.kill()
        raise
    return Outcome(process.returncode, stdout, stderr, Path(target.path).read_bytes())


@contextmanager
def temporary_file(content: bytes = b"") -> Generator[File]:
    """A temporary file, removed at the end of the context."""
    if sys.platform == "linux":
        descriptor = _in_memory(content)
        try:
            yield File(f"/proc/self/fd/{descriptor}", (descriptor,))
        finally:
            os.close(descriptor)
    else:
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            path = Path(folder, "file")
            path.write_bytes(content)
            yield File(str(path))


def _in_memory(content: bytes) -> int:
    """The descriptor of a file in memory."""
    descriptor = os.memfd_create("tilewright")
    try:
        with open(descriptor, "wb", closefd=False) as stream:
            stream.write(content)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
