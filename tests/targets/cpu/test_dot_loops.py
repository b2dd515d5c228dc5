"""Accumulators that a loop carries: what products in it start from, for all numbers of turns."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pytest

from tests.covering import covering
from tests.frontend.kernels import build, kernel_from
from tests.ir_values import same_bits
from tests.targets.cpu.amx_emulation import emulated
from tests.targets.cpu.harness import host, run_text
from tests.targets.cpu.test_dot import MACHINES, SAPPHIRE_RAPIDS
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret
from tilewright.ir.types import BF16, FP16, FP32, I8, I32, DType
from tilewright.targets.cpu.codegen import generate
from tilewright.targets.cpu.machine import Machine

M, N, K, TURNS = 32, 48, 32, 3

# Of an accumulator `acc`, and `a`, `b` that are loaded in each turn.
LOOPS = {
    "zeros": ("tl.zeros((M, N), DTYPE)", "acc = tl.dot(a, b, acc)"),
    "a sum": ("tl.zeros((M, N), DTYPE)", "acc += tl.dot(a, b)"),
    "ones": ("tl.full((M, N), 1, DTYPE)", "acc = tl.dot(a, b, acc)"),
    "negative zeros": ("tl.full((M, N), -0.0, DTYPE)", "acc = tl.dot(a, b, acc)"),
    "read before": ("tl.zeros((M, N), DTYPE)", "acc = tl.dot(a, b, acc + 1)"),
    "read beside": ("tl.zeros((M, N), DTYPE)", "acc = tl.dot(a, b, acc) + acc"),
    "read after": ("tl.zeros((M, N), DTYPE)", "acc = tl.dot(a, b, acc)\nacc = acc * 2 + i"),
    "twice": ("tl.zeros((M, N), DTYPE)", "acc = tl.dot(a, b, tl.dot(a, b, acc))"),
    "begun again": (
        "tl.zeros((M, N), DTYPE)",
        "acc = tl.where(i == 1, tl.zeros((M, N), DTYPE), tl.dot(a, b, acc))",
    ),
    "in a branch": (
        "tl.zeros((M, N), DTYPE)",
        "if i != 1:\n    acc = tl.dot(a, b, acc)",
    ),
    "in a loop": (
        "tl.zeros((M, N), DTYPE)",
        "for j in range(i):\n    acc = tl.dot(a, b, acc)",
    ),
    "a new one each time": (
        "tl.zeros((M, N), DTYPE)",
        "inner = tl.zeros((M, N), DTYPE)\n"
        "for j in range(i):\n    inner = tl.dot(a, b, inner)\n"
        "acc += inner",
    ),
}


def module_of(init: str, body: str, kind: DType, total: DType) -> Module:
    lines = textwrap.indent(body, " " * 8)
    kernel = kernel_from(f"""
def kernel(a_ptr, b_ptr, out, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
           DTYPE: tl.constexpr):
    row, column, along = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    acc = {init}
    for i in range(n):
        a = tl.load(a_ptr + i * M * K + row[:, None] * K + along[None, :])
        b = tl.load(b_ptr + i * K * N + along[:, None] * N + column[None, :])
{lines}
    tl.store(out + row[:, None] * N + column[None, :], acc)
""")
    constants = {"M": M, "N": N, "K": K, "DTYPE": total}
    pointers = {"a_ptr": kind, "b_ptr": kind, "out": total}
    signature = {**{name: f"*{t.short}" for name, t in pointers.items()}, "n": "i32"}
    return build(kernel, signature, constants)


def arguments(kind: DType, total: DType, turns: int) -> list[Any]:
    """Small whole numbers, whose sums are exact in any order."""
    rng = np.random.default_rng(turns)
    a = rng.integers(-1, 2, (TURNS, M, K)).astype(kind.numpy)
    b = rng.integers(-1, 2, (TURNS, K, N)).astype(kind.numpy)
    return [a, b, np.full((M, N), 7, total.numpy), turns]


TYPES = {"fp32": (FP32, FP32), "bf16": (BF16, FP32), "i8": (I8, I32), "fp16": (FP16, FP16)}
# Integers have no such zero, and the sum is fp32.
IMPOSSIBLE = {("negative zeros", "i8"), ("a sum", "fp16")}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "types", "machine"), covering(LOOPS, TYPES, MACHINES))
def test_all_trip_counts(name: str, types: str, machine: str) -> None:
    if (name, types) not in IMPOSSIBLE:
        module = module_of(*LOOPS[name], *TYPES[types])
        text, scratch = generate(module, MACHINES[machine])
        check(module, types, text, scratch, MACHINES[machine])


@pytest.mark.sampled(3)
@pytest.mark.skipif("avx512f" not in host().features, reason="emulated in AVX-512 vectors")
@pytest.mark.parametrize("types", ["bf16", "i8"])
@pytest.mark.parametrize("name", LOOPS)
def test_all_trip_counts_with_amx(name: str, types: str) -> None:
    if (name, types) not in IMPOSSIBLE:
        module = module_of(*LOOPS[name], *TYPES[types])
        text, scratch = generate(module, SAPPHIRE_RAPIDS)
        assert "tdp" in text
        check(module, types, emulated(text), scratch, host())


def check(module: Module, types: str, text: str, scratch: int, machine: Machine) -> None:
    """The code leaves what the interpreter leaves, for each number of turns."""
    for turns in range(TURNS + 1):
        expected, found = (arguments(*TYPES[types], turns) for _ in range(2))
        interpret(module, (1, 1, 1), expected)
        run_text(text, module.entry.name, scratch, (1, 1, 1), found, machine=machine)
        assert same_bits(found[2], expected[2]), f"{turns} turns"
