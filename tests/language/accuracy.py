"""Measures how far the elementary functions are from correctly rounded, and writes the table.

    python -m tests.language.accuracy interpreter cpu simt
    python -m tests.language.accuracy cuda

measure on those targets (`simt`: the code for GPU threads, run on the CPU) and replace their
columns in `docs/accuracy.md`. Errors are in units of the last place (ulp) of the result's type at
the exact value, by mpmath with 40 digits.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import mpmath as mp
import numpy as np

import tilewright as tw
import tilewright.language as tl
from tests.language.on_targets import BLOCK, RUNS, Run, grid_of, kernel_of
from tilewright.frontend.source import SourceFunction

TABLE = Path(__file__).parents[2] / "docs/accuracy.md"
DIGITS = 40
INF, NAN = float("inf"), float("nan")
Exact = Callable[..., Any]


class Case(NamedTuple):
    """A function and what it must give.

    Attributes:
        exact: the function on mpmath's numbers; a complex or missing value means NaN.
        bounds: the largest errors in ulp, in fp32 and fp64, of the formulas on any target; None
            where there is no such version.
        low, high: arguments outside are left out, where the result is known or needs no measuring.
        at_least: the error counts in ulp of the larger of the exact value and this one; for
            functions with zeros that no fp64 is near to.
        core: whether it is a function of the language itself, not of libdevice.
    """

    exact: Exact
    bounds: tuple[float | None, float | None] = (0.51, 2.0)
    low: float = -INF
    high: float = INF
    at_least: Callable[[float], float] | None = None
    core: bool = False


def _envelope(x: float) -> float:
    """The size of the waves of Bessel functions."""
    return 1.0 if abs(x) < 1 else (2 / (np.pi * abs(x))) ** 0.5


def _one(x: float) -> float:
    return 1.0


def _cbrt(x: Any) -> Any:
    return mp.sign(x) * mp.cbrt(abs(x))


def _erfcx(x: Any) -> Any:
    if x < 1000:
        return mp.exp(x * x) * mp.erfc(x)
    terms = [(-1) ** n * mp.fac2(2 * n - 1) / (2 * x * x) ** n for n in range(8)]
    return mp.fsum(terms) / (x * mp.sqrt(mp.pi))


def _erfcinv(y: Any) -> Any:
    """By Newton's method on log(erfc)."""
    if y > 1:
        return -_erfcinv(2 - y)
    if y > mp.mpf("0.4"):
        return mp.erfinv(1 - y)
    x = mp.sqrt(-mp.log(y))
    for _ in range(9):
        c = mp.erfc(x)
        x += (mp.log(c) - mp.log(y)) * c * mp.exp(x * x) * mp.sqrt(mp.pi) / 2
    return x


def _erfinv(y: Any) -> Any:
    return mp.erfinv(y) if abs(y) < 0.5 else mp.sign(y) * _erfcinv(1 - abs(y))


def _normcdfinv(p: Any) -> Any:
    return -mp.sqrt(2) * _erfcinv(2 * p)


def _lgamma(x: Any) -> Any:
    if x <= 0 and x == mp.floor(x):
        return mp.inf
    return mp.log(abs(mp.gamma(x))) if abs(x) < 170 else mp.re(mp.loggamma(x))


def _norm(*x: Any) -> Any:
    return mp.sqrt(mp.fsum(v * v for v in x))


def _remainder(x: Any, y: Any) -> Any:
    return x - y * mp.nint(x / y)


CORE = (2.0, 2.0)
NARROW = 4.0  # of formulas in fp32
WAVES: Any = {"bounds": (0.51, 32.0), "low": -1e5, "high": 1e5, "at_least": _envelope}

UNARY: dict[str, Case] = {
    "exp": Case(mp.exp, CORE, -800, 800, core=True),
    "exp2": Case(lambda x: mp.mpf(2) ** x, CORE, -1100, 1100, core=True),
    "log": Case(mp.log, CORE, 0, core=True),
    "log2": Case(lambda x: mp.log(x, 2), CORE, 0, core=True),
    "sin": Case(mp.sin, CORE, core=True),
    "cos": Case(mp.cos, CORE, core=True),
    "erf": Case(mp.erf, CORE, core=True),
    "sqrt": Case(mp.sqrt, CORE, 0, core=True),
    "rsqrt": Case(lambda x: 1 / mp.sqrt(x), CORE, 0, core=True),
    "sigmoid": Case(lambda x: 1 / (1 + mp.exp(-x)), (3.0, 3.0), -87, 700, core=True),
    "tanh": Case(mp.tanh, CORE, -800, 800),
    "expm1": Case(mp.expm1, CORE, -800, 800),
    "log10": Case(mp.log10, CORE, 0),
    "log1p": Case(mp.log1p, CORE, -1),
    "exp10": Case(lambda x: mp.mpf(10) ** x, (NARROW, 2.0), low=-400, high=400),
    "cbrt": Case(_cbrt, (0.51, 1.0)),
    "rcbrt": Case(lambda x: 1 / _cbrt(x), (0.51, 1.0)),
    "sinh": Case(mp.sinh, (NARROW, 3.0), -800, 800),
    "cosh": Case(mp.cosh, (NARROW, 2.0), low=-800, high=800),
    "asinh": Case(mp.asinh, (NARROW, 3.0)),
    "acosh": Case(mp.acosh, (NARROW, 3.0), 1),
    "atanh": Case(mp.atanh, (NARROW, 3.0), -1, 1),
    "tan": Case(mp.tan, (NARROW, 2.5)),
    "sinpi": Case(mp.sinpi, (0.51, 1.0)),
    "cospi": Case(mp.cospi, (0.51, 1.0)),
    "asin": Case(mp.asin, (NARROW, 2.0), low=-1, high=1),
    "acos": Case(mp.acos, (NARROW, 2.0), low=-1, high=1),
    "atan": Case(mp.atan, (NARROW, 2.0)),
    "erfc": Case(mp.erfc, (7.0, 4.0), -30, 30),
    "erfcx": Case(_erfcx, (0.51, 4.0), -30),
    "erfinv": Case(_erfinv, (0.51, 4.0), -1, 1),
    "erfcinv": Case(_erfcinv, (0.51, 4.0), 0, 2),
    "normcdf": Case(mp.ncdf, (0.51, 5.0), -40, 40),
    "normcdfinv": Case(_normcdfinv, (0.51, 5.0), 0, 1),
    "tgamma": Case(mp.gamma, (0.51, 8.0), -190, 190),
    "lgamma": Case(_lgamma, (0.51, 5.0), -1e15, 1e300, _one),
    "j0": Case(lambda x: mp.besselj(0, x), **WAVES),
    "j1": Case(lambda x: mp.besselj(1, x), **WAVES),
    "y0": Case(lambda x: mp.bessely(0, x), **WAVES | {"low": 0}),
    "y1": Case(lambda x: mp.bessely(1, x), **WAVES | {"low": 0}),
    "cyl_bessel_i0": Case(lambda x: mp.besseli(0, x), (0.51, 6.0), -720, 720),
    "cyl_bessel_i1": Case(lambda x: mp.besseli(1, x), (0.51, 6.0), -720, 720),
    "rsqrt_rn": Case(lambda x: 1 / mp.sqrt(x), (0.5001, None), 0),
    "rcp_rn": Case(lambda x: 1 / x, (0.5001, 0.5001)),
    "sqrt_rn": Case(mp.sqrt, (0.5001, 0.5001), 0),
}
SEVERAL: dict[str, Case] = {
    "pow": Case(lambda x, y: mp.power(x, y), (NARROW, 2.0)),
    "atan2": Case(mp.atan2, (NARROW, 2.5)),
    "hypot": Case(_norm, (NARROW, 1.0)),
    "rhypot": Case(lambda *x: 1 / _norm(*x), (0.51, 1.5)),
    "norm3d": Case(_norm, (0.51, 1.0)),
    "rnorm3d": Case(lambda *x: 1 / _norm(*x), (0.51, 1.5)),
    "norm4d": Case(_norm, (0.51, 1.0)),
    "rnorm4d": Case(lambda *x: 1 / _norm(*x), (0.51, 1.5)),
    "fmod": Case(lambda x, y: x - y * mp.mpf(int(x / y)), (0.0, 0.0)),
    "remainder": Case(_remainder, (0.0, 0.0)),
}
OPERANDS = {"norm3d": 3, "rnorm3d": 3, "norm4d": 4, "rnorm4d": 4}
CASES = UNARY | SEVERAL


# -- samples ---------------------------------------------------------------------------------------


def sweep(dtype: Any, count: int) -> np.ndarray:
    """Bit patterns from one end of the type to the other: evenly strided in fp32; in fp64 one at
    random for each stride, and numbers of ordinary size."""
    if dtype is np.float32:
        patterns = np.arange(0, 2**32, max(1, 2**32 // count) | 1, dtype=np.uint64)
        return patterns.astype(np.uint32).view(np.float32)
    rng = np.random.default_rng(3)
    half = count // 2
    anywhere = rng.integers(0, 2**64, half, dtype=np.uint64).view(np.float64)
    near = [rng.uniform(-r, r, half // 6) for r in (1.0, 3.0, 10.0, 100.0, 700.0)]
    powers = np.exp2(rng.uniform(-40, 10, half // 6)) * rng.choice([-1.0, 1.0], half // 6)
    return np.concatenate([anywhere, *near, powers])


def arguments(name: str, dtype: Any, count: int) -> list[np.ndarray]:
    """Arrays of finite arguments, a whole number of blocks."""
    case, rng = CASES[name], np.random.default_rng(5)
    if name in UNARY:
        values = sweep(dtype, count)
        with np.errstate(invalid="ignore"):  # of signalling NaN
            wide = values.astype(np.float64)
        inside = np.isfinite(values) & (values != 0) & (wide > case.low) & (wide < case.high)
        values = values[inside]
        # of ordinary size, for functions of which most bit patterns lie outside
        low, high = max(case.low, -30.0), min(case.high, 30.0)
        more = rng.uniform(low, high, max(count // 4, -len(values) % BLOCK)).astype(dtype)
        wide = more.astype(np.float64)
        values = np.concatenate([values, more[(wide > case.low) & (wide < case.high)]])
        return [values[: len(values) // BLOCK * BLOCK]]
    count = max(count // BLOCK, 1) * BLOCK
    if name == "pow":
        x = np.exp2(rng.uniform(-30, 30, count))
        x[::2] = 1 + rng.uniform(-0.9, 1, count // 2) * np.exp2(rng.uniform(-20, 0, count // 2))
        y = rng.uniform(-1, 1, count) * (120 if dtype is np.float32 else 1000) / np.log2(x)
        return [x.astype(dtype), y.astype(dtype)]
    sizes = np.exp2(rng.uniform(-20, 20, (OPERANDS.get(name, 2), count)))
    return list((sizes * rng.choice([-1.0, 1.0], sizes.shape)).astype(dtype))


# -- errors ----------------------------------------------------------------------------------------


def exact_values(name: str, args: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The exact results as sums of two fp64; NaN where there is none."""
    case = CASES[name]
    high, low = np.empty(len(args[0])), np.empty(len(args[0]))
    with mp.workdps(DIGITS):
        for i, row in enumerate(zip(*args, strict=True)):
            try:
                value = case.exact(*[mp.mpf(float(v)) for v in row])
            except (ZeroDivisionError, ValueError):
                value = mp.nan
            if isinstance(value, mp.mpc):
                value = value.real if value.imag == 0 else mp.nan
            high[i] = float(value)
            low[i] = float(value - mp.mpf(high[i])) if np.isfinite(high[i]) else 0.0
    return high, low


def errors(name: str, result: np.ndarray, exact: Any, args: Sequence[np.ndarray]) -> np.ndarray:
    """Errors in ulp; infinite where only one is NaN, or an infinity differs."""
    high, low = exact
    case, dtype = CASES[name], result.dtype
    with np.errstate(all="ignore"):
        rounded = high.astype(dtype)
        size = np.abs(rounded)
        if case.at_least is not None:
            size = np.maximum(size, [case.at_least(float(x)) for x in args[0]]).astype(dtype)
        unit = np.spacing(np.minimum(size, np.finfo(dtype).max)).astype(np.float64)
        found = np.abs((result.astype(np.float64) - high) - low) / unit
        same = (np.isnan(result) & np.isnan(rounded)) | (result == rounded)
        found = np.where(~np.isfinite(rounded) & same, 0.0, found)
        return np.where(np.isfinite(found), found, np.inf)


def largest_error(
    name: str, result: np.ndarray, exact: Any, args: Sequence[np.ndarray]
) -> tuple[float, str]:
    """The largest of `errors`, and where it is."""
    found = errors(name, result, exact, args)
    worst = int(np.argmax(found))
    place = ", ".join(repr(float(a[worst])) for a in args)
    return float(found[worst]), f"{result[worst]!r} at {place}"


# -- targets ---------------------------------------------------------------------------------------


def on_cuda(kernel: SourceFunction, arrays: list[np.ndarray]) -> None:
    import torch

    tensors = [torch.from_numpy(a).to("cuda") for a in arrays]
    tw.jit(kernel.fn)[grid_of(arrays)](*tensors)
    arrays[0][:] = tensors[0].cpu().numpy()


TARGETS: dict[str, Run] = {**RUNS, "cuda": on_cuda}


def call(name: str) -> str:
    """A call of the function on `a`, `b`, ..."""
    count = 1 if name in UNARY else OPERANDS.get(name, 2)
    function = f"tl.{name}" if CASES[name].core else f"libdevice.{name}"
    return f"{function}({', '.join('abcd'[:count])})"


def measure(
    name: str, dtype: Any, targets: Sequence[str], count: int
) -> dict[str, tuple[float, str]]:
    """The largest error of a function on each target, and where it is."""
    args = arguments(name, dtype, count)
    exact = exact_values(name, args)
    kernel = kernel_of(call(name), len(args), libdevice=tl.extra.libdevice)
    found: dict[str, tuple[float, str]] = {}
    for target in targets:
        arrays = [np.zeros_like(args[0]), *[a.copy() for a in args]]
        TARGETS[target](kernel, arrays)
        found[target] = largest_error(name, arrays[0], exact, args)
    return found


# -- the table -------------------------------------------------------------------------------------

HEADER = """# Accuracy of the elementary functions

Maximum observed errors in units in the last place (ulp) of the result, relative to mpmath; 0.50 is
correctly rounded. Generated by `python -m tests.language.accuracy` from evenly spaced bit patterns
of fp32, random bit patterns of fp64, and numbers of ordinary magnitude. The zeros of `lgamma` at
negative arguments and of the Bessel functions are not representable in fp64; near them, errors are
in ulp of 1 for `lgamma`, and in ulp of the amplitude for the Bessel functions. `simt` is the code
for GPU threads, run on a CPU. `cuda` uses NVIDIA's instructions for some fp32 functions
(`targets/nvidia/math.py`); those of `tl.exp` and `tl.exp2` flush results below 2**-126 to 0. An
fp32 result of `tl.exp` of which all uses are rounded to 16 bits or fewer has a relative error of
2**-17 there (`analysis/roundings.py`). A `pow` by a constant integer from -2 to 4 is a product,
within 1.5 ulp. The `fast_` functions of the library are NVIDIA's approximate instructions there
(`fast_expf`, `fast_logf`, `fast_log2f`, `fast_log10f`, `fast_sinf`, `fast_cosf`, `fast_tanhf`,
`fast_powf`). A dash means that the column has not been measured.

Functions of the language are named `tl.exp` etc.; the others are in
`tilewright.language.extra.libdevice`. Functions that are not in the table are exact, correctly
rounded in the direction in their name, or aliases of a function in the table.
"""


def read_table() -> dict[tuple[str, str], dict[str, str]]:
    """(function, type) -> target -> error, of the page as it is."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    if TABLE.exists():
        for line in TABLE.read_text("utf-8").splitlines():
            cells = [c.strip() for c in line.strip("|").split("|")]
            if len(cells) == 2 + len(TARGETS) and re.fullmatch(r"`[\w.]+`", cells[0]):
                rows[cells[0], cells[1]] = dict(zip(TARGETS, cells[2:], strict=True))
    return rows


def write_table(rows: dict[tuple[str, str], dict[str, str]]) -> None:
    lines = [f"| function | type | {' | '.join(TARGETS)} |", "|---" * (2 + len(TARGETS)) + "|"]
    for name in CASES:
        shown = f"`tl.{name}`" if CASES[name].core else f"`{name}`"
        for short in ("fp32", "fp64"):
            cells = rows.get((shown, short))
            if cells:
                found = " | ".join(cells.get(t, "-") for t in TARGETS)
                lines.append(f"| {shown} | {short} | {found} |")
    TABLE.write_text(HEADER + "\n" + "\n".join(lines) + "\n", "utf-8")


def main(targets: Sequence[str], names: Sequence[str], count: int) -> None:
    rows = read_table()
    for name in names:
        for dtype, bound in zip((np.float32, np.float64), CASES[name].bounds, strict=True):
            if bound is None:
                continue
            found = measure(name, dtype, targets, count)
            short = "fp32" if dtype is np.float32 else "fp64"
            shown = f"`tl.{name}`" if CASES[name].core else f"`{name}`"
            row = rows.setdefault((shown, short), {})
            for target, (error, place) in found.items():
                mark = " <-- above its bound" if error > bound else ""
                print(f"{name:14} {short} {target:12} {error:9.3f}  {place}{mark}", flush=True)
                row[target] = f"{error:.2f}"
    write_table(rows)


if __name__ == "__main__":
    chosen = [a for a in sys.argv[1:] if a in TARGETS] or list(TARGETS)[:3]
    functions = [a for a in sys.argv[1:] if a in CASES] or list(CASES)
    counts = [int(a) for a in sys.argv[1:] if a.isdigit()] or [16384]
    main(chosen, functions, counts[0])
