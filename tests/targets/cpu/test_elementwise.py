"""Every elementwise op on every element type, bit for bit against its NumPy meaning."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from, type_string
from tests.ir_values import floats_in, same_bits
from tests.targets.cpu.harness import PLAIN_AVX2, PLAIN_SSE2, assert_same, both, host, run_compiled
from tilewright.ir import types as ir
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Op, Value
from tilewright.ir.passes import PassContext, run
from tilewright.ir.verify import verify_module
from tilewright.ops import arith, control, math, memory, shape
from tilewright.targets.cpu.codegen import generate
from tilewright.targets.cpu.pipeline import STEPS

SIZE = 77  # four whole vectors of 16 and a rest
INTS = [t for t in ir.SCALARS if t.is_int()]
FLOATS = [t for t in ir.SCALARS if t.is_floating()]
NUMBERS = [t for t in ir.SCALARS if not t.is_bool()]


def inputs(element: ir.DType, rng: np.random.Generator, which: int) -> Any:
    """Special values against each other, then random bits."""
    if element.is_bool():
        return rng.integers(0, 2, SIZE).astype(np.bool_)
    if element.is_int():
        low, high = element.get_int_min_value(), element.get_int_max_value()
        special = [low, low + 1, high, high - 1, 0, 1, 2, 3, 7]
        special += [-1, -2, -7] if element.is_int_signed() else []
        random = rng.integers(low, high, SIZE, dtype=element.numpy, endpoint=True)
    else:
        special = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, np.inf, -np.inf, np.nan, 1e-3, -2.5, 448.0]
        raw = rng.integers(0, 256, SIZE * element.itemsize, dtype=np.uint8)
        random = raw.view(element.numpy).copy()
        random[::3] = floats_in(rng.standard_normal(len(random[::3])), element)
    values = np.array(special, np.float64 if element.is_floating() else object)
    spread = values[np.arange(SIZE) * (1 + 4 * which) % len(values)]
    with np.errstate(all="ignore"):
        found = random.copy()
        found[:45] = floats_in(spread, element)[:45]
        return found


def kernel(make: Any, sources: list[ir.Type], result: ir.Type) -> Module:
    """A kernel that loads tiles, applies `make`, and stores the result."""
    fn = Function(
        "kernel",
        [ir.Pointer(t) for t in [*sources, result]],  # pyright: ignore
        arg_attrs=[{"alias": i} for i in range(len(sources) + 1)],
    )
    b = Builder(fn.body)
    lanes = b.value(shape.Arange(start=0, end=SIZE))

    def at(arg: Value) -> Value:
        return b.value(memory.AddPtr(b.value(shape.Splat(arg, shape=(SIZE,))), lanes))

    loaded = [b.value(memory.Load(at(a), None, None, "", "", False)) for a in fn.args[:-1]]
    b.insert(memory.Store(at(fn.args[-1]), b.value(make(*loaded)), None, "", ""))
    b.insert(control.Return([]))
    module = Module([fn])
    verify_module(module)
    return module


def check(make: Any, sources: list[ir.DType], result: ir.DType, **options: Any) -> None:
    rng = np.random.default_rng(1)
    args = [inputs(t, rng, i) for i, t in enumerate(sources)]
    out = np.zeros(SIZE, result.numpy)
    assert_same(kernel(make, list(sources), result), (1, 1, 1), [*args, out], **options)


def ids(t: ir.DType) -> str:
    return t.short


BINARY_INT: list[type[Op]] = [arith.IntDiv, arith.And, arith.Or, arith.Xor, arith.Shl, arith.Shr]
BINARY: list[type[Op]] = [arith.Add, arith.Sub, arith.Mul, arith.Min, arith.Max, arith.Rem]


@pytest.mark.parametrize("element", ir.SCALARS, ids=ids)
@pytest.mark.parametrize("cls", BINARY, ids=lambda c: c.name)
def test_binary(cls: Any, element: ir.DType) -> None:
    check(cls, [element, element], element)


@pytest.mark.parametrize("element", INTS, ids=ids)
@pytest.mark.parametrize("cls", BINARY_INT, ids=lambda c: c.name)
def test_binary_int(cls: Any, element: ir.DType) -> None:
    check(cls, [element, element], element)


@pytest.mark.parametrize("element", FLOATS, ids=ids)
def test_div(element: ir.DType) -> None:
    check(lambda x, y: arith.Div(x, y, ieee=True), [element, element], element)


def test_fp64_is_divided_exactly_by_a_number_too() -> None:
    """fp32 is multiplied by the reciprocal of a divisor that all elements share."""
    text = """
    def quotients(x, divisor):
        i = tl.arange(0, 64)
        tl.store(x + i, tl.load(x + i) / 3.0 / divisor)
    """
    x = np.random.default_rng(0).standard_normal(64)
    expected = x / 3.0 / 7.1
    run_compiled(build(kernel_from(text), {"x": "*fp64", "divisor": "fp64"}), (1, 1, 1), [x, 7.1])
    assert same_bits(x, expected)


def test_fp32_is_divided_exactly_if_it_is_rounded_to_integers() -> None:
    """Half of these quotients are ties, which the error of a reciprocal would break."""
    text = """
    def quantised(x, q, scale):
        i = tl.arange(0, 64)
        tl.store(q + i, tl.floor(tl.load(x + i) / scale + 0.5).to(tl.int8))
    """
    scale = np.float32(0.07)
    x = np.arange(-32, 32, dtype=np.float32) * scale / np.float32(2)
    q = np.zeros(64, np.int8)
    types = {"x": "*fp32", "q": "*i8", "scale": "fp32"}
    module = build(kernel_from(text), types)
    run(module, STEPS, PassContext())
    run_compiled(module, (1, 1, 1), [x, q, scale])
    assert list(q) == list(np.floor(x / scale + np.float32(0.5)).astype(np.int8))


@pytest.mark.parametrize("element", FLOATS, ids=ids)
@pytest.mark.parametrize("cls", [arith.Min, arith.Max], ids=lambda c: c.name)
def test_extremum_that_propagates_nan(cls: Any, element: ir.DType) -> None:
    check(lambda x, y: cls(x, y, propagate_nan=True), [element, element], element)


@pytest.mark.parametrize("element", ir.SCALARS, ids=ids)
@pytest.mark.parametrize("predicate", list(arith.PREDICATES))
def test_cmp(predicate: str, element: ir.DType) -> None:
    check(lambda x, y: arith.Cmp(x, y, predicate=predicate), [element, element], ir.I1)


@pytest.mark.parametrize("element", ir.SCALARS, ids=ids)
@pytest.mark.parametrize("cls", [arith.Neg, arith.Abs], ids=lambda c: c.name)
def test_unary(cls: Any, element: ir.DType) -> None:
    check(cls, [element], element)


@pytest.mark.parametrize("element", ir.SCALARS, ids=ids)
def test_select(element: ir.DType) -> None:
    check(arith.Select, [ir.I1, element, element], element)


@pytest.mark.parametrize("element", [ir.I32, ir.U32, ir.I64, ir.U64], ids=ids)
def test_mulhi(element: ir.DType) -> None:
    check(arith.MulHi, [element, element], element)


@pytest.mark.parametrize("element", [ir.FP16, ir.BF16, ir.FP32], ids=ids)
def test_fma(element: ir.DType) -> None:
    check(arith.Fma, [element] * 3, element)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("to", ir.SCALARS, ids=ids)
@pytest.mark.parametrize("source", ir.SCALARS, ids=ids)
def test_cast(source: ir.DType, to: ir.DType) -> None:
    check(lambda x: arith.Cast(x, to=to, rounding="rtne"), [source], to)


@pytest.mark.parametrize("source", [ir.I32, ir.U32], ids=ids)
@pytest.mark.parametrize("to", [t for t in FLOATS if t.primitive_bitwidth <= 16], ids=ids)
def test_integers_between_two_floats_round_once(source: ir.DType, to: ir.DType) -> None:
    """Integers next to one that is halfway between two of bf16, or of fp32, by powers of 2."""
    module = kernel(lambda x: arith.Cast(x, to=to, rounding="rtne"), [source], to)
    halves = [(2 * m + 1) << e for m in (128, 201, 255, 2**23 + 1) for e in range(15, 23)]
    near = [h + d for h in halves for d in (-257, -256, -255, -2, -1, 0, 1, 2, 255, 256, 257)]
    near += [-n for n in near]
    low, high = source.get_int_min_value(), source.get_int_max_value()
    numbers = np.array([n for n in near if low <= n <= high], source.numpy)
    for begin in range(0, len(numbers), SIZE):
        x = np.resize(numbers[begin : begin + SIZE], SIZE)
        assert_same(module, (1, 1, 1), [x, np.zeros(SIZE, to.numpy)])


MACHINES = [None, PLAIN_AVX2, PLAIN_SSE2] if "avx2" in host().features else [None]


@pytest.mark.parametrize("features", MACHINES, ids=["host", "avx2", "sse2"][: len(MACHINES)])
@pytest.mark.parametrize("source", [ir.FP32, ir.FP64, ir.BF16], ids=ids)
def test_floats_at_the_bounds_of_integers(source: ir.DType, features: str | None) -> None:
    """Conversions saturate from the first float beyond the range on, and vectors are not converted
    by LLVM's saturating intrinsic, which takes two branches for each element on x86."""
    machine = host(features)
    bounds = [sign * 2.0**e for e in (0, 7, 8, 15, 16, 31, 32, 63, 64) for sign in (1, -1)]
    exact = np.array(bounds, source.numpy)
    up, down = (np.nextafter(exact, np.array(end, source.numpy)) for end in (np.inf, -np.inf))
    numbers = np.concatenate([exact, up, down, floats_in(np.array([np.nan, -np.inf]), source)])
    x = np.resize(numbers, SIZE)
    for to in (t for t in INTS if not t.is_bool()):
        module = kernel(lambda x, to=to: arith.Cast(x, to=to, rounding="rtne"), [source], to)
        assert_same(module, (1, 1, 1), [x, np.zeros(SIZE, to.numpy)], machine=machine)
        if machine.is_x86:
            text = generate(module, machine)[0]
            assert not re.search(r"call <.*@llvm\.fpto.i\.sat", text)


@pytest.mark.parametrize("source", [ir.FP32, ir.FP64, ir.FP16], ids=ids)
@pytest.mark.parametrize("to", [t for t in FLOATS if t.primitive_bitwidth <= 16], ids=ids)
def test_cast_toward_zero(source: ir.DType, to: ir.DType) -> None:
    if to.primitive_bitwidth < source.primitive_bitwidth:
        check(lambda x: arith.Cast(x, to=to, rounding="rtz"), [source], to)


@pytest.mark.parametrize(("source", "to"), [
    (ir.FP32, ir.I32), (ir.I32, ir.FP32), (ir.FP16, ir.I16), (ir.I16, ir.BF16), (ir.BF16, ir.FP16),
    (ir.FP64, ir.U64), (ir.U8, ir.FP8E5), (ir.FP8E4NV, ir.I8), (ir.I32, ir.U32),
], ids=lambda t: t.short)  # fmt: skip
def test_bitcast(source: ir.DType, to: ir.DType) -> None:
    check(lambda x: arith.Bitcast(x, to=to), [source], to)


MATH = [c for c in vars(math).values()
        if isinstance(c, type) and issubclass(c, math.MathFunction) and c.name]  # fmt: skip
EXACT = (math.Floor, math.Ceil, math.Trunc, math.Rint, math.Sqrt)
ULPS = {ir.FP32: 2.0, ir.FP64: 2.0, ir.FP16: 0.51, ir.BF16: 0.51}


@pytest.mark.parametrize("element", [ir.FP32, ir.FP64, ir.FP16, ir.BF16], ids=ids)
@pytest.mark.parametrize("cls", MATH, ids=lambda c: c.name)
def test_math(cls: Any, element: ir.DType) -> None:
    rng = np.random.default_rng(2)
    x = inputs(element, rng, 0)
    out = np.zeros(SIZE, element.numpy)
    (_, ours), (_, theirs) = both(kernel(cls, [element], element), (1, 1, 1), [x, out])
    with np.errstate(all="ignore"):
        compare(cls, element, ours.astype(np.float64), theirs.astype(np.float64))


def compare(cls: Any, element: ir.DType, a: Any, b: Any) -> None:
    """Bounds on the error in units of the last place of the expected value."""
    finite = np.isfinite(b)
    assert (np.isnan(a) == np.isnan(b)).all()
    assert (a[~finite & ~np.isnan(b)] == b[~finite & ~np.isnan(b)]).all()
    if cls in EXACT:
        assert (a[finite] == b[finite]).all()
        return
    last = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(b), 1e-300))) - element.fp_mantissa_width)
    last = np.maximum(last, 2.0 ** (1 - element.exponent_bias - element.fp_mantissa_width))
    error = np.abs(a - b)[finite] / last[finite]
    # a narrow result is rounded from fp32: it may fall to the neighbour, not further
    assert error.max() <= (ULPS[element] if element.primitive_bitwidth >= 32 else 1.0)


@pytest.mark.skipif("avx2" not in host().features, reason="the host runs no AVX2 code")
@pytest.mark.parametrize("element", [ir.FP16, ir.BF16, ir.FP8E4NV, ir.FP32, ir.I8, ir.I1], ids=ids)
def test_without_avx512(element: ir.DType) -> None:
    narrow = host(PLAIN_AVX2)
    check(arith.Add, [element, element], element, machine=narrow)
    for to in (ir.FP16, ir.BF16, ir.FP8E5, ir.I8, ir.FP64):
        check(lambda x, to=to: arith.Cast(x, to=to, rounding="rtne"), [element], to, machine=narrow)


@pytest.mark.skipif("sse2" not in host().features, reason="the host runs no code for x86")
@pytest.mark.parametrize("features", [PLAIN_SSE2, PLAIN_AVX2.replace("f16c,", "")], ids=str)
def test_fp16_without_instructions_for_it(features: str) -> None:
    """Conversions are our own there: nothing is left to call, and the bits are the same."""
    machine = host(features)
    assert not machine.converts_fp16
    fp16 = ir.FP16
    for cls in (*BINARY, arith.Div):
        check(cls, [fp16, fp16], fp16, machine=machine)
    for make in (arith.Neg, arith.Abs, math.Floor):
        check(make, [fp16], fp16, machine=machine)
    check(lambda x, y: arith.Cmp(x, y, predicate="lt"), [fp16, fp16], ir.I1, machine=machine)
    check(arith.Select, [ir.I1, fp16, fp16], fp16, machine=machine)
    check(arith.Fma, [fp16] * 3, fp16, machine=machine)
    for other in ir.SCALARS:
        for source, to in ((fp16, other), (other, fp16)):
            check(lambda x, to=to: arith.Cast(x, to, "rtne"), [source], to, machine=machine)
    for source in (ir.FP32, ir.FP64):
        check(lambda x: arith.Cast(x, fp16, "rtz"), [source], fp16, machine=machine)


@pytest.mark.skipif("sse2" not in host().features, reason="the host runs no code for x86")
def test_every_fp16_converts_without_instructions_for_it() -> None:
    """All patterns to fp32; and back those, the middles between two, and the neighbours of both."""
    half = np.arange(2**16).astype(np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        wide = half.astype(np.float32)
        middle = (wide + np.nextafter(half, np.float16(np.inf)).astype(np.float32)) / 2
        points = np.concatenate([wide, middle, np.array([65520, 65519.996, 1e30, 1e-30], "f4")])
        around = [points, np.nextafter(points, np.float32(1e38)), np.nextafter(points, -np.inf)]
        numbers = np.concatenate([*around, np.zeros(-3 * len(points) % 256)]).astype(np.float32)
        for source, result in ((half, wide), (numbers, numbers.astype(np.float16))):
            found = np.zeros_like(result)
            text = """
            def kernel(out, x):
                i = tl.program_id(0) * 256 + tl.arange(0, 256)
                tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty))
            """
            signature = {"out": type_string(result), "x": type_string(source)}
            module = build(kernel_from(text), signature)
            args = [found, source.copy()]
            run_compiled(module, (len(source) // 256, 1, 1), args, machine=host(PLAIN_SSE2))
            assert same_bits(found, result)
