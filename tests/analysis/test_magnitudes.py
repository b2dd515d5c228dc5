"""Bounds of the magnitudes of floats, and the functions that depend on them."""

import math
import re

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.targets.nvidia.lowered import ptx_of
from tilewright.analysis.magnitudes import (
    NARROW_BIAS,
    has_normal_reciprocals,
    interval,
    largest_magnitude,
)
from tilewright.ir.core import Op
from tilewright.ir.numbers import decode
from tilewright.ir.parser import parse_module
from tilewright.ir.types import E4B15, SCALARS, DType
from tilewright.targets.nvidia.target import NvidiaTarget
from tilewright.tools.signature import source_of

BOUNDS = """
func @bounds(%u: fp32, %h: fp16) {
  %i = tile.arange start=-100, end=28 : () -> 128xi32
  %a = arith.cast %i, to=fp32, rounding="rtne" : 128xi32 -> 128xfp32
  %half = arith.constant value=-0.5, type=128xfp32 : () -> 128xfp32
  %b = arith.mul %a, %half : (128xfp32, 128xfp32) -> 128xfp32
  %c = arith.add %b, %a : (128xfp32, 128xfp32) -> 128xfp32
  %d = arith.neg %c : 128xfp32 -> 128xfp32
  %e = tile.splat %u, shape=(128,) : fp32 -> 128xfp32
  %f = arith.mul %e, %b : (128xfp32, 128xfp32) -> 128xfp32
  %g = arith.cast %i, to=fp16, rounding="rtne" : 128xi32 -> 128xfp16
  %z = arith.constant value=0.0, type=128xfp32 : () -> 128xfp32
  %n = arith.mul %e, %z : (128xfp32, 128xfp32) -> 128xfp32
  %y = tile.gather %b, %i, axis=0 : (128xfp32, 128xi32) -> 128xfp32
  control.return [] : () -> ()
}
"""


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("a", 100),
        ("b", 50),
        ("c", 113.5),
        ("d", 113.5),
        ("f", math.inf),
        ("g", math.inf),  # a narrow float may overflow
        ("n", math.inf),  # of an infinity it is NaN
        ("y", 50),
    ],
)
def test_bound(name: str, most: float) -> None:
    ops: list[Op] = list(parse_module(BOUNDS).entry.body)
    found = largest_magnitude(ops["iahbcdefgzny".index(name)].result)
    assert found == pytest.approx(most, rel=1e-4)
    assert found >= most


INTERVALS = """
func @intervals(%x: 8xfp32, %y: 8xfp32, %h: 8xfp16) {
  %one = arith.constant value=1.0, type=8xfp32 : () -> 8xfp32
  %huge = arith.constant value=2e38, type=8xfp32 : () -> 8xfp32
  %exp = math.exp %x, fast=False : 8xfp32 -> 8xfp32
  %sum = arith.add %exp, %one : (8xfp32, 8xfp32) -> 8xfp32
  %neg = arith.neg %sum : 8xfp32 -> 8xfp32
  %less = arith.sub %one, %exp : (8xfp32, 8xfp32) -> 8xfp32
  %square = arith.mul %x, %x : (8xfp32, 8xfp32) -> 8xfp32
  %product = arith.mul %x, %y : (8xfp32, 8xfp32) -> 8xfp32
  %scaled = arith.mul %exp, %sum : (8xfp32, 8xfp32) -> 8xfp32
  %magnitude = arith.abs %neg : 8xfp32 -> 8xfp32
  %most = arith.max %x, %one, propagate_nan=False : (8xfp32, 8xfp32) -> 8xfp32
  %least = arith.min %sum, %most, propagate_nan=False : (8xfp32, 8xfp32) -> 8xfp32
  %both = arith.max %x, %sum, propagate_nan=False : (8xfp32, 8xfp32) -> 8xfp32
  %nan = arith.max %x, %sum, propagate_nan=True : (8xfp32, 8xfp32) -> 8xfp32
  %over = arith.add %huge, %huge : (8xfp32, 8xfp32) -> 8xfp32
  %wide = arith.cast %h, to=fp32, rounding="rtne" : 8xfp16 -> 8xfp32
  control.return [] : () -> ()
}
"""
INF = math.inf


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("exp", 0, INF),
        ("sum", 1, INF),
        ("neg", -INF, -1),
        ("less", -INF, 1),
        ("square", 0, INF),
        ("product", -INF, INF),
        ("scaled", 0, INF),
        ("magnitude", 1, INF),
        ("most", 1, INF),
        ("least", 1, INF),
        ("both", -INF, INF),  # x where the other one is NaN
        ("nan", 1, INF),
        ("over", 4e38, INF),  # overflows
        ("wide", -INF, INF),
    ],
)
def test_interval(name: str, least: float, most: float) -> None:
    ops: list[Op] = list(parse_module(INTERVALS).entry.body)
    names = [line.split()[0][1:] for line in INTERVALS.splitlines() if " = " in line]
    found = interval(ops[names.index(name)].result)
    assert tuple(found) == pytest.approx((least, most), rel=1e-4)
    assert found.least <= least
    assert found.most >= most


@tw.jit
def angles(s, c, n, BOUNDED: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    angle = (i - N // 2).to(tl.float32) * 1.7
    if not BOUNDED:
        angle *= n
    tl.store(s + i, tl.sin(angle))
    tl.store(c + i, tl.cos(angle))


@pytest.mark.parametrize("bounded", [False, True])
def test_angles_have_the_same_sines(bounded: bool) -> None:
    sines, cosines = np.zeros(1024, np.float32), np.zeros(1024, np.float32)
    angles[(1,)](sines, cosines, 1.0, BOUNDED=bounded, N=1024)
    exact = ((np.arange(1024) - 512).astype(np.float32) * np.float32(1.7)).astype(np.float64)
    np.testing.assert_allclose(sines, np.sin(exact), rtol=2.5e-7)
    np.testing.assert_allclose(cosines, np.cos(exact), rtol=2.5e-7)


@pytest.mark.parametrize("bounded", [False, True])
def test_only_unbounded_angles_need_a_table(bounded: bool) -> None:
    source = source_of(angles, "*fp32:16, *fp32:16, fp32", {"BOUNDED": bounded, "N": 128})
    target = NvidiaTarget(90)
    module = source.module(target.frontend_options(target.parse_options({})))
    ptx = ptx_of(module)
    assert ("two_over_pi" in ptx) != bounded
    assert (".f64" in ptx) != bounded


RECIPROCALS = """
func @reciprocals(%u: fp32, %d: fp64, %h: fp16, %b: bf16, %i: i64) {
  %root = math.sqrt %u, ieee=True : fp32 -> fp32
  %tile = tile.splat %root, shape=(4,) : fp32 -> 4xfp32
  %negative = arith.neg %tile : 4xfp32 -> 4xfp32
  %integer = arith.cast %i, to=fp32, rounding="rtne" : i64 -> fp32
  %wide = arith.cast %h, to=fp32, rounding="rtne" : fp16 -> fp32
  %root_of_bf16 = math.sqrt %b, ieee=False : bf16 -> bf16
  %wide_root = arith.cast %root_of_bf16, to=fp32, rounding="rtne" : bf16 -> fp32
  %long_root = math.sqrt %d, ieee=False : fp64 -> fp64
  %short_root = arith.cast %long_root, to=fp32, rounding="rtne" : fp64 -> fp32
  %wide_bf16 = arith.cast %b, to=fp32, rounding="rtne" : bf16 -> fp32
  %product = arith.mul %wide, %wide : (fp32, fp32) -> fp32
  control.return [] : () -> ()
}
"""


def test_reciprocals_are_normal_of_roots_integers_and_narrow_floats() -> None:
    names = re.findall(r"%(\w+) =", RECIPROCALS)
    ops = list(parse_module(RECIPROCALS).entry.body)[:-1]
    known = {
        name for name, op in zip(names, ops, strict=True) if has_normal_reciprocals(op.results[0])
    }
    assert set(names) - known == {"long_root", "short_root", "wide_bf16", "product"}


@pytest.mark.parametrize("element", [t for t in SCALARS if 0 < t.exponent_bias <= NARROW_BIAS])
def test_narrow_floats_have_normal_reciprocals(element: DType) -> None:
    """All of them: but for 0, infinities and NaN, none is beyond 2**-126 or 2**126."""
    bits = np.arange(1 << element.primitive_bitwidth).astype(f"u{element.primitive_bitwidth // 8}")
    numbers = bits.view(element.numpy)
    found = np.abs((decode(numbers) if element.numpy is E4B15 else numbers).astype(np.float64))
    usual = found[np.isfinite(found) & (found != 0)]
    assert len(usual) > len(bits) // 2
    assert usual.min() >= 2.0**-126
    assert usual.max() <= 2.0**126
