"""Measures the host's overhead of a launch, on the CPU and, if there is one, on a CUDA device.

python -m benchmarks.launch                     all, each as a table of times and ratios
python -m benchmarks.launch --device cpu        one of them: cpu, cuda, plug-in
python -m benchmarks.launch --seconds 2         measure for longer

The kernels do minimal work. `native` is `kernel[grid](...)` with a cached variant; `by Python` is
`kernel.run(...)`, the slow path. On CUDA the time is that until the call returns; `cuLaunchKernel`
is the driver's function called from a native loop, a lower bound of any launch. On the CPU `kernel
alone` is the kernel on one thread, called from such a loop. `plug-in` is a device of another
package whose C functions read tensors and start kernels; starting does nothing. Each is a loop in
its own function, and is measured in each of many rounds, with a GPU queue that is empty at the
start and never full. Run it on an idle machine.

The last table compares with the limits: the overhead of a launch beyond the kernel or the driver's
call, and the cost of 14 more arguments, as differences of medians from the same run.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

import tilewright as tw
import tilewright.language as tl
from benchmarks.kernels import five_arguments_kernel
from tilewright.base import knobs
from tilewright.runtime.devices.cpu import LoadedCode
from tilewright.runtime.devices.llvm import assemble
from tilewright.runtime.driver import DRIVERS
from tilewright.runtime.drivers.cpu import CpuDriver
from tilewright.runtime.launch import LOADERS
from tilewright.runtime.launchers.functions import read_by_function, start_by_function
from tilewright.runtime.launchers.packing import make_packer
from tilewright.runtime.slots import slot_of
from tilewright.targets.cpu.target import CpuTarget
from tilewright.targets.protocol import GPUTarget
from tilewright.targets.registry import register

Loop = Callable[[int], Any]
"""Repeats a call; the argument is the number of repetitions."""

Loops = dict[str, Loop]
Times = dict[str, float]

NATIVE, CALLABLE = "native", "native, callable grid"
DRIVER, ALONE = "cuLaunchKernel", "kernel alone"

CPU_BAR = 2.0
"""Limit of the overhead of a launch on the CPU with up to three arrays, in microseconds."""

CUDA_BAR = 1.5
"""Limit of the overhead of a launch on a GPU over cuLaunchKernel, in microseconds."""

PLUG_IN_BAR = 1.0
"""Limit of a launch on a device of a plug-in, in microseconds."""

GROWTH_BAR = 0.5
"""Limit of the additional cost of 19 arguments over 5, in microseconds."""

BURST = 200
"""Launches between two reads of the clock. It is less than the capacity of the driver's queue: with
a full queue the host would wait for the GPU."""

TURN_SECONDS = 10e-3
"""Seconds that one contestant is measured in a turn. Turns are short as clock frequencies vary, and
the differences to be compared are small."""

# Native loops that launch a kernel, as a C program would: by a direct call, or through the driver.
_LOOPS = """
define void @call(i64 %count, ptr %function, ptr %args, ptr %grid) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void %function(ptr %args, ptr null, i64 0, i64 1, ptr %grid)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}

define void @repeat(i64 %count, ptr %launch, ptr %function, i32 %threads, ptr %parameters) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %status = call i32 %launch(ptr %function, i32 1, i32 1, i32 1, i32 %threads, i32 1, i32 1,
                             i32 0, ptr null, ptr %parameters, ptr null)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


@tw.jit
def nineteen_arguments_kernel(
    x0, x1, x2, x3, x4, x5, n0, n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, n11, n12,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Reads one tensor and writes another; the other arguments are unused."""
    index = n0 + tl.arange(0, BLOCK)
    inside = index < n1
    tl.store(x5 + index, tl.load(x0 + index, mask=inside), mask=inside)


def _five(tensors: list[Any]) -> tuple[Any, ...]:
    return (*tensors[:3], 0, 16)


def _nineteen(tensors: list[Any]) -> tuple[Any, ...]:
    return (*tensors, 0, 16, *range(2, 13))


def _one(meta: dict[str, Any]) -> tuple[int]:
    return (meta["BLOCK"] // 16,)


def _loop(statement: str, **names: Any) -> Loop:
    """A function that repeats a statement; `names` are its local variables, which are fast."""
    given = ", ".join(f"{name}={name}" for name in names)
    source = f"def loop(count, {given}):\n for _ in range(count):\n  {statement}\n"
    exec(source, names)
    return names["loop"]


def _launches(kernel: Any, args: tuple[Any, ...]) -> Loops:
    """Loops over each way to launch a kernel, by title."""
    values = {f"a{i}": value for i, value in enumerate(args)}
    listed = ", ".join(values)
    bound = kernel.bind(*args, BLOCK=16, grid=(1,))
    configs = [tw.Config({"BLOCK": block}) for block in (16, 32)]
    key = next(name for name in kernel.arg_names if name.startswith("n"))
    tuned = tw.autotune(configs, key=[key])(kernel)
    launch = f"kernel[grid]({listed}, BLOCK=16)"
    return {
        NATIVE: _loop(launch, kernel=kernel, grid=(1,), **values),
        CALLABLE: _loop(launch, kernel=kernel, grid=_one, **values),
        "native, grid kept": _loop(f"start({listed}, BLOCK=16)", start=kernel[(1,)], **values),
        "native, arguments bound": _loop("bound()", bound=bound),
        "native, tuned": _loop(f"kernel[grid]({listed})", kernel=tuned, grid=_one, **values),
        "by Python": _loop(f"run({listed}, grid=(1,), BLOCK=16)", run=kernel.run, **values),
        "torch.add": _add(*(a for a in args if not isinstance(a, int))),
    }


def _add(x: Any, y: Any, out: Any, *_: Any) -> Loop:
    x, y, out = map(torch.as_tensor, (x, y, out))
    return _loop("add(x, y, out=out)", add=torch.add, x=x, y=y, out=out)


def _medians(
    loops: dict[str, Loops], seconds: float, settle: Callable[[], Any]
) -> dict[str, Times]:
    """Median seconds of one repetition of each loop.

    Args:
        seconds: approximate total time of each.
        settle: called before each turn; returns when the device is idle.
    """
    samples = {case: {name: [] for name in group} for case, group in loops.items()}
    for _ in range(max(3, round(seconds / TURN_SECONDS))):
        for case, group in loops.items():
            for name, loop in group.items():
                samples[case][name] += _turn(loop, settle)
    return {
        case: {name: median(found) for name, found in group.items()}
        for case, group in samples.items()
    }


def _turn(loop: Loop, settle: Callable[[], Any]) -> list[float]:
    samples: list[float] = []
    loop(BURST)
    end = perf_counter() + TURN_SECONDS
    while not samples or perf_counter() < end:
        settle()
        start = perf_counter()
        loop(BURST)
        samples.append((perf_counter() - start) / BURST)
    return samples


def _report(title: str, times: dict[str, float], base: str) -> None:
    print(f"\n{title}; ratio to {base}")
    for name, seconds in times.items():
        print(f"  {name:<34}{seconds * 1e6:>9.2f} us  {seconds / times[base]:>6.2f}")


def _bar(what: str, measured: float, limit: float) -> None:
    """Print a measurement, in seconds, against its limit in microseconds."""
    verdict = "holds" if measured * 1e6 <= limit else "MISSED"
    print(f"  {what:<72}{measured * 1e6:>7.2f} us, at most {limit:.2f}  {verdict}")


def _bars(device: str, base: str, limit: float, few: Times, many: Times) -> None:
    """Compare with the limits for one kind of tensors: 5 and 19 arguments, each over its own base,
    and the growth between them. The CPU's limit applies to three arrays, i.e. to 5 arguments."""
    cases = [("5", few), ("19", many)]
    for count, times in cases[: 1 if base == ALONE else 2]:
        for way in (NATIVE, CALLABLE):
            what = f"{device}, {count} arguments, {way}, over {base}"
            _bar(what, times[way] - times[base], limit)
    for way in (NATIVE, CALLABLE):
        growth = (many[way] - many[base]) - (few[way] - few[base])
        _bar(f"{device}, growth from 5 to 19 arguments, {way}", growth, GROWTH_BAR)


def _native_loop(name: str, *kinds: Any) -> Any:
    """A function of `_LOOPS` as a callable, with a count and arguments of these ctypes; it keeps
    the code alive."""
    code = LoadedCode(assemble(_LOOPS, 2), [name])
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, *kinds)(code[name])
    vars(function)["code"] = code
    return function


def _kernel_alone(kernel: Any, args: tuple[Any, ...]) -> Loop:
    """A single program of the kernel, called from native code on this thread."""
    loaded = kernel[(1,)](*args, BLOCK=16)
    slots = [slot_of(value) for value in (*args, 16)]
    packed = make_packer(loaded.metadata.arguments)(slots)
    room = ctypes.create_string_buffer(packed, len(packed) + 1)
    grid = (ctypes.c_int32 * 3)(1, 1, 1)
    call = _native_loop("call", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    return lambda count: call(count, loaded.function, room, grid)


def _measure_cpu(seconds: float) -> None:
    arrays = [np.ones(16, np.float32) for _ in range(6)]
    tensors = [torch.from_numpy(a.copy()) for a in arrays]
    cases = {
        f"{count}, {title}": (kernel, choose(values))
        for title, values in (("NumPy arrays", arrays), ("torch tensors", tensors))
        for count, kernel, choose in (
            ("5", five_arguments_kernel, _five),
            ("19", nineteen_arguments_kernel, _nineteen),
        )
    }
    with knobs.runtime.scope():
        knobs.runtime.cpu_threads = 1
        loops = {
            name: {ALONE: _kernel_alone(*case), **_launches(*case)} for name, case in cases.items()
        }
        measured = _medians(loops, seconds, lambda: None)
    for name, times in measured.items():
        _report(f"CPU, arguments: {name}", times, "torch.add")
    print("\nBars")
    for title in ("NumPy arrays", "torch tensors"):
        few, many = (measured[f"{count}, {title}"] for count in ("5", "19"))
        _bars(f"CPU, {title}", ALONE, CPU_BAR, few, many)


# -- CUDA -----------------------------------------------------------------------------------------


def _driver(kernel: Any, args: tuple[Any, ...]) -> Loop:
    """cuLaunchKernel with these arguments, called from native code."""
    loaded = kernel[(1,)](*args, BLOCK=16).loaded
    slots = [a.data_ptr() if isinstance(a, torch.Tensor) else a for a in args]
    words = (ctypes.c_uint64 * len(slots))(*slots)
    start = ctypes.addressof(words)
    pointers = (ctypes.c_void_p * len(slots))(*range(start, start + 8 * len(slots), 8))
    fields = loaded._function.native_fields()
    launch, function, threads = (fields[name] for name in ("launch", "function", "threads"))
    address = ctypes.c_void_p
    repeat = _native_loop("repeat", address, address, ctypes.c_int32, address)
    keep = (words, args)
    return lambda count, keep=keep: repeat(count, launch, function, threads, pointers)


def _measure_cuda(seconds: float) -> None:
    tensors = [torch.ones(16, device="cuda") for _ in range(6)]
    cases = {
        "5": (five_arguments_kernel, _five(tensors)),
        "19": (nineteen_arguments_kernel, _nineteen(tensors)),
    }
    loops = {count: {DRIVER: _driver(*case), **_launches(*case)} for count, case in cases.items()}
    measured = _medians(loops, seconds, torch.cuda.synchronize)
    for count, times in measured.items():
        _report(f"CUDA, {count} arguments", times, DRIVER)
    print("\nBars")
    _bars("CUDA", DRIVER, CUDA_BAR, *measured.values())


# -- plug-ins -------------------------------------------------------------------------------------

VENDOR = "vendor"

# The address of a tensor is in the first slot of the object, where it is a Python int.
_VENDOR_LIBRARY = """
define i32 @start(ptr %kernel, ptr %words, ptr %grid, ptr %stream) {{
  ret i32 0
}}
define i32 @read(ptr %tensor, ptr %result) {{
  %slot = getelementptr i8, ptr %tensor, i64 {head}
  %object = load ptr, ptr %slot
  %convert = inttoptr i64 {convert} to ptr
  %address = call i64 %convert(ptr %object)
  store i64 %address, ptr %result
  %low = getelementptr i8, ptr %result, i64 8
  store i64 -1, ptr %low
  %high = getelementptr i8, ptr %result, i64 16
  store i64 -1, ptr %high
  %dtype = getelementptr i8, ptr %result, i64 24
  store i32 {fp32}, ptr %dtype
  %read_only = getelementptr i8, ptr %result, i64 28
  store i32 0, ptr %read_only
  ret i32 0
}}
"""


class _VendorTensor:
    """A tensor that is read by Python."""

    __slots__ = ("address",)
    dtype, device = "float32", VENDOR

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address


class _TensorByFunction(_VendorTensor):
    """A tensor that is read by the C function."""

    __slots__ = ()


class _VendorDriver(CpuDriver):
    device_type = VENDOR

    def get_current_target(self) -> GPUTarget:
        return GPUTarget(VENDOR)


def _vendor_library() -> LoadedCode:
    convert = ctypes.cast(ctypes.pythonapi.PyLong_AsUnsignedLongLong, ctypes.c_void_p).value
    fp32 = 2 | 32 << 8 | 1 << 16  # DLDataType
    text = _VENDOR_LIBRARY.format(head=object.__basicsize__, convert=convert, fp32=fp32)
    return LoadedCode(assemble(text, 2), ["start", "read"])


def _measure_plug_in(seconds: float) -> None:
    library = _vendor_library()

    class VendorLaunch:
        handle = 0

        def __init__(self, kernel: Any) -> None:
            self._kernel = kernel

        def start(self, grid: Any, values: Any, slots: Any) -> None: ...

        def native_start(self, runtime: Any) -> Any:
            return start_by_function(self._kernel, library["start"], 0, lambda *_: None)

    read_by_function(_TensorByFunction, library["read"], VENDOR)
    DRIVERS[VENDOR] = lambda: _VendorDriver
    LOADERS[VENDOR] = VendorLaunch
    register(VENDOR, CpuTarget)
    times: Times = {}
    for title, kind in (("by Python", _VendorTensor), ("by the C function", _TensorByFunction)):
        args = _five([kind(address) for address in range(0x1000, 0x7000, 0x1000)])
        values = {f"a{i}": value for i, value in enumerate(args)}
        launch = f"kernel[grid]({', '.join(values)}, BLOCK=16)"
        loop = _loop(launch, kernel=five_arguments_kernel, grid=(1,), **values)
        times[f"tensors read {title}"] = _medians({"": {"": loop}}, seconds, lambda: None)[""][""]
    _report("plug-in, 5 arguments", times, "tensors read by Python")
    print("\nBars")
    _bar(
        "plug-in, 5 arguments, by C functions", times["tensors read by the C function"], PLUG_IN_BAR
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.launch",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", choices=["cpu", "cuda", "plug-in", "all"], default="all")
    parser.add_argument("--seconds", type=float, default=0.4, help="for each line (default 0.4)")
    args = parser.parse_args()
    torch.set_grad_enabled(False)
    if args.device in ("plug-in", "all"):
        _measure_plug_in(args.seconds)
    if args.device in ("cpu", "all"):
        torch.set_num_threads(1)
        _measure_cpu(args.seconds)
    if args.device == "cuda" or (args.device == "all" and torch.cuda.is_available()):
        _measure_cuda(args.seconds)


if __name__ == "__main__":
    main()
