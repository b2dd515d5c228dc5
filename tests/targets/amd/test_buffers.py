"""Accesses by buffers leave what the interpreter leaves, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.amd_emulator.launch import launch, target_of
from tests.targets.amd.sources import ALIGNED, WAVE_32, WAVE_64, copy, counted
from tilewright.compiler.driver import compile
from tilewright.compiler.source import ASTSource
from tilewright.targets.amd.features import PROCESSORS

RANGE = [["tt.pointer_range", 32]]
TYPES = {"int8": "i8", "float16": "fp16", "float32": "fp32", "int64": "i64"}


@tw.jit
def shifted(x_ptr, out_ptr, n, other, BLOCK: tl.constexpr):
    """Offsets of known range, behind a uniform one."""
    row = tl.program_id(0).to(tl.int64) * n
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + i, mask=i < n, other=other)
    tl.store(out_ptr + row + i, x, mask=i < n - 1)


@tw.jit
def reversed_rows(x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    """Offsets of any range, of either sign, from arguments with one."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i * stride, mask=i < n)
    tl.store(out_ptr - i * stride, x, mask=i < n)


@tw.jit
def remainders(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Offsets that are not negative, from remainders that are."""
    i = tl.arange(0, BLOCK)
    place = ((i + 18).to(tl.int8) % 16 + 72).to(tl.int32)
    tl.store(out_ptr + i, tl.load(x_ptr + place, mask=i < n), mask=i < n)


def names(code: Any) -> set[str]:
    return {re.sub(r"_(u?byte|sbyte|[us]?short|dword|[bui]\d+).*", "", n) for n in counted(code)}


@pytest.mark.parametrize("arch", PROCESSORS)
@pytest.mark.parametrize("type", TYPES)
def test_offsets_of_known_range(type: str, arch: str) -> None:
    rows, n, block = 3, 200, 256
    x = np.arange(1, rows * n + 1).astype(type)
    out = np.full(rows * n, 99, type)
    types = {"x_ptr": f"*{TYPES[type]}", "out_ptr": f"*{TYPES[type]}", "n": "i32", "other": "i32"}
    attrs = {(0,): ALIGNED, (1,): ALIGNED}
    source = ASTSource(shifted, types, {"BLOCK": block}, attrs)
    code = compile(source, target_of(arch), {"num_warps": 2})
    assert {"buffer_load", "buffer_store"} <= names(code)
    assert not {"global_load", "global_store"} & names(code)
    _, found = launch(code.asm["hsaco"], arch, 2, (rows,), [x, out, n, 7])
    right = x.copy()
    right[n - 1 :: n] = 99
    assert np.array_equal(found, right)


@pytest.mark.parametrize("arch", [WAVE_64, WAVE_32])
@pytest.mark.parametrize("stride", [1, -1, 3])
def test_offsets_from_arguments_with_a_range(stride: int, arch: str) -> None:
    n, block = 300, 256
    memory = np.arange(3 * n, dtype=np.float32)
    types = {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "stride": "i32"}
    attrs = {(0,): RANGE, (1,): RANGE}
    source = ASTSource(reversed_rows, types, {"BLOCK": block}, attrs)
    code = compile(source, target_of(arch), {"num_warps": 2})
    assert {"buffer_load", "buffer_store"} <= names(code)
    x = memory if stride > 0 else np.concatenate([memory[::-1], memory])
    out = np.zeros_like(memory if stride < 0 else np.concatenate([memory, memory]))
    # Of negative offsets the pointer is in the middle of the array.
    places = [len(memory) if s < 0 else 0 for s in (stride, -stride)]
    found = launch(code.asm["hsaco"], arch, 2, (2,), [x, out, n, stride], dict(enumerate(places)))[
        1
    ]
    right = out.copy()
    i = np.arange(n)
    right[places[1] - i * stride] = x[places[0] + i * stride]
    assert np.array_equal(found, right)


def test_offsets_of_unknown_range_are_not_used() -> None:
    types = {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "stride": "i32"}
    code = compile(ASTSource(reversed_rows, types, {"BLOCK": 256}), target_of(WAVE_64))
    assert not {"buffer_load", "buffer_store"} & names(code)


@tw.jit
def moving_rows(x_ptr, out_ptr, first, rows, n, stride, BLOCK: tl.constexpr):
    """Rows of which a loop computes the place from its index, behind one computed before it."""
    x_ptr += first
    i = tl.arange(0, BLOCK)
    for row in range(rows):
        x = tl.load(x_ptr + row * stride + i, mask=i < n)
        tl.store(out_ptr + row * n + i, x + 1, mask=i < n)


@pytest.mark.parametrize("arch", [WAVE_64, WAVE_32])
@pytest.mark.parametrize("type", ["int8", "float16", "float32", "int64"])
@pytest.mark.parametrize("stride", [70, -70])
def test_buffers_around_arguments(stride: int, type: str, arch: str) -> None:
    """The pointer is in the middle of the array, and steps forwards or backwards."""
    rows, n, first, middle = 5, 60, 9, 400
    types = {"x_ptr": f"*{TYPES[type]}", "out_ptr": f"*{TYPES[type]}"}
    types |= dict.fromkeys(("first", "rows", "n", "stride"), "i32")
    attrs = {(0,): RANGE, (1,): RANGE}
    source = ASTSource(moving_rows, types, {"BLOCK": 64}, attrs)
    code = compile(source, target_of(arch), {"num_warps": 1})
    assert not {"global_load", "global_store"} & names(code)
    assert "v_readfirstlane" not in str(code.asm["amdgcn"])
    x = (np.arange(800) % 100).astype(type)
    args = [x, np.zeros(rows * n, type), first, rows, n, stride]
    _, found = launch(code.asm["hsaco"], arch, 1, (1,), args, {0: middle})
    right = [x[(start := middle + first + row * stride) : start + n] + 1 for row in range(rows)]
    assert np.array_equal(found, np.concatenate(right).astype(type))


@tw.jit
def moving_columns(x_ptr, out_ptr, steps, stride, M: tl.constexpr, N: tl.constexpr):
    """A tile whose place moves through an array, forwards or backwards, without a mask."""
    place = tl.arange(0, M)[:, None] * 128 + tl.arange(0, N)[None, :]
    total = tl.zeros((M, N), x_ptr.dtype.element_ty)
    for _ in range(steps):
        total += tl.load(x_ptr + place)
        x_ptr += stride
    tl.store(out_ptr - place, total)


@pytest.mark.parametrize("arch", [WAVE_64, WAVE_32])
@pytest.mark.parametrize("type", ["int8", "float16", "float32", "int64"])
@pytest.mark.parametrize("stride", [16, -16])
def test_several_accesses_without_masks(stride: int, type: str, arch: str) -> None:
    types = {"x_ptr": f"*{TYPES[type]}", "out_ptr": f"*{TYPES[type]}", "steps": "i32"}
    attrs = {(0,): [*ALIGNED, *RANGE], (1,): [*ALIGNED, *RANGE], (3,): ALIGNED}
    source = ASTSource(moving_columns, {**types, "stride": "i32"}, {"M": 128, "N": 16}, attrs)
    code = compile(source, target_of(arch), {"num_warps": 1})
    assert not {"global_load", "global_store"} & names(code)
    x = (np.arange(3 * 128 * 128) % 7).astype(type)
    first, last = 128 * 128, 128 * 128 - 1
    args = [x, np.zeros(128 * 128, type), 3, stride]
    _, found = launch(code.asm["hsaco"], arch, 1, (1,), args, {0: first, 1: last})
    place = np.arange(128)[:, None] * 128 + np.arange(16)
    right = np.zeros(128 * 128, type)
    right[last - place] = sum(x[first + step * stride + place] for step in range(3))
    assert np.array_equal(found, right)


@tw.jit
def moving_tiles(x_ptr, out_ptr, steps, limit, STEP: tl.constexpr, FROM: tl.constexpr):
    """Sums of tiles whose place a constant moves, from an iteration on, up to a limit."""
    place = tl.arange(0, 128)[:, None] * 128 + tl.arange(0, 16)[None, :]
    out = out_ptr + place
    total = tl.zeros((128, 16), tl.int32)
    x_ptr -= 64 * STEP
    for i in range(steps):
        if FROM == "masked":
            total += tl.load(x_ptr + place + 64 * STEP, mask=place < limit, other=0)
        elif FROM == "later":
            if i > limit:
                total += tl.load(x_ptr + place + 64 * STEP)
        else:
            total += tl.load(x_ptr + place + 64 * STEP)
        x_ptr += STEP
    tl.store(out, total)


@pytest.mark.parametrize(
    ("case", "step", "arch"),
    [("always", 16, arch) for arch in PROCESSORS]
    + [("always", -16, WAVE_64), ("masked", 16, WAVE_64), ("later", 16, WAVE_64)],
)
def test_scalar_offsets(case: str, step: int, arch: str) -> None:
    """They only move forwards, from an offset at which all lanes access memory."""
    types = {"x_ptr": "*i32", "out_ptr": "*i32", "steps": "i32", "limit": "i32"}
    attrs = {(0,): [*ALIGNED, *RANGE], (1,): [*ALIGNED, *RANGE]}
    source = ASTSource(moving_tiles, types, {"STEP": step, "FROM": case}, attrs)
    code = compile(source, target_of(arch), {"num_warps": 1})
    assert not {"global_load", "global_store"} & names(code)
    scalar = re.search(r"buffer_load_\w+ v.*, s\d+ offen", str(code.asm["amdgcn"]))
    assert bool(scalar) == (case == "always" and step > 0)
    x, first, limit = (
        np.arange(3 * 128 * 128, dtype=np.int32),
        128 * 128,
        500 if case[0] == "m" else 0,
    )
    args = [x, np.zeros(128 * 128, np.int32), 3, limit]
    _, found = launch(code.asm["hsaco"], arch, 1, (1,), args, {0: first})
    place = np.arange(128)[:, None] * 128 + np.arange(16)
    right = sum(x[first + place + i * step] for i in range(case == "later", 3))
    inside = place < limit if case == "masked" else True
    assert np.array_equal(found[place], np.where(inside, right, 0))


@tw.jit
def product(a_ptr, b_ptr, c_ptr, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, BK)
    a_ptr += m * K + k[None, :]
    b_ptr += n * K + k[:, None]
    acc = tl.zeros((M, N), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(a_ptr), tl.load(b_ptr), acc)
        a_ptr += BK
        b_ptr += BK
    tl.store(c_ptr + m * N + n, acc)


def check_product(
    kernel: Any, size: int, lengths: Sequence[int], arch: str, attrs: Mapping[Any, Any]
) -> str:
    """Run a product of two matrices of `size` rows, of these lengths; return its assembly."""
    types = {"a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": "*fp32", "K": "i32"}
    ranges = {(i,): [*ALIGNED, *RANGE] for i in range(3)}
    source = ASTSource(kernel, types, {"M": size, "N": size, "BK": 32}, {**ranges, **attrs})
    code = compile(source, target_of(arch), {"num_warps": 2, "num_stages": 2})
    rng = np.random.default_rng(0)
    for k in lengths:
        a, b = (rng.integers(-2, 3, (size, k)).astype(np.float16) for _ in range(2))
        c = np.ones((size, size), np.float32)
        found = launch(code.asm["hsaco"], arch, 2, (1,), [a, b, c, k])[2]
        assert np.array_equal(found, a.astype(np.float32) @ b.T.astype(np.float32))
    return str(code.asm["amdgcn"])


@pytest.mark.parametrize("arch", [WAVE_64, WAVE_32])
def test_scalar_offsets_of_loads_ahead(arch: str) -> None:
    """Such a load is under a branch, which all iterations but the last one take."""
    code = check_product(product, 64, (0, 32, 96), arch, {(3,): ALIGNED})
    assert re.search(r"buffer_load_\w+ v.*, s\d+ offen", code)


def test_one_access_without_a_mask_has_its_address() -> None:
    """A descriptor would take more instructions."""
    types = dict.fromkeys(("x_ptr", "out_ptr"), "*fp32")
    attrs = {(0,): [*ALIGNED, *RANGE], (1,): [*ALIGNED, *RANGE]}
    for block, loads in ((256, "global_load"), (512, "buffer_load")):
        source = ASTSource(copy, types, {"BLOCK": block}, attrs)
        assert loads in names(compile(source, target_of(WAVE_64), {"num_warps": 1}))


@tw.jit
def masked_product(
    a_ptr, b_ptr, c_ptr, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, BK)
    acc = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BK):
        inside = k < K - start
        a = tl.load(a_ptr + m * K + (start + k)[None, :], mask=inside[None, :], other=0.0)
        b = tl.load(b_ptr + n * K + (start + k)[:, None], mask=inside[:, None], other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m * N + n, acc)


@pytest.mark.parametrize("arch", [WAVE_64, WAVE_32])
def test_loads_ahead_are_masked_instead_of_under_a_branch(arch: str) -> None:
    """Operands of products, whose loads for the iteration after the last one load nothing."""
    code = check_product(masked_product, 32, (0, 8, 104), arch, {})
    assert "buffer_load" in code
    assert "s_cbranch_exec" not in code


@pytest.mark.parametrize("arch", PROCESSORS)
def test_offsets_are_sums_of_a_constant_and_a_negative_number(arch: str) -> None:
    """LLVM has instructions add constants to offsets, which the range of a buffer does not know."""
    n, block = 255, 256
    types = {"x_ptr": "*i32", "out_ptr": "*i32"}
    source = ASTSource(remainders, types, {"n": n, "BLOCK": block}, {(0,): ALIGNED, (1,): ALIGNED})
    code = compile(source, target_of(arch), {"num_warps": 1})
    assert "buffer_load" in names(code)
    x, out = np.arange(100, 200, dtype=np.int32), np.zeros(block, np.int32)
    _, found = launch(code.asm["hsaco"], arch, 1, (1,), [x, out])
    places = np.fmod((np.arange(n) + 18).astype(np.int8), np.int8(16)) + 72
    assert np.array_equal(found[:n], x[places])
