"""Measures what a launch costs the host, on the CPU and, where there is one, on a CUDA device.

python -m benchmarks.launch                     both, each as a table of times and ratios
python -m benchmarks.launch --device cpu        one of them
python -m benchmarks.launch --seconds 2         measure for longer

The kernels do next to nothing, so that a call is all there is. `native` is `kernel[grid](...)` once
the variant has run; `by Python` is `kernel.run(...)`, the same without native code. On CUDA the
time is that until the call returns; `cuLaunchKernel` is the driver's function called from a native
loop, the least that any launch costs. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Callable
from time import perf_counter
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import torch

import tilewright as tw
import tilewright.language as tl
from benchmarks.kernels import five_arguments_kernel
from benchmarks.timing import medians
from tilewright.base import knobs
from tilewright.runtime.devices.cpu import LoadedCode

Runs = dict[str, Callable[[], Any]]

# Launches a kernel again and again, as a C program would.
_LOOP = """
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
    """Reads one tensor and writes another; the other arguments are only passed."""
    index = n0 + tl.arange(0, BLOCK)
    inside = index < n1
    tl.store(x5 + index, tl.load(x0 + index, mask=inside), mask=inside)


def _five(tensors: list[Any]) -> tuple[Any, ...]:
    return (*tensors[:3], 0, 16)


def _nineteen(tensors: list[Any]) -> tuple[Any, ...]:
    return (*tensors, 0, 16, *range(2, 13))


def _one(meta: dict[str, Any]) -> tuple[int]:
    return (meta["BLOCK"] // 16,)


def _launches(kernel: Any, args: tuple[Any, ...]) -> Runs:
    """A launch of a kernel in each of its forms."""
    handle = kernel[(1,)]
    return {
        "native": lambda: kernel[(1,)](*args, BLOCK=16),
        "native, callable grid": lambda: kernel[_one](*args, BLOCK=16),
        "native, grid kept": lambda: handle(*args, BLOCK=16),
        "by Python": lambda: kernel.run(*args, grid=(1,), BLOCK=16),
    }


def _report(title: str, times: dict[str, float], base: str) -> None:
    print(f"\n{title}; ratio to {base}")
    for name, seconds in times.items():
        print(f"  {name:<34}{seconds * 1e6:>9.2f} us  {seconds / times[base]:>6.2f}")


def _measure_cpu(seconds: float) -> None:
    arrays = [np.ones(16, np.float32) for _ in range(6)]
    tensors = [torch.from_numpy(a.copy()) for a in arrays]
    add = {"torch.add": lambda: torch.add(*tensors[:2], out=tensors[2])}
    with knobs.runtime.scope():
        knobs.runtime.cpu_threads = 1
        for title, values in (("NumPy arrays", arrays), ("torch tensors", tensors)):
            five = _launches(five_arguments_kernel, _five(values))
            _report(f"CPU, 5 arguments, {title}", medians({**five, **add}, seconds), "torch.add")
            more = _launches(nineteen_arguments_kernel, _nineteen(values))
            _report(f"CPU, 19 arguments, {title}", medians({**more, **add}, seconds), "torch.add")


# -- CUDA -----------------------------------------------------------------------------------------


def _native_loop() -> tuple[LoadedCode, Any]:
    """The code of `_LOOP`, and its function."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(reloc="pic")
    module = llvm.parse_assembly(_LOOP, llvm.create_context())
    module.triple = machine.triple
    code = LoadedCode(machine.emit_object(module), ["repeat"])
    word, address = ctypes.c_int64, ctypes.c_void_p
    kind = ctypes.CFUNCTYPE(None, word, address, address, ctypes.c_int32, address)
    return code, kind(code["repeat"])


def _driver_seconds(kernel: Any, args: tuple[Any, ...], count: int = 400) -> float:
    """Median seconds of cuLaunchKernel with these arguments, called from native code."""
    loaded = kernel[(1,)](*args, BLOCK=16).run
    slots = [a.data_ptr() if isinstance(a, torch.Tensor) else a for a in args]
    words = (ctypes.c_uint64 * len(slots))(*slots)
    start = ctypes.addressof(words)
    pointers = (ctypes.c_void_p * len(slots))(*range(start, start + 8 * len(slots), 8))
    fields = loaded._function.native_fields()
    code, repeat = _native_loop()
    samples: list[float] = []
    for _ in range(50):
        torch.cuda.synchronize()
        before = perf_counter()
        repeat(count, fields["launch"], fields["function"], fields["threads"], pointers)
        samples.append((perf_counter() - before) / count)
    torch.cuda.synchronize()
    del code
    return sorted(samples)[len(samples) // 2]


def _measure_cuda(seconds: float) -> None:
    tensors = [torch.ones(16, device="cuda") for _ in range(6)]
    add = {"torch.add": lambda: torch.add(*tensors[:2], out=tensors[2])}
    cases = (
        ("5", five_arguments_kernel, _five(tensors)),
        ("19", nineteen_arguments_kernel, _nineteen(tensors)),
    )
    for count, kernel, args in cases:
        times = {"cuLaunchKernel": _driver_seconds(kernel, args)}
        times |= medians({**_launches(kernel, args), **add}, seconds)
        torch.cuda.synchronize()
        _report(f"CUDA, {count} arguments", times, "cuLaunchKernel")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.launch",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", choices=["cpu", "cuda", "all"], default="all")
    parser.add_argument("--seconds", type=float, default=0.4, help="for each line (default 0.4)")
    args = parser.parse_args()
    torch.set_grad_enabled(False)
    if args.device != "cuda":
        torch.set_num_threads(1)
        _measure_cpu(args.seconds)
    if args.device == "cuda" or (args.device == "all" and torch.cuda.is_available()):
        _measure_cuda(args.seconds)


if __name__ == "__main__":
    main()
