"""The instructions of small kernels, counted in the assembly text."""

from __future__ import annotations

import pytest

import tilewright as tw
import tilewright.language as tl
from tests.amd_emulator.launch import target_of
from tests.targets.amd.product_loops import (
    CHAINS,
    RANGE,
    RECORDED,
    RECORDED_CHAINS,
    ROWS,
    Chain,
    Loop,
    instructions,
    instructions_of_chain,
    loops_of,
    product,
)
from tests.targets.amd.sources import (
    ALIGNED,
    WAVE_32,
    WAVE_64,
    accumulate,
    compiled,
    copy,
    counted,
    grid,
    shares,
    sums,
    total,
    weighted,
)
from tilewright.compiler.driver import compile
from tilewright.compiler.source import ASTSource
from tilewright.targets.amd.features import PROCESSORS
from tilewright.targets.protocol import GPUTarget

PAIR = {"x_ptr": "*fp32", "out_ptr": "*fp32"}


@pytest.mark.parametrize("arch", PROCESSORS)
def test_copies_move_16_bytes_at_a_time(arch: str) -> None:
    lanes = PROCESSORS[arch].lanes
    found = counted(compiled(copy, PAIR, arch, BLOCK=4 * lanes))
    wide = "b128" if arch.startswith("gfx1") else "dwordx4"
    assert found[f"global_load_{wide}"] == found[f"global_store_{wide}"] == 1
    assert not [name for name in found if name.startswith("flat_")]


def test_sum_of_a_wave_stays_in_the_vector_unit_where_it_can() -> None:
    """Within a row of 16 lanes by DPP; between rows of 64 lanes by the LDS's crossbar."""
    wide = counted(compiled(total, PAIR, WAVE_64, BLOCK=64))
    assert wide["ds_swizzle_b32"] == wide["ds_bpermute_b32"] == 1
    assert not wide["s_barrier"]
    narrow = compiled(total, PAIR, WAVE_32, BLOCK=32)
    assert counted(narrow)["v_permlanex16_b32"] == 1
    assert not [name for name in counted(narrow) if name.startswith("ds_")]
    assert str(narrow.asm["amdgcn"]).count("row_xmask") == 2  # masks 4 and 8; 1 and 2: quad_perm


def test_grid_is_read_from_the_hidden_arguments_only_if_used() -> None:
    with_grid = compiled(grid, {"out_ptr": "*i32"})
    assert with_grid.metadata.kernarg_bytes == 8 + 256
    assert ".value_kind:     hidden_block_count_x" in str(with_grid.asm["amdgcn"])
    without = compiled(copy, PAIR, BLOCK=256)
    assert without.metadata.kernarg_bytes == 16
    assert ".amdhsa_user_sgpr_count 2\n" in str(without.asm["amdgcn"])


@pytest.mark.parametrize("arch", PROCESSORS)
def test_additions_of_fp32_are_instructions(arch: str) -> None:
    found = counted(compiled(accumulate, PAIR, arch, BLOCK=PROCESSORS[arch].lanes))
    assert found["global_atomic_add_f32"] == 1
    assert not [name for name in found if "cmpswap" in name]


@pytest.mark.parametrize("arch", PROCESSORS)
def test_exponentials_and_quotients_take_few_instructions(arch: str) -> None:
    found = counted(compiled(shares, PAIR, arch, BLOCK=PROCESSORS[arch].lanes))
    assert found["v_exp_f32"] == found["v_rcp_f32"] == 1
    assert not [name for name in found if name.startswith(("v_div_", "flat_"))]


@pytest.mark.parametrize("arch", PROCESSORS)
def test_two_elements_are_computed_by_one_instruction(arch: str) -> None:
    block = 8 * PROCESSORS[arch].lanes
    halves, floats = ({"x_ptr": t, "y_ptr": t, "out_ptr": t} for t in ("*fp16", "*fp32"))
    assert counted(compiled(sums, halves, arch, BLOCK=block))["v_pk_add_f16"] == 4
    found = counted(compiled(sums, floats, arch, BLOCK=block))
    assert found["v_pk_add_f32"] == (4 if "packed_fp32" in PROCESSORS[arch].features else 0)


@pytest.mark.parametrize("arch", PROCESSORS)
def test_products_of_fp16_that_are_added_in_fp32_are_not_converted(arch: str) -> None:
    types = {"x_ptr": "*fp16", "y_ptr": "*fp16", "out_ptr": "*fp32"}
    found = counted(compiled(weighted, types, arch, BLOCK=2 * PROCESSORS[arch].lanes))
    assert found["v_fma_mix_f32"] == 2
    assert not found["v_cvt_f32_f16"]


@tw.jit
def added(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i) + tl.load(y_ptr + i))


@pytest.mark.parametrize("arch", [WAVE_64, WAVE_32])
def test_sums_are_rounded_to_bf16_in_words(arch: str) -> None:
    """NaN are selected before the upper halves are taken: of two sums, by one instruction."""
    types = {"x_ptr": "*bf16", "y_ptr": "*bf16", "out_ptr": "*bf16"}
    found = counted(compiled(added, types, arch, BLOCK=8 * PROCESSORS[arch].lanes))
    assert found["v_perm_b32"] + found["v_mov_b16"] == 4
    assert not found["v_lshrrev_b32"]


def test_barriers_order_shared_memory_only_within_a_compute_unit() -> None:
    """In CU mode no cache is invalidated, and stores to global memory are not waited for."""
    found = counted(compiled(total, PAIR, WAVE_32, 4, BLOCK=1024))
    assert found["s_barrier"]
    assert not found["buffer_gl0_inv"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("arch", "loop"), [(arch, loop) for arch, loops in RECORDED.items() for loop in loops], ids=str
)
def test_loops_of_products_have_hardly_more_instructions_than_those_of_triton(
    arch: str, loop: Loop
) -> None:
    assert 0 < instructions(loop, target_of(arch)) <= 1.1 * RECORDED[arch][loop]


def test_bytes_that_are_loaded_ahead_stay_in_words() -> None:
    """A loop carries the words; those of the second row of a lane were taken apart and permuted."""
    types = {**dict.fromkeys("ab", "*i8"), "c": "*fp16", **dict.fromkeys(("K", *ROWS), "i32")}
    constants = {"BK": 64, "ALONG_K": True, "MASKED": False}
    source = ASTSource(product, types, constants, {(i,): ALIGNED for i in range(7)})
    code = compile(source, target_of(WAVE_64), {"num_warps": 4, "num_stages": 2})
    assert "v_perm_b32" not in str(code.asm["amdgcn"])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arch", RECORDED_CHAINS)
@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_loops_of_chained_products_have_fewer_instructions_than_those_of_triton(
    chain: Chain, arch: str
) -> None:
    """A wave has whole rows of the first product's result, which do not move between lanes."""
    assert 0 < instructions_of_chain(chain, target_of(arch)) < RECORDED_CHAINS[arch][chain]


@tw.jit
def layer_norm(x_ptr, y_ptr, w_ptr, b_ptr, stride, n, eps, BLOCK: tl.constexpr):
    x_ptr += tl.program_id(0) * stride
    y_ptr += tl.program_id(0) * stride
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / n
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
        x = tl.where(i < n, x - mean, 0.0)
        squares += x * x
    scale = 1 / tl.sqrt(tl.sum(squares, 0) / n + eps)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        w, b = tl.load(w_ptr + i, mask=i < n), tl.load(b_ptr + i, mask=i < n)
        x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
        tl.store(y_ptr + i, (x - mean) * scale * w + b, mask=i < n)


NORM_LOOPS = {"fp16": (15, 23, 39), "fp32": (11, 21, 24)}
"""The instructions of the loops of a layer norm by Triton 3.6, from the same source."""


@pytest.mark.parametrize("type", NORM_LOOPS)
def test_loops_of_a_layer_norm_have_no_more_instructions_than_those_of_triton(type: str) -> None:
    """Offsets from arguments move with the index, and no load that hides nothing is ahead."""
    types = {**dict.fromkeys(("x_ptr", "y_ptr", "w_ptr", "b_ptr"), f"*{type}"), "stride": "i32"}
    types |= {"n": "i32", "eps": "fp32"}
    attrs = {(i,): [*ALIGNED, *(RANGE if i < 4 else [])] for i in range(6)}
    source = ASTSource(layer_norm, types, {"BLOCK": 1024}, attrs)
    code = compile(source, GPUTarget("hip", WAVE_64, 64), {"num_warps": 4})
    found = sorted(loops_of(str(code.asm["amdgcn"])))
    assert all(x <= y for x, y in zip(found, NORM_LOOPS[type], strict=True)), found


@tw.jit
def column_sums(x_ptr, out_ptr, stride, rows, M: tl.constexpr, N: tl.constexpr):
    columns = tl.program_id(0) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, rows, M):
        row = start + tl.arange(0, M)
        place = x_ptr + row[:, None] * stride + columns[None, :]
        total += tl.load(place, mask=row[:, None] < rows, other=0.0).to(tl.float32)
    tl.store(out_ptr + columns, tl.sum(total, 0))


@pytest.mark.parametrize(("arch", "recorded"), [(WAVE_64, 21), (WAVE_32, 52)])
def test_loop_of_column_sums_has_no_more_instructions_than_that_of_triton(
    arch: str, recorded: int
) -> None:
    """The offset of a row moves by one addition, in a buffer whose start is that of the argument.
    Recorded of Triton 3.6, from the same source."""
    types = {"x_ptr": "*fp16", "out_ptr": "*fp32", "stride": "i32", "rows": "i32"}
    attrs = {(i,): [*ALIGNED, *(RANGE if i < 2 else [])] for i in range(4)}
    source = ASTSource(column_sums, types, {"M": 32, "N": 64}, attrs)
    code = compile(source, target_of(arch), {"num_warps": 4})
    assert max(loops_of(str(code.asm["amdgcn"]))) <= recorded


def test_instructions_are_paired_where_the_hardware_waits_for_their_operands() -> None:
    types = {"x_ptr": "*fp32", "out_ptr": "*fp32"}
    pairs = {
        arch: [n for n in counted(compiled(shares, types, arch, BLOCK=256)) if "v_dual" in n]
        for arch in ("gfx1100", "gfx1200")
    }
    assert not pairs["gfx1100"]
    assert pairs["gfx1200"]
