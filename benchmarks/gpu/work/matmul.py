"""Matrix products of several types, sizes and orders of memory.

NN: the rows of A and B are contiguous. NT: B is the transpose of a matrix with contiguous rows.
TN: A is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import tilewright as tw
from benchmarks.gpu.case import Case, Run, Setting
from benchmarks.gpu.measure import Planned, planned
from benchmarks.gpu.results import Bars

GROUP = 8


@dataclass(frozen=True)
class Config:
    """The tile that a program computes, its steps of K in bytes, stages and warps.

    With the step in bytes, one list serves types of all sizes.
    """

    m: int
    n: int
    k_bytes: int
    stages: int
    warps: int


LARGE = (
    Config(128, 256, 128, 3, 8),
    Config(256, 128, 128, 3, 8),
    Config(128, 256, 128, 4, 8),
    Config(128, 128, 128, 4, 4),
)
MEDIUM = (
    Config(128, 128, 128, 4, 8),
    Config(128, 64, 128, 4, 4),
    Config(64, 128, 128, 4, 4),
)
SMALL = (
    Config(64, 64, 128, 5, 4),
    Config(64, 32, 128, 5, 4),
    Config(64, 64, 256, 3, 4),
)


def _configs(setting: Setting, n: int) -> tuple[Config, ...]:
    """What is tried for a product of n x n matrices."""
    size = SMALL if n <= 512 else MEDIUM if n <= 1024 else LARGE
    return setting.pick(SMALL[:1], size[:2], size)


@dataclass(frozen=True)
class Kind:
    """Types of a product, and how torch computes it.

    Attributes:
        operand, result: of A and B; of C.
        exact: in which the right result is computed.
        tolerance: as `case.worst_error` counts it.
        library: from A and B and C, torch's way.
        bars: what is aimed at.
    """

    operand: torch.dtype
    result: torch.dtype
    exact: torch.dtype
    tolerance: float
    library: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Run]
    bars: Bars


def _mm(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Run:
    return partial(torch.mm, a, b, out=c)


def _mm_tf32(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Run:
    def run() -> None:
        # Other fp32 products stay exact, as expected results are computed by them.
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            torch.mm(a, b, out=c)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False

    return run


def _mm_int8(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Run:
    return partial(torch.ops.aten._int_mm.out, a, b, out=c)


def _mm_fp8(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Run:
    one = torch.ones((), device=a.device)
    return partial(
        torch.ops.aten._scaled_mm, a, b, one, one, out_dtype=c.dtype, use_fast_accum=True
    )


HALF_BARS = Bars(triton=0.95, torch=0.92)
OTHER_BARS = Bars(triton=0.9)
KINDS = {
    "fp16": Kind(torch.float16, torch.float16, torch.float32, 1e-3, _mm, HALF_BARS),
    "bf16": Kind(torch.bfloat16, torch.bfloat16, torch.float32, 8e-3, _mm, HALF_BARS),
    "int8": Kind(torch.int8, torch.int32, torch.float64, 0.0, _mm_int8, OTHER_BARS),
    # The matrix units add up products of fp8 with some 14 bits; 1.03e-2 was seen, of all three.
    "fp8": Kind(torch.float8_e4m3fn, torch.float16, torch.float32, 2e-2, _mm_fp8, OTHER_BARS),
    "tf32": Kind(torch.float32, torch.float32, torch.float64, 2e-3, _mm_tf32, OTHER_BARS),
}


def _matrix(setting: Setting, dtype: torch.dtype, shape: tuple[int, int], transposed: bool) -> Any:
    """A random matrix of this shape, whose columns are contiguous if `transposed`."""
    stored = shape[::-1] if transposed else shape
    if dtype == torch.int8:
        made = torch.randint(-128, 128, stored, device=setting.device).to(dtype)
    else:
        made = setting.randn(*stored, dtype=dtype)
    return made.T if transposed else made


def _case(setting: Setting, name: str, order: str, m: int, n: int, k: int) -> Case:
    kind = KINDS[name]
    a = _matrix(setting, kind.operand, (m, k), order[0] == "T")
    b = _matrix(setting, kind.operand, (k, n), order[1] == "T")
    c = setting.empty(m, n, dtype=kind.result)
    # torch is required to reach the bar only where the machine is full.
    bars = kind.bars if n >= 2048 else Bars(triton=kind.bars.triton)
    return Case(
        kernels="matmul",
        launches=lambda kernels: {
            _describe(config, a.itemsize): _launch(kernels, config, a, b, c)
            for config in _configs(setting, n)
        },
        outputs=[c],
        expected=lambda: [a.to(kind.exact) @ b.to(kind.exact)],
        tolerance=kind.tolerance,
        bytes=a.nbytes + b.nbytes + c.nbytes,
        flops=2 * m * n * k,
        bars=bars,
        library={"matrix product": kind.library(a, b, c)},
    )


def _describe(config: Config, itemsize: int) -> str:
    tile = f"{config.m} x {config.n} x {config.k_bytes // itemsize}"
    return f"{tile}, {config.stages} stages, {config.warps} warps"


def _launch(kernels: Any, config: Config, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Run:
    (m, k), n = a.shape, b.shape[1]
    grid = (tw.cdiv(m, config.m) * tw.cdiv(n, config.n),)
    return partial(
        kernels.matmul_kernel[grid],
        a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(),
        BLOCK_M=config.m, BLOCK_N=config.n, BLOCK_K=config.k_bytes // a.itemsize, GROUP=GROUP,
        PRECISION="tf32", num_stages=config.stages, num_warps=config.warps,
    )  # fmt: skip


def square(name: str, setting: Setting) -> dict[str, Planned]:
    """Square products of a type of `KINDS`; on a small scale the sides are uneven."""
    if setting.scale == "check":
        return {
            f"{order} 200 x 150 x 130": planned(_case, name, order, 200, 150, 130)
            for order in ("NN", "NT", "TN")
        }
    sides = setting.pick((), (512, 4096), (512, 1024, 2048, 4096, 8192, 16384))
    orders = setting.pick((), ("NN",), ("NN", "NT", "TN"))
    return {f"{order} {n}": planned(_case, name, order, n, n, n) for order in orders for n in sides}


def other_types(setting: Setting) -> dict[str, Planned]:
    """int8, fp8 and tf32: the first two only with contiguous columns of B, as torch takes them."""
    m, n, k = setting.pick((200, 160, 144), (4096,) * 3, (4096,) * 3)
    kinds = (("int8", "NT"), ("fp8", "NT"), ("tf32", "NT"), ("tf32", "NN"), ("tf32", "TN"))
    return {f"{name} {order} {n}": planned(_case, name, order, m, n, k) for name, order in kinds}
