"""Kernels compiled for AArch64, run under QEMU, against the interpreter."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.arrays import copied
from tests.cross.aarch64 import aarch64, assert_same, both, needs_qemu, run_emulated
from tests.fuzz.programs.check import build, compare, launch_of, load
from tests.fuzz.programs.program import random_program
from tests.language.support_table import disagreement, taken
from tests.targets.cpu.dot_cases import KINDS, LAYOUTS, Extents, arrays, dot_module
from tilewright.compiler.pipeline import STEPS
from tilewright.conformance.uses import EXTRAS, USES
from tilewright.ir.interpret import interpret
from tilewright.ir.passes import PassContext, run
from tilewright.ir.types import FP64, SCALARS, dtype_of
from tilewright.ops.arith import Rem

pytestmark = needs_qemu

ONE = (1, 1, 1)
_NEWER = "dotprod", "i8mm", "bf16", "fp16fml"
PROCESSORS = {
    "Armv8.0": aarch64(),
    "dotprod": aarch64("dotprod", "fp16fml"),
    "i8mm": aarch64(*_NEWER),
    "SVE of 256 bits": aarch64(*_NEWER, sve_bytes=32),
    "SVE of 512 bits": aarch64("dotprod", sve_bytes=64),
}

EXTENTS: list[Extents] = [
    (1, 1, 1), (2, 3, 5), (17, 33, 19), (16, 16, 16), (32, 64, 64), (24, 80, 34), (20, 6, 9),
]  # fmt: skip

# -- products --------------------------------------------------------------------------------------


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_product(layout: str, kind: str, processor: str) -> None:
    for extents in EXTENTS:
        module = dot_module(kind, layout, extents)
        assert_same(module, ONE, arrays(kind, extents), machine=PROCESSORS[processor])


@pytest.mark.parametrize("kind", ["i8", "bf16", "fp16"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_product_of_masked_operands(layout: str, kind: str) -> None:
    for cut in (1, 16):
        module = dot_module(kind, layout, (18, 20, 9), cut=cut)
        assert_same(module, ONE, arrays(kind, (18, 20, 9)), machine=PROCESSORS["i8mm"])


@pytest.mark.parametrize("kind", KINDS)
def test_products_of_a_batch(kind: str) -> None:
    extents = 6, 10, 16
    args = arrays(kind, extents, batch=3)
    module = dot_module(kind, "NT", extents, batch=3)
    assert_same(module, ONE, args, machine=PROCESSORS["i8mm"])


@pytest.mark.parametrize("kind", ["bf16", "fp16"])
@pytest.mark.parametrize("columns", [32, 31])
def test_rounding_of_sums(columns: int, kind: str) -> None:
    """As exact as K roundings to fp32 allow; bf16 instructions round to odd, twice as far."""
    m, n, k = extents = 16, columns, 256
    rng = np.random.default_rng(1)
    args = [rng.standard_normal(a.size).astype(a.dtype) for a in arrays(kind, extents)]
    machine = PROCESSORS["i8mm"]
    ours, theirs = both(dot_module(kind, "NN", extents), ONE, args, machine=machine)
    a, b = (np.abs(x.astype(np.float64)) for x in args[:2])
    size = a.reshape(m, k) @ b.reshape(k, n) + np.abs(args[2].reshape(m, n))
    error = np.abs(ours[2].astype(np.float64) - theirs[2]).reshape(m, n)
    unit = np.finfo(np.float32).eps / (1 if kind == "bf16" else 2)
    assert (error <= (k + 1) * unit * size).all()


@pytest.mark.parametrize("kind", ["bf16", "fp16"])
@pytest.mark.parametrize("rows", [3, 4])
def test_infinities_and_nan(rows: int, kind: str) -> None:
    """What padding multiplies must not spread: only the rows and columns of these change."""
    extents = rows, 6, 7
    args = arrays(kind, extents)
    args[0][[1, 9]] = np.inf, np.nan  # in rows 0 and 1 of 7
    args[1][[3, 8]] = -np.inf, np.nan  # in columns 3 and 2 of 6
    module = dot_module(kind, "NN", extents)
    assert_same(module, ONE, args, machine=PROCESSORS["i8mm"])


# -- the language ----------------------------------------------------------------------------------

HOST_ONLY = ("inline_asm_elementwise", "device_print", "smid", "globaltimer", "memrealtime")
FLOATS = frozenset(t for t in SCALARS if t.is_floating())
LIBRARY = {
    **dict.fromkeys(("sin", "cos", "pair_uniform_to_normal"), frozenset({FP64})),
    "x % y": FLOATS,
}
"""Names and types for which the code calls the C library, which the executables lack."""


@pytest.mark.parametrize("processor", ["Armv8.0", "SVE of 256 bits"])
@pytest.mark.parametrize("name", [n for n in USES | EXTRAS if not n.endswith(HOST_ONLY)])
def test_use_agrees_with_the_interpreter(name: str, processor: str) -> None:
    use = (USES | EXTRAS)[name]
    elements = [t for t in taken(use, "CPU") if t not in LIBRARY.get(name, ())]
    run_on = partial(run_emulated, machine=PROCESSORS[processor])
    assert not disagreement(use, "CPU", elements, run_on)


# -- random programs -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_random_program(seed: int) -> None:
    text = random_program(seed).replace("tl.debug_barrier()", "pass")  # there is one thread
    program = load(text)
    launch = launch_of(program)
    module, args = build(launch)
    expected = copied(args)
    interpret(module, launch.grid, expected)
    run(module, STEPS, PassContext(), [])
    if any(isinstance(op, Rem) and dtype_of(op.result.type).is_floating() for op in module.walk()):
        pytest.skip("a remainder of floats calls the C library")
    grid: Any = (*launch.grid, 1, 1)[:3]
    machine = list(PROCESSORS.values())[seed % len(PROCESSORS)]
    run_emulated(module, grid, args, machine=machine)
    compare(args, expected, launch, "AArch64")
