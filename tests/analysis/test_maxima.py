"""Differences to a maximum, and the exponentials that use that they are not positive."""

import pytest

from tests.frontend.kernels import build, kernel_from
from tests.targets.nvidia.lowered import ptx_of
from tilewright.analysis.maxima import is_at_most_zero
from tilewright.ir.core import Value
from tilewright.ops.math import Exp

HEAD = """
def kernel(p, n, scale):
    i, j = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    x = tl.load(p + i * 16 + j)
    m = tl.load(p + tl.arange(0, 16))
"""


def exponent(text: str) -> Value:
    body = "".join(f"    {line.strip()}\n" for line in text.strip().splitlines())
    module = build(
        kernel_from(HEAD + body + "    tl.store(p + i * 16 + j, y)\n"),
        {"p": "*fp32", "n": "i32", "scale": "fp32"},
    )
    (found,) = [op for op in module.entry.walk() if isinstance(op, Exp)]
    return found.src


AT_MOST_ZERO = {
    "of rows": "y = tl.exp(x - tl.max(x, 1)[:, None])",
    "of columns": "y = tl.exp(x - tl.max(x, 0)[None, :])",
    "running": "y = tl.exp(x - tl.maximum(m, tl.max(x, 1))[:, None])",
    "scaled before": """
        x = x * scale
        y = tl.exp(x - tl.maximum(m, tl.max(x, 1))[:, None])""",
    "of masked elements": """
        x = tl.where(i >= j, x, -float("inf"))
        y = tl.exp(x - tl.max(x, 1)[:, None])""",
    "of two": "y = tl.exp(x - tl.maximum(x, x * scale))",
    "0 instead of -inf": """
        new = tl.max(x, 1)
        y = tl.exp(x - tl.where(new > -float("inf"), new, 0.0)[:, None])""",
    "low instead of -inf": """
        new = tl.max(x, 1)
        y = tl.exp(x - tl.where(new == -float("inf"), -1e20, new)[:, None])""",
    "of transposed rows": "y = tl.exp(x - tl.trans(tl.max(x, 1)[None, :]))",
    "0 instead of -inf, where NaN are propagated": """
        new = tl.maximum(m, tl.max(x, 1), propagate_nan=tl.PropagateNan.ALL)
        y = tl.exp(x - tl.where(new == -float("inf"), 0.0, new)[:, None])""",
    "of the maximum before": "y = tl.exp(m - tl.maximum(m, tl.max(x, 1)))[:, None] + x",
}

UNKNOWN = {
    "along the other axis": "y = tl.exp(x - tl.max(x, 1)[None, :])",
    "minimum": "y = tl.exp(x - tl.min(x, 1)[:, None])",
    "of others": "y = tl.exp(x - tl.max(x * x, 1)[:, None])",
    "scaled behind": "y = tl.exp(x * scale - (tl.max(x, 1) * scale)[:, None])",
    "the other way around": "y = tl.exp(tl.max(x, 1)[:, None] - x)",
    "0 instead of negative maxima": """
        new = tl.max(x, 1)
        y = tl.exp(x - tl.where(new > 0.0, new, -1.0)[:, None])""",
    "other where the maximum is finite": """
        new = tl.max(x, 1)
        y = tl.exp(x - tl.where(new > -float("inf"), 0.0, new)[:, None])""",
    "0 instead of a NaN that is propagated": """
        new = tl.maximum(m, tl.max(x, 1), propagate_nan=tl.PropagateNan.ALL)
        y = tl.exp(x - tl.where(new > -float("inf"), new, 0.0)[:, None])""",
    "of other rows": "y = tl.exp(x - tl.trans(tl.max(x, 1)[:, None] + tl.zeros_like(x)))",
    "-inf instead of -inf": """
        new = tl.max(x, 1)
        y = tl.exp(x - tl.where(new == float("inf"), -1.0, new)[:, None])""",
}


@pytest.mark.parametrize("text", AT_MOST_ZERO.values(), ids=AT_MOST_ZERO)
def test_a_difference_to_a_maximum_is_at_most_zero(text: str) -> None:
    assert is_at_most_zero(exponent(text))


@pytest.mark.parametrize("text", UNKNOWN.values(), ids=UNKNOWN)
def test_other_differences_may_be_positive(text: str) -> None:
    assert not is_at_most_zero(exponent(text))


def test_maxima_that_share_operands_take_linear_time() -> None:
    text = "".join(
        f"m{k + 1} = tl.maximum(tl.maximum(m{k}, i * {k}.5), tl.maximum(m{k}, j * {k}.5))\n"
        for k in range(200)
    )
    text = f"m0 = m[:, None]\n{text}y = tl.exp(x - tl.maximum(m200, m[:, None]))"
    assert not is_at_most_zero(exponent(text))


@pytest.mark.parametrize(("of", "bounded"), [
    ("x - tl.max(x, 0)", False),
    ("-tl.abs(x)", False),
    ("x", True),
])  # fmt: skip
def test_exponentials_of_a_softmax_do_not_bound_their_rest(of: str, bounded: bool) -> None:
    """One instruction in 6 less. It is needed where the argument may be infinite."""
    text = f"""
    def kernel(p):
        x = tl.load(p + tl.arange(0, 128))
        tl.store(p + tl.arange(0, 128), tl.exp({of}))
    """
    found = ptx_of(build(kernel_from(text), {"p": "*fp32"}))
    assert ("min.f32" in found, "fma.rn.sat.f32" in found) == (bounded, not bounded)
