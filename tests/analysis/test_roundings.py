"""Values of which only a rounding to few bits is used; such exponentials are shorter."""

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from
from tests.targets.nvidia.lowered import ptx_of
from tilewright.analysis.roundings import is_rounded_short
from tilewright.ir.core import Module
from tilewright.ops.math import Exp
from tilewright.targets.nvidia.math import LOG2_E

HEAD = """
def kernel(p, h):
    i = tl.arange(0, 128)
    x = tl.load(p + i)
    e = tl.exp(x)
"""


def kernel(text: str) -> Module:
    body = "".join(f"    {line.strip()}\n" for line in text.strip().splitlines())
    return build(kernel_from(HEAD + body), {"p": "*fp32", "h": "*fp16"})


ROUNDED = {
    "at once": "tl.store(h + i, e.to(tl.float16))",
    "to bf16": "tl.store(h + i, e.to(tl.bfloat16).to(tl.float16))",
    "after a choice and a product": """
        tl.store(h + i, (tl.where(i < 100, e, 0.0) * x).to(tl.float16))""",
    "after a quotient": "tl.store(h + i, (-e / x).to(tl.float16))",
    "twice": """
        tl.store(h + i, e.to(tl.float16))
        tl.store(h + 128 + i, (e * x).to(tl.float16))""",
}
USED = {
    "stored": "tl.store(p + i, e)",
    "stored, too": """
        tl.store(h + i, e.to(tl.float16))
        tl.store(p + i, e)""",
    "in a sum": "tl.store(h + i, (e - 1).to(tl.float16))",
    "summed": "tl.store(h + i, tl.sum(e).to(tl.float16) * i)",
    "compared": "tl.store(h + i, tl.where(e > 1, x, e).to(tl.float16))",
    "multiplied by itself": "tl.store(h + i, (e * e).to(tl.float16))",
    "multiplied by its own multiple": "tl.store(h + i, (e * (e * x)).to(tl.float16))",
    "to an integer": "tl.store(h + i, e.to(tl.int32))",
    "carried by a loop": """
        for _ in range(4): e = e * x
        tl.store(h + i, e.to(tl.float16))""",
    "rounded toward zero": 'tl.store(h + i, e.to(tl.float16, fp_downcast_rounding="rtz"))',
}


@pytest.mark.parametrize("text", [*ROUNDED.values(), *USED.values()], ids=[*ROUNDED, *USED])
def test_all_uses_are_visited(text: str) -> None:
    (op,) = [op for op in kernel(text).entry.walk() if isinstance(op, Exp)]
    assert is_rounded_short(op.result) == (text in ROUNDED.values())


def test_an_exponential_that_is_rounded_takes_two_instructions() -> None:
    text = ptx_of(kernel(ROUNDED["at once"]), 90)
    assert text.count("ex2.approx.ftz.f32") == text.count("mul.rm.f32") == 1
    assert "fma" not in text
    assert "min" not in text


def test_a_product_rounded_down_is_precise_enough() -> None:
    """The relative error of 2**(x * LOG2_E), with 2**-22 of the hardware's, is below 2**-17."""
    x = np.linspace(-87.3, 88.72, 200_001, dtype=np.float32)
    exact = x.astype(np.float64) * LOG2_E
    product = exact.astype(np.float32)
    product = np.where(product > exact, np.nextafter(product, np.float32(-np.inf)), product)
    error = np.abs(np.exp2(product.astype(np.float64)) / np.exp(x.astype(np.float64)) - 1)
    assert error.max() + 2.0**-22 <= 2.0**-17
    assert product.max() < 128  # finite where the exponential is
