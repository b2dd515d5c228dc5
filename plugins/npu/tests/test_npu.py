"""The reference NPU: conformance, the order of its pipes, cycles, and errors."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tilewright_npu.device import MEMORY, DeviceFault
from tilewright_npu.instructions import Image
from tilewright_npu.l2 import L2
from tilewright_npu.machine import (
    CAPACITY,
    DMA_LATENCY,
    L2_BURSTS,
    L2_BYTES,
    L2_LATENCY,
    repeat_cycles,
)
from tilewright_npu.matrix_unit import depth_of, pack, unpack
from tilewright_npu.simulator import Simulator, SimulatorError, Unordered

import tilewright as tw
import tilewright.language as tl
from tilewright.base import knobs
from tilewright.compiler.driver import compile_source
from tilewright.compiler.version import hash_of_tree
from tilewright.conformance.case import Case, Program, is_array
from tilewright.conformance.execution import ABSENT, PASSED, machine_of, run_case
from tilewright.conformance.suite import Selection
from tilewright.runtime.device_array import DeviceArray
from tilewright.targets.protocol import GPUTarget
from tilewright.targets.registry import target

PACKAGE = Path(__file__).parents[1] / "tilewright_npu"
ROOT = Path(__file__).parents[3]
NPU = GPUTarget("npu")
CHIP = ("simulator", "ordering", "l2", "device")  # what a vendor has in silicon

# -- the suite ------------------------------------------------------------------------------------


def failures(cases: list[Case]) -> dict[str, str]:
    machine = machine_of("npu")
    found = {case.name: run_case(case, machine) for case in cases}
    good = (PASSED, ABSENT)
    return {n: f"{o.status}: {o.detail}" for n, o in found.items() if o.status not in good}


def test_npu_passes_a_sample_of_all_levels() -> None:
    """CI runs ten times as many by the command."""
    assert not failures(Selection(levels="12345F", part=3, parts=40).cases())


def test_npu_keeps_to_the_protocol_and_the_runtime_works() -> None:
    assert not failures(Selection(levels="0R").cases())


def test_command_finds_the_plug_in(installed: Path) -> None:
    path = os.pathsep.join(map(str, (installed, PACKAGE.parent, ROOT)))
    found = subprocess.run(
        [sys.executable, "-m", "tilewright", "conformance", "--target", "npu", "--level", "1",
         "--only", "1/grid", "-j1"],
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert "# Conformance of `npu`, on npu:0" in found.stdout


def test_entry_points_name_objects(installed: Path) -> None:
    text = next(installed.glob("*/entry_points.txt")).read_text()
    values = [line.partition(" = ")[2] for line in text.splitlines() if " = " in line]
    assert len(values) == 3
    for value in values:
        module, _, name = value.partition(":")
        assert isinstance(getattr(importlib.import_module(module), name), type)


def test_plug_in_is_small_and_imports_public_names_only() -> None:
    lines = 0
    for path in PACKAGE.glob("*.py"):
        text = path.read_text("utf-8")
        lines += 0 if path.stem in CHIP else len(text.splitlines())
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module != "__future__":
                names = [*(node.module or "").split("."), *(a.name for a in node.names)]
                assert not [n for n in names if n.startswith("_")], f"{path.name}:{node.lineno}"
            if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                assert isinstance(node.value, ast.Name), f"{path.name}:{node.lineno}"
                assert node.value.id == "self", f"{path.name}:{node.lineno}"
    assert lines < 1700


# -- kernels --------------------------------------------------------------------------------------


@tw.jit
def matmul(a_ptr, b_ptr, c_ptr, k, S: tl.constexpr, K: tl.constexpr):
    i, j = tl.program_id(0) * S + tl.arange(0, S), tl.arange(0, S)
    acc = tl.zeros((S, S), tl.float32)
    for start in range(0, k, K):
        c = start + tl.arange(0, K)
        a = tl.load(a_ptr + i[:, None] * k + c[None, :])
        b = tl.load(b_ptr + c[:, None] * S + j[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + i[:, None] * S + j[None, :], acc)


@tw.jit
def softmax(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = column < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * columns + column, mask=inside, other=-float("inf"))
        numerator = tl.exp(x - tl.max(x, axis=0))
        result = numerator / tl.sum(numerator, axis=0)
        tl.store(out_ptr + row * columns + column, result, mask=inside)


@tw.jit
def softmax_of_a_row(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=inside, other=-float("inf"))
    numerator = tl.exp(x - tl.max(x, axis=0))
    result = numerator / tl.sum(numerator, axis=0)
    tl.store(out_ptr + row * columns + column, result, mask=inside)


@tw.jit
def tiled_product(a_ptr, b_ptr, c_ptr, n, S: tl.constexpr, K: tl.constexpr):
    """One tile of an n x n product."""
    tiles = n // S
    i = tl.program_id(0) // tiles * S + tl.arange(0, S)
    j = tl.program_id(0) % tiles * S + tl.arange(0, S)
    acc = tl.zeros((S, S), tl.float32)
    for start in range(0, n, K):
        c = start + tl.arange(0, K)
        a = tl.load(a_ptr + i[:, None] * n + c[None, :])
        b = tl.load(b_ptr + c[:, None] * n + j[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + i[:, None] * n + j[None, :], acc.to(tl.float16))


# -- events ---------------------------------------------------------------------------------------


class Compiled:
    """A program, compiled as the suite does, where arrays might overlap, or by a launch."""

    def __init__(self, program: Program, launched: bool) -> None:
        options = target(NPU).parse_options({})
        self.program = program
        if launched:
            kernel: Any = program.kernel
            self.kernel = kernel[program.grid](*self.arguments(), **program.constants)
        else:
            self.kernel = compile_source(program.source(), NPU, options)

    def arguments(self) -> list[Any]:
        """The arguments, with new arrays on the device."""
        return [
            DeviceArray("npu:0", getattr(a, "array", a)) if is_array(a) else a
            for a in self.program.args
        ]

    def image(self) -> Image:
        return Image.decode(self.kernel.kernel)

    def launch(self, image: Image) -> set[int]:
        """Launch an image on new arrays; returns the events that instructions waited for."""
        args = self.arguments()
        registers = [
            np.uint64(a.data_ptr()) if isinstance(a, DeviceArray) else np.int32(a) for a in args
        ]
        x, y, z = (*self.program.grid, 1, 1)[:3]
        simulator = Simulator(image, MEMORY)
        simulator.launch((x, y, z), registers)
        return simulator.awaited


def without(image: Image, event: int) -> Image:
    """The image without an event."""
    for instruction in image.walk():
        instruction.sets = [e for e in instruction.sets if e != event]
        instruction.waits = [e for e in instruction.waits if e != event]
    return image


NAMES = (
    "1/x + y/fp32", "1/tl.fma/fp32", "1/tl.where/i64", "1/copy, with a tail/fp16",
    "1/copy, any mask/i8", "1/gather/i32", "1/copy, stride 3/fp32", "1/scalar argument/i32",
    "1/conversion/fp32 to i8", "2/outer product/fp32", "2/tl.sum/fp32, axis 1",
    "2/tl.argmax/i32, axis 0", "2/loop, carried tile/i32, 7 rows", "2/break and continue/i32",
    "2/softmax/fp32, 33 columns", "2/matrix by columns/fp32, 37x70", "2/tl.trans/i16",
    "3/tl.dot/fp16, 32x16x64", "3/tl.dot in a loop, with masks/i8, NT", "3/chained products/bf16",
)  # fmt: skip


def product_program(programs: int) -> Program:
    """Products in loops of seven iterations, so that each event between them is reached."""
    a = np.ones((32 * programs, 112), np.float16)
    b, c = np.ones((112, 32), np.float16), np.zeros((32 * programs, 32), np.float32)
    return Program(matmul, [a, b, c, 112], {"S": 32, "K": 16}, (programs,))


def softmax_program(programs: int, rows: int) -> Program:
    x = np.ones((rows, 40), np.float32)
    return Program(softmax, [x, np.zeros_like(x), rows, 40], {"BLOCK": 64}, (programs,))


PROGRAMS = {
    "a product": product_program(1),
    "three products on a core": product_program(24),
    "twelve rows on a core": softmax_program(96, 96),
    "rows in a loop": softmax_program(8, 64),
}


MOST_EVENTS = 20


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [*NAMES, *PROGRAMS])
def test_every_removed_event_is_found(name: str) -> None:
    """A removed event leaves two pipes unordered, whatever the timing. Of programs with many, whose
    loops repeat them, some are removed."""
    if name in PROGRAMS:
        compiled = Compiled(PROGRAMS[name], launched=True)
    else:
        case = next(case for case in Selection(levels="123").cases() if case.name == name)
        body: Any = case.body
        compiled = Compiled(body(), launched=False)
    events = compiled.launch(compiled.image())
    assert events
    for event in sorted(events)[:: -(-len(events) // MOST_EVENTS)]:
        with pytest.raises(Unordered, match="is not ordered after"):
            compiled.launch(without(compiled.image(), event))


# -- cycles ---------------------------------------------------------------------------------------


@tw.jit
def copy(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i) * 2)


@tw.jit
def gather(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + (i ^ 5)) * 2)


def cycles_of(kernel: Any, programs: int) -> int:
    count = 1024 * programs
    x = DeviceArray("npu:0", np.arange(count, dtype=np.float32))
    out = DeviceArray("npu:0", np.zeros(count, np.float32))
    kernel[(programs,)](x, out, BLOCK=1024)
    order = np.arange(count) ^ (5 if kernel is gather else 0)
    np.testing.assert_array_equal(out.numpy(), order * np.float32(2))
    return MEMORY.cycles


def test_cycles_of_a_copy_are_those_of_its_parts() -> None:
    # A load and a store of 64 rows of 64 bytes, each with its latency, and a product between them.
    low = 2 * (64 + 8 + 400) + 1024 * 4 // 256
    assert low <= cycles_of(copy, 1) <= low + 40


def test_programs_run_on_all_cores() -> None:
    assert cycles_of(copy, 8) == cycles_of(copy, 1)


def test_programs_of_a_core_overlap() -> None:
    """Each program more takes the cycles of its copies, not their latencies."""
    assert cycles_of(copy, 16) - cycles_of(copy, 8) <= 64 + 8 + 10
    assert cycles_of(copy, 128) <= cycles_of(copy, 8) + 15 * (64 + 8 + 10)


def test_product_keeps_the_matrix_unit_busy() -> None:
    """1024 x 1024 x 1024: 64^3 pairs of fractals on 8 cores take 32,768 cycles."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, (1024, 1024)).astype(np.float16) for _ in range(2))
    x, y = DeviceArray("npu:0", a), DeviceArray("npu:0", b)
    c = DeviceArray("npu:0", np.zeros((1024, 1024), np.float16))
    tiled_product[(64,)](x, y, c, 1024, S=128, K=64)
    np.testing.assert_array_equal(c.numpy(), (a.astype(np.float32) @ b).astype(np.float16))
    assert 64**3 / 8 / MEMORY.cycles > 0.90


@pytest.mark.parametrize("loop", [False, True])
def test_softmax_keeps_the_vector_unit_busy(loop: bool) -> None:
    """Each row takes five vector instructions, of 1024 elements: a maximum, a difference, an
    exponential, a sum, a quotient."""
    x = np.random.default_rng(0).normal(size=(1024, 1000)).astype(np.float32)
    out, device_x = DeviceArray("npu:0", np.zeros_like(x)), DeviceArray("npu:0", x)
    if loop:
        softmax[(8,)](device_x, out, 1024, 1000, BLOCK=1024)
    else:
        softmax_of_a_row[(1024,)](device_x, out, 1000, BLOCK=1024)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out.numpy(), e / e.sum(1, keepdims=True), rtol=1e-5)
    assert 1024 / 8 * 5 * repeat_cycles(4096) / MEMORY.cycles > 0.90


def test_cores_of_a_cluster_share_what_they_read() -> None:
    lines, start = np.arange(0, 4096, 4), 10
    l2 = L2()
    assert l2.read(lines, start) == (64 + 8, start + 64 + 8 + DMA_LATENCY)
    # Another core, before: the line has not been requested yet. Later: when it has arrived.
    assert l2.read(lines, 5) == (64 + 8, 5 + 64 + 8 + DMA_LATENCY)
    assert l2.read(lines, 6) == (64 // L2_BURSTS + 8, 5 + 64 + 8 + DMA_LATENCY)
    assert l2.read(lines, 2000) == (64 // L2_BURSTS + 8, 2000 + 64 // L2_BURSTS + 8 + L2_LATENCY)
    l2.read(np.arange(1 << 20, (1 << 20) + L2_BYTES, 64), 3000)  # takes the place of all others
    assert l2.read(lines, 9000)[0] == 64 + 8


def test_slow_path_runs_any_access_and_costs_more() -> None:
    assert cycles_of(gather, 1) > 5 * cycles_of(copy, 1)


def test_listing_has_pipes_and_events() -> None:
    x, out = (DeviceArray("npu:0", np.zeros(1024, np.float32)) for _ in range(2))
    listing = copy[(1,)](x, out, BLOCK=1024).asm["listing"]
    for text in ("in     load [", "vector run [", "out    store [", "set e0", "wait e0"):
        assert text in listing


# -- the matrix unit -------------------------------------------------------------------------------


def product(dtype: Any, block: int = 32) -> tuple[Any, Simulator]:
    """A 64 x 64 x 128 product; its compiled kernel and its simulator."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(64, 128)).astype(dtype), rng.normal(size=(128, 64)).astype(dtype)
    c = DeviceArray("npu:0", np.zeros((64, 64), np.float32))
    x, y = DeviceArray("npu:0", a), DeviceArray("npu:0", b)
    kernel = matmul[(1,)](x, y, c, 128, S=64, K=block)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(c.numpy(), expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    return kernel, kernel.load().handle


def test_products_take_a_cycle_for_each_pair_of_fractals() -> None:
    kernel, simulator = product(np.float16)
    assert simulator.busy["cube"] == (64 // 16) * (64 // 16) * (128 // 16 + 1)  # one clears
    image = Image.decode(kernel.kernel)
    names = [i.name for code in image.programs[:1] for top in code for i in top.walk()]
    assert names.count("multiply") > 1  # of iterations in flight
    assert names.count("unpack") == 1  # the accumulator stays in the unit's memory
    assert "zero" not in kernel.asm["listing"]  # and is cleared there


def test_copies_arrive_while_products_are_computed() -> None:
    """In a loop of eight iterations, the rate of copies is the limit, not their latency."""
    x, y = (DeviceArray("npu:0", np.ones(s, np.float16)) for s in ((64, 512), (512, 64)))
    c = DeviceArray("npu:0", np.zeros((64, 64), np.float32))
    kernel = matmul[(1,)](x, y, c, 512, S=64, K=64)
    simulator: Simulator = kernel.load().handle
    np.testing.assert_array_equal(c.numpy(), 512)
    # Without overlap, each iteration takes a latency, its copies and its product.
    apart = simulator.busy["in"] + simulator.busy["cube"] + 8 * 400
    assert MEMORY.cycles < 0.75 * apart


@tw.jit
def sum_of_products(a_ptr, b_ptr, c_ptr, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(a_ptr + i[:, None] * S + i[None, :]).to(tl.float32)
    b = tl.load(b_ptr + i[:, None] * S + i[None, :]).to(tl.float32)
    c = tl.sum(a[:, :, None] * b[None, :, :], axis=1)
    tl.store(c_ptr + i[:, None] * S + i[None, :], c)


@pytest.mark.parametrize(("element", "native"), [(np.float16, True), (np.int16, False)])
def test_product_is_found_in_a_sum(element: Any, native: bool) -> None:
    """Of narrow floats, too, which are cast before they are multiplied."""
    x = np.random.default_rng(0).integers(-3, 4, (32, 32)).astype(element)
    a, c = DeviceArray("npu:0", x), DeviceArray("npu:0", np.zeros((32, 32), np.float32))
    kernel = sum_of_products[(1,)](a, a, c, S=32)
    np.testing.assert_array_equal(c.numpy(), x.astype(np.float32) @ x.astype(np.float32))
    assert ("cube   multiply" in kernel.asm["listing"]) == native


def test_products_of_other_types_take_the_slow_path() -> None:
    kernel, simulator = product(np.float32)
    assert simulator.busy["cube"] == 0
    assert "tile.dot" in kernel.asm["listing"]
    cycles = MEMORY.cycles
    product(np.float16)
    assert cycles > 10 * MEMORY.cycles


@pytest.mark.parametrize("element", ["fp16", "i8"])
def test_fractal_orders(element: str) -> None:
    k0 = depth_of(element)
    m, n, k = 32, 48, 2 * k0
    a, b = np.arange(m * k).reshape(m, k), np.arange(k * n).reshape(k, n)
    c = np.arange(m * n).reshape(m, n)
    packed_a = pack(a, (2, 2, 16, k0), "l0a").reshape(-1)
    packed_b = pack(b, (2, 3, 16, k0), "l0b").reshape(-1)
    packed_c = pack(c, (3, 2, 16, 16), "l0c")
    for row, column in ((0, 0), (5, 3), (17, k0 + 1), (31, k - 1)):
        at = ((column // k0 * 2 + row // 16) * 16 + row % 16) * k0 + column % k0
        assert packed_a[at] == a[row, column]
        at = ((column // k0 * 3 + row // 16) * 16 + row % 16) * k0 + column % k0
        assert packed_b[at] == b[column, row]
    assert packed_c.reshape(-1)[((2 * 2 + 1) * 16 + 3) * 16 + 4] == c[16 + 3, 2 * 16 + 4]
    np.testing.assert_array_equal(unpack(packed_c), c)


# -- errors ---------------------------------------------------------------------------------------


@tw.jit
def large(x_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i) + 1)


def test_elementwise_tiles_that_do_not_fit_are_computed_in_parts() -> None:
    """A program of large tiles is as fast as eight of small ones on one core."""
    x = DeviceArray("npu:0", np.arange(1 << 17, dtype=np.float32))
    cycles: list[int] = []
    for block, programs in ((1 << 14, 1), (1 << 17, 1)):
        out = DeviceArray("npu:0", np.zeros(1 << 17, np.float32))
        listing = copy[(programs,)](x, out, BLOCK=block).asm["listing"]
        np.testing.assert_array_equal(out.numpy()[:block], np.arange(block) * 2)
        cycles.append(MEMORY.cycles)
        assert "workspace" not in listing
    assert cycles[1] < 8 * cycles[0]


def test_arrays_that_may_overlap_are_not_taken_in_parts() -> None:
    """All of a tile is loaded before the first element of it is stored."""
    values = np.arange(1 << 17, dtype=np.float32)
    x = DeviceArray("npu:0", values)
    shifted[(1,)](x, 1, BLOCK=1 << 16)
    expected = values.copy()
    expected[1 : 1 + (1 << 16)] = values[: 1 << 16] + 1
    np.testing.assert_array_equal(x.numpy(), expected)


@tw.jit
def shifted(x_ptr, by, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + by + i, tl.load(x_ptr + i) + 1)


@tw.jit
def row_sum(x_ptr, out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, BLOCK)), 0))


@tw.jit
def row_shares(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + i, e / tl.sum(e, 0), mask=i < n)


def test_reductions_of_tiles_that_do_not_fit_are_computed_in_parts() -> None:
    """A tile that is 16 times as large takes about 16 times the cycles."""
    cycles: list[tuple[int, int]] = []
    for block in (1 << 13, 1 << 17):
        values = np.random.default_rng(0).normal(size=block).astype(np.float32)
        x, total = DeviceArray("npu:0", values), DeviceArray("npu:0", np.zeros(1, np.float32))
        listing = row_sum[(1,)](x, total, BLOCK=block).asm["listing"]
        np.testing.assert_allclose(total.numpy()[0], values.sum(dtype=np.float64), rtol=1e-4)
        of_sum = MEMORY.cycles
        out, n = DeviceArray("npu:0", np.zeros(block, np.float32)), block - 5
        listing += row_shares[(1,)](x, out, n, BLOCK=block).asm["listing"]
        weights = np.exp(values[:n].astype(np.float64) - values[:n].max())
        np.testing.assert_allclose(out.numpy()[:n], weights / weights.sum(), rtol=1e-5)
        assert not out.numpy()[n:].any()
        cycles.append((of_sum, MEMORY.cycles))
        assert "workspace" not in listing
    small, large = cycles
    assert all(many < 17 * few for few, many in zip(small, large, strict=True))


@tw.jit
def with_reversed(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.flip(tl.load(x_ptr + i), 0) + tl.load(x_ptr + i))


def test_other_tiles_that_do_not_fit_are_in_the_workspace() -> None:
    """They are slow, but any kernel runs."""
    cycles: list[int] = []
    for block in (1 << 13, 1 << 16):
        values = np.arange(block, dtype=np.float32)
        x, out = DeviceArray("npu:0", values), DeviceArray("npu:0", np.zeros(block, np.float32))
        listing = with_reversed[(1,)](x, out, BLOCK=block).asm["listing"]
        np.testing.assert_array_equal(out.numpy(), values[::-1] + values)
        cycles.append(MEMORY.cycles)
        assert ("workspace" in listing) == (block > 1 << 13)
    assert cycles[1] > 8 * (1 << 16)


def test_large_operands_of_products_are_in_the_workspace() -> None:
    """A product that the matrix unit does not execute, either, as its tiles exceed its memories."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, s).astype(np.float16) for s in ((256, 512), (512, 256)))
    c = DeviceArray("npu:0", np.zeros((256, 256), np.float32))
    kernel = matmul[(1,)](DeviceArray("npu:0", a), DeviceArray("npu:0", b), c, 512, S=256, K=512)
    np.testing.assert_array_equal(c.numpy(), a.astype(np.float32) @ b.astype(np.float32))
    assert "workspace" in kernel.asm["listing"]


def test_tiles_that_exceed_the_workspace_are_an_error_of_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(CAPACITY, "workspace", 1 << 16)
    monkeypatch.setattr(knobs.compilation, "always_compile", True)
    x, out = (DeviceArray("npu:0", np.zeros(1 << 17, np.float32)) for _ in range(2))
    with pytest.raises(tw.CompilationError, match="bytes of workspace here; a core has 65536"):
        with_reversed[(1,)](x, out, BLOCK=1 << 17)


def test_access_outside_of_memory_names_the_line() -> None:
    x = DeviceArray("npu:0", np.zeros(1 << 10, np.float32))
    with pytest.raises(
        SimulatorError, match=r"`load` of the pipe in \(.*test_npu\.py:\d+.*\): no al"
    ):
        large[(1,)](x, BLOCK=1 << 11)


def test_host_cannot_access_the_memory() -> None:
    with pytest.raises(DeviceFault, match="no allocation holds the addresses from 0x1000"):
        MEMORY.find(0x1000, 0x1008)


def test_arrays_of_the_host_are_rejected() -> None:
    x = DeviceArray("npu:0", np.zeros(1024, np.float32))
    with pytest.raises(ValueError, match=r"cannot be accessed from npu:0 \(cpu tensor\?\)"):
        copy[(1,)](x, np.zeros(1024, np.float32), BLOCK=1024)


def test_unknown_architecture_and_device() -> None:
    with pytest.raises(RuntimeError, match="there is one architecture of the NPU, v1, not 'v2'"):
        target("npu:v2")
    with pytest.raises(ValueError, match="there is one NPU, npu:0, not npu:1"):
        DeviceArray("npu:1", np.zeros(4, np.float32))


def test_sources_of_the_plug_in_are_part_of_the_cache_key(tmp_path: Path) -> None:
    key = target(NPU).key()
    assert hash_of_tree(PACKAGE) in key
    (tmp_path / "a.py").write_text("x = 1")
    before = hash_of_tree(tmp_path)
    (tmp_path / "a.py").write_text("x = 2")
    assert hash_of_tree(tmp_path) != before


def test_image_survives_encoding() -> None:
    x, out = (DeviceArray("npu:0", np.zeros(64, np.float32)) for _ in range(2))
    kernel = copy[(1,)](x, out, BLOCK=64)
    assert Image.decode(kernel.kernel).encode() == kernel.kernel
