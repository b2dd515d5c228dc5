"""A JAX training step with tile kernels. Needs JAX: python examples/jax_training.py

A network of two layers fits a function. Bias and activation of its hidden layer are one kernel, and
so is their gradient: each reads and writes the hidden values once. `jax.custom_vjp` says that one
is the derivative of the other; without it, tilewright would derive the second kernel. The rest is
plain JAX, and the whole step is one jitted program.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from report import QUICK, check, compare_speed, require_jax

jax = require_jax("the network and its training")
jnp = jax.numpy

import tilewright as tw  # noqa: E402  # after the message about JAX
import tilewright.jax  # noqa: E402
import tilewright.language as tl  # noqa: E402

RATE = 0.02


@tw.jit
def silu_kernel(x_ptr, bias_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = column < columns
    index = tl.program_id(0) * columns + column
    v = tl.load(x_ptr + index, mask=inside) + tl.load(bias_ptr + column, mask=inside)
    tl.store(y_ptr + index, v * tl.sigmoid(v), mask=inside)


@tw.jit
def silu_gradient_kernel(x_ptr, bias_ptr, dy_ptr, dx_ptr, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = column < columns
    index = tl.program_id(0) * columns + column
    v = tl.load(x_ptr + index, mask=inside) + tl.load(bias_ptr + column, mask=inside)
    s = tl.sigmoid(v)
    dy = tl.load(dy_ptr + index, mask=inside)
    tl.store(dx_ptr + index, dy * s * (1 + v * (1 - s)), mask=inside)


__tilewright_signatures__ = {
    "silu_kernel": (
        "x_ptr=*fp32:16, bias_ptr=*fp32:16, y_ptr=*fp32:16, columns=i32",
        {"BLOCK": 512},
    ),
    "silu_gradient_kernel": (
        "x_ptr=*fp32:16, bias_ptr=*fp32:16, dy_ptr=*fp32:16, dx_ptr=*fp32:16, columns=i32",
        {"BLOCK": 512},
    ),
}


def over_rows(kernel: Any, x: Any, *arrays: Any) -> Any:
    """Call a kernel whose result is like the matrix `x`, with a program for each row."""
    rows, columns = x.shape
    return tilewright.jax.call(
        kernel, x, *arrays, columns=columns, BLOCK=tw.next_power_of_2(columns), grid=(rows,),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
    )  # fmt: skip


@jax.custom_vjp
def biased_silu(x: Any, bias: Any) -> Any:
    """silu(x + bias), for a matrix and a row."""
    return over_rows(silu_kernel, x, bias)


def _forward(x: Any, bias: Any) -> tuple[Any, tuple[Any, Any]]:
    return biased_silu(x, bias), (x, bias)


def _backward(saved: tuple[Any, Any], dy: Any) -> tuple[Any, Any]:
    dx = over_rows(silu_gradient_kernel, *saved, dy)
    return dx, dx.sum(0)


biased_silu.defvjp(_forward, _backward)


def plain_silu(x: Any, bias: Any) -> Any:
    return jax.nn.silu(x + bias)


def loss(activation: Callable[[Any, Any], Any], parameters: Any, x: Any, y: Any) -> Any:
    w1, b1, w2, b2 = parameters
    return jnp.mean((activation(x @ w1, b1) @ w2 + b2 - y) ** 2)


@partial(jax.jit, static_argnums=0)
def train_step(activation: Callable[[Any, Any], Any], parameters: Any, x: Any, y: Any) -> Any:
    """One step of gradient descent. Returns the loss and the new parameters."""
    value, gradients = jax.value_and_grad(loss, argnums=1)(activation, parameters, x, y)
    return value, [p - RATE * g for p, g in zip(parameters, gradients, strict=True)]


def main() -> None:
    rows, hidden, steps = (256, 48, 40) if QUICK else (4096, 512, 200)
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (rows, 8)).astype(np.float32)
    y = np.sin(2 * x[:, :1]) * x[:, 1:2]
    shapes = (8, hidden), (hidden,), (hidden, 1), (1,)
    start = [rng.normal(0, shape[0] ** -0.5, shape).astype(np.float32) for shape in shapes]

    gradient = jax.grad(loss, argnums=1)
    for name, ours, plain in zip(
        ("w1", "b1", "w2", "b2"),
        gradient(biased_silu, start, x, y),
        gradient(plain_silu, start, x, y),
        strict=True,
    ):
        check(f"gradient of {name}", ours, plain, 1e-4)

    parameters, first, last = start, 0.0, 0.0
    for step in range(steps):
        value, parameters = train_step(biased_silu, parameters, x, y)
        first, last = (float(value) if step == 0 else first), float(value)
    print(f"loss after {steps} steps: {last:.4f}, from {first:.4f}")
    check("the loss has fallen by a fifth", last < 0.8 * first, True, 0)

    compare_speed(
        {
            "tilewright": lambda: jax.block_until_ready(train_step(biased_silu, start, x, y)),
            "JAX": lambda: jax.block_until_ready(train_step(plain_silu, start, x, y)),
        }
    )


if __name__ == "__main__":
    main()
