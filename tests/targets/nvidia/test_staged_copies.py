"""Operands of small products are copied to shared memory 16 bytes at a time."""

from __future__ import annotations

import re

import pytest

import tilewright as tw
import tilewright.language as tl
from tests.targets.nvidia.lowered import ptx_of
from tilewright.targets.nvidia.target import NvidiaTarget
from tilewright.tools.signature import source_of


@tw.jit
def product_kernel(
    a, b, c, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr, OUT: tl.constexpr
):
    """All tiles may have one shape; that of the result limits its stores to 4 elements."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    sums = tl.zeros((M, N), OUT)
    for start in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (start + k)[None, :])
        y = tl.load(b + n[None, :] * K + (start + k)[:, None])
        sums = tl.dot(x, y, sums)
    tl.store(c + m[:, None] * N + n[None, :], sums)


@pytest.mark.parametrize(
    ("type", "M", "N", "BK", "warps"),
    [
        ("fp8e4nv", 64, 64, 64, 8),
        ("fp8e5", 64, 64, 64, 4),
        ("fp16", 32, 32, 32, 4),
        ("fp16", 16, 64, 64, 4),
        ("bf16", 64, 64, 64, 8),
        ("i8", 64, 64, 64, 8),
    ],
)
@pytest.mark.parametrize("arch", [89, 90])
def test_copies_have_16_bytes(type: str, M: int, N: int, BK: int, warps: int, arch: int) -> None:
    out = "i32" if type == "i8" else "fp32"
    constants = {"M": M, "N": N, "BK": BK, "OUT": tl.int32 if type == "i8" else tl.float32}
    source = source_of(product_kernel, f"*{type}:16, *{type}:16, *{out}:16, i32:16", constants)
    target = NvidiaTarget(arch)
    module = source.module(target.frontend_options(target.parse_options({})))
    ptx = ptx_of(module, arch, num_warps=warps, num_stages=3)
    assert "ld.global" not in ptx
    widths = re.findall(r"cp\.async\.c[ag]\.shared\.global \[[^;]*?, (\d+)", ptx)
    assert set(widths) <= {"16"}
    assert widths or "cp.async.bulk.tensor" in ptx


@pytest.mark.parametrize(
    ("type", "M", "N", "BK", "warps"),
    [("fp32", 32, 32, 32, 4), ("fp32", 32, 64, 32, 2), ("fp64", 32, 32, 32, 4)],
)
@pytest.mark.parametrize("rows", ["x", "y", "both"])
def test_elements_of_words_are_copied_16_bytes_at_a_time_across_k(
    type: str, M: int, N: int, BK: int, warps: int, rows: str
) -> None:
    constants = {"M": M, "N": N, "BK": BK, "X": rows != "y", "Y": rows != "x"}
    source = source_of(across_kernel, f"*{type}:16, *{type}:16, *{type}:16, i32:16", constants)
    target = NvidiaTarget(90)
    module = source.module(target.frontend_options(target.parse_options({})))
    ptx = ptx_of(module, num_warps=warps, num_stages=3)
    assert "ld.global" not in ptx
    widths = re.findall(r"cp\.async\.c[ag]\.shared\.global \[[^;]*?, (\d+)", ptx)
    assert set(widths) == {"16"}


@tw.jit
def across_kernel(
    a, b, c, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr, X: tl.constexpr, Y: tl.constexpr
):
    """A product whose left operand has contiguous columns if X, and the right one rows if Y."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    sums = tl.zeros((M, N), c.dtype.element_ty)
    for start in range(0, K, BK):
        at = start + k
        x = tl.load(a + (m[:, None] + at[None, :] * K if X else m[:, None] * K + at[None, :]))
        y = tl.load(b + (n[None, :] + at[:, None] * K if Y else n[None, :] * K + at[:, None]))
        sums = tl.dot(x, y, sums)
    tl.store(c + m[:, None] * N + n[None, :], sums)


@tw.jit
def weights_kernel(
    a, w, c, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr, PER_WORD: tl.constexpr
):
    """A product with weights of 8 bits, or of `32 / PER_WORD` bits in words."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    sums = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (start + k)[None, :])
        y = tl.load(w + ((start + k) // PER_WORD)[:, None] * N + n[None, :])
        sums = tl.dot(x, y.to(tl.float16), sums)
    tl.store(c + m[:, None] * N + n[None, :], sums)


@pytest.mark.parametrize(
    ("type", "tile", "warps", "ahead"),
    [
        ("i8", (16, 64, 64), 4, True),  # an iteration is shorter than a load takes
        ("fp32", (16, 128, 128), 4, True),  # prefetching takes too many registers
        ("i8", (16, 128, 128), 4, False),  # an iteration takes as long as a load
        ("i8", (128, 128, 64), 8, True),  # another program is resident
        ("fp32", (128, 128, 64), 8, False),  # the slots would leave room for one program
        ("i32", (128, 128, 64), 8, True),  # a word is loaded once for eight elements
    ],
)
def test_tiles_that_operands_are_computed_from_are_copied_if_it_pays(
    type: str, tile: tuple[int, int, int], warps: int, ahead: bool
) -> None:
    constants: dict[str, int] = dict(zip(("M", "N", "BK"), tile, strict=True))
    constants["PER_WORD"] = 8 if type == "i32" else 1
    source = source_of(weights_kernel, f"*fp16:16, *{type}:16, *fp32:16, i32:16", constants)
    target = NvidiaTarget(90)
    module = source.module(target.frontend_options(target.parse_options({})))
    ptx = ptx_of(module, num_warps=warps, num_stages=3, tensor_copies=False)
    assert ("ld.global" not in ptx) == ahead


@tw.jit
def fixed_operand_kernel(x, y, c, K, N: tl.constexpr):
    n = tl.arange(0, N)
    left = tl.load(x + n[:, None] * N + n[None, :])
    sums = tl.zeros((N, N), tl.float32)
    for start in range(0, K, N):
        sums = tl.dot(left, tl.load(y + (start + n)[:, None] * N + n[None, :]), sums)
    tl.store(c + n[:, None] * N + n[None, :], sums)


def test_descriptors_of_a_fixed_operand_are_computed_before_the_loop() -> None:
    """ptxas would recompute in each iteration what is computed there."""
    source = source_of(fixed_operand_kernel, "*fp16:16, *fp16:16, *fp32:16, i32:16", {"N": 64})
    target = NvidiaTarget(90)
    module = source.module(target.frontend_options(target.parse_options({})))
    ptx = ptx_of(module, tensor_copies=False)
    before, loop = ptx.split("$L__BB0_2:")
    lefts = re.findall(r"wgmma\.mma_async[^;]*?}, (%rd\d+), %rd\d+", loop)
    assert len(lefts) == 4
    for left in lefts:
        assert re.search(rf"\s{left}, ", before)
        assert not re.search(rf"\.[a-z]?64\s+{left}, ", loop)


@tw.jit
def gated_kernel(a, g, b, c, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    """The left operand is computed from two tiles."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    sums = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BK):
        at = m[:, None] * K + (start + k)[None, :]
        x = tl.load(a + at) * tl.exp(tl.load(g + at))
        y = tl.load(b + n[None, :] * K + (start + k)[:, None])
        sums = tl.dot(x.to(tl.bfloat16), y, sums)
    tl.store(c + m[:, None] * N + n[None, :], sums)


@pytest.mark.parametrize(("BK", "copied"), [(32, True), (64, False)])
def test_programs_of_two_warps_keep_memory_for_four(BK: int, copied: bool) -> None:
    """Slots of 16 and 32 KiB, two for each program: as many programs are resident by registers."""
    constants = {"M": 64, "N": 64, "BK": BK}
    source = source_of(gated_kernel, "*bf16:16, *fp32:16, *bf16:16, *fp32:16, i32:16", constants)
    target = NvidiaTarget(90)
    module = source.module(target.frontend_options(target.parse_options({})))
    ptx = ptx_of(module, num_warps=2, num_stages=2)
    assert "cp.async" in ptx
    assert ("ld.global" not in ptx) == copied
