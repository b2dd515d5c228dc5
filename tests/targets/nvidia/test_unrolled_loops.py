"""Short loops with masked loads load for several iterations at a time, as ptxas unrolls them."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.backends.compiler import GPUTarget
from tilewright.compiler import ASTSource


@tw.jit
def products_kernel(a, v, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """The product of a matrix and a vector, by pointers that advance."""
    row = tl.program_id(0) * R + tl.arange(0, R)[:, None]
    column = tl.arange(0, C)[None, :]
    at, by = a + row * columns + column, v + column
    sums = tl.zeros((R, C), tl.float32)
    for start in range(0, columns, C):
        inside = start + column < columns
        x = tl.load(at, mask=inside & (row < rows), other=0.0).to(tl.float32)
        sums += x * tl.load(by, mask=inside, other=0.0).to(tl.float32)
        at += C
        by += C
    tl.store(out + row, tl.sum(sums, 1)[:, None], mask=row < rows)


@pytest.mark.parametrize("extents", [(8, 64), (4, 128), (1, 128)])
def test_masked_loads_of_four_iterations_are_in_flight(extents: tuple[int, int]) -> None:
    rows, columns = extents
    names = {"a": "*bf16", "v": "*bf16", "out": "*fp32", "rows": "i32", "columns": "i32"}
    facts: dict[Any, Any] = {(i,): [["tt.divisibility", 16]] for i in range(len(names))}
    for i in range(3):
        facts[i,].append(["tw.alias", i])
    source = ASTSource(products_kernel, names, {"R": rows, "C": columns}, facts)
    kernel = tw.compile(source, GPUTarget("cuda", 90, 32), {"num_warps": 4})
    assert kernel.asm["ptx"].count("ld.global") == 2
    loads = re.findall(r"LDG|BRA", kernel.asm["sass"])
    assert "".join(loads).count("LDG" * 8) == 1


@tw.jit
def exponentials_kernel(x, out, n, C: tl.constexpr):
    column = tl.arange(0, C)
    sums = tl.zeros((C,), tl.float32)
    for start in range(0, n, C):
        v = tl.load(x + start + column, mask=start + column < n, other=0.0)
        sums += tl.exp(v.to(tl.float32))
    tl.store(out, tl.sum(sums, 0))


@pytest.mark.parametrize(
    ("n", "columns", "loads"),
    [(None, 512, 1), (50256, 512, 2), (1, 512, 8), (None, 1024, 2)],
    ids=["unrolled", "known length", "four accesses", "eight exponentials"],
)
def test_loops_that_are_not_unrolled_load_ahead(n: int | None, columns: int, loads: int) -> None:
    """As found by assembling: ptxas does not unroll a loop with twice the exponentials, with each
    number masked by itself (`n` is not known to be a multiple of 16), or of known length."""
    facts: dict[Any, Any] = {(i,): [["tt.divisibility", 16], ["tw.alias", i]] for i in range(2)}
    names = {"x": "*fp16", "out": "*fp32", "n": "i32"}
    constants: dict[str, Any] = {"C": columns}
    if n is None:
        facts[2,] = [["tt.divisibility", 16]]
    elif n > 1:
        constants["n"] = n
        names["n"] = "constexpr"
    source = ASTSource(exponentials_kernel, names, constants, facts)
    kernel = tw.compile(source, GPUTarget("cuda", 90, 32), {"num_warps": 4, "num_stages": 3})
    assert kernel.asm["ptx"].count("ld.global") == loads
    assert (kernel.asm["sass"].count("LDG") > 2 * loads) == (loads == 1)


@tw.jit
def rows_kernel(out, first, end, C: tl.constexpr):
    column = tl.arange(0, 128)
    for start in range(first, end, C):
        tl.store(out + start + column, 1.0, mask=start + column < end)


def _ptx(type: str, step: int) -> str:
    names = {"out": "*fp32", "first": type, "end": type}
    source = ASTSource(rows_kernel, names, {"C": step})
    return tw.compile(source, GPUTarget("cuda", 90, 32), {"num_warps": 4}).asm["ptx"]


@pytest.mark.parametrize("type", ["i32", "u32", "i64"])
def test_they_count_from_zero(type: str) -> None:
    """Else the index after the last iteration may wrap: ptxas ended 120 iterations from 135691199
    by 2**24 by a comparison of signed numbers, which never held."""
    ptx = _ptx(type, 1024)
    ((counter, end),) = re.findall(r"setp\.ne\.b\d\d .*, (%r\w+), (%r\w+);", ptx)
    assert re.search(rf"mov\.b\d\d \s*{counter}, 0;", ptx)
    assert re.search(rf"and\.b\d\d \s*{end}, %r\w+, -1024;", ptx)


@pytest.mark.parametrize("step", [1 << 28, 1 << 30])
def test_loops_of_few_iterations_do_not(step: int) -> None:
    """ptxas compared with three times the step, which wraps, and counted 5 iterations for 1."""
    ptx = _ptx("i32", step)
    assert not re.findall(r"setp\.ne\.b32", ptx)
