"""Kernels of several forms with adjustable length, and the compile time of one by phase.

Each form is a kernel with an unrolled loop; the number of steps sets its length. Tiles have 128
elements: one per thread of a program with four warps.

``python -m benchmarks.compile_forms chain 250 cuda:90`` compiles one in this process and prints the
seconds of each phase as JSON. The disk cache is not used.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import tilewright as tw
import tilewright.language as tl
from tilewright.base.garbage import collector_paused
from tilewright.compiler.build import context_for
from tilewright.compiler.pipeline import pipeline
from tilewright.compiler.source import ASTSource
from tilewright.ir.core import Module
from tilewright.ir.passes import PassContext, run
from tilewright.ir.printer import print_module
from tilewright.lowering.simt.notes import carried_registers
from tilewright.targets.cpu import codegen as cpu_codegen
from tilewright.targets.cpu import emit as cpu_emit
from tilewright.targets.cpu.target import CpuTarget
from tilewright.targets.gpu.codegen import thread_code
from tilewright.targets.nvidia import emit as nvidia_emit
from tilewright.targets.nvidia.assemble import find_assembler
from tilewright.targets.nvidia.best_cubin import Attempts, Demand, best_cubin
from tilewright.targets.nvidia.compilation import assembly_request
from tilewright.targets.nvidia.features import WARP_SIZE
from tilewright.targets.nvidia.notes import ptx_version
from tilewright.targets.nvidia.target import NvidiaTarget
from tilewright.targets.protocol import Target

PARTS = ("front end", "passes", "code generation", "LLVM", "assembler")


@tw.jit
def chain_kernel(x, o, N: tl.constexpr, STEPS: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    for _ in tl.static_range(STEPS):
        v = tl.where(v > 1.0, v * 0.5, v + 0.25)
    tl.store(o + i, v)


@tw.jit
def copies_kernel(x, o, N: tl.constexpr, STEPS: tl.constexpr):
    i = tl.arange(0, N)
    for k in tl.static_range(STEPS):
        tl.store(o + k * N + i, tl.load(x + k * N + i))


@tw.jit
def sums_kernel(x, o, N: tl.constexpr, STEPS: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    for _ in tl.static_range(STEPS):
        v = v * 0.5 + tl.sum(v, 0)
    tl.store(o + i, v)


@tw.jit
def shapes_kernel(x, o, N: tl.constexpr, STEPS: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    for _ in tl.static_range(STEPS):
        v = v * 0.5 + tl.flip(v, 0)
        v = tl.reshape(tl.trans(tl.reshape(v, (N // 8, 8))), (N,))
        a, b = tl.split(tl.reshape(v, (N // 2, 2)))
        v = tl.reshape(tl.join(a + b, a - b), (N,))
    tl.store(o + i, v)


@tw.jit
def ifs_kernel(x, o, n, N: tl.constexpr, STEPS: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    for k in tl.static_range(STEPS):
        if n > k:
            v = v * 0.5
            if n > 2 * k + 1:
                v = v + 0.25
    tl.store(o + i, v)


@tw.jit
def newton_kernel(x, o, N: tl.constexpr, STEPS: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    v = 1.5 - a
    for _ in tl.static_range(STEPS):
        v = v * (2.0 - a * v)
    tl.store(o + i, v)


@tw.jit
def rotated(x, n: tl.constexpr):
    return (x >> n) | (x << (32 - n))


@tw.jit
def rounds_kernel(x, o, N: tl.constexpr, STEPS: tl.constexpr):
    """Rounds of SHA-256, each with one word of the message, without the message schedule."""
    i = tl.arange(0, N)
    w = tl.load(x + i)
    a, b, c, d, e, f, g, h = w, w + 1, w + 2, w + 3, w + 4, w + 5, w + 6, w + 7
    for _ in tl.static_range(STEPS):
        first = h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + ((e & f) ^ (~e & g)) + w
        second = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))
        h, g, f, e, d, c, b, a = g, f, e, d + first, c, b, a, first + second
    tl.store(o + i, a ^ b ^ c ^ d ^ e ^ f ^ g ^ h)


@tw.jit
def flips_kernel(x, o, N: tl.constexpr, STEPS: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    for _ in tl.static_range(STEPS):
        v = v * 0.5 + tl.flip(v, 0)
    tl.store(o + i, v)


@tw.jit
def reshapes_kernel(x, o, N: tl.constexpr, STEPS: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    for _ in tl.static_range(STEPS):
        v = v * 0.5 + tl.reshape(tl.trans(tl.reshape(v, (N // 8, 8))), (N,))
    tl.store(o + i, v)


@tw.jit
def gathers_kernel(x, o, N: tl.constexpr, STEPS: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    for k in tl.static_range(STEPS):
        v = v * 0.5 + tl.gather(v, i ^ (1 << (k % 7)), 0)
    tl.store(o + i, v)


@tw.jit
def joins_kernel(x, o, N: tl.constexpr, STEPS: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    for _ in tl.static_range(STEPS):
        a, b = tl.split(tl.reshape(v, (N // 2, 2)))
        v = tl.reshape(tl.join(a + b, a - b), (N,))
    tl.store(o + i, v)


@tw.jit
def fourier_kernel(x, o, N: tl.constexpr, STEPS: tl.constexpr):
    """Butterflies of both halves, interleaved: a Fourier transform if STEPS is log2(N)."""
    i = tl.arange(0, N)
    half = tl.arange(0, N // 2)
    re, im = tl.load(x + i), tl.load(x + N + i)
    for k in tl.static_range(STEPS):
        a, b = tl.split(tl.trans(tl.reshape(re, (2, N // 2))))
        c, d = tl.split(tl.trans(tl.reshape(im, (2, N // 2))))
        angle = ((half >> k) << k).to(tl.float32) * (-6.283185307179586 / N)
        cosine, sine = tl.cos(angle), tl.sin(angle)
        re = tl.reshape(tl.join(a + b, (a - b) * cosine - (c - d) * sine), (N,))
        im = tl.reshape(tl.join(c + d, (a - b) * sine + (c - d) * cosine), (N,))
    tl.store(o + i, re)
    tl.store(o + N + i, im)


class Form(NamedTuple):
    """A kernel with adjustable length.

    Attributes:
        title: description for tables.
        kernel: takes pointers ``x`` and ``o``, optionally an int, and constants N and STEPS.
        ops: operations per step, counted in the source.
        element: element type of the pointers.
        size: N, the number of elements of a tile.
    """

    title: str
    kernel: Any
    ops: int
    element: str = "fp32"
    size: int = 128

    def source(self, steps: int) -> ASTSource:
        """The kernel with a number of steps; its pointers are divisible by 16, as tensors' are."""
        types = {"x": f"*{self.element}", "o": f"*{self.element}", "n": "i32"}
        signature = {name: types[name] for name in self.kernel.arg_names if name in types}
        aligned = {(k,): [["tt.divisibility", 16]] for k in (0, 1)}
        return ASTSource(self.kernel, signature, {"N": self.size, "STEPS": steps}, aligned)


FORMS = {
    "chain": Form("chain of elementwise ops", chain_kernel, 4),
    "copies": Form("loads and stores", copies_kernel, 6),
    "sums": Form("reductions", sums_kernel, 3),
    "shapes": Form("flips, transposes, splits and joins", shapes_kernel, 12),
    "ifs": Form("nested ifs", ifs_kernel, 6),
    "newton": Form("Newton steps", newton_kernel, 3),
    "rounds": Form("rounds of SHA-256", rounds_kernel, 37, "u32"),
    "flips": Form("flips", flips_kernel, 3, size=1024),
    "reshapes": Form("reshapes and transposes", reshapes_kernel, 5, size=1024),
    "gathers": Form("gathers", gathers_kernel, 4, size=1024),
    "joins": Form("splits and joins", joins_kernel, 6, size=1024),
    "fourier": Form("Fourier transform of 1024", fourier_kernel, 28, size=1024),
}


class Laps:
    """Processor time of consecutive phases, including child processes; it depends less on other
    load of the machine than wall-clock time."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = _processor_time()

    def end(self, part: str) -> None:
        """Attribute the time since the last call to a phase."""
        now = _processor_time()
        self.seconds[part], self._last = now - self._last, now


def _processor_time() -> float:
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _tile_ir(
    source: ASTSource, target: Target, ctx: PassContext, options: Any, laps: Laps
) -> Module:
    module = source.module(target.frontend_options(options))
    laps.end("front end")
    run(module, pipeline(target), ctx)
    print_module(module)  # a compilation prints the module, too, as an artifact
    laps.end("passes")
    return module


def _compile_for_cpu(source: ASTSource) -> Laps:
    target = CpuTarget()
    options, machine, laps = target.parse_options({}), target.machine, Laps()
    module = _tile_ir(source, target, context_for(target, options), options, laps)
    text, _ = cpu_codegen.generate(module, machine)
    laps.end("code generation")
    cpu_emit.compile_text(text, machine)
    laps.end("LLVM")
    return laps


def _compile_for_nvidia(source: ASTSource) -> Laps:
    target = NvidiaTarget(90)
    options, chip, assembler = target.parse_options({}), target.processor, find_assembler()
    ctx, laps = context_for(target, options), Laps()
    module = _tile_ir(source, target, ctx, options, laps)
    made = thread_code(module, target, ctx, options)
    laps.end("code generation")
    version = max(chip.ptx_version, ptx_version(made.notes))
    _, ptx = nvidia_emit.compile_text(made.llvm, chip.llvm_cpu, version)
    laps.end("LLVM")
    if assembler is not None:
        attempts = Attempts(assembler, assembly_request(options, chip), made.name)
        demand = Demand(
            options.num_warps * WARP_SIZE, made.shared_bytes, carried_registers(made.notes)
        )
        best_cubin(attempts, ptx, chip, demand)
        laps.end("assembler")
    return laps


TARGETS: dict[str, Callable[[ASTSource], Laps]] = {
    "cpu": _compile_for_cpu,
    "cuda:90": _compile_for_nvidia,
}


@collector_paused()
def measure(form: str, steps: int, target: str) -> dict[str, float]:
    """Seconds of processor time by phase, their sum as ``total``, and wall-clock seconds as
    ``wall``.

    measure("chain", 250, "cuda:90")
    """
    source, start = FORMS[form].source(steps), perf_counter()
    seconds = TARGETS[target](source).seconds
    return {**seconds, "total": sum(seconds.values()), "wall": perf_counter() - start}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
