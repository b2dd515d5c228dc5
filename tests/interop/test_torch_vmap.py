"""Kernels as operators of torch under `torch.vmap` and the transforms of `torch.func`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl

torch = pytest.importorskip("torch")
F = torch.nn.functional


@tw.jit
def affine_kernel(x_ptr, w_ptr, y_ptr, gate_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + at, mask=at < n, other=0.0)
    w = tl.load(w_ptr + at, mask=at < n, other=0.0)
    gate = tl.exp(-x * x) * tl.num_programs(0)
    tl.store(y_ptr + row * n + at, x * w * gate, mask=at < n)
    tl.store(gate_ptr + row * n + at, gate, mask=at < n)


def like(a: dict[str, Any]) -> Any:
    return torch.empty(a["x_ptr"].shape, dtype=a["x_ptr"].dtype, device=a["x_ptr"].device)


affine = tw.autograd_function(
    affine_kernel,
    grid=lambda a: (a["x_ptr"].shape[0], tw.cdiv(a["n"], a["BLOCK"])),
    outputs={"y_ptr": like, "gate_ptr": like},
)


@tw.jit
def sum_into_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0))
    tl.store(y_ptr + 1, total * total)


sum_into = tw.autograd_function(
    sum_into_kernel,
    grid=(1,),
    outputs={"y_ptr": lambda a: torch.full((3,), 7.0, dtype=a["x_ptr"].dtype)},
)


def kernel(x: Any, w: Any) -> tuple[Any, Any]:
    n = x.shape[-1]
    return affine(x, w, x.stride(0), n, BLOCK=4)


def reference(x: Any, w: Any) -> tuple[Any, Any]:
    gate = torch.exp(-x * x) * x.shape[0]
    return x * w * gate, gate


def normal(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.float64)


ROWS, N, B, C = 3, 9, 4, 2

AXES: list[tuple[Any, tuple[int, ...], tuple[int, ...]]] = [
    ((0, None), (B, ROWS, N), (N,)),
    ((None, 0), (ROWS, N), (B, N)),
    ((0, 0), (B, ROWS, N), (B, N)),
]
"""The axes of a batch in x and w, and their shapes."""


@pytest.mark.parametrize(("axes", "x_shape", "w_shape"), AXES, ids=str)
def test_a_batch_is_a_loop(axes: Any, x_shape: Any, w_shape: Any) -> None:
    x, w = normal(*x_shape), normal(*w_shape)
    found, expected = (torch.vmap(f, axes)(x, w) for f in (kernel, reference))
    torch.testing.assert_close(found, expected)


def test_an_axis_may_be_anywhere() -> None:
    x, w = normal(ROWS, B, N), normal(B, N)
    found, expected = (torch.vmap(f, (1, 0), 1)(x, w) for f in (kernel, reference))
    torch.testing.assert_close(found, expected)


def test_batches_of_batches() -> None:
    x, w = normal(B, C, ROWS, N), normal(C, N)

    def both(f: Callable[..., Any]) -> Any:
        return torch.vmap(torch.vmap(f, (0, 0)), (0, None))(x, w)

    torch.testing.assert_close(both(kernel), both(reference))


def test_an_empty_batch() -> None:
    y, gate = torch.vmap(kernel, (0, None))(normal(0, ROWS, N), normal(N))
    assert y.shape == gate.shape == (0, ROWS, N)


def test_elements_that_a_kernel_does_not_store_have_the_values_of_the_allocated_result() -> None:
    x = normal(B, 5)
    found = torch.vmap(lambda x: sum_into(x, 5, BLOCK=8))(x)
    seven = torch.full((B,), 7.0, dtype=torch.float64)
    torch.testing.assert_close(found, torch.stack([seven, x.sum(1) ** 2, seven], 1))


def scalar(f: Callable[..., Any]) -> Callable[..., Any]:
    def loss(x: Any, w: Any) -> Any:
        y, gate = f(x, w)
        return (y * y).sum() + (gate * y.sin()).sum()

    return loss


@pytest.mark.parametrize(("axes", "x_shape", "w_shape"), AXES, ids=str)
def test_gradients_of_a_batch(axes: Any, x_shape: Any, w_shape: Any) -> None:
    """What all elements of the batch load has the sum of their gradients."""
    x, w = normal(*x_shape).requires_grad_(), normal(*w_shape).requires_grad_()
    found, expected = (
        torch.autograd.grad(torch.vmap(scalar(f), axes)(x, w).sum(), (x, w))
        for f in (kernel, reference)
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("axes", "x_shape", "w_shape"), AXES, ids=str)
def test_gradients_of_each_element(axes: Any, x_shape: Any, w_shape: Any) -> None:
    x, w = normal(*x_shape), normal(*w_shape)
    found, expected = (
        torch.vmap(torch.func.grad(scalar(f), (0, 1)), axes)(x, w) for f in (kernel, reference)
    )
    torch.testing.assert_close(found, expected)


def test_jacobians() -> None:
    x, w = normal(2, 5), normal(5)
    found, expected = (
        torch.func.jacrev(lambda x, w, f=f: f(x, w)[0], (0, 1))(x, w) for f in (kernel, reference)
    )
    torch.testing.assert_close(found, expected)


def test_second_derivatives() -> None:
    x, w = normal(2, 5), normal(5)
    grad = torch.func.grad

    def along(f: Callable[..., Any]) -> Any:
        def slope(x: Any, w: Any) -> Any:
            a, b = grad(scalar(f), (0, 1))(x, w)
            return (a * a).sum() + (b * b * b).sum()

        return grad(slope, (0, 1))(x, w)

    torch.testing.assert_close(along(kernel), along(reference))
    hessians = (
        torch.func.jacrev(grad(scalar(f), (0, 1)), (0, 1))(x, w) for f in (kernel, reference)
    )
    torch.testing.assert_close(*hessians)


def test_second_derivatives_of_a_batch() -> None:
    x, w = normal(B, 2, 5).requires_grad_(), normal(5).requires_grad_()

    def slopes(f: Callable[..., Any]) -> Any:
        total = torch.vmap(scalar(f), (0, None))(x, w).sum()
        a, b = torch.autograd.grad(total, (x, w), create_graph=True)
        return torch.autograd.grad((a * a).sum() + (b**3).sum(), (x, w))

    torch.testing.assert_close(slopes(kernel), slopes(reference))


def test_a_third_derivative_within_transforms_is_an_error() -> None:
    x, w = normal(2, 5), normal(5)
    grad = torch.func.grad
    second = grad(lambda x: grad(lambda x: scalar(kernel)(x, w))(x).sum())
    with pytest.raises(RuntimeError, match="no derivative of"):
        grad(lambda x: second(x).sum())(x)


def test_compiled_without_graph_breaks() -> None:
    x, w = normal(B, ROWS, N).requires_grad_(), normal(N).requires_grad_()
    compiled = torch.compile(
        lambda x, w: torch.vmap(scalar(kernel), (0, None))(x, w).sum(),
        fullgraph=True,
        backend="aot_eager",
    )
    found = torch.autograd.grad(compiled(x, w), (x, w))
    total = torch.vmap(scalar(reference), (0, None))(x, w).sum()
    torch.testing.assert_close(found, torch.autograd.grad(total, (x, w)))


def test_too_many_programs_are_an_error() -> None:
    many = tw.autograd_function(
        sum_into_kernel, grid=(2**20,), outputs={"y_ptr": lambda a: torch.empty(3)}
    )
    batch = torch.zeros(1, dtype=torch.float64).expand(2**12, 1)
    with pytest.raises(ValueError, match="more than 2147483647: use a loop, or"):
        torch.vmap(lambda x: many(x, 1, BLOCK=1))(batch)
