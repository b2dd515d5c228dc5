"""What reverse mode rejects. A wrong gradient is the worst outcome, so anything unknown is here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.autodiff.harness import forward_module
from tilewright.autodiff.reverse import reverse_mode
from tilewright.base.diagnostics import CompilationError

HEAD = """
@jit
def bits(a, b):
    c = a.to(tl.int64, bitcast=True) & b.to(tl.int64, bitcast=True)
    return c.to(tl.float64, bitcast=True)

@jit
def square(x):
    return x * x

def kernel(x_ptr, y_ptr, z_ptr, i_ptr, n):
    at = tl.program_id(0) * 8 + tl.arange(0, 8)
    x = tl.load(x_ptr + at)
"""


def arguments() -> dict[str, Any]:
    floats = {name: np.zeros(16) for name in ("x_ptr", "y_ptr", "z_ptr")}
    return {**floats, "i_ptr": np.zeros(16, np.int32), "n": 3}


def rejected(body: str, outputs: tuple[str, ...] = ("y_ptr",)) -> str:
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    module = forward_module(HEAD + lines, arguments(), {})
    with pytest.raises(CompilationError) as info:
        reverse_mode(module, ("x_ptr",), outputs)
    return str(info.value)


REJECTED = {
    "bits": (
        "tl.store(y_ptr + at, x.to(tl.int64, bitcast=True).to(tl.float64))",
        "no gradient through arith.bitcast of a tile of fp64",
    ),
    "in place": (
        "tl.store(x_ptr + at, x * x)\ntl.store(y_ptr + at, x)",
        "x_ptr is loaded here and stored at line 4: the gradient uses the values from before",
    ),
    "scratch": (
        "tl.store(z_ptr + at, x)\ntl.debug_barrier()\ntl.store(y_ptr + at, tl.load(z_ptr + at))",
        "z_ptr is loaded here and stored at line 4",
    ),
    "result read back": (
        "tl.store(y_ptr + at, x)\ntl.debug_barrier()\ntl.store(z_ptr + at, tl.load(y_ptr + at))",
        "y_ptr is loaded here and stored at line 4",
    ),
    "a factor that is overwritten": (
        "z = tl.load(z_ptr + at)\ntl.store(y_ptr + at, x * z)\ntl.store(z_ptr + at, z + 1)",
        "z_ptr is loaded here and stored at line 6",
    ),
    "an index that is overwritten": (
        "i = tl.load(i_ptr + at)\ntl.store(y_ptr + i, x)\ntl.store(i_ptr + at, i + 1)",
        "i_ptr is loaded here and stored at line 6",
    ),
    "another output": (
        "tl.store(y_ptr + at, x)\ntl.store(z_ptr + at, x * 2)",
        "z_ptr is stored here, and its values depend on the inputs",
    ),
    "result of an atomic": (
        "old = tl.atomic_add(z_ptr + at, 1.0)\ntl.store(y_ptr + at, x * old)",
        "the result of atomic.rmw cannot be recomputed",
    ),
    "atomic on an input": (
        "tl.store(y_ptr + at, x)\ntl.atomic_add(x_ptr + at, 1.0)",
        "x_ptr is loaded here and stored at line 5",
    ),
    "atomic maximum": (
        "tl.atomic_max(y_ptr + at, x)",
        "no gradient through atomic.rmw",
    ),
    "atomic sum whose result is used": (
        "tl.store(z_ptr + at, tl.atomic_add(y_ptr + at, x))",
        "no gradient through atomic.rmw",
    ),
    "a store and an atomic on one output": (
        "tl.store(y_ptr + at, x)\ntl.atomic_add(y_ptr + at, x)",
        "no gradient through atomic.rmw",
    ),
    "compare and swap": (
        "o = tl.zeros([8], tl.int32)\nold = tl.atomic_cas(i_ptr + at, o, o + 1)\n"
        "tl.store(y_ptr + at, x * old)",
        "the result of atomic.cas cannot be recomputed",
    ),
    "a recurrence": (
        "for i in range(n):\n    x = tl.sin(x)\ntl.store(y_ptr + at, x)",
        "no gradient through this loop: its intermediate values are not recorded",
    ),
    "a running maximum that is a result": (
        "m = x - x\nfor i in range(n):\n    m = tl.maximum(m, x * i)\ntl.store(y_ptr + at, m)",
        "no gradient through this loop",
    ),
    "a running product": (
        "s = x\nfor i in range(n):\n    s = s * tl.exp(x)\ntl.store(y_ptr + at, s)",
        "no gradient through this loop",
    ),
    "while": (
        "i = 0\nwhile i < n:\n    x = x * x\n    i += 1\ntl.store(y_ptr + at, x)",
        "no gradient through this loop",
    ),
    "combine function": (
        "tl.store(y_ptr + at, x * tl.reduce(x, 0, bits))",
        "no gradient through arith.bitcast of fp64",
    ),
    "map": (
        "tl.store(y_ptr + at, tl.map_elementwise(square, x))",
        "no gradient through tile.map of a tile of fp64",
    ),
    "pointers from memory": (
        "p = tl.load(i_ptr + at).to(tl.int64).to(tl.pointer_type(tl.float64))\n"
        "tl.store(y_ptr + at, x * tl.load(p))",
        "the address is not computed from a single pointer argument",
    ),
    "a chosen array": (
        "p = y_ptr\nif n > 2:\n    p = z_ptr\ntl.store(p + at, x)",
        "the address is not computed from a single pointer argument",
    ),
    "another element type": (
        "tl.store(y_ptr + at, x)\n"
        "tl.store(y_ptr.to(tl.pointer_type(tl.int64)) + at, tl.load(i_ptr + at).to(tl.int64))",
        "y_ptr is accessed through a pointer that was cast to another element type",
    ),
    "offsets in bytes": (
        "p = (x_ptr.to(tl.pointer_type(tl.int8)) + 8 * at).to(tl.pointer_type(tl.float64))\n"
        "tl.store(y_ptr + at, x * tl.load(p))",
        "x_ptr is accessed through a pointer that was cast to another element type",
    ),
    "volatile": (
        "z = tl.load(z_ptr + at, volatile=True)\ntl.store(y_ptr + at, x * z)",
        "the result of mem.load cannot be recomputed",
    ),
}


@pytest.mark.parametrize("name", REJECTED)
def test_it_is_an_error_with_the_line(name: str) -> None:
    body, message = REJECTED[name]
    text = rejected(body)
    assert message in text
    assert "^" in text


def test_names_must_be_arrays_of_floats() -> None:
    module = forward_module(HEAD + "    tl.store(y_ptr + at, x)", arguments(), {})
    with pytest.raises(ValueError, match="wrt names 'q', which is not an argument"):
        reverse_mode(module, ("q",), ("y_ptr",))
    with pytest.raises(ValueError, match="outputs names 'i_ptr', which is not an array of floats"):
        reverse_mode(module, ("x_ptr",), ("i_ptr",))
    with pytest.raises(ValueError, match="'y_ptr' is named in outputs and in aux"):
        reverse_mode(module, ("x_ptr",), ("y_ptr",), ("y_ptr",))
