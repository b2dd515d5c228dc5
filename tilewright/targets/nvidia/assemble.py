"""PTX → cubin, with the available assembler.

    assembler = find_assembler()
    cubin = assembler.assemble(ptx, Request("sm_90a")).content

The program `ptxas` is preferred: it starts faster than the library nvJitLink loads, whose wheel
comes with CUDA builds of torch. Without either there is no cubin: the driver compiles the PTX when
the kernel is loaded.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tilewright.base import knobs
from tilewright.base.diagnostics import PTXASError
from tilewright.base.fact_cache import cached_fact, file_state
from tilewright.base.record import record
from tilewright.targets.nvidia.ptx_lines import FILE, has_lines, source_of
from tilewright.targets.nvidia.started_program import StartedProgram
from tilewright.targets.nvidia.toolkit import (
    INPUT,
    OUTPUT,
    Outcome,
    find_library,
    find_program,
    run_program,
)

NO_ASSEMBLER = (
    "neither ptxas nor nvJitLink was found, so that the driver compiles the PTX when the kernel is "
    "loaded; `pip install nvidia-cuda-nvcc` brings ptxas, TILEWRIGHT_PTXAS_PATH names another"
)


@record
class Request:
    """Options of the assembler.

    Attributes:
        processor: the assembler's name of the architecture, such as ``sm_90a``.
        fp_fusion: whether `mul` and `add` without a rounding mode may be contracted to `fma`.
        opt_level: 0 to 3.
        extra: further options of ptxas.
    """

    processor: str
    fp_fusion: bool = True
    opt_level: int = 3
    extra: tuple[str, ...] = ()


class Cubin(NamedTuple):
    """The output of an assembler.

    Attributes:
        content: the file's bytes; deterministic, given PTX and request.
        log: the assembler's messages, which `advice.py` parses.
    """

    content: bytes
    log: str = ""


@record
class Rejection:
    """The failure of an assembler on invalid or unsupported PTX.

    Attributes:
        log: its error messages.
        command: the command line, in which `INPUT` stands for the PTX; for a library, its options.
    """

    log: str
    command: Sequence[str]

    def error(self, ptx: str) -> PTXASError:
        """The error to raise. Saves the PTX; the text has its path and a reproducing command."""
        path, why = _keep(ptx)
        text = ["PTXAS error: the kernel's PTX is rejected", *_explained(self.log, ptx.split("\n"))]
        stands_for = {INPUT: path or "FILE", OUTPUT: "/dev/null"}
        again = shlex.join([stands_for.get(part, part) for part in self.command])
        text.append(f"assembled as: {again}")
        text.append(f"the PTX is in {path}" if path else f"the PTX could not be kept: {why}")
        return PTXASError("\n".join(text), self.log, path)


class Assembler(ABC):
    """An assembler of PTX."""

    name: str

    @abstractmethod
    def version(self) -> str:
        """The version, as a part of the cache key."""

    @abstractmethod
    def attempt(self, ptx: str, request: Request) -> Cubin | Rejection:
        """Assemble PTX; returns the failure instead of raising it."""

    def started(self, request: Request, *, lines: bool) -> AbstractContextManager[Assembler]:
        """Start before the PTX is known, which saves time if it will have line information or not
        as `lines` says, and is assembled with that request. The context is the assembler to use."""
        return nullcontext(self)

    def assemble(self, ptx: str, request: Request) -> Cubin:
        """Assemble PTX.

        Raises:
            PTXASError: the assembler rejects the PTX.
        """
        made = self.attempt(ptx, request)
        if isinstance(made, Rejection):
            raise made.error(ptx)
        return made


def find_assembler() -> Assembler | None:
    """The assembler to use; None if the driver is to compile the PTX.

    Raises:
        FileNotFoundError: the assembler that a setting requires is not found.
    """
    choice = knobs.nvidia.assembler
    if choice in (None, "ptxas"):
        path = find_program("ptxas", knobs.nvidia.ptxas_path)
        if path is not None:
            return Ptxas(path)
    if choice in (None, "nvjitlink"):
        path = find_library("libnvJitLink.so*", knobs.nvidia.nvjitlink_path)
        if path is not None:
            return NvJitLink(path)
    if choice in (None, "driver"):
        return None
    raise FileNotFoundError(f"the setting nvidia.assembler = {choice!r}: {choice} was not found")


# -- ptxas ----------------------------------------------------------------------------------------


@record
class Ptxas(Assembler):
    """The program at `path`."""

    path: str
    name = "ptxas"

    def version(self) -> str:
        return _ptxas_version(self.path)

    def attempt(self, ptx: str, request: Request) -> Cubin | Rejection:
        command = self._command(request, lines=has_lines(ptx))
        ended = self._run(command, _timeless(ptx).encode())
        if ended.status != 0:
            return Rejection(ended.stderr + ended.stdout, command)
        return Cubin(ended.output, ended.stderr + ended.stdout)

    @contextmanager
    def started(self, request: Request, *, lines: bool) -> Generator[Assembler]:
        command = self._command(request, lines=lines)
        with StartedProgram(command) as program:
            yield _StartedPtxas(self.path, command, program)

    def _command(self, request: Request, *, lines: bool) -> list[str]:
        options = [
            f"-arch={request.processor}",
            *([] if request.opt_level == 3 else [f"-O{request.opt_level}"]),
            *([] if request.fp_fusion else ["--fmad=false"]),
            *(["-lineinfo"] if lines else []),
            *request.extra,
        ]
        return [self.path, *options, INPUT, "-o", OUTPUT]

    def _run(self, command: list[str], content: bytes) -> Outcome:
        return run_program(command, content)


@record
class _StartedPtxas(Ptxas):
    """The program, which has been started once: the first PTX is assembled by this process."""

    command: list[str]
    program: StartedProgram

    def _run(self, command: list[str], content: bytes) -> Outcome:
        ended = self.program.finish(content) if command == self.command else None
        return ended or run_program(command, content)


@cache
def _ptxas_version(path: str) -> str:
    """The release according to `ptxas --version`, such as ``13.0.88``; cached between processes."""

    def query() -> str:
        text = run_program([path, "--version"], b"").stdout
        match = re.search(r"\bV(\d+[.\d]*)", text)
        return match[1] if match else text.strip()

    try:
        state = file_state(os.path.realpath(path))
    except OSError:
        return query()
    return cached_fact("ptxas", state, query)


# -- nvJitLink ------------------------------------------------------------------------------------


_PTX_INPUT = 2  # nvJitLinkInputType: the data is PTX


class NvJitLink(Assembler):
    """The library at a path, of release 12.3 or later."""

    name = "nvjitlink"

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = ctypes.CDLL(path)

    def version(self) -> str:
        major, minor = ctypes.c_uint(), ctypes.c_uint()
        self._library.nvJitLinkVersion(ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def attempt(self, ptx: str, request: Request) -> Cubin | Rejection:
        options = [
            f"-arch={request.processor}",
            f"-O{request.opt_level}",
            *([] if request.fp_fusion else ["-Xptxas=--fmad=false"]),  # -fma is for LTO input alone
            *(["-lineinfo"] if has_lines(ptx) else []),
            *(f"-Xptxas={option}" for option in request.extra),
        ]
        texts = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        handle = ctypes.c_void_p()
        failed = self._library.nvJitLinkCreate(ctypes.byref(handle), len(options), texts)
        try:
            if failed or self._link(handle, _timeless(ptx).encode()):
                return Rejection(self._log(handle, "Error"), options)
            return Cubin(self._fetch("LinkedCubin", handle), self._log(handle, "Info"))
        finally:
            self._library.nvJitLinkDestroy(ctypes.byref(handle))

    def _link(self, handle: ctypes.c_void_p, ptx: bytes) -> int:
        """Assemble; 0 is success."""
        size = ctypes.c_size_t(len(ptx))
        status = self._library.nvJitLinkAddData(handle, _PTX_INPUT, ptx, size, b"kernel.ptx")
        return status or self._library.nvJitLinkComplete(handle)

    def _log(self, handle: ctypes.c_void_p, kind: str) -> str:
        """One of the library's two logs: `Error` or `Info`."""
        return self._fetch(f"{kind}Log", handle).decode(errors="replace").rstrip("\0")

    def _fetch(self, what: str, handle: ctypes.c_void_p) -> bytes:
        """The bytes of a result of the library, by the name in its functions' names."""
        size = ctypes.c_size_t()
        self._library[f"nvJitLinkGet{what}Size"](handle, ctypes.byref(size))
        content = ctypes.create_string_buffer(size.value + 1)
        self._library[f"nvJitLinkGet{what}"](handle, content)
        return content.raw[: size.value]


# -- lines ----------------------------------------------------------------------------------------


def _timeless(ptx: str) -> str:
    """The PTX with a modification time and a size, both 1, for each source file.

    By default, assemblers write the actual time and size of the file into the cubin, so that equal
    PTX would give different cubins. 0 counts as absent.
    """
    start = ptx.find("\t.file\t")  # LLVM writes them last: most of the text is not searched
    return ptx if start < 0 else ptx[:start] + FILE.sub(r"\g<0>, 1, 1", ptx[start:])


# -- diagnostics ----------------------------------------------------------------------------------


_LOCATED = re.compile(r"line (\d+); (?:error|fatal)\s*:\s*(.*)")


def _explained(log: str, lines: Sequence[str]) -> list[str]:
    """The lines of a log. Those that name a line of the PTX include its text and source line."""
    explained: list[str] = []
    for said in log.strip(" \n\0").split("\n"):
        fault = _LOCATED.search(said)
        at = int(fault[1]) - 1 if fault else 0
        if fault and at < len(lines):
            loc = source_of(lines, at)
            place = f"{loc.file}:{loc.line}: " if loc else ""
            said = f"{place}line {at + 1} of the PTX: {fault[2]}\n    {lines[at].strip()}"
        explained.append(said)
    return explained


def _keep(ptx: str) -> tuple[str | None, str]:
    """Write the PTX to the folder of reproducers. Returns its path, or None and the error."""
    folder = knobs.compilation.reproducer_dir
    root = Path(folder or Path(knobs.cache.folder(), "reproducers"))
    path = root / f"{hashlib.sha256(ptx.encode()).hexdigest()[:16]}.ptx"
    try:
        root.mkdir(parents=True, exist_ok=True)
        path.write_text(ptx)
    except OSError as error:
        return None, str(error)
    return str(path), ""
