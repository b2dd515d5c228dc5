"""Inline assembly on packs of elements: this processor's own, on the emulated GPU."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from, type_string
from tests.lowering.simt.harness import run_emulated
from tests.lowering.simt.tiles import THREADS, Threads
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.types import scalar_type

pytestmark = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="the assembly is of x86-64"
)
X86 = FrontendOptions(assembly="x86")
SIZE = 64


def run(body: str, arrays: list[Any], threads: Threads) -> None:
    """A kernel of arrays `p0` on; `x` and `y` are the first two."""
    names = [f"p{i}" for i in range(len(arrays))]
    text = f"""
    def kernel({", ".join(names)}):
        i = tl.arange(0, {SIZE})
        x, y = tl.load(p0 + i), tl.load(p1 + i)
    """
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    signature = {n: type_string(a) for n, a in zip(names, arrays, strict=True)}
    module = build(kernel_from(text.rstrip() + "\n" + lines), signature, options=X86)
    run_emulated(module, (1, 1, 1), arrays, warps=threads.warps, lanes=threads.lanes)


def random(short: str, seed: int) -> Any:
    raw = np.random.default_rng(seed).integers(0, 256, SIZE * 8, dtype=np.uint8)
    return raw.view(scalar_type(short).numpy)[:SIZE].copy()


XOR = "movl $1, $0\\n\\txorl $2, $0"
WIDE = "movq $1, $0\\n\\txorq $2, $0"


@pytest.mark.parametrize("threads", THREADS, ids=str)
@pytest.mark.parametrize(("short", "pack"), [
    ("i8", 1), ("i8", 2), ("u8", 4), ("i16", 1), ("u16", 2), ("i32", 1), ("u32", 1),
])  # fmt: skip
def test_short_elements_share_a_register(short: str, pack: int, threads: Threads) -> None:
    a, b = random(short, 1), random(short, 2)
    out = np.zeros_like(a)
    name = scalar_type(short).name
    call = f'tl.inline_asm_elementwise("{XOR}", "=&r,r,r", [x, y], tl.{name}, True, {pack})'
    run(f"tl.store(p2 + i, {call})", [a, b, out], threads)
    np.testing.assert_array_equal(out, a ^ b)


@pytest.mark.parametrize("threads", THREADS, ids=str)
def test_long_elements_have_separate_registers(threads: Threads) -> None:
    """Two of 64 bits: first both results, then both of x, then both of y."""
    a, b = random("i64", 1), random("i64", 2)
    out = np.zeros_like(a)
    code = "movq $2, $0\\n\\txorq $4, $0\\n\\tmovq $3, $1\\n\\txorq $5, $1"
    call = f'tl.inline_asm_elementwise("{code}", "=&r,=&r,r,r,r,r", [x, y], tl.int64, True, 2)'
    run(f"tl.store(p2 + i, {call})", [a, b, out], threads)
    # a thread with one element has two packs' worth of it
    np.testing.assert_array_equal(out, a ^ b)


@pytest.mark.parametrize("threads", THREADS, ids=str)
def test_several_results_of_several_types(threads: Threads) -> None:
    a, b = random("u8", 1), random("u8", 2)
    both, wide = np.zeros_like(a), np.zeros(SIZE, np.int32)
    code = "movl $2, $0\\n\\tandl $3, $0\\n\\tmovl $2, $1\\n\\taddl $3, $1"
    body = f"""z, w = tl.inline_asm_elementwise("{code}", "=&r,=&r,r,r", [x, y], (tl.uint8, tl.int32), True, 1)
tl.store(p2 + i, z)
tl.store(p3 + i, w)"""  # noqa: E501
    run(body, [a, b, both, wide], threads)
    np.testing.assert_array_equal(both, a & b)
    np.testing.assert_array_equal(wide, a.astype(np.int32) + b)


def test_operands_are_broadcast() -> None:
    a, b = random("i32", 1), random("i32", 2)
    out = np.zeros_like(a)
    call = f'tl.inline_asm_elementwise("{XOR}", "=&r,r,r", [x, 7], tl.int32, True, 1)'
    run(f"tl.store(p2 + i, {call})", [a, b, out], Threads(2, 4))
    np.testing.assert_array_equal(out, a ^ 7)


def test_without_operands_the_result_is_a_scalar() -> None:
    a, b = random("i32", 1), random("i32", 2)
    out = np.zeros_like(a)
    call = 'tl.inline_asm_elementwise("movl $$5, $0", "=r", [], tl.int32, False, 1)'
    run(f"tl.store(p2 + i, x + {call})", [a, b, out], Threads(2, 4))
    np.testing.assert_array_equal(out, a + 5)
