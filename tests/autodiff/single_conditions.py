"""Kernels that need single conditions of the proofs, by the condition; see `mutants.py`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.autodiff.harness import Arrays, check_gradients
from tests.autodiff.test_mutations import (
    agree,
    agrees,
    is_rejected,
    product,
    program,
    running_maximum,
)

SECOND = "b = tl.load(x_ptr + p * 8 + i, mask=i < n, other=0.0)"

NEXT = "b = tl.load(x_ptr + p * 8 + 8 + i, mask=(i < n) & (p < 3), other=0.0)"


def branches(first: str, second: str) -> str:
    """Loads in branches whose conditions are loaded."""
    return f"""
def kernel(x_ptr, y_ptr, f_ptr, n):
    p, i = tl.program_id(0), tl.arange(0, 8)
    a, b = tl.zeros([8], tl.float64), tl.zeros([8], tl.float64)
    if tl.load(f_ptr + p) > 0:
        a = tl.load(x_ptr + p * 8 + i, mask=i < n, other=0.0)
        {first}
    {second}
    tl.store(y_ptr + p * 8 + i, a * a + tl.sin(b))
"""


def loaded_twice(text: str) -> None:
    rng = np.random.default_rng(0)
    args: Arrays = {"x_ptr": rng.uniform(0.5, 1, 32), "y_ptr": np.zeros(32), "n": 7}
    args["f_ptr"] = np.array([0, 1, 1, 0], np.int32)
    check_gradients(text, 4, args, ("x_ptr",), ("y_ptr",))


def tile(address: str) -> None:
    """Lanes of a tile of 4 by 8."""
    text = f"""
def kernel(x_ptr, y_ptr, n):
    p, i, j = tl.program_id(0), tl.arange(0, 4), tl.arange(0, 8)
    x = tl.load(x_ptr + {address})
    tl.store(y_ptr + p * 32 + i[:, None] * 8 + j[None, :], x * x * (1 + i[:, None]))
"""
    agree(text, 2)


def overwritten_through_a_cast_pointer() -> None:
    text = """
def kernel(x_ptr, y_ptr, m_ptr):
    p, j = tl.program_id(0), tl.arange(0, 16)
    x = tl.load(x_ptr + p * 16 + j)
    m = tl.sum(x * x, 0)
    tl.store(m_ptr + 8 + p, m)
    tl.store(m_ptr.to(tl.pointer_type(tl.int32)) + 17 + p * 2, 0)
    tl.store(y_ptr + p * 16 + j, x * m)
"""
    args: Any = {"x_ptr": np.random.default_rng(0).uniform(0.5, 1, 64)}
    args |= {"y_ptr": np.zeros(64), "m_ptr": np.zeros(16)}
    check_gradients(text, 4, args, ("x_ptr",), ("y_ptr",), aux=("m_ptr",))


def weights(address: str, mask: str) -> None:
    text = f"""
def kernel(x_ptr, z_ptr, y_ptr, n):
    p, i = tl.program_id(0), tl.arange(0, 8)
    w = tl.load(z_ptr + {address}, mask={mask}, other=0.0)
    tl.store(y_ptr + p * 8 + i, tl.load(x_ptr + p * 8 + i) * w)
"""
    agrees(text)


def two_tiles_in_a_loop() -> None:
    more = "        x += tl.load(x_ptr + 32 + r * 16 + k * 8 + i)\n"
    agrees(product().replace("        acc +=", f"{more}        acc +="))


def another_sum_of_a_loop() -> None:
    """The maximum, the sum and the output are stored, but the loop also counts."""
    text = """
def kernel(x_ptr, y_ptr, lse_ptr, n):
    i = tl.program_id(0) * 4 + tl.arange(0, 4)
    m, l = tl.full([4], -float("inf"), tl.float64), tl.zeros([4], tl.float64)
    count = tl.zeros([4], tl.float64)
    for k in range(n):
        s = tl.load(x_ptr + i * 8 + k)
        largest = tl.maximum(m, s)
        l = l * tl.exp(m - largest) + tl.exp(s - largest)
        count += s
        m = largest
    lse = m + tl.log(l)
    tl.store(lse_ptr + i, lse)
    tl.store(y_ptr + i, lse * count)
"""
    rng = np.random.default_rng(0)
    args: Any = {"x_ptr": rng.uniform(0.5, 1, (12, 8)), "y_ptr": np.zeros(12)}
    args |= {"lse_ptr": np.zeros(12), "n": 8}
    check_gradients(text, 3, args, ("x_ptr",), ("y_ptr",), aux=("lse_ptr",))


def softmax_of_two_sums() -> None:
    """For no maximum are both sums 1."""
    text = """
def kernel(x_ptr, y_ptr, z_ptr, w_ptr):
    at = tl.program_id(0) * 8 + tl.arange(0, 8)
    x = tl.load(x_ptr + at)
    m = tl.max(x, 0)
    e, f = tl.exp(x - m), tl.exp(x * 0.5 - m)
    tl.store(y_ptr + at, e / tl.sum(e, 0))
    tl.store(z_ptr + at, f / tl.sum(f, 0))
    tl.store(w_ptr + at, tl.sin(e / tl.sum(f, 0)))
"""
    args: Any = {"x_ptr": np.random.default_rng(0).uniform(0.5, 1, 32)}
    args |= {name: np.zeros(32) for name in ("y_ptr", "z_ptr", "w_ptr")}
    check_gradients(text, 4, args, ("x_ptr",), ("y_ptr", "z_ptr", "w_ptr"))


def decays(factor: str) -> None:
    """A sum that is scaled by more than the maxima's difference is no sum."""
    is_rejected(running_maximum(factor=factor))


def updated(by: str) -> None:
    text = running_maximum(factor="F")
    line = next(line for line in text.splitlines() if "* F" in line)
    is_rejected(text.replace(line, f"        total = {by}"))


def rows_that_decay() -> None:
    is_rejected("""
def kernel(x_ptr, y_ptr, n):
    i, j = tl.arange(0, 4), tl.arange(0, 8)
    m, total = tl.full([4], -float("inf"), tl.float64), tl.zeros([4], tl.float64)
    acc = tl.zeros([4, 8], tl.float64)
    for k in range(2):
        x = tl.load(x_ptr + k * 32 + i[:, None] * 8 + j[None, :])
        largest = tl.maximum(m, tl.max(x, 1))
        p = tl.exp(x - largest[:, None])
        total = total * tl.exp(m - largest) + tl.sum(p, 1)
        acc = acc * (tl.exp(m - largest) * 0.5)[:, None] + p * x
        m = largest
    tl.store(y_ptr + i[:, None] * 8 + j[None, :], acc / total[:, None])
""")


def after_the_loops(start: str, update: str) -> None:
    """A further loop computes with the maximum, and its result is stored."""
    text = running_maximum(after="z")
    store = text[text.index("    tl.store(") :]
    loop = f"    z = {start}\n    for k in range(n // 5):\n        z = {update}\n"
    agree(text.replace(store, loop + store), 2)


def squares_that_shrink_too_little() -> None:
    """Its terms have the maximum's square, and the sum is scaled by the maximum only."""
    text = running_maximum(after="square / (total * total)")
    text = text.replace(
        "    total = tl.full", "    square = tl.full([], 0.0, tl.float64)\n    total = tl.full"
    )
    update = "square = square * tl.exp(m - largest) + tl.sum(tl.exp(2.0 * (x - largest)), 0)"
    is_rejected(text.replace("        m = largest", f"        {update}\n        m = largest"))


SUM = "tl.sum(tl.exp(x - largest), 0)"
WITNESSES: dict[str, Callable[[], object]] = {
    "distinct._joins: if overlap(fn, block, known.blocks[0]) is not Overlap.SAME: continue":
        partial(loaded_twice, branches("pass", f"else:\n        {NEXT}")),
    "distinct._add_axis: if np.any(after - before > 1) and np.any(high - low > 1): raise NotProven":
        partial(tile, "p * 16 + i[:, None] + j[None, :]"),
    "distinct._uniform: if np.any(numbers != numbers[0]): raise NotProven": partial(
        agree, program("p * 8 + i * (p + 1)")
    ),
    "distinct._block: if block.base.op is not None: raise NotProven":
        overwritten_through_a_cast_pointer,
    "coarsen._at_origin: if op.ptr in varying: return None": partial(
        weights, "p % 2 * 8 + i", "i < n"
    ),
    "coarsen._at_origin: if op.mask in varying: return None": partial(weights, "i", "i < p + 3"),
    "regrid._of_array: if any((loop in r.loops for r in found)): return None": two_tiles_in_a_loop,
    "regrid._of_load: if np.any((counter - first) % step): return None": partial(
        agrees, product(trips="c, 4, 2", row="r * 32"), 96
    ),
    "residuals._residual: if any((r.users for r in loop.results if r.index not in known)): "
    "return None": another_sum_of_a_loop,
    "running_maxima._keeps: _is_one(rhs, maxima)": partial(
        updated, f"total / (tl.exp(largest - m) * 2.0) + {SUM}"
    ),
    "running_maxima._keeps: adds_to(user, value)": partial(
        updated, f"{SUM} - total * tl.exp(m - largest)"
    ),
    "running_maxima._is_one: _is_zero(src, maxima)": partial(decays, "tl.exp(m - largest - 0.5)"),
    "running_maxima._is_one: _is_one(src, maxima)": rows_that_decay,
    "running_maxima._is_one: _is_one(lhs, maxima)": partial(
        decays, "(tl.sin(1.0 * k) * tl.exp(m - largest))"
    ),
    "running_maxima._is_zero: _are_equal(lhs, rhs, maxima)": partial(
        decays, "tl.exp(m - (largest + 0.5))"
    ),
    "running_maxima._is_zero: _is_zero(src, maxima)": partial(
        decays, "tl.exp(-(largest - m + 0.5))"
    ),
    "running_maxima._is_zero: _is_zero(lhs, maxima) or _is_zero(rhs, maxima)": partial(
        decays, "tl.exp((m * 0.5 - largest * 0.5 - 0.25) * 2.0)"
    ),
    "running_maxima._are_equal: left.attributes == right.attributes": partial(
        decays, "tl.exp((m + 0.5) - (largest + 0.25))"
    ),
    "running_maxima._are_equal: type(left) is type(right)": partial(
        decays, "tl.exp((m + tl.sin(1.0 * k)) - (largest - tl.sin(1.0 * k)))"
    ),
    "equivariance.Equivariance.agrees: not _sum(self.form, other.form, -1.0)": (
        squares_that_shrink_too_little
    ),
    "equivariance.Equivariances._argument: if not found.fixed: raise InconsistentError": partial(
        after_the_loops, "m * 1.5", "z + tl.sin(z)"
    ),
    "equivariance.Equivariances._argument: "
    "if not self.is_fixed(loop.body.terminator.operands[value.index - 1]): "
    "raise InconsistentError": partial(
        after_the_loops, "(n * 0.5).to(tl.float64)", "z + m * 2.0"
    ),
    "softmax_results._add_results: if total not in (None, divisor): continue": softmax_of_two_sums,
}  # fmt: skip
