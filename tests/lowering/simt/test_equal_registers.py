"""What is equal in neighbouring registers is computed once, and only what is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from
from tests.ir_values import same_bits
from tests.lowering.simt.emulator import Emulated, EmulatedHardware
from tests.lowering.simt.harness import laid_out, run_emulated
from tilewright.analysis.axis_info import axis_info
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret
from tilewright.lowering.simt.equal_registers import EqualRegisters
from tilewright.ops.arith import Cmp, IntDiv, Rem, Shr

# Numbers of a tile of 8 x 32, whose columns run along registers. 16 divides m and n.
NUMBERS = {
    "a mask": "(column < n).to(tl.int32)",
    "a mask from the right": "(n > column).to(tl.int32)",
    "at least": "(column >= n).to(tl.int32)",
    "equal": "(column == n).to(tl.int32)",
    "two masks": "((column < n) & (row < 5)).to(tl.int32)",
    "from somewhere": "(column + m < n).to(tl.int32)",
    "from behind": "(m - column < n).to(tl.int32)",
    "rows": "(row * 4 < n).to(tl.int32) + column * 0",
    "quarters": "column // 4",
    "quarters from somewhere": "(m + column) // 4",
    "quarters of a difference": "(column - 16) // 4",
    "of quarters": "((m + column) // 4 < n // 16).to(tl.int32)",
    "rest": "(m + column) % 4",
    "of the rest": "((m + column) % 8 < 4).to(tl.int32)",
    "shifted": "(m + column) >> 2",
    "narrow": "((m + column).to(tl.int8) < 16).to(tl.int32)",
    "wide": "((m + column).to(tl.int64) * 2 < n).to(tl.int32)",
    "unsigned": "((m + column).to(tl.uint32) < 4096).to(tl.int32)",
    "rest of a float": "((m + column).to(tl.float32) % 3.0).to(tl.int32) // 4",
    "chosen": "tl.where(column < n, row, column)",
    "loaded": "(tl.load(x + column // 8) < n).to(tl.int32) + row * 0",
}


def kernel_of(number: str) -> Module:
    kernel = kernel_from(f"""
        def kernel(x, y, m, n):
            m = tl.multiple_of(m, 16)
            n = tl.multiple_of(n, 16)
            row = tl.arange(0, 8)[:, None]
            column = tl.arange(0, 32)[None, :]
            value = {number}
            tl.store(y + row * 32 + column, value)
    """)
    signature = {"x": "*i32", "y": "*i32", "m": "i32", "n": "i32"}
    return build(kernel, signature)


def arguments(m: int, n: int) -> list[Any]:
    x = np.arange(32, dtype=np.int32) * 7 % 32
    return [x, np.zeros((8, 32), np.int32), m, n]


@pytest.mark.parametrize("name", NUMBERS)
def test_the_same_numbers_as_the_interpreter(name: str) -> None:
    """Of negative ones too, whose quotients are rounded the other way."""
    module = kernel_of(NUMBERS[name])
    codes = {
        (warps, lanes): Emulated(
            laid_out(module, warps=warps, lanes=lanes), EmulatedHardware(lanes), warps
        )
        for warps, lanes in ((1, 1), (4, 8), (1, 4), (2, 32))
    }
    for m, n in (
        (0, 16),
        (16, 32),
        (-16, 0),
        (-32, -16),
        (-16, 16),
        (2**31 - 32, 2**31 - 16),
        (2**31 - 16, 0),
    ):
        expected, found = arguments(m, n), arguments(m, n)
        interpret(module, (1, 1, 1), expected)
        for threads, code in codes.items():
            found[1][:] = -1
            code.launch((1, 1, 1), found)
            assert same_bits(found[1], expected[1]), f"m {m}, n {n}, {threads}"


ONCE = {
    "a mask": 2,
    "from somewhere": 2,
    "shifted": 8,
    "quarters": 8,
    "quarters from somewhere": None,
    "rest": None,
    "quarters of a difference": None,
}


@pytest.mark.parametrize("name", ONCE)
def test_values_computed_once(name: str) -> None:
    """The only thread has 32 columns, in runs of 16 or of 4."""
    module = laid_out(kernel_of(NUMBERS[name]), warps=1, lanes=1)
    equal = EqualRegisters(module.entry, axis_info(module.entry))
    found = [
        equal.of(op.results[0])
        for op in module.walk()
        if isinstance(op, Cmp | IntDiv | Rem | Shr) and op.results[0].layout is not None
    ]
    (registers,) = found
    if ONCE[name] is None:
        assert registers is None
    else:
        assert registers is not None
        assert len(set(registers)) == ONCE[name], registers


CHANNELS = """
    def kernel(x, scale, out, n, PIXELS: tl.constexpr, COUNT: tl.constexpr):
        n = tl.multiple_of(n, 16)
        at = tl.program_id(0) * 64 + tl.arange(0, 64)
        mask = at < n
        channel = at // PIXELS % COUNT
        factor = tl.load(scale + channel, mask)
        tl.store(out + at, tl.load(x + at, mask) * tl.exp(factor) + {of_channel}, mask)
"""


@pytest.mark.parametrize(
    ("of_channel", "quotients"),
    [pytest.param("0", 4, id="address"), pytest.param("channel", 8, id="also a value")],
)
@pytest.mark.parametrize("n", [0, 16, 144, 192])
def test_addresses_of_channels(of_channel: str, quotients: int, n: int) -> None:
    """A thread has 8 elements, two in each run of 16 with one channel. It loads a factor for both
    if the channel serves only as an address: the quotient need not be right of a negative index."""
    kernel = kernel_from(CHANNELS.format(of_channel=of_channel))
    signature = {"x": "*fp32", "scale": "*fp32", "out": "*fp32", "n": "i32"}
    built = build(kernel, signature, {"PIXELS": 48, "COUNT": 2})
    module = laid_out(built, warps=1, lanes=8)
    equal = EqualRegisters(module.entry, axis_info(module.entry))
    (found,) = (
        equal.of(op.results[0])
        for op in module.walk()
        if isinstance(op, Rem) and op.results[0].layout is not None
    )
    assert len(set(found or range(8))) == quotients
    rng = np.random.default_rng(n)
    x, scale = rng.standard_normal(192, np.float32), np.array([0.5, -1.0], np.float32)
    expected, ours = ([x, scale, np.zeros(192, np.float32), n] for _ in range(2))
    interpret(module, (3, 1, 1), expected)
    run_emulated(module, (3, 1, 1), ours, warps=1, lanes=8)
    np.testing.assert_allclose(ours[2], expected[2], rtol=1e-6)


def test_long_chain_of_integers() -> None:
    """The code of a chain of a thousand ops is found without recursion."""
    lines = "".join(f"    x = (x ^ {i}) + {i + 1}\n" for i in range(500))
    text = f"""def kernel(out, n):
    x = tl.arange(0, 32) // 16 + n
{lines}    tl.store(out + tl.arange(0, 32), x)
"""
    built = build(kernel_from(text), {"out": "*i32", "n": "i32"})
    module = laid_out(built, warps=1, lanes=1)
    expected, found = np.zeros(32, np.int32), np.zeros(32, np.int32)
    interpret(module, (1, 1, 1), [expected, 7])
    run_emulated(module, (1, 1, 1), [found, 7], warps=1, lanes=1)
    assert same_bits(found, expected)
