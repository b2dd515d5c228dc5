"""What threads print: each element once, whoever holds it; and which assertions fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from
from tests.lowering.simt.harness import run_emulated
from tests.lowering.simt.tiles import THREADS, Threads
from tilewright.frontend.options import FrontendOptions


def printed(text: str, args: list[Any], types: str, threads: Threads, grid: int = 1) -> list[str]:
    """The lines that the kernel `kernel(…)` with this body prints, sorted."""
    names = [f"a{i}" for i in range(len(args))]
    kernel = kernel_from(f"def kernel({', '.join(names)}):\n    {text}\n")
    signature = dict(zip(names, types.split(), strict=True))
    module = build(kernel, signature, options=FrontendOptions(debug=True))
    warps, lanes = threads
    compiled = run_emulated(module, (grid, 1, 1), args, warps=warps, lanes=lanes)
    return sorted(compiled.hw.printed())


@pytest.mark.parametrize("threads", THREADS, ids=str)
def test_each_element_is_a_line(threads: Threads) -> None:
    x = np.arange(32, dtype=np.int16) - 3
    text = "tl.device_print('x', tl.load(a0 + tl.arange(0, 8)[:, None] * 4 + tl.arange(0, 4)))"
    expected = [f"pid (0, 0, 0) idx ({i}, {j}) x: {4 * i + j - 3}\n"
                for i in range(8) for j in range(4)]  # fmt: skip
    assert printed(text, [x], "*i16", threads) == sorted(expected)


@pytest.mark.parametrize("threads", THREADS, ids=str)
def test_padding_of_an_uneven_tile_is_not_printed(threads: Threads) -> None:
    x = np.arange(15, dtype=np.int32)
    text = (
        "x = tl.load(a0 + tl.arange(0, 5)[:, None] * 3 + tl.arange(0, 3))\n    "
        "tl.device_print('x', x, tl.sum(x, 1))"
    )
    expected = [f"pid (0, 0, 0) idx ({i}, {j}) x: (operand 0) {3 * i + j}\n"
                for i in range(5) for j in range(3)]  # fmt: skip
    expected += [f"pid (0, 0, 0) idx ({i}) x: (operand 1) {9 * i + 3}\n" for i in range(5)]
    assert printed(text, [x], "*i32", threads) == sorted(expected)


@pytest.mark.parametrize("threads", THREADS, ids=str)
def test_scalars_and_no_values_are_one_line(threads: Threads) -> None:
    found = printed(
        "tl.device_print('n%', a0, a0 + 1)\n    tl.device_print('end')", [7], "i32", threads
    )
    assert found == [
        "pid (0, 0, 0) end\n",
        "pid (0, 0, 0) idx () n%: (operand 0) 7\n",
        "pid (0, 0, 0) idx () n%: (operand 1) 8\n",
    ]


def test_each_program_prints_its_index() -> None:
    found = printed("tl.device_print('', tl.program_id(0))", [], "", Threads(1, 4), grid=3)
    assert found == [f"pid ({i}, 0, 0) idx (): {i}\n" for i in range(3)]


VALUES: list[tuple[str, Any, str, str]] = [
    ("i8", np.int8(-3), "-3", "0xfd"), ("u8", np.uint8(200), "200", "0xc8"),
    ("i16", np.int16(-3), "-3", "0xfffd"), ("u32", np.uint32(7), "7", "0x00000007"),
    ("i64", np.int64(-(2**40)), "-1099511627776", "0xffffff0000000000"),
    ("fp16", np.float16(1.5), "1.500000", "0x3e00"), ("fp32", np.float32(-2), "-2.000000",
                                                      "0xc0000000"),
    ("fp64", np.float64(0.5), "0.500000", "0x3fe0000000000000"),
]  # fmt: skip


@pytest.mark.parametrize(("type", "value", "plain", "hex"), VALUES, ids=[v[0] for v in VALUES])
def test_forms_of_numbers(type: str, value: Any, plain: str, hex: str) -> None:
    text = "x = tl.load(a0)\n    tl.device_print('x', x)\n    tl.device_print('h', x, hex=True)"
    found = printed(text, [np.array([value])], f"*{type}", Threads(1, 4))
    assert found == [f"pid (0, 0, 0) idx () {text}\n" for text in (f"h: {hex}", f"x: {plain}")]


@pytest.mark.parametrize("threads", THREADS, ids=str)
@pytest.mark.parametrize("bad", [0, 5, 31])
def test_assertion_fails_in_threads_with_a_false_element(bad: int, threads: Threads) -> None:
    x = np.ones(32, np.int32)
    text = "tl.device_assert(tl.load(a0 + tl.arange(0, 32)) > 0, 'all positive')"
    assert printed(text, [x], "*i32", threads) == []
    x[bad] = 0
    found = printed(text, [x], "*i32", threads)
    assert found
    assert all(": kernel: all positive (" in line for line in found)
    masked = text.replace("'all positive'", f"'', mask=tl.arange(0, 32) != {bad}")
    assert printed(masked, [x], "*i32", threads) == []
