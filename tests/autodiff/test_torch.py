"""Gradients of the kernels of `cases.py`, compiled for the CPU, agree with torch's: in fp64, and in
fp16 and bf16 with at most about the error of torch's own gradient in that type."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.autodiff.cases import Case, case
from tests.frontend.kernels import function_from

torch = pytest.importorskip("torch")
F = torch.nn.functional
Tensors = dict[str, Any]


def normed(a: Tensors) -> Any:
    return F.layer_norm(a["x_ptr"], (13,), a["w_ptr"], a["b_ptr"])


def rms_norm(a: Tensors) -> Any:
    x = a["x_ptr"]
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * a["w_ptr"]


def boxes(a: Tensors) -> Any:
    left, top, right, bottom = a["a_ptr"].unbind(1)
    return (right - left).clamp(min=0) * (bottom - top)


def dropout(a: Tensors) -> Any:
    """By what the kernel keeps."""
    return a["x_ptr"] / 0.75 * (a["y_ptr"] != 0)


def rope(a: Tensors) -> Any:
    first, second = a["x_ptr"].chunk(2, -1)
    angle = a["angle_ptr"].repeat_interleave(3, 0)
    cos, sin = torch.cos(angle), torch.sin(angle)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def product(a: Tensors) -> Any:
    bias = a.get("bias_ptr", 0)
    return a["a_ptr"] @ a["b_ptr"] + bias


def product_with_gelu(a: Tensors) -> Any:
    return F.gelu(product(a))


def gated_scan(a: Tensors) -> Any:
    decay, h, found = 1.0, 0.0, list[Any]()
    for gate, x in zip(a["a_ptr"].unbind(1), a["x_ptr"].unbind(1), strict=True):
        decay, h = decay * gate, h * gate + x
        found.append(h * decay + h)
    return torch.stack(found, 1)


def convolution(a: Tensors) -> Any:
    return F.conv1d(a["x_ptr"][None], a["w_ptr"].view(4, 3, 3))[0]


def attention(allowed: Callable[[Any, Any], Any], heads: Callable[[Any], Any] = lambda h: h) -> Any:
    """Of queries and keys for which `allowed` holds; `heads` are those of the keys."""

    def function(a: Tensors) -> dict[str, Any]:
        q, k, v = (a[name] for name in ("q_ptr", "k_ptr", "v_ptr"))
        own = heads(torch.arange(len(q)))
        rows, columns = torch.arange(q.shape[1])[:, None], torch.arange(q.shape[1])[None, :]
        scores = q @ k[own].transpose(-1, -2) * 0.3
        scores = scores.masked_fill(~allowed(rows, columns), -torch.inf)
        return {"o_ptr": scores.softmax(-1) @ v[own], "lse_ptr": scores.logsumexp(-1)}

    return function


def anywhere(rows: Any, columns: Any) -> Any:
    return columns >= 0 * rows


def causal(rows: Any, columns: Any) -> Any:
    return columns <= rows


def in_window(rows: Any, columns: Any) -> Any:
    """From the tile of keys in which the tile of queries before begins."""
    return (columns <= rows) & (columns >= (rows // 8 * 8 - 8).clamp(min=0) // 4 * 4)


def of_sequences(allowed: Callable[[Any, Any], Any]) -> Any:
    def function(a: Tensors) -> dict[str, Any]:
        starts = a["starts_ptr"].tolist()
        parts: list[Any] = []
        for begin, end in pairwise(starts):
            some = {n: a[n][None, begin:end] for n in ("q_ptr", "k_ptr", "v_ptr")}
            parts.append(attention(allowed)(some)["o_ptr"][0])
        return {"o_ptr": torch.cat(parts)}

    return function


FUNCTIONS: dict[str, Callable[[Tensors], Any]] = {
    "gelu": lambda a: F.gelu(a["x_ptr"]),
    "swiglu": lambda a: F.silu(a["a_ptr"]) * a["b_ptr"],
    "boxes": boxes,
    "dropout": dropout,
    "softmax": lambda a: a["x_ptr"].softmax(-1),
    "online softmax": lambda a: a["x_ptr"].softmax(-1),
    "log of a sum": lambda a: a["x_ptr"].logsumexp(-1),
    "rope": rope,
    "layer norm": normed,
    "looped layer norm": normed,
    "rms norm": rms_norm,
    "group norm": lambda a: F.group_norm(a["x_ptr"], 3, a["w_ptr"], a["b_ptr"]),
    "product": product,
    "product with gelu": product_with_gelu,
    "grouped product": product,
    "grouped product with gelu": product_with_gelu,
    "persistent product": product,
    "persistent product with gelu": product_with_gelu,
    "full attention": attention(anywhere),
    "causal attention": attention(causal),
    "windowed attention": attention(in_window),
    "grouped queries": attention(anywhere, lambda h: h // 2),
    "grouped heads": attention(anywhere, lambda h: h % 4 // 2),
    "attention in a branch": attention(anywhere, lambda h: h // 2),
    "variable lengths": of_sequences(anywhere),
    "causal variable lengths": of_sequences(causal),
    "convolution": convolution,
    "cumsum": lambda a: (a["x_ptr"] ** 2).cumsum(-1),
    "gated scan": gated_scan,
}
"""The kernels of the table, without cross-entropy (`test_public_forms.py`) and scans in loops
(`test_tapes.py`)."""


IN_NARROW_TYPES = {
    "tl.float64": "tl.float32",
    "(p, v,": "(p.to(v.dtype), v,",
    "tl.sigmoid(a)": "tl.sigmoid(a.to(tl.float32))",
    "tl.cos(angle), tl.sin(angle)": "tl.cos(angle.to(tl.float32)), tl.sin(angle.to(tl.float32))",
}
"""How the kernels are written for narrow types."""


def launched(found: Case, dtype: Any) -> tuple[Tensors, Tensors, Tensors]:
    """The arguments after the launch, the gradients of results, and those of inputs."""
    text, grid, args, wrt, outputs, constexprs = found
    if dtype != torch.float64:
        for wide, narrow in IN_NARROW_TYPES.items():
            text = text.replace(wide, narrow)
    kernel = tw.jit(function_from(text))
    launch = grid if isinstance(grid, tuple) else (grid,)
    given: Tensors = {}
    for name, value in args.items():
        tensor = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        given[name] = tensor.to(dtype) if getattr(tensor, "is_floating_point", bool)() else tensor
    kernel[launch](**given, **constexprs)
    torch.manual_seed(0)
    grads = {name: torch.randn_like(given[name]) for name in outputs}
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    into = {name: torch.full_like(given[name], torch.nan, dtype=wide) for name in wrt}
    tables = tuple(name for name in args if name.startswith("starts"))
    backward = tw.grad(kernel, tables=tables)
    backward[launch](**given, **constexprs, grads=grads, into=into)
    return given, grads, into


def expected(function: Callable[[Tensors], Any], given: Tensors, grads: Tensors, dtype: Any,
             wrt: Any) -> Tensors:  # fmt: skip
    """torch's gradients, computed in a type."""
    leaves = {name: given[name].detach().to(dtype).requires_grad_() for name in wrt}
    results = function({**given, **leaves})
    results = results if isinstance(results, dict) else {next(iter(grads)): results}
    outputs = [results[name].reshape(grads[name].shape) for name in grads]
    found = torch.autograd.grad(
        outputs, list(leaves.values()), [g.to(dtype) for g in grads.values()]
    )
    return dict(zip(wrt, found, strict=True))


def error(found: Any, exact: Any) -> float:
    return float((found.double() - exact).abs().max() / exact.abs().max())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_in_fp64(name: str) -> None:
    given, grads, into = launched(case(name), torch.float64)
    exact = expected(FUNCTIONS[name], given, grads, torch.float64, list(into))
    for key, gradient in into.items():
        assert error(gradient, exact[key]) < 1e-12, key


NARROW = (
    "swiglu", "softmax", "online softmax", "rope", "layer norm", "rms norm", "group norm",
    "product with gelu", "persistent product", "full attention", "causal attention",
    "windowed attention", "grouped queries", "variable lengths", "cumsum",
)  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
def test_gradients_in_narrow_types(name: str, dtype: Any) -> None:
    """With gradients of fp32, the error is at most that of torch, which rounds every operation; or
    that of a result that is loaded as it was stored (decision 0057)."""
    given, grads, into = launched(case(name), dtype)
    exact = expected(FUNCTIONS[name], given, grads, torch.float64, list(into))
    theirs = expected(FUNCTIONS[name], given, grads, dtype, list(into))
    rounding = torch.finfo(dtype).eps / 2 if name == "softmax" else 0.0
    for key, gradient in into.items():
        most = max(1.1 * error(theirs[key], exact[key]), rounding) + 1e-6
        assert error(gradient, exact[key]) <= most, key
