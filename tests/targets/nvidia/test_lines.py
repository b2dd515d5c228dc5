"""Compiled code has the lines of its source."""

import re

import tilewright as tw
import tilewright.language as tl
from tilewright import knobs
from tilewright.compiler import ASTSource, CompiledKernel


@tw.jit
def squared(x):
    return x * x


@tw.jit
def kernel(x, out):
    i = tl.arange(0, 128)
    value = squared(tl.load(x + i))
    tl.store(out + i, value)


def compiled() -> CompiledKernel:
    with knobs.compilation.scope():
        knobs.compilation.always_compile = True
        return tw.compile(ASTSource(kernel, {"x": "*fp32", "out": "*fp32"}), target="cuda")


def lines_of(ptx: str) -> set[int]:
    return {int(line) for line in re.findall(r"\.loc\s+\d+ (\d+)", ptx)}


def first_line(fn: tw.JITFunction) -> int:
    return fn.fn.__code__.co_firstlineno + 1  # the decorator's line comes first


def test_instructions_have_the_lines_of_their_ops() -> None:
    ptx = compiled().asm["ptx"]
    start = first_line(kernel)
    assert {start + 2, start + 3} <= lines_of(ptx), "the load and the store"
    assert first_line(squared) + 1 in lines_of(ptx), "the product, in the function that was called"
    assert re.search(r'\.file\s+1 "test_lines\.py"', ptx), "without its folder"


def test_lines_can_be_left_out() -> None:
    with knobs.compilation.scope():
        knobs.compilation.disable_line_info = True
        assert not lines_of(compiled().asm["ptx"])
