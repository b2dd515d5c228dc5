"""A new normalisation, tried out without writing its gradient. python examples/learned_norm.py

RMSNorm divides a row by the root of its mean square. Why the square? Here the exponent p is a
parameter of the model, like the weights:

    y = w x / (mean(|x|^p) + ε)^(1/p)

The gradient with respect to x, w and p takes half a page of calculus. `tw.autograd_function`
derives it from the kernel instead: x's is stored row by row, and those of w and p, which all rows
share, are added up in registers by as many programs as the device runs at a time. A layer with p
is then trained to imitate one with another exponent, until it finds it. On a GPU, the same script
runs there.
"""

from __future__ import annotations

from typing import Any

from report import QUICK, check, compare_speed, require_torch

import tilewright as tw
import tilewright.language as tl

torch = require_torch("autograd")

EPSILON = 1e-6
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@tw.jit
def norm_kernel(
    x_ptr, w_ptr, p_ptr, y_ptr, columns, EPSILON: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """A row."""
    column = tl.arange(0, BLOCK)
    inside = column < columns
    place = tl.program_id(0).to(tl.int64) * columns + column
    x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + column, mask=inside, other=0.0)
    p = tl.load(p_ptr)
    power = tl.where(x != 0, tl.exp2(p * tl.log2(tl.abs(x) + 1e-30)), 0.0)
    mean = tl.sum(power, axis=0) / columns + EPSILON
    y = w * x * tl.exp2(-tl.log2(mean) / p)
    tl.store(y_ptr + place, y.to(y_ptr.dtype.element_ty), mask=inside)


__tilewright_signatures__ = {
    "norm_kernel": (
        "x_ptr=*fp16:16, w_ptr=*fp32:16, p_ptr=*fp32:16, y_ptr=*fp16:16, columns=i32:16",
        {"EPSILON": EPSILON, "BLOCK": 1024},
    ),
}

normalise = tw.autograd_function(
    norm_kernel,
    grid=lambda a: (a["x_ptr"].numel() // a["columns"],),
    outputs={"y_ptr": lambda a: torch.empty_like(a["x_ptr"])},
)


class LearnedNorm(torch.nn.Module):
    """The layer, for rows of so many columns."""

    def __init__(self, columns: int, p: float = 2.0) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))
        self.p = torch.nn.Parameter(torch.tensor([p]))

    def forward(self, x: Any) -> Any:
        columns = x.shape[-1]
        block = tw.next_power_of_2(columns)
        return normalise(x.contiguous(), self.weight, self.p, columns, EPSILON=EPSILON, BLOCK=block)


def eager_norm(x: Any, w: Any, p: Any) -> Any:
    """The layer in plain torch."""
    return w * x / (x.abs().pow(p).mean(-1, keepdim=True) + EPSILON).pow(1 / p)


def found_exponent(rows: int, columns: int, steps: int) -> float:
    """The exponent of a layer that has been trained to imitate another one, with p = 3."""
    torch.manual_seed(1)
    layer = LearnedNorm(columns).to(DEVICE)
    optimizer = torch.optim.Adam([layer.p], lr=0.1)
    for _ in range(steps):
        x = torch.randn(rows, columns, device=DEVICE) ** 3  # rows with outliers
        loss = (layer(x) - eager_norm(x, layer.weight.detach(), 3.0)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return layer.p.item()


def main() -> None:
    rows, columns = (20, 60) if QUICK else (4096, 1024)
    torch.manual_seed(0)
    layer = LearnedNorm(columns, p=2.5).to(DEVICE)
    with torch.no_grad():
        layer.weight.uniform_(0.5, 1.5)
    x = torch.randn(rows, columns, device=DEVICE, requires_grad=True)
    dy = torch.randn(rows, columns, device=DEVICE)
    leaves = [x, layer.weight, layer.p]
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]

    def ours() -> Any:
        return torch.autograd.grad(layer(x), leaves, dy)

    check("norm", layer(x).detach().cpu(), eager_norm(*exact).detach().cpu(), 1e-5)
    expected = torch.autograd.grad(eager_norm(*exact), exact, dy.double())
    for name, got, want in zip(("x", "w", "p"), ours(), expected, strict=True):
        check(f"d{name}", got.cpu(), want.cpu(), 1e-4)
    found = found_exponent(*((8, 64, 60) if QUICK else (64, 256, 100)))
    check("the exponent that is found", [found], [3.0], 0.05)
    print("forward and backward")
    compare_speed(
        {
            "tilewright": ours,
            "eager torch": lambda: torch.autograd.grad(eager_norm(*leaves), leaves, dy),
        },
        wait=torch.cuda.synchronize if DEVICE == "cuda" else None,
    )


if __name__ == "__main__":
    main()
