"""Kernels of one block-scaled product, and random arguments for them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.compiler.source import ASTSource
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.core import Module

M, N, K = 32, 16, 128


class Form(NamedTuple):
    """A block-scaled product.

    Attributes:
        left, right: the formats of the operands.
        group: elements of a scale; 0 for no scales.
        scale: the type of scales.
        one_sided: whether only the left operand has scales.
        packs: whether the elements in a byte are adjacent along K, of either operand.
        extents: the product's M, N and K.
    """

    left: str
    right: str
    group: int = 32
    scale: str = "u8"
    one_sided: bool = False
    packs: tuple[bool, bool] = (True, True)
    extents: tuple[int, int, int] = (M, N, K)


@tw.jit
def product_kernel(
    a_ptr, s_ptr, b_ptr, t_ptr, c_ptr,
    A: tl.constexpr, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, GROUPS: tl.constexpr,
    AR: tl.constexpr, AC: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
    A_PACK: tl.constexpr, B_PACK: tl.constexpr, SIDES: tl.constexpr,
):  # fmt: skip
    a = tl.load(a_ptr + tl.arange(0, AR)[:, None] * AC + tl.arange(0, AC)[None, :])
    b = tl.load(b_ptr + tl.arange(0, BC)[None, :] * BR + tl.arange(0, BR)[:, None])
    group = tl.arange(0, GROUPS)[None, :]
    s, t = None, None
    if SIDES > 0:
        s = tl.load(s_ptr + tl.arange(0, M)[:, None] * GROUPS + group)
    if SIDES > 1:
        t = tl.load(t_ptr + tl.arange(0, N)[:, None] * GROUPS + group)
    place = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    acc = tl.load(c_ptr + place)
    found = tl.dot_scaled(a, s, A, b, t, B, acc, lhs_k_pack=A_PACK, rhs_k_pack=B_PACK)
    tl.store(c_ptr + place, found)


def _stored(format: str, sizes: tuple[int, int], packed_axis: int) -> tuple[int, int]:
    if format != "e2m1":
        return sizes
    return (sizes[0] // 2, sizes[1]) if packed_axis == 0 else (sizes[0], sizes[1] // 2)


def _shapes(form: Form) -> tuple[tuple[int, int], tuple[int, int]]:
    m, n, k = form.extents
    left = _stored(form.left, (m, k), 1 if form.packs[0] else 0)
    return left, _stored(form.right, (k, n), 0 if form.packs[1] else 1)


def module_of(form: Form) -> Module:
    """The kernel, whose right operand has K as the contiguous axis in memory."""
    (ar, ac), (br, bc) = _shapes(form)
    m, n, k = form.extents
    constants: dict[str, Any] = {
        "A": form.left, "B": form.right, "M": m, "N": n, "GROUPS": k // (form.group or k),
        "AR": ar, "AC": ac, "BR": br, "BC": bc, "A_PACK": form.packs[0], "B_PACK": form.packs[1],
        "SIDES": 0 if not form.group else 1 if form.one_sided else 2,
    }  # fmt: skip

    def pointer(format: str) -> str:
        return f"*{format}" if format in ("bf16", "fp16") else "*u8"

    signature = {
        "a_ptr": pointer(form.left), "s_ptr": f"*{form.scale}", "b_ptr": pointer(form.right),
        "t_ptr": f"*{form.scale}", "c_ptr": "*fp32",
    }  # fmt: skip
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(5)}
    source = ASTSource(product_kernel, signature, constants, aligned)
    return source.module(FrontendOptions())


def arguments_of(form: Form) -> list[np.ndarray[Any, Any]]:
    """Random finite elements, moderate scales, and a random accumulator."""
    rng = np.random.default_rng(7)
    m, n, k = form.extents
    groups = k // (form.group or k)
    found: list[np.ndarray[Any, Any]] = []
    for rows, format, (x, y) in zip((m, n), (form.left, form.right), _shapes(form), strict=True):
        if format in ("bf16", "fp16"):
            kind = np.float16 if format == "fp16" else _bf16()
            found.append(rng.normal(size=(x, y)).astype(kind))
        else:
            # Neither infinities nor NaN of 8 bits.
            mask = 0xBF if format in ("e4m3", "e5m2") else 0xFF
            found.append(rng.integers(0, 256, (x, y)).astype(np.uint8) & np.uint8(mask))
        scales = rng.integers(122, 132, (rows, groups)).astype(np.uint8)
        if form.scale != "u8":
            scales = rng.integers(0x28, 0x48, (rows, groups)).astype(np.uint8).view(_fp8())
        found.append(scales)
    return [*found, rng.normal(size=(m, n)).astype(np.float32)]


def _bf16() -> Any:
    import ml_dtypes

    return ml_dtypes.bfloat16


def _fp8() -> Any:
    import ml_dtypes

    return ml_dtypes.float8_e4m3fn


MX = "m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
MXFP4 = "m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X"
NVFP4 = "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"

FORMS: list[tuple[Form, str]] = [
    (Form("e4m3", "e4m3"), f"{MX}.f32.e4m3.e4m3.f32.ue8m0"),
    (Form("e5m2", "e4m3"), f"{MX}.f32.e5m2.e4m3.f32.ue8m0"),
    (Form("e2m3", "e3m2"), f"{MX}.f32.e2m3.e3m2.f32.ue8m0"),
    (Form("e4m3", "e4m3", one_sided=True), f"{MX}.f32.e4m3.e4m3.f32.ue8m0"),
    (Form("e5m2", "e3m2", 0), f"{MX}.f32.e5m2.e3m2.f32.ue8m0"),
    (Form("e4m3", "e4m3", extents=(64, 64, 32)), f"{MX}.f32.e4m3.e4m3.f32.ue8m0"),
    (Form("e4m3", "e4m3", extents=(16, 8, 64)), f"{MX}.f32.e4m3.e4m3.f32.ue8m0"),
    (Form("e2m1", "e4m3"), f"{MX}.f32.e2m3.e4m3.f32.ue8m0"),
    (Form("e5m2", "e2m1"), f"{MX}.f32.e5m2.e2m3.f32.ue8m0"),
    (Form("e2m1", "e2m1", packs=(False, True)), f"{MX}.f32.e2m3.e2m3.f32.ue8m0"),
    (Form("e2m1", "e2m1", packs=(True, False)), f"{MX}.f32.e2m3.e2m3.f32.ue8m0"),
    (Form("e2m1", "e2m1"), f"{MXFP4}.f32.e2m1.e2m1.f32.ue8m0"),
    (Form("e2m1", "e2m1", extents=(128, 64, 256)), f"{MXFP4}.f32.e2m1.e2m1.f32.ue8m0"),
    (Form("e2m1", "e2m1", extents=(64, 32, 64)), f"{MXFP4}.f32.e2m1.e2m1.f32.ue8m0"),
    (Form("e2m1", "e2m1", one_sided=True), f"{MXFP4}.f32.e2m1.e2m1.f32.ue8m0"),
    (Form("e2m1", "e2m1", 16, "fp8e4nv"), f"{NVFP4}.f32.e2m1.e2m1.f32.ue4m3"),
    (
        Form("e2m1", "e2m1", 16, "fp8e4nv", extents=(64, 64, 64)),
        f"{NVFP4}.f32.e2m1.e2m1.f32.ue4m3",
    ),
    # No instruction: they are expanded.
    (Form("e2m1", "e2m1", 16), ""),
    (Form("e4m3", "e4m3", 16), ""),
    (Form("e4m3", "bf16"), ""),
    (Form("e4m3", "e4m3", 32, "fp8e4nv"), ""),
    (Form("e2m1", "e2m1", 16, "fp8e4nv", packs=(False, True)), ""),
]
"""Forms, and the instruction of sm_120 for each."""
