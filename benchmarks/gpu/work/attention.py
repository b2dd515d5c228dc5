"""Attention in fp16, forward and backward.

Heads of all batches are one axis. Operations are counted as two products of positions² x D forward
and five backward, halved with a causal mask.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn import attention as torch_attention
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.gpu.case import Case, Run, Setting
from benchmarks.gpu.measure import Planned, planned
from benchmarks.gpu.results import Bars

HEADS = 32
POSITIONS = (1024, 4096, 16384)
LOG2E = math.log2(math.e)
DELTA_BLOCK = 64

# Weights and results are rounded to fp16. Early rows of a causal mask average few values, which may
# cancel, and are large compared with the rest: 7.8e-3 with 16384 rows, in Triton's kernel too.
TOLERANCE = 2e-2
GRADIENT_TOLERANCE = 2e-2  # of sums over up to 16384 products of numbers rounded to fp16

FORWARD = {
    64: ((128, 64, 3, 4), (128, 128, 3, 8), (128, 64, 4, 8), (64, 128, 2, 4)),
    128: ((128, 128, 2, 8), (128, 64, 3, 8), (64, 64, 3, 4)),
}
"""For each D: queries and keys of a tile, stages, warps."""

BACKWARD = {
    64: ((64, 128, 2, 8), (64, 64, 3, 4)),
    128: ((64, 128, 2, 8), (64, 64, 2, 4)),
}
"""The same, as the kernel of dK and dV takes them; that of dQ takes the sizes the other way."""

ONE_KERNEL = {64: ((128, 128, 2, 8),), 128: ((64, 128, 2, 8), (64, 128, 3, 8))}
"""The same, of the kernel that computes all gradients, with atomic additions to dQ."""

SCALE_BLOCK = 1024

LIBRARY = {
    "cuDNN": torch_attention.SDPBackend.CUDNN_ATTENTION,
    "flash": torch_attention.SDPBackend.FLASH_ATTENTION,
}


@dataclass(frozen=True)
class Shape:
    batch: int
    heads: int
    positions: int
    d: int
    causal: bool

    @property
    def name(self) -> str:
        return f"D {self.d}, {'causal' if self.causal else 'full'}, {self.positions}"

    @property
    def scale(self) -> float:
        return self.d**-0.5

    def flops(self, products: int) -> int:
        """Operations of `products` matrix products with positions² elements on one side."""
        each = 2 * self.batch * self.heads * self.positions**2 * self.d
        return products * each // (2 if self.causal else 1)

    def randn(self, setting: Setting, count: int) -> list[torch.Tensor]:
        shape = (self.batch, self.heads, self.positions, self.d)
        return [setting.randn(*shape, dtype=torch.float16) for _ in range(count)]


def _some_heads(tensor: torch.Tensor) -> torch.Tensor:
    """The first and the last head: the scores of all would not fit into memory."""
    flat = tensor.flatten(0, 1)
    return torch.stack([flat[0], flat[-1]])


def _scores(q: torch.Tensor, k: torch.Tensor, shape: Shape) -> torch.Tensor:
    """Of one head; -inf where a key comes after the query and must not."""
    scores = q @ k.mT * shape.scale
    if shape.causal:
        later = torch.ones_like(scores, dtype=torch.bool).triu(1)
        scores = scores.masked_fill_(later, -math.inf)
    return scores


def _library(shape: Shape, inputs: Sequence[torch.Tensor]) -> dict[str, Run]:
    """torch's implementations of the forward pass."""

    def run(backend: torch_attention.SDPBackend) -> torch.Tensor:
        with torch_attention.sdpa_kernel(backend):
            q, k, v = inputs
            return scaled_dot_product_attention(q, k, v, is_causal=shape.causal)

    return {name: partial(run, backend) for name, backend in LIBRARY.items()}


def _forward(setting: Setting, shape: Shape) -> Case:
    q, k, v = shape.randn(setting, 3)
    o, lse = torch.empty_like(q), setting.empty(shape.batch, shape.heads, shape.positions)

    def launches(kernels: Any) -> dict[str, Run]:
        return {
            _describe(m, n, stages, warps): partial(
                kernels.forward_kernel[(shape.positions // m, shape.batch * shape.heads)],
                q, k, v, o, lse, shape.positions, shape.scale * LOG2E,
                D=shape.d, BLOCK_M=m, BLOCK_N=n, CAUSAL=shape.causal,
                num_stages=stages, num_warps=warps,
            )
            for m, n, stages, warps in FORWARD[shape.d]
        }  # fmt: skip

    return Case(
        kernels="attention",
        launches=launches,
        outputs=[o, lse],
        expected=lambda: _exact_forward([q, k, v], shape),
        tolerance=TOLERANCE,
        bytes=4 * q.nbytes,
        flops=shape.flops(2),
        bars=Bars(triton=0.9),
        library=_library(shape, [q, k, v]),
        checked=_some_heads,
    )


def _describe(m: int, n: int, stages: int, warps: int) -> str:
    return f"{m} x {n}, {stages} stages, {warps} warps"


def _exact_forward(given: Sequence[torch.Tensor], shape: Shape) -> list[torch.Tensor]:
    """Of some heads: the output and log2 of the sums, in fp64."""
    return _outputs_and_sums([_some_heads(t).double() for t in given], shape)


def _outputs_and_sums(given: Sequence[torch.Tensor], shape: Shape) -> list[torch.Tensor]:
    """Output and log2 of the sum of 2^score of each query; one head at a time, to save memory."""
    o: list[torch.Tensor] = []
    lse: list[torch.Tensor] = []
    for q, k, v in zip(*given, strict=True):
        scores = _scores(q, k, shape)
        o.append(scores.softmax(-1) @ v)
        lse.append(scores.logsumexp(-1) * LOG2E)
    return [torch.stack(o), torch.stack(lse)]


def _exact_backward(given: Sequence[torch.Tensor], shape: Shape) -> list[torch.Tensor]:
    """Of some heads: dq, dk and dv in fp64."""
    found: list[list[torch.Tensor]] = []
    for q, k, v, do in zip(*(_some_heads(t).double() for t in given), strict=True):
        p = _scores(q, k, shape).softmax(-1)
        dp = do @ v.mT
        ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * shape.scale
        found.append([ds @ k, ds.mT @ q, p.mT @ do])
    return [torch.stack(tensors) for tensors in zip(*found, strict=True)]


def _backward(setting: Setting, shape: Shape) -> Case:
    given = shape.randn(setting, 4)
    q, k, v, _ = given
    # Computed without the forward kernel, so that its faults have no effect here.
    o, lse = _outputs_and_sums([t.flatten(0, 1).float() for t in (q, k, v)], shape)
    o = o.half().view_as(q)
    delta, gradients = torch.empty_like(lse), [torch.empty_like(q) for _ in range(3)]
    sums = torch.empty(q.shape, dtype=torch.float32, device=q.device)

    def launches(kernels: Any) -> dict[str, Run]:
        given_o = given, o, lse, delta, gradients
        return {
            _describe(*config): partial(_launch_backward, kernels, config, shape, *given_o)
            for config in BACKWARD[shape.d]
        } | {
            f"one kernel, {_describe(*config)}": partial(
                _launch_one_kernel, kernels, config, shape, *given_o, sums
            )
            for config in ONE_KERNEL[shape.d]
        }

    return Case(
        kernels="attention_backward",
        launches=launches,
        outputs=gradients,
        expected=lambda: _exact_backward(given, shape),
        tolerance=GRADIENT_TOLERANCE,
        bytes=8 * q.nbytes,
        flops=shape.flops(5),
        bars=Bars(triton=1.0),
        library=dict(_library_backward(shape, given)) if setting.device == "cuda" else {},
        checked=_some_heads,
    )


def _launch_backward(
    kernels: Any,
    config: tuple[int, int, int, int],
    shape: Shape,
    given: Sequence[torch.Tensor],
    o: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    gradients: Sequence[torch.Tensor],
) -> None:
    step, tile, stages, warps = config
    (q, k, v, do), (dq, dk, dv) = given, gradients
    heads, n = shape.batch * shape.heads, shape.positions
    common = {"D": shape.d, "CAUSAL": shape.causal, "num_stages": stages, "num_warps": warps}
    scales = shape.scale, shape.scale * LOG2E
    rows = heads * n // DELTA_BLOCK
    kernels.delta_kernel[(rows,)](o, do, delta, D=shape.d, BLOCK=DELTA_BLOCK)
    kernels.keys_kernel[(n // tile, heads)](
        q, k, v, do, lse, delta, dk, dv, n, *scales, BLOCK_M=step, BLOCK_N=tile, **common
    )
    kernels.queries_kernel[(n // tile, heads)](
        q, k, v, do, lse, delta, dq, n, *scales, BLOCK_M=tile, BLOCK_N=step, **common
    )


def _launch_one_kernel(
    kernels: Any,
    config: tuple[int, int, int, int],
    shape: Shape,
    given: Sequence[torch.Tensor],
    o: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    gradients: Sequence[torch.Tensor],
    sums: torch.Tensor,
) -> None:
    step, tile, stages, warps = config
    (q, k, v, do), (dq, dk, dv) = given, gradients
    heads, n = shape.batch * shape.heads, shape.positions
    kernels.delta_kernel[(heads * n // DELTA_BLOCK,)](o, do, delta, D=shape.d, BLOCK=DELTA_BLOCK)
    sums.zero_()
    kernels.gradients_kernel[(n // tile, heads)](
        q, k, v, do, lse, delta, sums, dk, dv, n, shape.scale, shape.scale * LOG2E,
        D=shape.d, BLOCK_M=step, BLOCK_N=tile, CAUSAL=shape.causal,
        num_stages=stages, num_warps=warps,
    )  # fmt: skip
    kernels.scale_kernel[(sums.numel() // SCALE_BLOCK,)](sums, dq, shape.scale, BLOCK=SCALE_BLOCK)


def _library_backward(shape: Shape, given: Sequence[torch.Tensor]) -> Iterator[tuple[str, Run]]:
    """torch's implementations of the backward pass, for the backends that support these inputs."""
    inputs = [t.detach().requires_grad_() for t in given[:3]]
    for name, forward in _library(shape, inputs).items():
        with torch.enable_grad():
            try:
                output = forward()
            except RuntimeError:  # this backend is missing, or does not support this shape
                continue
        yield name, partial(torch.autograd.grad, output, inputs, given[3], retain_graph=True)


def _shapes(setting: Setting, positions: Sequence[int], causal: Sequence[bool]) -> Iterator[Shape]:
    if setting.scale == "check":
        yield from (Shape(1, 2, 256, 64, False), Shape(1, 2, 256, 128, True))
        return
    for d in (64, 128):
        for masked in causal:
            for n in positions:
                yield Shape(1 if n == 16384 else 4, HEADS, n, d, masked)


def forward(setting: Setting) -> dict[str, Planned]:
    positions = setting.pick((), (4096,), POSITIONS)
    shapes = _shapes(setting, positions, (False, True))
    return {shape.name: planned(_forward, shape) for shape in shapes}


def backward(setting: Setting) -> dict[str, Planned]:
    positions = setting.pick((), (4096,), POSITIONS)
    shapes = _shapes(setting, positions, setting.pick((), (False,), (False, True)))
    return {shape.name: planned(_backward, shape) for shape in shapes}
