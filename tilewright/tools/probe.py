"""Checks that `doctor` runs in a child process, because a faulty driver or device may crash it.

    python -c "from tilewright.tools.probe import main; main('cuda')"     list the GPUs
    python -c "from tilewright.tools.probe import main; main('cuda:0')"   run a kernel
    python -c "from tilewright.tools.probe import main; main('plug-ins GROUP NAME')"
                                                                          import a plug-in

The result is the last line on standard output, JSON.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from contextlib import suppress
from typing import Any

import numpy as np

import tilewright.language as tl
from tilewright.base import knobs, plug_ins
from tilewright.base.diagnostics import TritonError
from tilewright.conformance.claims import claims_of
from tilewright.runtime.device_array import DeviceArray
from tilewright.runtime.driver import driver_of
from tilewright.runtime.jit import cdiv, jit
from tilewright.targets.registry import target

SIZE, BLOCK = 1000, 256


@jit
def probe_kernel(x: Any, out: Any, n: Any, BLOCK: tl.constexpr, SUM: tl.constexpr):
    """out = 2 x + the sum of x over the program's block, without the sum if not SUM."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    values = tl.load(x + i, mask=inside, other=0.0)
    result = 2 * values
    if SUM:
        result += tl.sum(values)
    tl.store(out + i, result, mask=inside)


def expected(x: np.ndarray[Any, Any], sums: bool) -> np.ndarray[Any, Any]:
    """The result of the kernel. It is exact, because the sums are integers below 2**24."""
    blocks = [x[start : start + BLOCK] for start in range(0, len(x), BLOCK)]
    return np.concatenate([2 * block + (block.sum() if sums else 0) for block in blocks])


def run_kernel(device: str) -> dict[str, Any]:
    """Compile the kernel for a device and run it there.

    Returns:
        ``seconds`` of compiling and the first run; ``right``: whether the result is correct.
    """
    x = np.arange(SIZE, dtype=np.float32)
    out = np.zeros_like(x)
    args = [DeviceArray(device, array) for array in (x, out)]
    # A target that is being brought up may not have reductions yet (level 2 of the suite).
    kind, _, index = device.partition(":")
    sums = "2" in claims_of(target(driver_of(kind).target_of(int(index or 0)))).levels
    begin = time.perf_counter()
    with knobs.compilation.scope():
        knobs.compilation.always_compile = True  # a cached kernel would not test the compiler
        probe_kernel[(cdiv(SIZE, BLOCK),)](*args, SIZE, BLOCK=BLOCK, SUM=sums)
    result = args[1].numpy()
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "right": bool((result == expected(x, sums)).all())}


def gpus() -> dict[str, Any]:
    """The version of the driver and its GPUs; ``missing`` if there is no driver."""
    from tilewright.runtime.devices import cuda_api
    from tilewright.runtime.devices.cuda import device, device_count

    try:
        ctypes.CDLL(cuda_api.library_name())
    except OSError as error:
        return {"missing": str(error)}
    version = cuda_api.describe_version(cuda_api.connect().version())
    found: list[dict[str, Any]] = []
    for index in range(device_count()):
        facts = device(index).properties
        found.append(
            {
                "name": facts.name,
                "capability": facts.capability,
                "memory": facts.total_memory,
                "multiprocessors": facts.multiprocessor_count,
            }
        )
    return {"driver": version, "gpus": found}


def load_plug_ins(points: list[str]) -> dict[str, Any]:
    """Import plug-ins, to detect those that do not return or end the process; each that has been
    imported is a line of output. Plug-ins that raise are reported where they are used.

    Args:
        points: the group and the name of each.
    """
    for group, name in zip(points[::2], points[1::2], strict=True):
        with suppress(plug_ins.PlugInError):
            plug_ins.load_plug_in(group, name)
        print("", json.dumps({"imported": name}), sep="\n", flush=True)
    return {}


def _check(what: str) -> dict[str, Any]:
    kind, *of_it = what.split()
    if kind == "plug-ins":
        return load_plug_ins(of_it)
    return gpus() if what == "cuda" else run_kernel(what)


def main(what: str) -> None:
    """Print the result of a check, or its error, as JSON."""
    try:
        answer = _check(what)
    except (TritonError, plug_ins.PlugInError) as error:
        answer = {"error": str(error)}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(answer) + "\n")
