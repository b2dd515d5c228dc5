"""NVIDIA's programs and libraries: where they are, and how to run one without a trace on disk.

They may come as Python wheels, with a CUDA toolkit, or from anywhere on PATH. A place that the user
names counts alone; else the first of these that has what is asked for:

    wheels          SITE-PACKAGES/nvidia/*/bin, such as nvidia/cu13/bin or nvidia/cuda_nvcc/bin
    a toolkit       $CUDA_HOME/bin
    PATH
    /usr/local/cuda/bin

and the same with `lib` and `lib64` for libraries. Wheels go first: they were installed with the
packages that are in use, whereas a machine's toolkit may be of any age.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tilewright.base import knobs

USUAL_TOOLKIT = Path("/usr/local/cuda")

# Stand in a command for the files with its input and its output.
INPUT = "<input>"
OUTPUT = "<output>"


def find_program(name: str, given: str | None = None) -> str | None:
    """The path of a program such as ``ptxas``, or None where there is none.

    Args:
        given: the place that the user names; nothing else is tried then.

    Raises:
        FileNotFoundError: `given` is no program.
    """
    if given:
        found = shutil.which(given)
        if found is None:
            raise FileNotFoundError(f"{given} is no program, but a setting names it as {name}")
        return found
    for root in _toolkits():
        if found := shutil.which(name, path=root / "bin"):
            return found
    return shutil.which(name) or shutil.which(name, path=USUAL_TOOLKIT / "bin")


def find_library(pattern: str, given: str | None = None) -> str | None:
    """The path of a shared library such as ``libnvJitLink.so.*``, or None where there is none.

    Raises:
        FileNotFoundError: `given` is no file.
    """
    if given:
        if not Path(given).is_file():
            raise FileNotFoundError(f"{given} is no file, but a setting names it as {pattern}")
        return given
    for root in (*_toolkits(), USUAL_TOOLKIT):
        for folder in (root / "lib", root / "lib64"):
            # The highest version of a folder: names differ only in their version.
            if found := sorted(folder.glob(pattern)):
                return str(found[-1])
    return None


def _toolkits() -> Iterator[Path]:
    """The wheels, then the toolkit that the user names: folders with `bin` and `lib` in them."""
    for entry in sys.path:
        yield from sorted(Path(entry, "nvidia").glob("*"))
    if knobs.nvidia.cuda_home:
        yield Path(knobs.nvidia.cuda_home)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a program that ended left: its status, its messages, and the file that it wrote."""

    status: int
    stdout: str
    stderr: str
    output: bytes


def run_program(command: Sequence[str], content: bytes) -> Outcome:
    """Run a program that reads one file and may write one.

        run_program([ptxas, "-arch=sm_90a", INPUT, "-o", OUTPUT], ptx.encode()).output

    The files are in memory where the system has such files (Linux): nothing is left behind even
    when this process is killed, and no disk is waited for.
    """
    with _file(content) as source, _file() as target:
        paths = {INPUT: source.path, OUTPUT: target.path}
        ended = subprocess.run(
            [paths.get(part, part) for part in command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            pass_fds=(*source.inherited, *target.inherited),
        )
        messages = (ended.stdout.decode(errors="replace"), ended.stderr.decode(errors="replace"))
        return Outcome(ended.returncode, *messages, Path(target.path).read_bytes())


@dataclass(frozen=True, slots=True)
class _File:
    """A file for another program: its name there, and the descriptors which that needs."""

    path: str
    inherited: tuple[int, ...] = ()


@contextmanager
def _file(content: bytes = b"") -> Generator[_File]:
    """A file that lasts as long as the context."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("tilewright")
        try:
            with open(descriptor, "wb", closefd=False) as stream:
                stream.write(content)
            yield _File(f"/proc/self/fd/{descriptor}", (descriptor,))
        finally:
            os.close(descriptor)
    else:
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            path = Path(folder, "file")
            path.write_bytes(content)
            yield _File(str(path))
