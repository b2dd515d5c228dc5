"""Products of microscaled numbers, against decoding by ml_dtypes and sums in fp64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from, type_string
from tests.lowering.simt.harness import assert_same as assert_same_emulated
from tests.targets.cpu.harness import assert_same as assert_same_compiled
from tilewright.base.diagnostics import CompilationError
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret

M, N, K = 16, 16, 64
FORMATS: dict[str, Any] = {
    "e2m1": ml_dtypes.float4_e2m1fn, "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn, "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2, "bf16": ml_dtypes.bfloat16, "fp16": np.float16,
}  # fmt: skip
RNG = np.random.default_rng(5)


class Operand:
    """A random operand and what it means.

    Args:
        sizes: (M, K) of the left side, (K, N) of the right.
        k_axis: which of them is K.
        group: of numbers that share a scale; 0 without scales.
    """

    def __init__(
        self, format: str, sizes: tuple[int, int], k_axis: int, group: int = 0,
        k_pack: bool = True, scale: Any = np.uint8, floats: bool = False,
    ) -> None:  # fmt: skip
        self.format, self.k_pack = format, k_pack
        kind = np.dtype(FORMATS[format])
        if kind.itemsize == 2:
            numbers = RNG.normal(0, 2, sizes).astype(kind)
            self.given = numbers if floats else numbers.view(np.uint16)
        else:
            bits = {"e2m1": 4, "e2m3": 6, "e3m2": 6}.get(format, 8)
            raw = RNG.integers(0, 1 << bits, sizes).astype(np.uint8)
            if bits == 8:  # neither infinities nor NaN
                raw &= 0xBF
            numbers = raw.view(kind)
            self.given = numbers if floats else raw
            if format == "e2m1":
                axis = k_axis if k_pack else 1 - k_axis
                even, odd = (np.take(raw, np.arange(i, sizes[axis], 2), axis) for i in (0, 1))
                self.given = (even | odd << 4).astype(np.uint8)
        self.numbers = numbers.astype(np.float64)
        self.scale = None
        if group:
            shape = sizes[1 - k_axis], sizes[k_axis] // group
            if scale is np.uint8:
                self.scale = RNG.integers(118, 136, shape).astype(np.uint8)
                factors = self.scale.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
            else:
                self.scale = RNG.uniform(0.1, 4, shape).astype(scale)
                factors = self.scale.astype(np.float64)
            spread = np.repeat(factors, group, axis=1)
            self.numbers = self.numbers * (spread if k_axis == 1 else spread.T)


def kernel_of(lhs: Operand, rhs: Operand, args: list[Any], names: str, more: str) -> Module:
    """A kernel that loads the operands `names`, in their order, and stores the product."""
    shapes: dict[str, Any] = {
        "a": lhs.given,
        "b": rhs.given,
        "s": lhs.scale,
        "t": rhs.scale,
        "c": args[-1],
    }
    lines = [f"def kernel({', '.join([*names, 'out'])}):"]
    for name in [*names, "out"]:
        rows, columns = shapes.get(name, args[-1]).shape
        at = f"tl.arange(0, {rows})[:, None] * {columns} + tl.arange(0, {columns})[None, :]"
        lines.append(f"    {name}_at = {at}")
        if name != "out":
            lines.append(f"    {name} = tl.load({name} + {name}_at)")
    s, t = ("s" if "s" in names else "None"), ("t" if "t" in names else "None")
    call = f"tl.dot_scaled(a, {s}, '{lhs.format}', b, {t}, '{rhs.format}'"
    packs = f", lhs_k_pack={lhs.k_pack}, rhs_k_pack={rhs.k_pack}"
    lines.append(f"    tl.store(out + out_at, {call}{packs}{more}))")
    names_of = [*names, "out"]
    signature = {n: type_string(a) for n, a in zip(names_of, args, strict=True)}
    return build(kernel_from("\n".join(lines)), signature)


def check(
    lhs: Operand, rhs: Operand, more: str = "", acc: Any = None, out: Any = np.float32,
    targets: bool = False,
) -> None:  # fmt: skip
    given: dict[str, Any] = {
        "a": lhs.given,
        "b": rhs.given,
        "s": lhs.scale,
        "t": rhs.scale,
        "c": acc,
    }
    names = "".join(n for n, v in given.items() if v is not None)
    args = [given[n] for n in names] + [np.zeros((M, N), out)]
    module = kernel_of(lhs, rhs, args, names, more)
    compute = np.float16 if "fp16" in (lhs.format, rhs.format) else ml_dtypes.bfloat16
    x, y = (side.numbers.astype(compute).astype(np.float64) for side in (lhs, rhs))
    expected = x @ y + (0 if acc is None else acc.astype(np.float64))
    found = [a.copy() for a in args]
    interpret(module, 1, found)
    room = (np.abs(x) @ np.abs(y) + 1) * (2**-22 if out is np.float32 else 2**-7)
    assert (np.abs(found[-1].astype(np.float64) - expected) <= room).all()
    assert np.abs(expected).max() > 1, "nothing was compared"
    if targets:
        close: Any = {"close": True}
        assert_same_emulated(module, (1, 1, 1), args, warps=4, lanes=8, **close)


@pytest.mark.parametrize("group", [0, 16, 32])
@pytest.mark.parametrize("right", FORMATS)
@pytest.mark.parametrize("left", FORMATS)
def test_formats(left: str, right: str, group: int) -> None:
    check(Operand(left, (M, K), 1, group), Operand(right, (K, N), 0, group))


@pytest.mark.parametrize("format", ["e4m3", "e5m2", "bf16", "fp16"])
def test_operands_as_floats(format: str) -> None:
    check(Operand(format, (M, K), 1, 32, floats=True), Operand(format, (K, N), 0, 32, floats=True))


@pytest.mark.parametrize("format", ["e2m1", "e4m3", "bf16"])
def test_scales_on_one_side(format: str) -> None:
    check(Operand(format, (M, K), 1, 32), Operand(format, (K, N), 0))
    check(Operand(format, (M, K), 1), Operand(format, (K, N), 0, 16))


def test_scales_of_fp8() -> None:
    fp8 = ml_dtypes.float8_e4m3fn
    check(Operand("e2m1", (M, K), 1, 16, scale=fp8), Operand("e2m1", (K, N), 0, 16, scale=fp8))


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_packing_along_other_axes(left: bool, right: bool) -> None:
    check(Operand("e2m1", (M, K), 1, 32, k_pack=left), Operand("e2m1", (K, N), 0, 32, k_pack=right))


@pytest.mark.parametrize(("name", "dtype"), [
    ("float32", np.float32), ("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16),
])  # fmt: skip
def test_accumulator_and_result(name: str, dtype: Any) -> None:
    acc = RNG.normal(size=(M, N)).astype(dtype)
    sides = Operand("e2m1", (M, K), 1), Operand("e2m1", (K, N), 0)
    check(*sides, f", acc=c, out_dtype=tl.{name}", acc, dtype)


@pytest.mark.parametrize(("left", "right"), [("e2m1", "e4m3"), ("e5m2", "fp16"), ("e2m3", "bf16")])
def test_on_targets(left: str, right: str) -> None:
    lhs, rhs = Operand(left, (M, K), 1, 32), Operand(right, (K, N), 0, 32)
    check(lhs, rhs, targets=True)
    # numbers whose sums are exact: the CPU must give the same bits
    args = [lhs.given, rhs.given, lhs.scale, rhs.scale, np.zeros((M, N), np.float32)]
    args[2] = np.full_like(args[2], 127)
    args[3] = np.full_like(args[3], 128)
    if right == "e4m3":
        args[1] = np.full_like(args[1], 0x38)
        assert_same_compiled(kernel_of(lhs, rhs, args, "abst", ""), (1, 1, 1), args)


@pytest.mark.parametrize("fast", [False, True])
def test_extremes_of_scales(fast: bool) -> None:
    """0 is 2 ** -127, 255 is NaN, and both change the numbers of their group alone."""
    lhs, rhs = Operand("bf16", (M, K), 1, 32), Operand("bf16", (K, N), 0, 32)
    lhs.given[:] = np.float32(1).astype(ml_dtypes.bfloat16).view(np.uint16)
    rhs.given[:] = lhs.given[0, 0]
    assert lhs.scale is not None
    assert rhs.scale is not None
    lhs.scale[:], rhs.scale[:] = 127, 127
    lhs.scale[1], lhs.scale[2, 0] = 0, 255
    rhs.scale[:] = 187
    args = [lhs.given, rhs.given, lhs.scale, rhs.scale, np.zeros((M, N), np.float32)]
    module = kernel_of(lhs, rhs, args, "abst", f", fast_math={fast}")
    interpret(module, 1, args)
    assert (args[-1][0] == 64 * 2.0**60).all()
    assert (args[-1][1] == 64 * 2.0**-67).all()
    assert fast or np.isnan(args[-1][2]).all()
    assert (args[-1][3:] == 64 * 2.0**60).all()


REJECTED = [
    ("a, None, 'e9m9', b, None, 'e4m3'", "Invalid float format: e9m9."),
    ("a, None, 'e4m3', b, None, 'e4m3', lhs_k_pack=False",
     "only mxfp4 inputs can be packed along a dimension different than K"),
    ("a, s, 'e4m3', b, t, 'e4m3'",
     "Operands must have the same scale factor; (lhs: 16 vs rhs: 32)"),
    ("a, None, 'e2m1', b, None, 'e4m3'",
     "lhs and rhs must have equal reduction dimensions"),
    ("a, tl.join(s, s).reshape(16, 8), 'e4m3', b, None, 'e4m3'",
     "scale factor must be 16 or 32. Got 8"),
    ("a, t, 'bf16', b, t, 'e4m3'", "a lhs of format bf16 is bf16 or uint16, not uint8"),
    ("a, s.to(tl.float32).to(tl.int32), 'e4m3', b, None, 'e4m3'",
     "lhs_scale is uint8 or fp8e4nv, not int32"),
    ("a, s.reshape(8, 8), 'e4m3', b, None, 'e4m3'", "lhs_scale must have the shape"),
    ("a, None, 'e4m3', b, None, 'e4m3', tl.zeros((16, 16), tl.float16)",
     "expected accumulator dtype fp32, got fp16"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), REJECTED)
def test_product_rejects(arguments: str, message: str) -> None:
    text = f"""
    def kernel(p):
        a = tl.zeros((16, 64), tl.uint8)
        b = tl.zeros((64, 16), tl.uint8)
        s = tl.zeros((16, 4), tl.uint8)
        t = tl.zeros((16, 2), tl.uint8)
        tl.dot_scaled({arguments})
    """
    with pytest.raises(CompilationError) as info:
        build(kernel_from(text), {"p": "*fp32"})
    assert str(info.value.__cause__).startswith(message)
