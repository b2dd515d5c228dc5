"""Layer norm with its gradient, as a function of torch's autograd. python examples/layer_norm.py

Forward, a program normalises one row: y = (x - mean) / sqrt(variance + eps) * weight + bias. It
stores the mean and 1 / sqrt(…), from which the gradient recomputes the normalised row.

Backward, dx of a row needs two sums over that row, while dweight and dbias are sums over all rows.
Each program processes consecutive rows and accumulates partial sums of dweight and dbias in tiles;
a second kernel adds the partial sums. There are no locks or atomics: results are deterministic.
"""

from __future__ import annotations

from typing import Any

from report import QUICK, check, compare_speed, require_torch

import tilewright as tw
import tilewright.language as tl

torch = require_torch("autograd")

SHARES = 64
"""Number of programs, and so of partial sums, of the gradient."""


@tw.jit
def forward_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr, columns, eps, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(inside, x - mean, 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + eps)
    weight = tl.load(weight_ptr + column, mask=inside).to(tl.float32)
    bias = tl.load(bias_ptr + column, mask=inside).to(tl.float32)
    tl.store(y_ptr + row * columns + column, centred * rstd * weight + bias, mask=inside)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@tw.jit
def backward_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    dweight_shares_ptr,
    dbias_shares_ptr,
    rows,
    columns,
    BLOCK: tl.constexpr,
):
    share, shares = tl.program_id(0), tl.num_programs(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    dweight = tl.zeros((BLOCK,), tl.float32)
    dbias = tl.zeros((BLOCK,), tl.float32)
    for row in range(share * rows // shares, (share + 1) * rows // shares):
        start = tl.cast(row, tl.int64) * columns
        x = tl.load(x_ptr + start + column, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + start + column, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        normal = tl.where(inside, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
        scaled = dy * weight
        # Project out the components along the normalised row and along ones: y does not depend on
        # the scale and the mean of x.
        along_row = tl.sum(normal * scaled, axis=0) / columns
        along_ones = tl.sum(scaled, axis=0) / columns
        dx = (scaled - normal * along_row - along_ones) * rstd
        tl.store(dx_ptr + start + column, dx, mask=inside)
        dweight += dy * normal
        dbias += dy
    tl.store(dweight_shares_ptr + share * columns + column, dweight, mask=inside)
    tl.store(dbias_shares_ptr + share * columns + column, dbias, mask=inside)


@tw.jit
def sum_shares_kernel(shares_ptr, sum_ptr, columns, SHARES: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    place = tl.arange(0, SHARES)[:, None] * columns + column[None, :]
    shares = tl.load(shares_ptr + place, mask=inside[None, :], other=0.0)
    tl.store(sum_ptr + column, tl.sum(shares, axis=0), mask=inside)


__tilewright_signatures__ = {
    "forward_kernel": (
        "x_ptr=*fp32:16, weight_ptr=*fp32:16, bias_ptr=*fp32:16, y_ptr=*fp32:16, "
        "mean_ptr=*fp32:16, rstd_ptr=*fp32:16, columns=i32, eps=fp32",
        {"BLOCK": 1024},
    ),
    "backward_kernel": (
        "dy_ptr=*fp32:16, x_ptr=*fp32:16, weight_ptr=*fp32:16, mean_ptr=*fp32:16, "
        "rstd_ptr=*fp32:16, dx_ptr=*fp32:16, dweight_shares_ptr=*fp32:16, "
        "dbias_shares_ptr=*fp32:16, rows=i32, columns=i32",
        {"BLOCK": 1024},
    ),
    "sum_shares_kernel": (
        "shares_ptr=*fp32:16, sum_ptr=*fp32:16, columns=i32",
        {"SHARES": SHARES, "BLOCK": 256},
    ),
}


def forward(x: Any, weight: Any, bias: Any, eps: float, y: Any, mean: Any, rstd: Any) -> None:
    """Layer norm of the rows of contiguous `x` into `y`; also stores mean and 1/σ of each row."""
    rows, columns = x.shape
    block = tw.next_power_of_2(columns)
    forward_kernel[(rows,)](x, weight, bias, y, mean, rstd, columns, eps, BLOCK=block)


def backward(dy: Any, x: Any, weight: Any, mean: Any, rstd: Any) -> tuple[Any, Any, Any]:
    """Gradients for x, weight and bias."""
    rows, columns = x.shape
    dx, dweight, dbias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    dweight_shares, dbias_shares = (torch.empty((SHARES, columns)) for _ in range(2))
    backward_kernel[(SHARES,)](
        dy, x, weight, mean, rstd, dx, dweight_shares, dbias_shares, rows, columns,
        BLOCK=tw.next_power_of_2(columns),
    )  # fmt: skip
    for part, total in ((dweight_shares, dweight), (dbias_shares, dbias)):
        sum_shares_kernel[(tw.cdiv(columns, 256),)](part, total, columns, SHARES, BLOCK=256)
    return dx, dweight, dbias


class LayerNorm(torch.autograd.Function):
    """``LayerNorm.apply(x, weight, bias, eps)`` over the last axis of a tensor on the CPU."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any, eps: float) -> Any:
        rows_of_x = x.reshape(-1, x.shape[-1]).contiguous()
        y = torch.empty_like(rows_of_x)
        mean, rstd = torch.empty(len(rows_of_x)), torch.empty(len(rows_of_x))
        forward(rows_of_x, weight, bias, eps, y, mean, rstd)
        ctx.save_for_backward(rows_of_x, weight, mean, rstd)
        return y.view(x.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, weight, mean, rstd = ctx.saved_tensors
        (dy,) = gradients
        dx, dweight, dbias = backward(dy.reshape(x.shape).contiguous(), x, weight, mean, rstd)
        return dx.view(dy.shape), dweight, dbias, None


def main() -> None:
    rows, columns = (70, 130) if QUICK else (4096, 1000)
    torch.manual_seed(0)
    x = torch.randn(rows, columns, requires_grad=True)
    weight, bias = (torch.rand(columns, requires_grad=True) for _ in range(2))
    dy = torch.randn(rows, columns)
    leaves = x, weight, bias

    def ours() -> Any:
        return LayerNorm.apply(x, weight, bias, 1e-5)

    def torchs() -> Any:
        return torch.nn.functional.layer_norm(x, (columns,), weight, bias, 1e-5)

    def gradients_of(function: Any) -> Any:
        return torch.autograd.grad(function(), leaves, dy)

    check(f"layer norm of {rows} rows of {columns}", ours().detach(), torchs().detach(), 1e-5)
    # The gradients of weight and bias are sums over all rows: rounding errors accumulate.
    tolerances = {"dx": 1e-5, "dweight": 1e-3, "dbias": 1e-3}
    results = zip(gradients_of(ours), gradients_of(torchs), strict=True)
    for (name, tolerance), (got, expected) in zip(tolerances.items(), results, strict=True):
        check(name, got, expected, tolerance)
    print("forward")
    compare_speed({"tilewright": ours, "torch": torchs})
    print("forward and backward")
    compare_speed({"tilewright": lambda: gradients_of(ours), "torch": lambda: gradients_of(torchs)})


if __name__ == "__main__":
    main()
