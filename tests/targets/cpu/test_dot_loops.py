"""Accumulators that a loop carries: what products in it start from, for all numbers of turns."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.kernels import build, kernel_from
from tests.ir_values import same_bits
from tests.targets.cpu.amx_emulation import emulated
from tests.targets.cpu.harness import host, run_compiled, run_text
from tests.targets.cpu.test_dot import MACHINES, SAPPHIRE_RAPIDS
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret
from tilewright.ir.types import BF16
from tilewright.targets.cpu.codegen import generate

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


def module_of(init: str, body: str, kind: str, total: str) -> Module:
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
    constants = {"M": M, "N": N, "K": K, "DTYPE": getattr(tl, total)}
    signature = {"a_ptr": f"*{kind}", "b_ptr": f"*{kind}", "out": f"*{SHORT[total]}", "n": "i32"}
    return build(kernel, signature, constants)


SHORT = {"float32": "fp32", "int32": "i32", "float16": "fp16"}
NUMPY = {"bf16": BF16.numpy, "fp32": np.float32, "i8": np.int8, "fp16": np.float16, "i32": np.int32}


def arguments(kind: str, total: str, turns: int) -> list[Any]:
    """Small whole numbers, whose sums are exact in any order."""
    rng = np.random.default_rng(turns)
    a = rng.integers(-1, 2, (TURNS, M, K)).astype(NUMPY[kind])
    b = rng.integers(-1, 2, (TURNS, K, N)).astype(NUMPY[kind])
    return [a, b, np.full((M, N), 7, NUMPY[SHORT[total]]), turns]


@pytest.mark.parametrize(
    ("kind", "total"),
    [("fp32", "float32"), ("bf16", "float32"), ("i8", "int32"), ("fp16", "float16")],
)
@pytest.mark.parametrize("name", LOOPS)
def test_all_numbers_of_turns(name: str, kind: str, total: str) -> None:
    init, body = LOOPS[name]
    if (name, total) in (("negative zeros", "int32"), ("a sum", "float16")):
        pytest.skip("integers have no such zero, and the sum is fp32")
    module = module_of(init, body, kind, total)
    for turns in range(TURNS + 1):
        expected = arguments(kind, total, turns)
        interpret(module, (1, 1, 1), expected)
        for machine in MACHINES.values():
            found = arguments(kind, total, turns)
            run_compiled(module, (1, 1, 1), found, machine=machine)
            assert same_bits(found[2], expected[2]), f"{turns} turns on {machine.cpu}"
        if "avx512f" in host().features and kind in ("bf16", "i8"):
            found = arguments(kind, total, turns)
            text, scratch = generate(module, SAPPHIRE_RAPIDS)
            assert "tdp" in text
            run_text(emulated(text), module.entry.name, scratch, (1, 1, 1), found, machine=host())
            assert same_bits(found[2], expected[2]), f"{turns} turns on AMX"
