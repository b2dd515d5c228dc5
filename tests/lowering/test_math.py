"""The elementary functions, compiled for the host, against more precise ones.

f32 runs over every 1999th of all 2**32 bit patterns and is compared with float64; f64 over random
bit patterns and the ranges where each function varies, compared with long double. The error is the
distance from the exact value in units of the last place of the f32 or f64 nearest to it.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator

import llvmlite.binding as llvm
import numpy as np
import pytest

from tilewright.lowering.emit import (
    F16,
    F32,
    F64,
    I64,
    PTR,
    VOID,
    Builder,
    LType,
    Module,
    const,
    vector,
)
from tilewright.lowering.llvm_arith import OwnScale
from tilewright.lowering.math import MATH
from tilewright.targets.cpu import avx512
from tilewright.targets.cpu.host import host_machine

LANES = 16
FLOATS = {F32: np.float32, F64: np.float64}

# Largest error allowed, in ulp: (f32, f64). Zero means equal bits.
BOUNDS = {
    "exp": (2.0, 1.5),
    "exp2": (1.5, 1.5),
    "expm1": (1.5, 1.5),
    "log": (1.0, 1.0),
    "log2": (1.5, 2.0),
    "log10": (1.5, 1.5),
    "log1p": (1.5, 1.5),
    "sin": (2.0, 1.0),
    "cos": (2.0, 1.0),
    "tan": (3.0, 1.5),
    "tanh": (1.5, 1.5),
    "erf": (1.5, 2.0),
    "sqrt": (0.501, 0.501),
    "rsqrt": (1.5, 1.5),
    "sigmoid": (1.5, 1.5),
    "floor": (0.0, 0.0),
    "ceil": (0.0, 0.0),
    "trunc": (0.0, 0.0),
    "rint": (0.0, 0.0),
}
POW_BOUNDS = (0.51, 1.0)
SCALED = ["exp", "exp2", "erf"]  # what a target's own scaling changes


class Jit:
    """Compiles `out[i] = f(x[i], ...)` over 16 lanes at a time and keeps it alive."""

    def __init__(
        self,
        name: str,
        element: LType,
        has_fma: bool,
        lanes: int = LANES,
        own_scale: OwnScale | None = None,
    ) -> None:
        arity = 2 if name == "pow" else 1
        module = Module(name)
        function = module.function("run", VOID, [(PTR, "")] * (arity + 1) + [(I64, "")])
        b = Builder(function, has_fma=has_fma, fast_flags="contract")
        b.own_scale = own_scale
        type = vector(element, lanes) if lanes else element
        with b.loop(0, function.params[-1], lanes or 1) as loop:
            places = [b.gep(element, p, loop.index) for p in function.params[:-1]]
            result = MATH[name](b, *[b.load(type, place) for place in places[:-1]])
            assert result.type is type
            b.store(result, places[-1])
        b.ret()
        self.text = module.text()
        parsed = llvm.parse_assembly(self.text)
        parsed.verify()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
        )
        self._engine = llvm.create_mcjit_compiler(parsed, machine)
        self._engine.finalize_object()
        address = self._engine.get_function_address("run")
        pointers = [ctypes.c_void_p] * (arity + 1)
        self._call = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64)(address)

    def __call__(self, *arguments: np.ndarray) -> np.ndarray:
        size = arguments[0].size
        padded = [np.pad(a, (0, -size % LANES)) for a in arguments]
        out = np.empty_like(padded[0])
        self._call(*[a.ctypes.data for a in padded], out.ctypes.data, out.size)
        return out[:size]


@pytest.fixture(scope="module", autouse=True)
def native_target() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@pytest.fixture(autouse=True)
def quiet_numpy() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def erf_series(x: np.ndarray) -> np.ndarray:
    """erf in the precision of x by 2/sqrt(pi) exp(-x^2) sum 2^n x^(2n+1) / (2n+1)!!.

    All terms have one sign (DLMF 7.6.2), so nothing cancels; 160 terms reach past |x| = 6.
    """
    y = np.clip(x, -7, 7)
    # -y*y loses digits that matter to exp: split y so that the head's square is exact.
    head = y.astype(np.float32).astype(y.dtype)
    # Of most bit patterns the first term is the sum, or the result is the one.
    inner = (np.abs(y) > 2.0**-40) & (np.abs(y) <= 6.5)
    near = y[inner]
    term = near.copy()
    total = y.copy()
    for n in range(1, 200):
        term = term * (2 * near * near / (2 * n + 1))
        total[inner] += term
    decay = np.exp(-head * head) * np.exp(-(y - head) * (y + head))
    scale = 2 / np.sqrt(4 * np.arctan(np.ones((), y.dtype)))
    # The series loses the last bits of the one beyond 6.5, where erf is 1 to 64 bits.
    result = np.where(np.abs(y) > 6.5, np.sign(y), scale * decay * total)
    return np.where(x == 0, x, result)


ORACLES: dict[str, Callable[..., np.ndarray]] = {
    "erf": erf_series,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: np.where(x < 0, np.exp(-np.abs(x)), 1) / (1 + np.exp(-np.abs(x))),
    "pow": np.power,
}


def exact(name: str, *arguments: np.ndarray) -> np.ndarray:
    """The function in the next wider float."""
    wide = np.float64 if arguments[0].dtype == np.float32 else np.longdouble
    return (ORACLES.get(name) or getattr(np, name))(*[a.astype(wide) for a in arguments])


def ulp_errors(result: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Errors in ulp of `result`'s type; infinite where NaN, infinity or a zero's sign differ."""
    rounded = exact.astype(result.dtype)
    spacing = np.spacing(np.abs(rounded))
    spacing = np.where(np.isinf(rounded), np.spacing(np.finfo(result.dtype).max), spacing)
    errors = np.abs(result.astype(exact.dtype) - exact) / spacing
    same = (np.isnan(result) & np.isnan(rounded)) | (result == rounded)
    errors = np.where(same & ~np.isfinite(rounded), 0, errors)
    errors = np.where(np.isfinite(errors), errors, np.inf)
    wrong_zero = (result == 0) & (exact == 0) & (np.signbit(result) != np.signbit(exact))
    return np.where(wrong_zero, np.inf, errors).astype(np.float64)


def specials(dtype: type) -> np.ndarray:
    """Zeros, ones, infinities, NaN, extremes, and neighbours of where functions change branch."""
    info = np.finfo(dtype)
    tiny, largest, least = info.tiny, info.max, info.smallest_subnormal
    points = [0.0, 1.0, 0.5, 2.0, 3.0, 0.95, 1.5, 6.0, 9.02, 17.33, 18.0, 0.75 * math.pi]
    points += [math.log(2) / 2, math.sqrt(0.5), math.sqrt(2), 88.7228390, 103.97, 87.33, 709.78]
    points += [745.13, 708.39, 2.0**19, 128.0, 149.0, 150.0, 1024.0, 1074.0, 1e10, 1e22, 1e30]
    points += [math.pi / 2 * k for k in range(1, 9)]
    values = np.array([*points, tiny, least, largest, math.inf, math.nan], dtype)
    near = [values, np.nextafter(values, dtype(np.inf)), np.nextafter(values, dtype(-np.inf))]
    positive = np.concatenate(near)
    return np.concatenate([positive, -positive])


def inputs_f32(stride: int) -> np.ndarray:
    patterns = np.arange(0, 2**32, stride, dtype=np.uint64).astype(np.uint32)
    return np.concatenate([patterns.view(np.float32), specials(np.float32)])


def inputs_f64(count: int) -> np.ndarray:
    rng = np.random.default_rng(7)
    anywhere = rng.integers(0, 2**64, count, dtype=np.uint64).view(np.float64)
    ranges = [rng.uniform(-r, r, count // 4) for r in (1.0, 6.0, 40.0, 1100.0, 2.0**19, 2.0**21)]
    magnitudes = np.exp2(rng.uniform(-60, 30, count)) * rng.choice([-1.0, 1.0], count)
    near_one = 1 + rng.uniform(-1, 1, count // 4) * np.exp2(rng.uniform(-50, -1, count // 4))
    return np.concatenate([anywhere, *ranges, magnitudes, near_one, specials(np.float64)])


def measure(
    name: str,
    element: LType,
    has_fma: bool,
    *values: np.ndarray,
    own_scale: OwnScale | None = None,
) -> float:
    found = Jit(name, element, has_fma, own_scale=own_scale)(*values)
    errors = ulp_errors(found, exact(name, *values))
    worst = int(np.argmax(errors))
    fused = "fma" if has_fma else "no fma"
    at = ", ".join(repr(v[worst]) for v in values)
    print(f"{name:8} {element.text:6} {fused:6} {errors[worst]:.3f} ulp at {at}")
    return float(errors[worst])


needs_long_double = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="long double is no wider than double here"
)
needs_own_scale = pytest.mark.skipif(
    not avx512.has_scale(host_machine()), reason="the host has no instruction that scales"
)
with_and_without_fma = pytest.mark.parametrize("has_fma", [True, False], ids=["fma", "no_fma"])


def test_bounds_cover_the_registry() -> None:
    assert {*BOUNDS, "pow"} == set(MATH)


@with_and_without_fma
@pytest.mark.parametrize("name", BOUNDS)
def test_f32_within_bound(name: str, has_fma: bool) -> None:
    values = inputs_f32(1999 if has_fma else 9973)
    assert measure(name, F32, has_fma, values) <= BOUNDS[name][0]


@needs_long_double
@with_and_without_fma
@pytest.mark.parametrize("name", BOUNDS)
def test_f64_within_bound(name: str, has_fma: bool) -> None:
    assert measure(name, F64, has_fma, inputs_f64(100_000)) <= BOUNDS[name][1]


@needs_own_scale
@pytest.mark.parametrize("name", SCALED)
def test_f32_scaled_by_the_target_within_bound(name: str) -> None:
    values = inputs_f32(1999)
    assert measure(name, F32, True, values, own_scale=avx512.scale) <= BOUNDS[name][0]


@needs_own_scale
@needs_long_double
@pytest.mark.parametrize("name", SCALED)
def test_f64_scaled_by_the_target_within_bound(name: str) -> None:
    values = inputs_f64(100_000)
    assert measure(name, F64, True, values, own_scale=avx512.scale) <= BOUNDS[name][1]


def pow_inputs(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Random bases with exponents that keep most results finite, and all pairs of specials."""
    rng = np.random.default_rng(11)
    count = 400_000
    limit = 150.0 if dtype is np.float32 else 1080.0
    x = np.exp2(rng.uniform(-20, 20, count))
    x[: count // 2] = 1 + rng.uniform(-1, 1, count // 2) * np.exp2(rng.uniform(-20, -1, count // 2))
    with np.errstate(divide="ignore"):
        y = rng.uniform(-limit, limit, count) / np.log2(x)
    whole = rng.integers(-12, 12, count)
    x = np.concatenate([x, -x])
    y = np.concatenate([y, whole])
    special = specials(dtype)
    integers = np.arange(-5, 6).astype(dtype)
    base, power = np.meshgrid(
        np.concatenate([special, integers]), np.concatenate([special, integers])
    )
    return (
        np.concatenate([x.astype(dtype), base.ravel()]),
        np.concatenate([y.astype(dtype), power.ravel()]),
    )


@with_and_without_fma
def test_pow_f32_within_bound(has_fma: bool) -> None:
    assert measure("pow", F32, has_fma, *pow_inputs(np.float32)) <= POW_BOUNDS[0]


@needs_long_double
def test_pow_f64_within_bound() -> None:
    assert measure("pow", F64, True, *pow_inputs(np.float64)) <= POW_BOUNDS[1]


@pytest.mark.parametrize("element", FLOATS, ids=["f32", "f64"])
@pytest.mark.parametrize("name", BOUNDS)
def test_scalar_code_agrees_bit_for_bit_with_vector_code(name: str, element: LType) -> None:
    values = specials(FLOATS[element])
    vectors = Jit(name, element, True)(values)
    scalars = Jit(name, element, True, lanes=0)(values)
    nan = np.isnan(vectors)
    assert np.array_equal(nan, np.isnan(scalars))
    assert vectors[~nan].tobytes() == scalars[~nan].tobytes()


@needs_own_scale
@pytest.mark.parametrize("lanes", [0, 4, 32])
@pytest.mark.parametrize("element", FLOATS, ids=["f32", "f64"])
@pytest.mark.parametrize("name", SCALED)
def test_scaling_is_independent_of_the_number_of_lanes(
    name: str, element: LType, lanes: int
) -> None:
    values = specials(FLOATS[element])
    values = np.pad(values, (0, -values.size % 32))
    some = Jit(name, element, True, lanes, own_scale=avx512.scale)(values)
    register = Jit(name, element, True, own_scale=avx512.scale)(values)
    assert np.array_equal(some, register, equal_nan=True)


@pytest.mark.parametrize("own_scale", [None, pytest.param(avx512.scale, marks=needs_own_scale)])
def test_exp2_is_exact_at_integers(own_scale: OwnScale | None) -> None:
    k = np.arange(-149, 128)
    found = Jit("exp2", F32, True, own_scale=own_scale)(k.astype(np.float32))
    assert np.array_equal(found, np.exp2(k.astype(float)))
    k = np.arange(-1074, 1024).astype(np.float64)
    assert np.array_equal(Jit("exp2", F64, True, own_scale=own_scale)(k), np.exp2(k))


def test_log2_is_exact_at_powers_of_two() -> None:
    k = np.arange(-149, 128)
    assert np.array_equal(Jit("log2", F32, True)(np.exp2(k.astype(float)).astype(np.float32)), k)


def test_saturating_functions_stay_within_one() -> None:
    values = np.linspace(-30, 30, 1_000_003).astype(np.float32)
    for name in ("tanh", "erf", "sigmoid"):
        for element, dtype in FLOATS.items():
            assert np.abs(Jit(name, element, True)(values.astype(dtype))).max() <= 1, name


def test_fast_flags_do_not_enter_the_code_and_come_back() -> None:
    module = Module("m")
    b = Builder(module.function("f", F32, [(F32, "")]), fast_flags="fast")
    y = MATH["log1p"](b, b.function.params[0])
    assert b.fast_flags == "fast"
    b.ret(y)
    assert " fast " not in module.text()


@pytest.mark.parametrize(("own_scale", "most"), [(None, 16), (avx512.scale, 12)])
def test_exp_f32_stays_cheap(own_scale: OwnScale | None, most: int) -> None:
    """The number of vector operations; a clamp counts as the one instruction it becomes."""
    module = Module("m")
    type = vector(F32, LANES)
    b = Builder(module.function("f", type, [(type, "")]))
    b.own_scale = own_scale
    b.ret(MATH["exp"](b, b.function.params[0]))
    operations = [line for line in module.text().splitlines() if line.startswith("  %")]
    compares = sum("fcmp" in line for line in operations)
    casts = sum("bitcast" in line for line in operations)
    assert len(operations) - compares - casts <= most


def test_other_types_are_rejected() -> None:
    b = Builder(Module("m").function("f", VOID, []))
    with pytest.raises(TypeError, match="f32 or f64"):
        MATH["exp"](b, const(F16, 1.0))
    with pytest.raises(TypeError, match="different types"):
        MATH["pow"](b, const(F32, 1.0), const(F64, 1.0))
