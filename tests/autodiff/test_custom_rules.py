"""Derivatives that the author of a kernel defines with `defvjp`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl
from tests.frontend.kernels import function_from
from tilewright.base.diagnostics import CompilationError

torch = pytest.importorskip("torch")


@tw.jit
def swish(x, s):
    return x * tl.sigmoid(x * s)


@swish.defvjp
def swish_rule(inputs, outputs, grads):
    x, s = inputs
    p = tl.sigmoid(x * s)
    slope = p * (1 - p)
    return grads[0] * (p + x * s * slope), tl.sum(grads[0] * x * x * slope)


@tw.jit
def rounded(x):
    return tl.floor(x + 0.5)


@rounded.defvjp
def straight_through(inputs, outputs, grads):
    return grads[0]


@tw.jit
def polar(x, y, scale: tl.constexpr):
    r = tl.sqrt(x * x + y * y) * scale
    return r, x / r, (x > y).to(tl.int32)


@polar.defvjp
def polar_rule(inputs, outputs, grads):
    x, y, scale = inputs
    r, cosine, _ = outputs
    dr, dc, nothing = grads
    tl.static_assert(nothing is None)
    k: tl.constexpr = scale * scale
    dr = dr - dc * cosine / r
    return dr * k * x / r + dc / r, dr * k * y / r, None


@tw.jit
def twice(x):
    return swish(swish(x, 2.0), 1.0)


@twice.defvjp
def twice_rule(inputs, outputs, grads):
    """A rule may use loops, branches, and functions with rules."""
    h = grads[0]
    for _ in range(2):
        h = h * 0.5
    return h * 4 + 0 * swish(inputs[0], 1.0)


@tw.jit
def swish_kernel(x_ptr, s_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    y = swish(x, tl.load(s_ptr).to(x.dtype))
    tl.store(y_ptr + at, y * 2, mask=at < n)


@tw.jit
def rounded_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float64)
    for i in range(3):
        if i != 1:
            total += rounded(tl.load(x_ptr + at + i * n, mask=at < n, other=0.0)) * (i + 1)
    tl.store(y_ptr + at, total, mask=at < n)


@tw.jit
def polar_kernel(a_ptr, b_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(a_ptr + at, mask=at < n, other=1.0)
    b = tl.load(b_ptr + at, mask=at < n, other=1.0)
    r, cosine, larger = polar(a, b, 3.0)
    tl.store(y_ptr + at, tl.where(larger == 1, r * a, cosine * r * r), mask=at < n)


@tw.jit
def product_kernel(a_ptr, b_ptr, y_ptr, k, BLOCK: tl.constexpr):
    """A product whose gradients have grids of their own, of a function with a rule."""
    i, j = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK, BLOCK], tl.float64)
    for t in range(0, k, BLOCK):
        a = tl.load(a_ptr + (i * BLOCK + at)[:, None] * k + (t + at)[None, :])
        b = tl.load(b_ptr + (t + at)[:, None] * 32 + (j * BLOCK + at)[None, :])
        acc = tl.dot(swish(a, 1.0), b, acc)
    place = (i * BLOCK + at)[:, None] * 32 + (j * BLOCK + at)[None, :]
    tl.store(y_ptr + place, swish(acc, 0.5))


def gradients(
    kernel: Any, grid: tuple[int, ...], y: Any, inputs: dict[str, Any], **more: Any
) -> tuple[Any, dict[str, Any], Any]:
    """What the kernel and its gradient compute of tensors, and the gradient of the result."""
    torch.manual_seed(0)
    grad = torch.randn_like(y)
    kernel[grid](**inputs, y_ptr=y, **more)
    into = {name: torch.full_like(x, torch.nan) for name, x in inputs.items()}
    backward = tw.grad(kernel)
    backward[grid](**inputs, y_ptr=y, **more, grads={"y_ptr": grad}, into=into)
    return grad, into, backward


def check(
    function: Callable[..., Any], inputs: dict[str, Any], grad: Any, into: dict[str, Any]
) -> None:
    leaves = [x.double().requires_grad_() for x in inputs.values()]
    expected = torch.autograd.grad(function(*leaves), leaves, grad.double())
    for name, gradient in zip(inputs, expected, strict=True):
        tolerance = 1e-12 if into[name].dtype == torch.float64 else 1e-5
        assert (into[name] - gradient).abs().max() < tolerance * gradient.abs().max(), name


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_rule_replaces_the_derivative_of_the_ops(dtype: str) -> None:
    x = torch.randn(100, dtype=getattr(torch, dtype))
    inputs = {"x_ptr": x, "s_ptr": torch.tensor([0.7], dtype=x.dtype)}
    grad, into, backward = gradients(
        swish_kernel, (4,), torch.empty_like(x), inputs, n=100, BLOCK=32
    )
    check(lambda x, s: 2 * x * torch.sigmoid(x * s), inputs, grad, into)
    assert "tl.sum" in backward.source() or "tl.reduce" in backward.source()


def test_a_straight_through_estimator() -> None:
    x = torch.randn(3, 20, dtype=torch.float64)
    y = torch.empty(20, dtype=torch.float64)
    grad, into, _ = gradients(rounded_kernel, (3,), y, {"x_ptr": x}, n=20, BLOCK=8)
    torch.testing.assert_close(into["x_ptr"], torch.stack([grad, 0 * grad, 3 * grad]))


HALVED = """
def kernel(x_ptr, y_ptr, halved: tl.constexpr):
    at = tl.arange(0, 16)
    tl.store(y_ptr + at, halved(tl.load(x_ptr + at)))
"""


@tw.jit
def halved(x):
    return x * 0.5


@halved.defvjp
def halved_rule(inputs, outputs, grads):
    tl.static_assert(inputs[0].dtype == tl.float16)
    tl.static_assert(outputs[0].dtype == tl.float16)
    tl.static_assert(grads[0].dtype == tl.float32)
    return (grads[0] * 0.5,)


def test_gradients_of_narrow_floats_are_fp32() -> None:
    x = torch.randn(16).half()
    kernel = tw.jit(function_from(HALVED))
    grad, into, _ = gradients(kernel, (1,), torch.empty_like(x), {"x_ptr": x}, halved=halved)
    torch.testing.assert_close(into["x_ptr"], grad * 0.5)


def test_several_inputs_and_results() -> None:
    inputs = {"a_ptr": torch.randn(20).double(), "b_ptr": torch.randn(20).double()}

    def function(a: Any, b: Any) -> Any:
        r = torch.sqrt(a * a + b * b) * 3
        return torch.where(a > b, r * a, a * r)

    grad, into, _ = gradients(
        polar_kernel, (3,), torch.empty(20).double(), inputs, n=20, BLOCK=8
    )  # fmt: skip
    check(function, inputs, grad, into)


def test_a_product_on_separate_grids() -> None:
    inputs = {"a_ptr": torch.randn(32, 48).double(), "b_ptr": torch.randn(48, 32).double()}

    def function(a: Any, b: Any) -> Any:
        acc = (a * torch.sigmoid(a)) @ b
        return acc * torch.sigmoid(acc * 0.5)

    grad, into, backward = gradients(
        product_kernel, (2, 2), torch.empty(32, 32).double(), inputs, k=48, BLOCK=16
    )
    check(function, inputs, grad, into)
    assert "a separate kernel" in backward.explain()


TWICE = """
def kernel(x_ptr, y_ptr, twice: tl.constexpr):
    at = tl.arange(0, 16)
    tl.store(y_ptr + at, twice(tl.load(x_ptr + at)))
"""


def test_rules_have_control_flow_and_call_functions_with_rules() -> None:
    x = torch.randn(16).double()
    kernel = tw.jit(function_from(TWICE))
    grad, into, _ = gradients(kernel, (1,), torch.empty_like(x), {"x_ptr": x}, twice=twice)
    torch.testing.assert_close(into["x_ptr"], grad)


def test_the_function_itself_is_not_changed() -> None:
    x, y = torch.tensor([0.4, 1.6, -2.5]).double(), torch.empty(3).double()
    rounded_kernel[(1,)](x.repeat(3), y, 3, BLOCK=4)
    torch.testing.assert_close(y, torch.floor(x + 0.5) * 4)


def test_lanes_that_are_masked_off_do_not_spread() -> None:
    """In the sum of a rule, 0 · inf of a lane that was not loaded would be NaN."""
    x = torch.full((32,), torch.inf).double()
    x[:20] = torch.randn(20).double()
    y, s = torch.empty(20).double(), torch.tensor([0.7]).double()
    into = {"x_ptr": torch.empty(20).double(), "s_ptr": torch.empty(1).double()}
    grads = {"y_ptr": torch.ones(20).double()}
    tw.grad(swish_kernel)[(1,)](x[:20], s, y, 20, BLOCK=32, grads=grads, into=into)
    assert all(value.isfinite().all() for value in into.values())


def test_a_rule_is_for_reverse_mode_only() -> None:
    x, y, tx, ty = (torch.ones(20).double() for _ in range(4))
    s = torch.ones(1).double()
    message = "the derivative rule of swish is for reverse mode"
    both = tw.jvp(swish_kernel)
    with pytest.raises(CompilationError, match=message):
        both[(1,)](x, s, y, 20, BLOCK=32, tangents={"x_ptr": tx}, into={"y_ptr": ty})
    again = tw.grad(tw.grad(swish_kernel))
    with pytest.raises(CompilationError, match=message):
        again[(1,)](
            x, s, y, 20, BLOCK=32, grads={"y_ptr": ty}, directions={"x_ptr": tx},
            into={"x_ptr": torch.empty_like(x)},
        )  # fmt: skip
    # Where nothing with a rule is differentiated, there is nothing to reject.
    both[(1,)](x, s, y, 20, BLOCK=32, tangents={}, into={"y_ptr": ty})
    assert not ty.any()


def test_definitions_are_checked() -> None:
    with pytest.raises(ValueError, match="swish has a derivative rule already: swish_rule"):
        swish.defvjp(straight_through)
    with pytest.raises(TypeError, match=r"\(inputs, outputs, grads\), and swish has \(x, s\)"):
        tw.jit(function_from("def f(x):\n    return x")).defvjp(swish)
    with pytest.raises(TypeError, match="rounded has a derivative rule, straight_through, which"):
        tw.grad(rounded)


def test_a_changed_global_of_a_rule_is_an_error() -> None:
    f = tw.jit(function_from("def f(x):\n    return x * 1.0"))
    rule = function_from("def rule(inputs, outputs, grads):\n    return grads[0] * FACTOR")
    rule.__globals__["FACTOR"] = tl.constexpr(3.0)
    f.defvjp(rule)
    kernel = function_from(
        "def kernel(x_ptr, y_ptr):\n    tl.store(y_ptr, f(tl.load(x_ptr)))"
    )  # fmt: skip
    kernel.__globals__["f"] = f
    x, y, into = torch.ones(1), torch.ones(1), {"x_ptr": torch.empty(1)}
    backward = tw.grad(tw.jit(kernel))
    backward[(1,)](x, y, grads={"y_ptr": y}, into=into)
    assert into["x_ptr"].item() == 3.0
    rule.__globals__["FACTOR"] = tl.constexpr(4.0)
    with pytest.raises(RuntimeError, match="FACTOR has changed"):
        backward[(1,)](x, y + 0, grads={"y_ptr": y}, into={"x_ptr": torch.empty(1)})


@tw.jit
def gated_norm_kernel(x_ptr, w_ptr, scale_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=0.0)
    scale = tl.save(tl.rsqrt(tl.sum(x * x) / n + 1e-3))
    tl.store(scale_ptr + row, scale)
    y = swish(x * scale * tl.load(w_ptr + at, mask=at < n, other=0.0), 1.0)
    tl.store(y_ptr + row * n + at, y, mask=at < n)


def test_an_operator_of_torch_with_a_rule_and_a_saved_output() -> None:
    """The saved value is an output of the operator, and may have a gradient of its own."""
    operator = tw.autograd_function(
        gated_norm_kernel,
        grid=lambda a: (a["x_ptr"].shape[0],),
        outputs={
            "scale_ptr": lambda a: a["x_ptr"].new_empty(a["x_ptr"].shape[0]),
            "y_ptr": lambda a: torch.empty_like(a["x_ptr"]),
        },
    )
    x, w = torch.randn(7, 5).double().requires_grad_(), torch.randn(5).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x, w: operator(x, w, 5, BLOCK=8), (x, w))
    assert torch.autograd.gradcheck(lambda x, w: operator(x, w, 5, BLOCK=8)[1], (x, w))
    assert "scale_ptr +" in operator.gradient.source()
