"""Kernels as operators of torch: gradcheck, opcheck, torch.compile."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl

torch = pytest.importorskip("torch")


@tw.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, 0.5 * x * (1 + tl.erf(x * 0.7071067811865476)), mask=at < n)


@tw.jit
def swiglu_kernel(a_ptr, b_ptr, y_ptr, z_ptr, n, scale, BLOCK: tl.constexpr, SQUARE: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(a_ptr + at, mask=at < n)
    b = tl.load(b_ptr + at, mask=at < n)
    if SQUARE:
        b = b * b
    gate = tl.sigmoid(a)
    tl.store(y_ptr + at, a * gate * b * scale, mask=at < n)
    tl.store(z_ptr + at, gate, mask=at < n)


@tw.jit
def scale_rows_kernel(x_ptr, w_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n).to(tl.float32)
    w = tl.load(w_ptr + at, mask=at < n).to(tl.float32)
    tl.store(y_ptr + row * n + at, (x * w).to(y_ptr.dtype.element_ty), mask=at < n)


@tw.jit
def gate_kernel(a_ptr, b_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + row * stride + at, mask=at < n)
    b = tl.load(b_ptr + row * stride + at, mask=at < n)
    tl.store(y_ptr + row * n + at, a * tl.sigmoid(b), mask=at < n)


@tw.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, n, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr
):
    rows, dims = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, D)
    place = tl.program_id(1) * n * D + rows[:, None] * D + dims[None, :]
    q = tl.load(q_ptr + place, mask=rows[:, None] < n, other=0.0)
    m, total = tl.full([M], -float("inf"), q.dtype), tl.zeros([M], q.dtype)
    acc = tl.zeros([M, D], q.dtype)
    for start in range(0, n, N):
        columns = start + tl.arange(0, N)
        at = tl.program_id(1) * n * D + columns[:, None] * D + dims[None, :]
        k = tl.load(k_ptr + at, mask=columns[:, None] < n, other=0.0)
        v = tl.load(v_ptr + at, mask=columns[:, None] < n, other=0.0)
        s = tl.where(columns[None, :] < n, tl.dot(q, tl.trans(k)), -float("inf"))
        largest = tl.maximum(m, tl.max(s, 1))
        p, alpha = tl.exp(s - largest[:, None]), tl.exp(m - largest)
        total = total * alpha + tl.sum(p, 1)
        acc = tl.dot(p, v, acc * alpha[:, None])
        m = largest
    tl.store(o_ptr + place, acc / total[:, None], mask=rows[:, None] < n)


gelu = tw.autograd_function(
    gelu_kernel,
    grid=lambda a: (tw.cdiv(a["n"], a["BLOCK"]),),
    outputs={"y_ptr": lambda a: torch.empty_like(a["x_ptr"])},
    name="tilewright_tests::gelu",
)
swiglu = tw.autograd_function(
    swiglu_kernel,
    grid=lambda a: (tw.cdiv(a["n"], a["BLOCK"]),),
    outputs={
        "y_ptr": lambda a: torch.empty_like(a["a_ptr"]),
        "z_ptr": lambda a: torch.empty_like(a["a_ptr"]),
    },
)
scale_rows = tw.autograd_function(
    scale_rows_kernel,
    grid=lambda a: (a["x_ptr"].shape[0],),
    outputs={"y_ptr": lambda a: torch.empty_like(a["x_ptr"])},
)


gate = tw.autograd_function(
    gate_kernel,
    grid=lambda a: (a["a_ptr"].shape[0],),
    outputs={"y_ptr": lambda a: torch.empty(a["a_ptr"].shape, dtype=a["a_ptr"].dtype)},
)
attention = tw.autograd_function(
    attention_kernel,
    grid=lambda a: (tw.cdiv(a["n"], a["M"]), a["q_ptr"].shape[0]),
    outputs={"o_ptr": lambda a: torch.empty_like(a["q_ptr"])},
    deterministic=True,
)


def leaf(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def test_gradcheck() -> None:
    assert torch.autograd.gradcheck(lambda x: gelu(x, x.numel(), BLOCK=16), (leaf(39),))
    a, b = leaf(39), leaf(39)
    for square in (True, False):
        assert torch.autograd.gradcheck(
            lambda a, b, s=square: swiglu(a, b, 39, 0.5, BLOCK=16, SQUARE=s), (a, b)
        )
        assert torch.autograd.gradcheck(  # the gradient of one of two results
            lambda a, b, s=square: swiglu(a, b, 39, 0.5, BLOCK=16, SQUARE=s)[1], (a, b.detach())
        )


def test_gradcheck_of_attention() -> None:
    operands = leaf(2, 9, 4), leaf(2, 9, 4), leaf(2, 9, 4)
    assert torch.autograd.gradcheck(lambda *t: attention(*t, 9, M=4, N=4, D=4), operands)


def test_gradgradcheck() -> None:
    assert torch.autograd.gradgradcheck(lambda x: gelu(x, 39, BLOCK=16), (leaf(39),))
    a, b = leaf(39), leaf(39)
    assert torch.autograd.gradgradcheck(
        lambda a, b: swiglu(a, b, 39, 0.5, BLOCK=16, SQUARE=True), (a, b)
    )
    operands = leaf(2, 5, 4), leaf(2, 5, 4), leaf(2, 5, 4)
    assert torch.autograd.gradgradcheck(lambda *t: attention(*t, 5, M=4, N=4, D=4), operands)


def test_a_third_derivative_is_an_error_not_zero() -> None:
    x = leaf(39)
    (slope,) = torch.autograd.grad(gelu(x, 39, BLOCK=16).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        torch.autograd.grad(second.sum(), x)


def test_opcheck() -> None:
    x = leaf(39)
    torch.library.opcheck(gelu.operator, ([x], [39, 16], [], "x_ptr:t n:i BLOCK:i"))


def test_compile_without_graph_breaks() -> None:
    def loss(x: Any) -> Any:
        return (gelu(x * 2, x.numel(), BLOCK=16) ** 2).sum()

    x = leaf(39)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    (found,) = torch.autograd.grad(compiled(x), x)
    (expected,) = torch.autograd.grad((torch.nn.functional.gelu(x * 2) ** 2).sum(), x)
    torch.testing.assert_close(found, expected)


def test_a_gradient_of_other_strides_is_copied() -> None:
    """The gradient of a sum is an expanded number, with strides of 0."""
    x = leaf(39)
    gelu(x, 39, BLOCK=16).sum().backward()
    (expected,) = torch.autograd.grad(torch.nn.functional.gelu(x).sum(), x)
    torch.testing.assert_close(x.grad, expected)


def test_slices_of_columns_have_gradients() -> None:
    def gated(x: Any) -> Any:
        a, b = x.chunk(2, 1)
        return gate(a, b, x.stride(0), a.shape[1], BLOCK=8)

    x = leaf(3, 10)
    assert torch.autograd.gradcheck(gated, (x,))
    assert torch.autograd.gradgradcheck(gated, (x,))
    compiled = torch.compile(gated, fullgraph=True, backend="aot_eager")
    (found,) = torch.autograd.grad(compiled(x).sum(), x)
    (expected,) = torch.autograd.grad(gated(x).sum(), x)
    torch.testing.assert_close(found, expected)


def test_expanded_tensors_have_no_gradient() -> None:
    y = gate(*(leaf(1, 5).expand(3, 5) for _ in range(2)), 0, 5, BLOCK=8)
    with pytest.raises(ValueError, match=r"elements of a_ptr share memory.* a_ptr.contiguous\(\)"):
        y.sum().backward()


def test_only_required_gradients_are_computed() -> None:
    a, b = leaf(20), torch.randn(20, dtype=torch.float64)
    y, _ = swiglu(a, b, 20, 1.0, BLOCK=16, SQUARE=False)
    y.sum().backward()
    assert a.grad is not None
    assert "b_ptr: " not in swiglu.gradient.explain().split("variant")[-1]


def test_narrow_weights_are_accumulated_in_fp32() -> None:
    x = torch.randn(300, 20, dtype=torch.float16)
    w = torch.ones(20, dtype=torch.float16, requires_grad=True)
    scale_rows(x, w, 20, BLOCK=32).backward(torch.ones_like(x))
    assert w.grad.dtype == torch.float16
    torch.testing.assert_close(w.grad, x.double().sum(0).half(), rtol=2e-3, atol=2e-3)


def test_wrong_calls_are_errors() -> None:
    x = leaf(39)
    with pytest.raises(TypeError, match="gelu_kernel needs the argument 'BLOCK'"):
        gelu(x, 39)
    with pytest.raises(TypeError, match="'y_ptr' and has no such parameter"):
        gelu(x, 39, BLOCK=16, y_ptr=x)
    with pytest.raises(TypeError, match="takes 3 arguments apart from its outputs, not 4"):
        gelu(x, 39, 16, 17)
    with pytest.raises(ValueError, match="has no parameter 'z'"):
        tw.autograd_function(gelu_kernel, grid=(1,), outputs={"z": lambda a: a["x_ptr"]})
