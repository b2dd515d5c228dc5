"""Runs a program on the interpreter and on the CPU, and compares what memory holds after.

    check(random_program(7))

raises what the program's compilation raises, or `Difference`.
"""

from __future__ import annotations

import importlib.util
import linecache
import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import llvmlite.binding as llvm
import numpy as np

import tilewright as tw
from tests.amd_emulator import conformance as amd
from tests.arrays import copied
from tests.fuzz.disabled import random_disabled
from tests.fuzz.programs.memory import COUNTERS
from tests.gpu.programs import EXACT, At, Program, source_of
from tests.ir_values import random_array, same_bits
from tests.lowering.simt import harness as simt
from tests.targets.cpu.harness import PLAIN_AVX2, PLAIN_SSE2, host, run_compiled
from tilewright.base.diagnostics import OutOfResources
from tilewright.base.record import replace
from tilewright.compiler.build import context_for
from tilewright.compiler.pipeline import STEPS, pipeline
from tilewright.compiler.source import CONSTEXPR
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret
from tilewright.ir.memory import Checks
from tilewright.ir.passes import PassContext, run
from tilewright.ir.types import E4B15, FP8E4B15, DType, Tile, scalar_type
from tilewright.ir.verify import verify_module
from tilewright.passes.verify_layouts import LayoutVerifier
from tilewright.targets.cpu import emit
from tilewright.targets.cpu.codegen import generate
from tilewright.targets.cpu.machine import Machine
from tilewright.targets.nvidia.target import NvidiaTarget

_numbers = count()


class Difference(AssertionError):
    """Two targets disagree about a program."""


def load(text: str) -> ModuleType:
    """The program as a module; its file is gone, yet its source can be seen."""
    name = f"random_program_{next(_numbers)}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.py"
        path.write_text(text, "utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        finally:
            del sys.modules[name]
        file = str(path)
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return module


def arguments(program: ModuleType) -> list[Any]:
    """What the program's kernel is given: arrays are drawn from the seed."""
    rng = np.random.default_rng(program.SEED)
    found: dict[str, Any] = {}
    for name, value in program.ARGS.items():
        if not isinstance(value, str):
            found[name] = value
            continue
        type, _, part = value.partition(" = ")
        dtype = scalar_type(type[1:])
        assert isinstance(dtype, DType)
        if part:  # of another argument's memory
            other, start = part.removesuffix(":]").split("[")
            found[name] = found[other][int(start) :]
        elif name[0] == "c":  # for atomics, whose sums must be exact
            found[name] = rng.integers(0, 50, COUNTERS).astype(dtype.numpy)
        else:
            found[name] = _content(program.LENGTH, dtype, rng)
    return [*found.values()]


def _content(length: int, dtype: DType, rng: np.random.Generator) -> np.ndarray:
    """Numbers of all kinds, a quarter of them any bits."""
    found = random_array(Tile((length,), dtype), rng)
    if not dtype.is_bool():
        bits = np.frombuffer(rng.bytes(found.nbytes), np.uint8).view(found.dtype)
        found = np.where(rng.random(length) < 0.25, bits, found)
    return found


def launch_of(program: ModuleType) -> Program:
    """The launch, for any target."""
    return Program(program.kernel, arguments(program), program.CONSTEXPRS, program.GRID)


def build(launch: Program) -> tuple[Module, list[Any]]:
    """The tile IR of a launch, verified, and the arguments that are passed at run time."""
    source, values = source_of(launch)
    module = source.module(FrontendOptions(enable_fp_fusion=False))
    verify_module(module)
    types = source.signature.values()
    return module, [_typed(v, t) for v, t in zip(values, types, strict=True) if t != CONSTEXPR]


def _typed(value: Any, type: str) -> Any:
    """An argument as an array or a number of its type."""
    if isinstance(value, At):
        return value.array
    dtype = scalar_type(type)
    assert isinstance(dtype, DType)
    return dtype.numpy.type(value)


def machine_of(seed: int) -> Machine:
    """The processor for which a program is compiled: this one, or one that can do less."""
    narrow = (None, PLAIN_AVX2, None, PLAIN_SSE2)[seed % 4]
    if not host().triple.startswith("x86_64"):
        return host()
    if narrow == PLAIN_AVX2 and "avx2" not in host().features:
        narrow = None
    return host(narrow)


def ops_of(module: Module) -> set[str]:
    """The names of the ops that the entry consists of."""
    return {type(op).name for op in module.entry.walk()}


def check(text: str) -> set[str]:
    """Interpret the program, run it on the CPU, and compare; what it reached."""
    seed = int(text.split("SEED = ")[1].split()[0])
    if seed % 2:  # one thread runs a program: order is kept without barriers
        text = text.replace("tl.debug_barrier()", "pass")
    program = load(text)
    launch = launch_of(program)
    module, args = build(launch)
    grid: Any = (*launch.grid, 1, 1)[:3]
    expected = copied(args)
    interpret(module, launch.grid, expected, checks=Checks(races=True))
    lowered = module.clone()
    run(lowered, STEPS, PassContext(disabled=random_disabled(seed, STEPS)), [])
    machine = machine_of(seed)
    if seed % 5 == 0:  # every launch is large: stores go past the caches
        machine = replace(machine, cache_bytes=1)
    run_compiled(lowered, grid, args, machine=machine, threads=1 + (seed % 7 == 0))
    compare(args, expected, launch, machine.cpu)
    return ops_of(module) | {*program.REACHED}


def check_launched(text: str) -> set[str]:
    """Interpret the program, launch it as its author would, and compare."""
    program = load(text)
    launch = launch_of(program)
    module, expected = build(launch)
    interpret(module, launch.grid, expected)
    args = arguments(program)
    passed = [as_passed(value) for value in args]
    program.kernel[launch.grid](*passed, **program.CONSTEXPRS, **EXACT)
    compare(arrays_of(args), arrays_of(expected), launch, "the device of a launch")
    return ops_of(module) | {*program.REACHED}


def as_passed(value: Any) -> Any:
    """An argument as a launch takes it: NumPy has no type for one kind of fp8."""
    if isinstance(value, np.ndarray) and value.dtype == E4B15:
        return tw.reinterpret(value.view(np.uint8), FP8E4B15)
    return value


def arrays_of(args: list[Any]) -> list[Any]:
    return [x for x in args if isinstance(x, np.ndarray) and x.ndim]


AMD_PROCESSORS = ("gfx942", "gfx1100", "gfx942", "gfx1200", "gfx950", "gfx90a")
OTHERS = (
    Machine("aarch64-unknown-linux-gnu", "neoverse-v2", frozenset({"neon", "fp-armv8"})),
    Machine("aarch64-unknown-linux-gnu", "generic", frozenset()),
    Machine("riscv64-unknown-linux-gnu", "generic-rv64", frozenset({"m", "a", "f", "d", "c", "v"})),
)


def check_cross(text: str) -> set[str]:
    """Compile the program for another architecture, on which it is not run."""
    program = load(text)
    module, _ = build(launch_of(program))
    run(module, STEPS, PassContext(), [])
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = OTHERS[program.SEED % len(OTHERS)]
    _, code = emit.compile_text(generate(module, machine, fp_fusion=False)[0], machine)
    assert code[:4] == b"\x7fELF"
    return ops_of(module) | {*program.REACHED}


def check_emulated(text: str) -> set[str]:
    """Run the program as threads of an emulated GPU, and compare with the interpreter."""
    program = load(text)
    launch = launch_of(program)
    module, args = build(launch)
    warps = (1, 2, 4)[program.SEED % 3]
    disabled = random_disabled(program.SEED, (*STEPS, *simt.LAYOUT_STEPS))
    grid: Any = (*launch.grid, 1, 1)[:3]
    lanes = _emulated_lanes(program, module, warps)
    ahead = frozenset({"async_copy"} if program.SEED % 7 < 3 else ())
    simt.assert_same(
        module, grid, args, warps=warps, lanes=lanes, disabled=disabled, features=ahead
    )
    return ops_of(module) | {*program.REACHED}


MOST_ELEMENTS = 1 << 15
"""The most elements of a thread, of all tiles of a program, on the emulated GPU if it has more
lanes: LLVM's time is quadratic in them (100 s for five times as many)."""


def _emulated_lanes(program: ModuleType, module: Module, warps: int) -> int:
    """The lanes of a warp: by the seed, more where few would hold a program for minutes."""
    # Few threads have so many elements each that tiles are taken in parts.
    lanes = (64, 32, 8, 32, 4)[program.SEED % 5]
    if "products: large" in program.REACHED:  # which GPUs reject for few threads
        lanes = max(lanes, 32)
    types = [r.type for op in module.entry.walk() for r in op.results]
    elements = sum(type.numel for type in types if isinstance(type, Tile))
    while lanes < 64 and elements > MOST_ELEMENTS * lanes * warps:
        lanes *= 2
    return lanes


def check_amd(text: str) -> set[str]:
    """Run the program's code for an AMD processor on an emulator; compare with the interpreter."""
    program = load(text)
    launch = launch_of(program)
    module, args = build(launch)
    seed = program.SEED
    arch = AMD_PROCESSORS[seed % len(AMD_PROCESSORS)]
    seed //= len(AMD_PROCESSORS)
    settings = {"num_warps": (4, 1, 2, 8)[seed % 4], "num_stages": (2, 1, 3)[seed // 4 % 3]}
    with suppress(OutOfResources):  # a right answer, for programs with large tiles
        compare(*amd.both(arch, module, launch.grid, args, **settings), launch, arch)
    return ops_of(module) | {*program.REACHED}


def check_laid_out(text: str) -> set[str]:
    """Interpret the program after all passes of the NVIDIA target, which needs no GPU."""
    program = load(text)
    launch = launch_of(program)
    module, args = build(launch)
    expected = copied(args)
    interpret(module, launch.grid, expected)
    seed = program.SEED
    arch = (90, 80, 90, 75)[seed % 4]
    target = NvidiaTarget(arch)
    warps, stages = (4, 8, 4, 1, 2)[seed % 5], (3, 1, 2, 4, 5)[seed // 5 % 5]
    options = target.parse_options({"num_warps": warps, "num_stages": stages})
    ctx = context_for(target, options)
    ctx.disabled = random_disabled(seed, pipeline(target))
    run(module, pipeline(target), ctx, [LayoutVerifier(ctx)])
    verify_module(module)
    interpret(module, launch.grid, args)
    compare(args, expected, launch, f"tiles for sm_{arch}")
    return ops_of(module) | {*program.REACHED}


def compare(found: list[Any], expected: list[Any], launch: Program, where: str) -> None:
    """Raise `Difference` unless both hold the same bits."""
    for i, (x, y) in enumerate(zip(found, expected, strict=True)):
        require_same(x, y, f"argument {i}", where, "interpreted")


def require_same(x: Any, y: Any, name: str, where: str, expected_from: str) -> None:
    """Raise `Difference` unless an argument holds the expected bits; numbers are not compared."""
    if not isinstance(y, np.ndarray) or same_bits(x, y):
        return
    wrong = [k for k in range(len(y)) if not same_bits(x[k : k + 1], y[k : k + 1])]
    k = wrong[0]
    raise Difference(
        f"{name} differs on {where} in {len(wrong)} places, first at {k}: "
        f"{x[k]!r}, {expected_from} {y[k]!r}"
    )


def failure(text: str, check: Callable[[str], object] = check) -> str | None:
    """How a program fails, without the details that differ between equal failures; None if
    nothing does."""
    try:
        check(text)
    except Exception as error:
        return failure_of(error)
    return None


def failure_of(error: Exception) -> str:
    """How a program failed, less what differs between two that fail alike."""
    if isinstance(error, Difference) or re.search(r"^argument \d+ differs", str(error)):
        return "Difference"
    root = error
    while isinstance(root.__cause__, Exception):
        root = root.__cause__
    lines = [x for x in str(root).splitlines() if x.strip() and x[0] not in " "]
    last = [x for x in lines if not x.startswith(("at ", "def ", "help"))][-1:]
    kind = f"{type(error).__name__}, {type(root).__name__}: {''.join(last)[:160]}"
    return re.sub(r"/\S+|\d+", "#", kind)


def main(file: str) -> None:
    """What a program does that is run as a script."""
    check(Path(file).read_text("utf-8"))
    print("agrees")
