"""Matrix instructions: which are chosen, how often, and that layouts fit what they compute."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.targets.amd.product_loops import RANGE
from tests.targets.amd.sources import ALIGNED, compiled, counted, innermost_loop
from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.driver import compile
from tilewright.compiler.source import ASTSource
from tilewright.layout.families import amd_accumulator, amd_operand
from tilewright.layout.linear import LinearLayout
from tilewright.targets.amd.choose_mma import warp_grid
from tilewright.targets.amd.features import PROCESSORS
from tilewright.targets.amd.mma_table import INSTRUCTIONS, Instruction
from tilewright.targets.protocol import GPUTarget


@tw.jit
def matmul(
    a_ptr, b_ptr, c_ptr, K, stride_a, stride_b, stride_c,
    M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, STEP)
    a = a_ptr + m[:, None] * stride_a + k[None, :]
    b = b_ptr + n[None, :] * stride_b + k[:, None]
    acc = tl.zeros((M, N), SUM)
    for _ in range(0, K, STEP):
        acc = tl.dot(tl.load(a), tl.load(b), acc)
        a += STEP
        b += STEP
    tl.store(c_ptr + m[:, None] * stride_c + n[None, :], acc)


def product(
    arch: str, element: str, sums: str, shape: tuple[int, int, int], warps: int, **options: int
) -> CompiledKernel:
    """The product of two matrices, of which both are contiguous along K."""
    names = {"i32": tl.int32, "fp32": tl.float32, "fp64": tl.float64}
    types = {"a_ptr": f"*{element}", "b_ptr": f"*{element}", "c_ptr": f"*{sums}"}
    types |= dict.fromkeys(("K", "stride_a", "stride_b", "stride_c"), "i32")
    sizes = dict(zip(("M", "N", "STEP"), shape, strict=True))
    return compiled(matmul, types, arch, warps, options, **sizes, SUM=names[sums])


# -- what an instruction computes, as AMD's guides define it --------------------------------------


def operand_place(how: Instruction, lanes: int, lane: int, register: int) -> tuple[int, int]:
    """Row of A (or column of B), and K, of an element that a lane passes.

    The guides state a K for each; all that matters is that it is the same for A and B.
    """
    if how.name.startswith("wmma") and how.width == 16:
        return lane % 16, register
    return lane % how.side, how.width * (lane // how.side) + register


def result_place(how: Instruction, lanes: int, lane: int, register: int) -> tuple[int, int]:
    """Row and column of an element of the result. ISA guides: CDNA3 7.1, RDNA3 and RDNA4 7.9."""
    half = lane // how.side
    if how.name.startswith("wmma"):
        row = 2 * register + half if how.feature == "wmma_gfx11" else 8 * half + register
    elif "f64" in how.name:
        row = 4 * register + half
    elif how.side == 32:
        row = 8 * (register // 4) + 4 * half + register % 4
    else:
        row = 4 * half + register
    return row, lane % how.side


def execute(
    how: Instruction, lanes: int, a: np.ndarray, b: np.ndarray, acc: np.ndarray
) -> np.ndarray:
    """An instruction: operands and accumulators by lane and register."""
    steps = how.step(lanes)
    left, right = np.zeros((how.side, steps)), np.zeros((steps, how.side))
    for lane, register in itertools.product(range(lanes), range(how.width)):
        row, k = operand_place(how, lanes, lane, register)
        left[row, k], right[k, row] = a[lane, register], b[lane, register]
    whole, found = left @ right, acc.copy()
    for lane, register in itertools.product(range(lanes), range(acc.shape[1])):
        found[lane, register] += whole[result_place(how, lanes, lane, register)]
    return found


def held(tile: np.ndarray, layout: LinearLayout, warp: int) -> np.ndarray:
    """The elements of a tile by lane and register of a warp."""
    lanes, registers = layout.in_size("lane"), layout.in_size("register")
    found = np.zeros((lanes, registers))
    for lane, register in itertools.product(range(lanes), range(registers)):
        at = layout.apply({"lane": lane, "register": register, "warp": warp})
        found[lane, register] = tile[at["dim0"], at["dim1"]]
    return found


def lanes_of(how: Instruction) -> int:
    return next(c.lanes for c in PROCESSORS.values() if how.feature in c.features)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", INSTRUCTIONS, ids=lambda how: f"{how.feature} {how.name}")
@pytest.mark.parametrize("pack", [1, 2])
def test_layouts_fit_the_instructions(how: Instruction, pack: int) -> None:
    """Two warps along rows, each with two rows and two columns of blocks, and two steps along K."""
    lanes, rng = lanes_of(how), np.random.default_rng(0)
    step = how.step(lanes)
    m, n, k = 4 * how.side, 2 * how.side, 2 * pack * step
    lhs, rhs = rng.integers(-9, 9, (m, k)), rng.integers(-9, 9, (k, n))
    grid = (2, 1)
    of_lhs = amd_operand((m, k), 1, how.side, how.width, lanes, grid, pack)
    of_rhs = amd_operand((k, n), 0, how.side, how.width, lanes, grid, pack)
    of_acc = amd_accumulator((m, n), how.side, how.group, lanes, grid)
    expected = lhs @ rhs
    for warp in range(2):
        left, right = held(lhs, of_lhs, warp), held(rhs, of_rhs, warp)
        count = how.side * how.side // lanes
        steps, width = 2 * pack, how.width
        blocks: list[np.ndarray] = []
        for above, across in itertools.product(range(2), range(2)):
            acc = np.zeros((lanes, count))
            for s in range(steps):
                x = left[:, (above * steps + s) * width :][:, :width]
                y = right[:, (across * steps + s) * width :][:, :width]
                acc = execute(how, lanes, y, x, acc)
            blocks.append(acc)
        found = np.concatenate(blocks, axis=1)
        np.testing.assert_array_equal(found, held(expected, of_acc, warp))


# -- what is chosen -------------------------------------------------------------------------------

CHOSEN = {
    ("gfx90a", "fp16"): "v_mfma_f32_32x32x8f16",
    ("gfx90a", "bf16"): "v_mfma_f32_32x32x8bf16_1k",
    ("gfx90a", "i8"): "v_mfma_i32_32x32x8i8",
    ("gfx90a", "fp8e4nv"): "v_mfma_f32_32x32x8f16",
    ("gfx942", "fp16"): "v_mfma_f32_32x32x8_f16",
    ("gfx942", "bf16"): "v_mfma_f32_32x32x8_bf16",
    ("gfx942", "fp32"): "v_mfma_f32_32x32x2_f32",
    ("gfx942", "fp64"): "v_mfma_f64_16x16x4_f64",
    ("gfx942", "i8"): "v_mfma_i32_32x32x16_i8",
    ("gfx942", "fp8e4b8"): "v_mfma_f32_32x32x16_fp8_fp8",
    ("gfx942", "fp8e5b16"): "v_mfma_f32_32x32x16_bf8_bf8",
    ("gfx942", "fp8e4nv"): "v_mfma_f32_32x32x8_f16",
    ("gfx950", "fp16"): "v_mfma_f32_32x32x16_f16",
    ("gfx950", "bf16"): "v_mfma_f32_32x32x16_bf16",
    ("gfx950", "i8"): "v_mfma_i32_32x32x32_i8",
    ("gfx950", "fp8e4nv"): "v_mfma_f32_32x32x16_fp8_fp8",
    ("gfx1100", "fp16"): "v_wmma_f32_16x16x16_f16",
    ("gfx1100", "bf16"): "v_wmma_f32_16x16x16_bf16",
    ("gfx1100", "i8"): "v_wmma_i32_16x16x16_iu8",
    ("gfx1100", "fp8e5"): "v_wmma_f32_16x16x16_f16",
    ("gfx1200", "fp16"): "v_wmma_f32_16x16x16_f16",
    ("gfx1200", "i8"): "v_wmma_i32_16x16x16_iu8",
    ("gfx1200", "fp8e5"): "v_wmma_f32_16x16x16_bf8_bf8",
}


@pytest.mark.parametrize(("arch", "element"), CHOSEN)
def test_types_have_the_instruction_of_the_processor(arch: str, element: str) -> None:
    sums = {"i8": "i32", "fp64": "fp64"}.get(element, "fp32")
    kernel = product(arch, element, sums, (64, 64, 32), 256 // PROCESSORS[arch].lanes)
    assert counted(kernel)[CHOSEN[arch, element]]
    assert "amd.mma" in str(kernel.asm["ttgir"])
    assert kernel.metadata.n_spills == 0


def test_a_product_has_as_many_instructions_as_by_hand() -> None:
    """128 x 128 x 32 by 32 x 32 x 8 are 64 instructions, a quarter of them in each of four waves;
    each wave reads two rows of blocks of either operand, 16 bytes a lane at once."""
    kernel = product("gfx942", "fp16", "fp32", (128, 128, 32), 4)
    found = counted(kernel)
    assert found["v_mfma_f32_32x32x8_f16"] == 16
    assert found["ds_read_b128"] >= 8
    assert not [name for name in found if name.startswith("ds_read") and "b128" not in name][1:]
    facts = kernel.metadata
    assert (facts.n_spills, facts.n_accumulation_regs) == (0, 0)
    assert facts.n_regs <= 256


def test_the_loop_has_no_moves_between_registers() -> None:
    """Tiles of the next iteration are loaded into the registers that this iteration's leave."""
    kernel = product("gfx942", "fp16", "fp32", (128, 128, 32), 4)
    loop = innermost_loop(kernel)
    assert sum(loop.values()) <= 60
    assert loop["s_barrier"] == 2
    moves = {n: c for n, c in loop.items() if n.startswith(("v_mov", "v_accvgpr", "scratch"))}
    assert sum(moves.values()) <= 1, moves  # a carried tile has 16 registers


@tw.jit
def attention(
    q, k, v, out, keys, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr
):  # fmt: skip
    first = tl.program_id(0) * M
    k_blocks = tl.make_tensor_descriptor(k, [keys, D], [D, 1], [N, D])
    v_blocks = tl.make_tensor_descriptor(v, [keys, D], [D, 1], [N, D])
    out_blocks = tl.make_tensor_descriptor(out, [keys, D], [D, 1], [M, D])
    query = tl.make_tensor_descriptor(q, [keys, D], [D, 1], [M, D]).load([first, 0])
    acc = tl.zeros((M, D), tl.float32)
    most, total = tl.full((M,), float("-inf"), tl.float32), tl.zeros((M,), tl.float32)
    for start in range(0, keys, N):
        score = tl.dot(query, k_blocks.load([start, 0]).T) * scale
        before, most = most, tl.maximum(most, tl.max(score, 1))
        weight, shrink = tl.exp2(score - most[:, None]), tl.exp2(before - most)
        total = total * shrink + tl.sum(weight, 1)
        acc = tl.dot(weight.to(tl.float16), v_blocks.load([start, 0]), acc * shrink[:, None])
    out_blocks.store([first, 0], (acc / total[:, None]).to(tl.float16))


def test_attention_does_not_spill_where_both_halves_of_a_wave_hold_operands() -> None:
    """A wave has two rows of blocks of the results, and four columns: a column of operands is used
    by both rows before the next one is there."""
    types = {**dict.fromkeys(("q", "k", "v", "out"), "*fp16"), "keys": "i32", "scale": "fp32"}
    attrs = {(i,): [*ALIGNED, *(RANGE if i < 4 else [])] for i in range(5)}
    source = ASTSource(attention, types, {"M": 128, "N": 64, "D": 64}, attrs)
    kernel = compile(source, GPUTarget("hip", "gfx1100", 32), {"num_warps": 4})
    assert counted(kernel)["v_wmma_f32_16x16x16_f16"] == 64
    assert kernel.metadata.n_spills == 0


@pytest.mark.parametrize("side", [16, 32])
def test_the_size_of_instructions_is_an_option(side: int) -> None:
    kernel = product("gfx942", "fp16", "fp32", (64, 64, 32), 4, matrix_instr_nonkdim=side)
    name = {16: "v_mfma_f32_16x16x16_f16", 32: "v_mfma_f32_32x32x8_f16"}[side]
    assert counted(kernel)[name] == {16: 8, 32: 4}[side]


def test_small_results_have_small_instructions() -> None:
    """32 x 32 are four blocks of 16 x 16, one for each of four waves."""
    kernel = product("gfx942", "fp16", "fp32", (32, 32, 32), 4)
    assert counted(kernel)["v_mfma_f32_16x16x16_f16"] == 2
    narrow = product("gfx942", "fp16", "fp32", (16, 8, 32), 4)
    assert "amd.mma" not in str(narrow.asm["ttgir"])


@pytest.mark.parametrize(
    ("shape", "warps", "side", "expected"),
    [
        ((128, 128), 4, 32, (2, 2)),
        ((256, 64), 4, 32, (4, 1)),
        ((32, 256), 8, 32, (1, 8)),
        ((16, 16), 4, 16, (4, 1)),
    ],
)
def test_warps_share_out_the_result(
    shape: tuple[int, int], warps: int, side: int, expected: tuple[int, int]
) -> None:
    assert warp_grid(shape, warps, side) == expected


@pytest.mark.parametrize(
    ("rows", "side", "expected"), [(128, 32, (4, 1)), (64, 16, (4, 1)), (64, 32, (2, 2))]
)
def test_warps_of_chained_products_have_whole_rows(
    rows: int, side: int, expected: tuple[int, int]
) -> None:
    assert warp_grid((rows, 64), 4, side, chained=True) == expected
