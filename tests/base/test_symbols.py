"""Names of kernels as symbols."""

import re

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.targets.nvidia.lowered import ptx_of
from tilewright.base.symbols import symbol_of
from tilewright.compiler.source import ASTSource
from tilewright.frontend.options import FrontendOptions


@tw.jit(noinline=True)
def größe(x):
    return x + 1


@tw.jit
def ядро(out, x):
    tl.store(out, größe(tl.load(x)))


@tw.jit
def _(out, x):
    tl.store(out, tl.load(x) + 1)


@tw.jit(repr=lambda specialization: f"copy<{specialization.signature['x']}>-1.5 x")
def described(out, x):
    tl.store(out, tl.load(x) + 1)


KERNELS = {"_u044f_u0434_u0440_u043e": ядро, "__": _,
           "copy_u003c_u002afp32_u003e_u002d1_u002e5_u0020x": described}  # fmt: skip


@pytest.mark.parametrize("symbol", KERNELS)
def test_names_that_are_no_symbols_are_replaced(symbol: str) -> None:
    """On the CPU and for a GPU, whose loader finds the entry by the name that is reported."""
    kernel = KERNELS[symbol]
    out, x = np.zeros(1, np.float32), np.ones(1, np.float32)
    assert kernel[(1,)](out, x).metadata.name == symbol
    assert out[0] == 2
    source = ASTSource(kernel, {"out": "*fp32", "x": "*fp32"})
    assert re.findall(r"\.entry\s+([^\s(]+)", ptx_of(source.module(FrontendOptions()))) == [symbol]


def test_ordinary_names_are_kept() -> None:
    for name in ("kernel", "_fused_norm_64x128", "a$b", "__", "x_"):
        assert symbol_of(name) == name
    assert len({symbol_of(n) for n in ("a.b", "a-b", "a b", "äb", "2a", "_", "")}) == 7
