"""Level R: launches, memory and the cache, on the device."""

from __future__ import annotations

import pickle
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tilewright.language as tl
from tilewright.base import knobs
from tilewright.base.child import python_command
from tilewright.compiler.driver import compile_source
from tilewright.compiler.source import ASTSource
from tilewright.conformance.case import Case, Failed, Machine
from tilewright.conformance.claims import exact_options
from tilewright.runtime import driver
from tilewright.runtime.device_array import DeviceArray
from tilewright.runtime.jit import jit
from tilewright.targets.registry import described
from tilewright.targets.registry import target as find_target

CHILD_SECONDS = 120.0
BLOCK = 64


@jit
def add_to(x_ptr, n, amount, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) + amount, mask=i < n)


@jit
def combine(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + i, mask=i < n)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) + y, mask=i < n)


def _require(condition: object, message: str) -> None:
    if not condition:
        raise Failed(message)


def _require_equal(found: np.ndarray[Any, Any], expected: object, what: str) -> None:
    _require(np.array_equal(found, np.asarray(expected)), f"{what}: {found}, not {expected}")


def _driven(machine: Machine) -> bool:
    """Whether launches with tensors on the device compile for this target."""
    kind, _, index = machine.device.partition(":")
    found = driver.driver_of(kind).target_of(int(index or 0))
    return found.backend == machine.target.backend


def _types(args: Sequence[Any]) -> list[str]:
    return ["*i32" if isinstance(a, DeviceArray) else "i32" for a in args]


def launch(machine: Machine, kernel: Any, grid: tuple[int, ...], *args: Any) -> Any:
    """Launch a kernel of this module as a program does: by the device of its tensors, if that is of
    the target; else by a kernel that is compiled for it."""
    if _driven(machine):
        return kernel[grid](*args, BLOCK=BLOCK)
    signature = dict(zip(kernel.arg_names, _types(args), strict=False))
    source = ASTSource(kernel, signature, {"BLOCK": BLOCK})
    options = exact_options(find_target(machine.target))
    compiled = compile_source(source, machine.target, options)
    compiled[grid](*args, BLOCK)
    return compiled


def _ones(machine: Machine, count: int = 200) -> DeviceArray:
    return DeviceArray(machine.device, np.ones(count, np.int32))


# -- checks ---------------------------------------------------------------------------------------


def memory_is_copied(machine: Machine) -> None:
    x = DeviceArray(machine.device, np.arange(100, dtype=np.int32), margin=64)
    x.write(40, np.array([1, 2, 3, 4], np.uint8))
    expected = np.arange(100, dtype=np.int32)
    expected.view(np.uint8)[40:44] = [1, 2, 3, 4]
    _require_equal(x.numpy(), expected, "memory after write_memory")
    _require(x.data_ptr() % 64 == 0, f"an allocation starts at {x.data_ptr():#x}, not at 64 bytes")


def allocations_are_distinct(machine: Machine) -> None:
    arrays = [DeviceArray(machine.device, np.full(50, i, np.int32)) for i in range(10)]
    for i, array in enumerate(arrays):
        _require_equal(array.numpy(), np.full(50, i), f"array {i} of 10")


def memory_can_be_saved(machine: Machine) -> None:
    x = _ones(machine)
    kind, _, index = machine.device.partition(":")
    saved = driver.driver_of(kind).save_memory(int(index or 0), x.data_ptr(), 800)
    launch(machine, add_to, (4,), x, 200, 5)
    saved.restore()
    _require_equal(x.numpy(), np.ones(200), "restored memory")
    saved.free()


def launches_are_ordered(machine: Machine) -> None:
    x = _ones(machine)
    for _ in range(20):
        launch(machine, add_to, (4,), x, 200, 3)
    _require_equal(x.numpy(), np.full(200, 61), "after 20 launches")


def arguments_are_specialised(machine: Machine) -> None:
    for n in (0, 1, 16, 17, 200):
        x = _ones(machine)
        launch(machine, add_to, (4,), x, n, 1)
        expected = np.ones(200, np.int32)
        expected[:n] += 1
        _require_equal(x.numpy(), expected, f"n = {n}")


def one_array_may_be_two_arguments(machine: Machine) -> None:
    x = _ones(machine)
    launch(machine, combine, (4,), x, x, 200)
    _require_equal(x.numpy(), np.full(200, 2), "x + x in place")


def empty_grid_does_nothing(machine: Machine) -> None:
    x = _ones(machine)
    launch(machine, add_to, (0,), x, 200, 1)
    _require_equal(x.numpy(), np.ones(200), "after an empty grid")


def hooks_are_called(machine: Machine) -> None:
    seen: list[str] = []
    with knobs.runtime.scope():
        knobs.runtime.launch_enter_hook.add(lambda m: seen.append(f"enter {m.get()['name']}"))
        knobs.runtime.launch_exit_hook.add(lambda m: seen.append(f"exit {m.get()['name']}"))
        launch(machine, add_to, (4,), _ones(machine), 200, 1)
    names = [s.partition(" ")[0] for s in seen]
    _require(names == ["enter", "exit"] and "add_to" in seen[0], f"the hooks saw {seen}")


def threads_may_launch(machine: Machine) -> None:
    arrays = [_ones(machine) for _ in range(4)]
    faults: list[BaseException] = []

    def work(x: DeviceArray) -> None:
        try:
            for _ in range(10):
                launch(machine, add_to, (4,), x, 200, 1)
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(x,)) for x in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _require(not faults, f"a thread failed: {faults[:1]}")
    for x in arrays:
        _require_equal(x.numpy(), np.full(200, 11), "after 10 launches by a thread")


def stored_kernel_can_be_launched(machine: Machine) -> None:
    x = _ones(machine)
    compiled = pickle.loads(pickle.dumps(launch(machine, add_to, (4,), x, 200, 1)))
    compiled[(4,)](x, 200, 1, BLOCK)
    _require_equal(x.numpy(), np.full(200, 3), "after a launch of a restored kernel")


def memory_of_others_is_rejected(machine: Machine) -> None:
    if machine.device == "cpu":
        return
    kind, _, index = machine.device.partition(":")
    here = np.ones(200, np.int32)
    if driver.driver_of(kind).reaches(int(index or 0), here.ctypes.data):
        return
    try:
        launch(machine, combine, (4,), _ones(machine), here, 200)
    except ValueError as error:
        _require("cpu" in str(error), f"the error does not name the device: {error}")
    else:
        raise Failed(f"a kernel on {machine.device} takes an array of the CPU")


def compiled_kernels_are_cached(machine: Machine) -> None:
    """A second process launches the kernel that the first one compiled."""
    with tempfile.TemporaryDirectory() as folder:
        outcomes = [_in_child(machine, folder) for _ in range(2)]
    _require(outcomes == ["miss", "hit"], f"two processes have a cache {' and a '.join(outcomes)}")


CHECKS = {
    "memory": [memory_is_copied, allocations_are_distinct, memory_can_be_saved],
    "launches": [
        launches_are_ordered,
        arguments_are_specialised,
        one_array_may_be_two_arguments,
        empty_grid_does_nothing,
        hooks_are_called,
        threads_may_launch,
        memory_of_others_is_rejected,
    ],
    "cache": [stored_kernel_can_be_launched, compiled_kernels_are_cached],
}


def cases() -> Iterator[Case]:
    """The cases of level R."""
    case = partial(Case, "R", launches=True)
    for feature, checks in CHECKS.items():
        for check in checks:
            yield case(feature, check.__name__.replace("_", " "), check)


# -- another process ------------------------------------------------------------------------------


def _in_child(machine: Machine, folder: str) -> str:
    target = machine.target
    text = ":".join(filter(None, (target.backend, str(target.arch))))
    call = f"r.cache_outcome({text!r}, {machine.device!r}, {folder!r})"
    code = f"from tilewright.conformance import runtime_checks as r; print({call})"
    ended = subprocess.run(
        python_command(code), capture_output=True, text=True, timeout=CHILD_SECONDS, check=False
    )
    _require(ended.returncode == 0, f"a process that launches failed: {ended.stderr[-300:]}")
    return ended.stdout.strip().splitlines()[-1]


def cache_outcome(target: str, device: str, folder: str) -> str:
    """``hit`` or ``miss`` of a launch that uses the cache in this folder."""
    hits: list[bool] = []
    machine = Machine(described(target), device)
    with knobs.cache.scope(), knobs.compilation.scope():
        knobs.cache.dir = str(Path(folder))
        knobs.compilation.listener = lambda *, cache_hit, **facts: hits.append(cache_hit)
        x = _ones(machine)
        launch(machine, add_to, (4,), x, 200, 1)
    _require_equal(x.numpy(), np.full(200, 2), "after a launch")
    return "hit" if all(hits) and hits else "miss"
