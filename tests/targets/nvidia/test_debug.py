"""Printing and assertions as PTX, and through the assembler."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frontend.kernels import kernel_from
from tilewright.compiler.driver import compile
from tilewright.compiler.source import ASTSource
from tilewright.targets.protocol import GPUTarget

HOPPER = GPUTarget("cuda", 90, 32)

TEXT = """
def kernel(p, n):
    i = tl.arange(0, 128)
    x = tl.load(p + i)
    tl.device_print("x 100%", x, n)
    tl.device_assert(x < n, "x is small", mask=i > 3)
    tl.store(p + i, x + x)
"""


def compiled(type: str, **options: Any) -> Any:
    return compile(ASTSource(kernel_from(TEXT), {"p": f"*{type}", "n": "i32"}, {}), HOPPER, options)


@pytest.mark.parametrize("type", ["i8", "u64", "fp16", "fp64"])
def test_print_and_assert_become_calls_of_the_driver(type: str) -> None:
    kernel = compiled(type, debug=True)
    ptx = kernel.asm["ptx"]
    assert "vprintf" in ptx
    assert "__assertfail" in ptx
    assert kernel.asm["cubin"]


def test_an_uneven_tile_is_printed() -> None:
    text = "def kernel(p):\n    tl.device_print('x', tl.load(p + tl.arange(0, 5)))\n"
    ptx = compile(ASTSource(kernel_from(text), {"p": "*fp32"}, {}), HOPPER, {}).asm["ptx"]
    assert "vprintf" in ptx
    assert "setp.lt" in ptx or "setp.gt" in ptx


def test_without_debug_there_are_no_assertions() -> None:
    ptx = compiled("i32").asm["ptx"]
    assert "vprintf" in ptx
    assert "__assertfail" not in ptx


def test_overflow_is_checked_with_debug() -> None:
    assert compiled("i32", debug=True).asm["ptx"].count("__assertfail") > compiled(
        "i32", debug=True, sanitize_overflow=False
    ).asm["ptx"].count("__assertfail")
