"""Running one case of the suite on a machine, in this process."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np

from tilewright.base import knobs
from tilewright.base.diagnostics import (
    CompilationError,
    InternalCompilerError,
    InterpreterError,
    TritonError,
)
from tilewright.base.plug_ins import PlugInError
from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.driver import compile_source
from tilewright.conformance.case import (
    Case,
    Failed,
    Machine,
    NotInLanguage,
    Program,
    Shifted,
    first_line,
    is_array,
    is_program,
)
from tilewright.conformance.claims import claims_of, exact_options
from tilewright.conformance.compare import difference
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.core import Module
from tilewright.ir.verify import verify_module
from tilewright.runtime import driver
from tilewright.runtime.device_array import DeviceArray
from tilewright.runtime.launch import has_launcher
from tilewright.targets.protocol import (
    GPUTarget,
    Target,
)
from tilewright.targets.registry import described
from tilewright.targets.registry import target as find_target

Array = np.ndarray[Any, Any]

PASSED, COMPILED, REJECTED, UNCLAIMED, FAILED, ABSENT = OUTCOMES = (
    "passed",
    "compiled",
    "rejected",
    "unclaimed",
    "failed",
    "absent",
)
"""Outcomes of cases: the result is right; it compiles, and there is no device to run it on; it is
not claimed, and rejected with a clear error; it is not claimed, but passes; it fails; the language
does not have it, on any target, or it needs a device and there is none."""

MARGIN = 256  # bytes in front of and behind each array that must not change
_PATTERN = 0xA5


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case.

    Attributes:
        status: of `OUTCOMES`.
        detail: what failed, or the message of the rejection, or what is not claimed.
        seconds: that it took.
    """

    status: str
    detail: str = ""
    seconds: float = 0.0

    def plain(self) -> dict[str, Any]:
        """The outcome as JSON."""
        return asdict(self)


# -- the machine ----------------------------------------------------------------------------------


def machine_of(target: str, device: str = "") -> Machine:
    """The machine for a target as users write it, such as ``cpu`` or ``npu:v1``.

    Args:
        device: the device to launch on; by default the first one of the target, if it is usable.

    Raises:
        ValueError: there is no such target or driver.
        PlugInError: it is a plug-in that cannot be loaded.
    """
    found = described(target)
    find_target(found)
    if device:
        driver.driver_of(device.partition(":")[0])
        return Machine(found, device)
    if not driver.has_driver(found.backend):
        # Some targets need no device, such as the interpreter; kernels of others are only compiled.
        return Machine(found, "cpu" if has_launcher(found.backend) else "")
    if found.backend == "cpu":
        return Machine(found, "cpu")
    usable = driver.is_usable(found.backend)
    return Machine(found, f"{found.backend}:0" if usable else "")


# -- programs -------------------------------------------------------------------------------------


class _Rejected(Exception):
    """The target rejects the program with a clear error."""


def run_case(case: Case, machine: Machine) -> Outcome:
    """Run a case; failures of any kind are outcomes, except those that end the process."""
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        status, detail = _status_of(case, machine)
    return Outcome(status, detail, time.perf_counter() - begin)


def _status_of(case: Case, machine: Machine) -> tuple[str, str]:
    if case.launches and not machine.device:
        return ABSENT, "needs a device"
    try:
        claims = claims_of(find_target(machine.target))
        if not is_program(case):
            missing = case.unclaimed(claims, set())
            cast("Callable[[Machine], None]", case.body)(machine)
            return (UNCLAIMED, missing) if missing else (PASSED, "")
        program = cast("Callable[[], Program]", case.body)()
        missing = case.unclaimed(claims, program.elements())
        try:
            status = _run_program(program, machine)
        except _Rejected as error:
            return (REJECTED, str(error)) if missing else (FAILED, f"rejected: {error}")
        return (UNCLAIMED, missing) if missing else (status, "")
    except NotInLanguage as error:
        return ABSENT, str(error)
    except Failed as error:
        return FAILED, str(error)
    except Exception as error:
        return FAILED, f"{type(error).__name__}: {error}"


def _run_program(program: Program, machine: Machine) -> str:
    """Compile, launch and compare; returns `PASSED` or `COMPILED`."""
    target = find_target(machine.target)
    options = exact_options(target)
    module = _module(program, target, options)
    if machine.execute is not None:
        run = machine.execute
        with _rejections():
            found = _executed(program, lambda args: run(module.clone(), program.grid, args))
        return _compared(program, module, found)
    kernel = _compiled(program, machine.target, options)
    if not machine.device:
        return COMPILED
    return _compared(program, module, _launched(program, kernel, machine.device))


def _module(program: Program, target: Target, options: Any) -> Module:
    source = program.source()
    try:
        module = source.module(target.frontend_options(options))
    except CompilationError as error:
        _require_in_language(program)
        raise _Rejected(first_line(error)) from error
    verify_module(module)
    return module


def _require_in_language(program: Program) -> None:
    """Raise `NotInLanguage` if the front end rejects the program without a target's limits."""
    try:
        program.source().module(FrontendOptions())
    except CompilationError as error:
        raise NotInLanguage(first_line(error)) from error


def _compiled(program: Program, target: GPUTarget, options: Any) -> CompiledKernel:
    with knobs.compilation.scope(), _rejections():
        knobs.compilation.always_compile = True  # the compiler is tested, not the cache
        return compile_source(program.source(), target, options)


@contextmanager
def _rejections() -> Generator[None]:
    """Errors that the target reports of the program reject it."""
    try:
        yield
    except (InternalCompilerError, PlugInError):
        raise
    except TritonError as error:
        raise _Rejected(first_line(error)) from error


def _launched(program: Program, kernel: CompiledKernel, device: str) -> list[Array]:
    """The arrays after a launch; memory around them must not change."""
    rooms = [_Room(device, a) if is_array(a) else a for a in program.args]
    args = [room.inner if isinstance(room, _Room) else room for room in rooms]
    kernel[program.grid](*program.values(args))
    found = [room for room in rooms if isinstance(room, _Room)]
    for number, room in enumerate(found):
        room.require_intact(f"array {number}")
    return [room.inner.numpy() for room in found]


class _Room:
    """An array on the device between margins that must not change."""

    def __init__(self, device: str, value: Any) -> None:
        array = value.array if isinstance(value, Shifted) else value
        shift = value.shift * array.itemsize if isinstance(value, Shifted) else 0
        self._before, self._after = MARGIN + shift, MARGIN - shift
        self.inner = _ShiftedArray(device, array, shift)
        self.inner.fill(-self._before, self._before)
        self.inner.fill(array.nbytes, self._after)
        self._end = array.nbytes

    def require_intact(self, name: str) -> None:
        for start, size, where in (
            (-self._before, self._before, "in front of"),
            (self._end, self._after, "behind"),
        ):
            changed = np.flatnonzero(self.inner.read(start, size) != _PATTERN)
            if len(changed):
                raise Failed(f"{len(changed)} bytes {where} {name} were overwritten")


class _ShiftedArray(DeviceArray):
    """An array between margins, some bytes after an aligned address."""

    def __init__(self, device: str, array: Array, shift: int) -> None:
        self._shift = shift
        super().__init__(device, array, margin=MARGIN)

    def data_ptr(self) -> int:
        return super().data_ptr() + self._shift

    def fill(self, start: int, size: int) -> None:
        self.write(start, np.full(size, _PATTERN, np.uint8))


def _executed(program: Program, run: Callable[[list[Any]], object]) -> list[Array]:
    args = [_aligned_copy(a) if is_array(a) else a for a in program.args]
    run(args)
    return [a for a in args if isinstance(a, np.ndarray)]


def _aligned_copy(value: Any) -> Array:
    array = value.array if isinstance(value, Shifted) else value
    shift = value.shift * array.itemsize if isinstance(value, Shifted) else 0
    room = np.zeros(array.nbytes + 64 + shift, np.uint8)
    start = -room.ctypes.data % 64 + shift
    result = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    result[...] = array
    return result


def _compared(program: Program, module: Module, found: Sequence[Array]) -> str:
    try:
        expected = program.interpreted(module)
    except InterpreterError as error:
        raise Failed(f"the interpreter rejects the program: {first_line(error)}") from error
    _require_equal(found, expected, program.ulp, "")
    if program.expected is not None:
        copies = [_aligned_copy(a) if is_array(a) else a for a in program.args]
        _require_equal(expected, program.expected(copies), program.ulp, "the interpreter, ")
    return PASSED


def _require_equal(found: Sequence[Array], expected: Sequence[Array], ulp: float, who: str) -> None:
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        text = difference(a, b, ulp)
        if text:
            raise Failed(f"{who}array {number}: {text}")
