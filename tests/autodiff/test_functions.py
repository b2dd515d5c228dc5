"""Functions have the derivative of the function, or are rejected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.autodiff.harness import check_gradients, cleaned
from tests.frontend.kernels import function_from, jit
from tilewright.autodiff.reverse import reverse_mode
from tilewright.base.diagnostics import CompilationError
from tilewright.frontend.build import build_module
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.types import FP64
from tilewright.language.elementary.by_ops import BY_OPS
from tilewright.language.elementary.derivatives import TABLE, install_derivatives
from tilewright.language.extra import libdevice

install_derivatives()
FUNCTIONS: dict[str, Any] = {
    function.__name__: function
    for function in vars(libdevice).values()
    if hasattr(function, "signatures")
}
REJECTED = {"lgamma", "tgamma", "nextafter", "rcp64h"}
DOMAIN = {"acosh": "(1.5 + p)", "y0": "(1 + p)", "y1": "(1 + p)", "yn": "(1 + p)", "erfcinv": "p"}


def _differentiable(wide: bool) -> list[str]:
    """The functions of floats that return one, with or without a signature for fp64."""
    return sorted(
        name
        for name, function in FUNCTIONS.items()
        if any(t.is_floating() for types in function.signatures for t in types)
        and any(to.is_floating() for to in function.signatures.values())
        and wide == any(FP64 in types for types in function.signatures)
    )


def _text(function: Any) -> str:
    types = next(types for types in function.signatures if FP64 in types)
    names = iter("xyzw")
    first = DOMAIN.get(function.__name__, "p")
    given = ["2" if t.is_int() else first if i == 0 else next(names) for i, t in enumerate(types)]
    if types[0].is_int():
        given[1] = first
    return f"""
def kernel(p_ptr, x_ptr, y_ptr, z_ptr, out_ptr):
    at = tl.arange(0, 16)
    p = tl.load(p_ptr + at)
    x, y, z = tl.load(x_ptr + at), tl.load(y_ptr + at), tl.load(z_ptr + at)
    r = tl.extra.libdevice.{function.__name__}({", ".join(given)})
    tl.store(out_ptr + at, r.to(tl.float64) * tl.cos(x))
"""


def _arguments() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    args: dict[str, Any] = {f"{n}_ptr": rng.standard_normal(16) for n in "xyz"}
    return {"p_ptr": rng.uniform(0.1, 0.9, 16), **args, "out_ptr": np.zeros(16)}


WRT = ("p_ptr", "x_ptr", "y_ptr", "z_ptr")


@pytest.mark.parametrize("name", _differentiable(wide=True))
def test_a_function_has_its_derivative_or_is_rejected(name: str) -> None:
    args = _arguments()
    fn = jit(function_from(_text(FUNCTIONS[name])))
    signature = {n: "*fp64" for n in args}
    module = cleaned(build_module(fn, signature, {}, {}, FrontendOptions(derivatives=True)))
    assert (name in REJECTED) == (name not in TABLE and name not in BY_OPS)
    if name in REJECTED:
        with pytest.raises(CompilationError, match=f"no gradient through libdevice.{name}"):
            reverse_mode(module, WRT, ("out_ptr",))
    else:
        # Central differences are too coarse where results are rounded to fp32.
        narrow = name.startswith("double2float")
        rtol = 1e-6 if narrow else 1e-9
        check_gradients(module, 1, args, WRT, ("out_ptr",), rtol=rtol, slopes=not narrow)


def test_functions_of_fp32_only_have_a_derivative() -> None:
    assert set(_differentiable(wide=False)) <= {*BY_OPS, *TABLE}


def test_a_number_at_a_bound_is_within() -> None:
    text = """
def kernel(x_ptr, y_ptr, out_ptr):
    at = tl.arange(0, 8)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.store(out_ptr + at, tl.clamp(x, y, 1.0))
"""
    x = np.array([-2.0, -1.0, 0.0, 1.0, 2.0, -0.0, 1.0, np.nan])
    low = np.array([-1.0, -1.0, -1.0, -1.0, -1.0, 0.0, 1.0, -1.0])
    dx, dlow = np.empty(8), np.empty(8)
    backward = tw.grad(tw.jit(function_from(text)))
    into = {"x_ptr": dx, "y_ptr": dlow}
    backward[(1,)](x, low, np.empty(8), grads={"out_ptr": np.ones(8)}, into=into)
    np.testing.assert_array_equal(dx, [0, 1, 1, 1, 0, 1, 1, 0])
    np.testing.assert_array_equal(dlow, [1, 0, 0, 0, 0, 0, 0, 1])


def test_second_derivatives_through_functions() -> None:
    torch = pytest.importorskip("torch")
    text = """
def kernel(x_ptr, y_ptr, out_ptr):
    at = tl.arange(0, 8)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    r = tl.extra.libdevice.pow(x, y) * tl.extra.libdevice.atan2(x, y)
    r += tl.extra.libdevice.copysign(x * x, y)
    tl.store(out_ptr + at, r + tl.extra.libdevice.j1(x) * tl.extra.libdevice.sinh(y))
"""
    function = tw.autograd_function(
        tw.jit(function_from(text)),
        grid=lambda a: (1,),
        outputs={"out_ptr": lambda a: torch.empty_like(a["x_ptr"])},
    )
    torch.manual_seed(0)
    x = (torch.rand(8, dtype=torch.float64) + 0.5).requires_grad_()
    y = torch.randn(8, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(function, (x, y))
    assert torch.autograd.gradgradcheck(function, (x, y))


def test_the_derivative_of_a_square_is_a_product() -> None:
    text = """
def kernel(x_ptr, out_ptr):
    at = tl.arange(0, 8)
    tl.store(out_ptr + at, tl.extra.libdevice.pow(tl.load(x_ptr + at), 2))
"""
    backward = tw.grad(tw.jit(function_from(text)))
    x, dx = np.linspace(-2, 2, 8), np.empty(8)
    backward[(1,)](x, np.empty(8), grads={"out_ptr": np.ones(8)}, into={"x_ptr": dx})
    np.testing.assert_array_equal(dx, 2 * x)
