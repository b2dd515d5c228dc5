"""The expected results of uses of the language, written in NumPy alone.

The interpreter runs each op's own definition in NumPy, and the compiled targets are compared with
it. These formulas share nothing with it: not the front end, which promotes, broadcasts and chooses
the ops, nor the ops' definitions. They are of the functions whose meaning on arrays everybody
supports; `support_table.py` has the element types on which they are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Inputs(NamedTuple):
    """The inputs of a use, see `uses.py`; floats as fp64."""

    pa: Any
    pb: Any
    pc: Any
    i: Any
    m: Any

    @property
    def a(self) -> Any:
        return self.pa[:16]

    @property
    def b(self) -> Any:
        return self.pb[:16]

    @property
    def c(self) -> Any:
        return self.pc[:16]


Reference = Callable[[Inputs], Any]

# Elements that are moved or chosen: of every type.
MOVES: dict[str, Reference] = {
    "full": lambda v: np.ones(16),
    "zeros": lambda v: np.zeros(16),
    "zeros_like": lambda v: np.zeros(16),
    "arange": lambda v: np.arange(16),
    "cast": lambda v: v.a.astype(np.float32),
    "cat": lambda v: np.concatenate([v.a, v.b]),
    "broadcast": lambda v: np.broadcast_to(v.b[None, :], (16, 16)),
    "broadcast_to": lambda v: np.broadcast_to(v.a[:, None], (16, 4)),
    "expand_dims": lambda v: v.a[None, :],
    "permute": lambda v: v.a.reshape(2, 2, 4).transpose(2, 0, 1),
    "trans": lambda v: v.a.reshape(2, 8).T,
    "reshape": lambda v: v.a,
    "join": lambda v: np.stack([v.a, v.b], -1),
    "split": lambda v: v.a[1::2],
    "interleave": lambda v: np.stack([v.a, v.b], -1),
    "flip": lambda v: v.a[::-1],
    "gather": lambda v: v.a[v.i ^ 3],
    "load": lambda v: np.where(v.m, v.a, 1),
    "make_tensor_descriptor": lambda v: _block(v.pa, 4, 20),
    "advance": lambda v: _block(v.pa, 4, 20),
    "where": lambda v: np.where(v.m, v.a, v.b),
    "x[:, None]": lambda v: v.a,
    "x[3]": lambda v: v.a[3],
    "x[0:8]": lambda v: v.a[:8],
    "x == y": lambda v: v.a == v.b,
    "x != y": lambda v: v.a != v.b,
    "x < y": lambda v: v.a < v.b,
    "x >= y": lambda v: v.a >= v.b,
}

# Arithmetic: of the integers, and of floats that are computed with, rounded once.
NUMBERS: dict[str, Reference] = {
    "x + y": lambda v: v.a + v.b,
    "x - y": lambda v: v.a - v.b,
    "x * y": lambda v: v.a * v.b,
    "x & y": lambda v: v.a & v.b,
    "x | y": lambda v: v.a | v.b,
    "x ^ y": lambda v: v.a ^ v.b,
    "-x": lambda v: -v.a,
    "~x": lambda v: ~v.a,
    "abs": lambda v: np.abs(v.a),
    "minimum": lambda v: np.fmin(v.a, v.b),
    "maximum": lambda v: np.fmax(v.a, v.b),
    "floor": lambda v: np.floor(v.a),
    "ceil": lambda v: np.ceil(v.a),
    "sqrt_rn": lambda v: np.sqrt(v.a),
    "sum": lambda v: v.a.sum(dtype=_wide(v.a)),
    "cumsum": lambda v: v.a.cumsum(dtype=_wide(v.a)),
    "cumprod": lambda v: v.a.cumprod(dtype=v.a.dtype),
    "reduce": lambda v: v.a.sum(dtype=_wide(v.a)),
    "max": lambda v: v.a.max(),
    "min": lambda v: v.a.min(),
    "argmax": lambda v: v.a.argmax(),
    "argmin": lambda v: v.a.argmin(),
    "xor_sum": lambda v: np.bitwise_xor.reduce(v.a),
    "sort": lambda v: np.sort(v.a),
    "topk": lambda v: np.sort(v.a)[:-5:-1],
    "histogram": lambda v: np.array([(v.a == n).sum() for n in range(4)]),
    "dot": lambda v: (
        v.pa[: 16 * 32].reshape(16, 32).astype(_wide(v.pa))
        @ v.pb[: 32 * 16].reshape(32, 16).astype(_wide(v.pb))
    ),
}

# Functions that round: within a few units of the last place.
FUNCTIONS: dict[str, Reference] = {
    "exp": lambda v: np.exp(v.a),
    "exp2": lambda v: np.exp2(v.a),
    "log": lambda v: np.log(v.a),
    "log2": lambda v: np.log2(v.a),
    "sin": lambda v: np.sin(v.a),
    "cos": lambda v: np.cos(v.a),
    "sqrt": lambda v: np.sqrt(v.a),
    "rsqrt": lambda v: 1 / np.sqrt(v.a),
    "erf": lambda v: np.array([math.erf(x) for x in v.a]),
    "sigmoid": lambda v: 1 / (1 + np.exp(-v.a)),
    "softmax": lambda v: np.exp(v.a) / np.exp(v.a).sum(),
    "x / y": lambda v: v.a / v.b,
    "fdiv": lambda v: v.a / v.b,
}


def _wide(x: Any) -> Any:
    """The type in which sums of the elements lose nothing, or wrap alike."""
    return np.float64 if x.dtype.kind == "f" else np.int64


def _block(array: Any, row: int, column: int) -> Any:
    """8 x 16 elements of the array as 16 x 32, zeros outside."""
    whole = np.zeros((16 + 8, 32 + 16), array.dtype)
    whole[:16, :32] = array[: 16 * 32].reshape(16, 32)
    return whole[row : row + 8, column : column + 16]
