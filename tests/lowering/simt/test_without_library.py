"""What GPUs have no C library for: fmod, exactly, and large angles in fp64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ir_values import same_bits, special_values
from tests.lowering.simt.harness import run_emulated
from tests.lowering.simt.tiles import tile, tile_kernel
from tilewright.base.target_names import declare_target
from tilewright.ir import types as ir
from tilewright.ir.builder import Builder
from tilewright.ir.core import Value
from tilewright.lowering.emit import Builder as Code
from tilewright.lowering.emit import V
from tilewright.lowering.fmod import correct_reciprocal, fmod
from tilewright.lowering.math_common import float_bits, int_bits
from tilewright.lowering.math_f64 import sin_cos
from tilewright.lowering.math_huge import reduce_huge
from tilewright.lowering.registry import lowers
from tilewright.ops import arith, math

TARGET = declare_target("without library")
COUNT = 256


@lowers(arith.Rem, target=TARGET)
def _rem(b: Code, op: arith.Rem, lhs: V, rhs: V) -> V:
    return fmod(b, lhs, rhs)


def _approximating(ulps: int) -> str:
    """A target whose reciprocals are some units in the last place above the correct ones."""
    target = declare_target(f"reciprocals off by {ulps}")

    def reciprocal(b: Code, y: V) -> V:
        correct = correct_reciprocal(b, y)
        return float_bits(b, b.add(int_bits(b, correct), ulps))

    @lowers(arith.Rem, target=target)
    def _rem(b: Code, op: arith.Rem, lhs: V, rhs: V) -> V:
        return fmod(b, lhs, rhs, reciprocal)

    return target


TARGETS = [TARGET, _approximating(-2), _approximating(2)]


@lowers(math.Sin, target=TARGET)
def _sin(b: Code, op: math.Sin, src: V) -> V:
    return sin_cos(0, reduce_huge)(b, src)


@lowers(math.Cos, target=TARGET)
def _cos(b: Code, op: math.Cos, src: V) -> V:
    return sin_cos(1, reduce_huge)(b, src)


def results(
    make: Any, element: ir.DType, *operands: np.ndarray, target: str = TARGET
) -> np.ndarray:
    """The results of an op for operands of `COUNT` numbers at a time."""

    def build(b: Builder, *loaded: Value) -> list[Value]:
        return [b.value(make(*loaded))]

    module = tile_kernel(build, [tile(element, COUNT)] * len(operands))
    found: list[np.ndarray] = []
    for start in range(0, len(operands[0]), COUNT):
        args = [x[start : start + COUNT].copy() for x in operands]
        args = [np.pad(x, (0, COUNT - len(x)), constant_values=1) for x in args]
        out = np.zeros(COUNT, element.numpy)
        run_emulated(module, (1, 1, 1), [*args, out], warps=1, lanes=8, name=target)
        found.append(out)
    return np.concatenate(found)[: len(operands[0])]


def random_bits(rng: np.random.Generator, element: ir.DType, count: int) -> np.ndarray:
    raw = rng.integers(0, 256, count * element.itemsize, dtype=np.uint8)
    return raw.view(element.numpy)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("element", [ir.FP32, ir.FP64], ids=lambda t: t.short)
def test_fmod_is_exact(element: ir.DType, target: str) -> None:
    rng = np.random.default_rng(5)
    limits = np.finfo(element.numpy)
    special = [*special_values(element), float(limits.max), float(limits.tiny), 3.0, -2.5]
    x, y = (v.ravel() for v in np.meshgrid(*[np.array(special, element.numpy)] * 2))
    near = rng.standard_normal(COUNT).astype(element.numpy)
    x = np.concatenate([x, random_bits(rng, element, COUNT), 1000 * near])
    y = np.concatenate([y, random_bits(rng, element, COUNT), rng.permutation(near)])
    # near multiples of y and of y / 2, from quotients of some bits to more than the format has
    factors = np.exp2(rng.uniform(0, limits.nmant + 4, 8 * COUNT)).round() / 2
    factors[: 2 * COUNT] = rng.choice([0.5, 1, 1.5, 2, 3, 17], 2 * COUNT)
    divisors = rng.standard_normal(8 * COUNT).astype(element.numpy)
    halves = (factors * divisors).astype(element.numpy)
    beside = halves + rng.integers(-3, 4, 8 * COUNT).astype(element.numpy) * np.spacing(halves)
    x, y = np.concatenate([x, beside]), np.concatenate([y, divisors])
    with np.errstate(invalid="ignore"):
        assert same_bits(results(arith.Rem, element, x, y, target=target), np.fmod(x, y))


@pytest.mark.parametrize(("op", "exact"), [(math.Sin, np.sin), (math.Cos, np.cos)])
def test_angles_of_every_size(op: Any, exact: Any) -> None:
    rng = np.random.default_rng(6)
    worst = [6381956970095103.0 * 2.0**797, 2.0**19, np.nextafter(2.0**19, 0), 1.79e308]
    x = np.concatenate([
        random_bits(rng, ir.FP64, 3 * COUNT), 2.0 ** rng.uniform(-3, 80, COUNT),
        np.array([*worst, np.inf, -np.inf, np.nan, 0.0, -0.0]),
    ])  # fmt: skip
    x[::2] *= -1
    found = results(op, ir.FP64, x)
    with np.errstate(invalid="ignore"):
        expected = exact(x.astype(np.longdouble))
    finite = np.isfinite(expected)
    assert np.isnan(found[~finite]).all()
    error = np.abs(found[finite] - expected[finite]) / np.spacing(
        np.abs(expected[finite]).astype(float)
    )
    assert error.max() <= 1.0
