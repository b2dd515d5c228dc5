"""What is compared: by family a function that returns the cases, which make their tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import tilewright as tw
from benchmarks.gpu.kernels import attention, attention_backward, giou, layer_norm
from benchmarks.gradients import kernels, rivals

Run = Callable[[], object]
Cases = dict[str, Callable[[], "Comparison"]]
PARTS = 528  # programs that hold parts of a sum: four for each processor of an H200


@dataclass(frozen=True)
class Comparison:
    """One size of one kernel.

    Attributes:
        derived, written: launches by configuration; the fastest counts.
        gradients: the arrays that they write.
        expected: computes these in fp64.
        tolerance: the largest error, relative to the largest element.
        bytes: the least number of bytes read and written.
        bar: what the time of `written`, times `work`, over that of `derived` should be.
        flops: operations of `derived`; 0 if it is bound by memory.
        same_results: whether `written` writes the gradients; otherwise it is what their time is
            compared with, as the forward kernel.
    """

    derived: dict[str, Run]
    written: dict[str, Run]
    gradients: Sequence[torch.Tensor]
    expected: Callable[[], Sequence[torch.Tensor]]
    tolerance: float
    bytes: int
    bar: float
    flops: int = 0
    same_results: bool = True
    work: float = 1.0


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _randn(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(shape, device=_device()).to(dtype)


def _warps(block: int) -> list[int]:
    fewest = max(1, min(8, block // 1024))
    return [fewest, 2 * fewest, 4 * fewest] if fewest < 8 else [4, 8, 16, 32]


def _by_autograd(
    function: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor], grad: torch.Tensor
) -> list[torch.Tensor]:
    leaves = [t.double().requires_grad_() for t in inputs]
    return list(torch.autograd.grad(function(*leaves), leaves, grad.double()))


def _swiglu(rows: int, columns: int) -> Comparison:
    a, b, dy = (_randn(rows, columns) for _ in range(3))
    y, da, db = (torch.empty_like(a) for _ in range(3))
    backward = tw.grad(kernels.swiglu)
    block = tw.next_power_of_2(columns)
    into = {"a_ptr": da, "b_ptr": db}
    return Comparison(
        {f"{w} warps": partial(
            backward[(rows,)], a, b, y, columns, columns, BLOCK=block, num_warps=w,
            grads={"y_ptr": dy}, into=into,
        ) for w in _warps(block)},
        {f"{w} warps": partial(
            kernels.swiglu_backward[(rows,)], dy, a, b, da, db, columns, columns, BLOCK=block,
            num_warps=w,
        ) for w in _warps(block)} | rivals.swiglu(dy, a, b),
        [da, db],
        lambda: _by_autograd(lambda a, b: torch.nn.functional.silu(a) * b, [a, b], dy),
        5e-3, 5 * a.nbytes, 1.0,
    )  # fmt: skip


def _softmax(rows: int, columns: int) -> Comparison:
    x, dy = _randn(rows, columns), _randn(rows, columns)
    y, dx = x.float().softmax(1).half(), torch.empty_like(x)
    backward = tw.grad(kernels.softmax)
    block = tw.next_power_of_2(columns)
    return Comparison(
        {f"{w} warps": partial(
            backward[(rows,)], x, y, columns, columns, BLOCK=block, num_warps=w,
            grads={"y_ptr": dy}, into={"x_ptr": dx},
        ) for w in _warps(block)},
        {f"{w} warps": partial(
            kernels.softmax_backward[(rows,)], dy, y, dx, columns, columns, BLOCK=block,
            num_warps=w,
        ) for w in _warps(block)} | rivals.softmax(dy, y),
        [dx], lambda: _by_autograd(lambda x: x.softmax(1), [x], dy), 5e-3, 3 * x.nbytes, 1.0,
    )  # fmt: skip


def _rms_norm(rows: int, columns: int) -> Comparison:
    x, dy, w = _randn(rows, columns), _randn(rows, columns), _randn(columns)
    y, dx, dw = torch.empty_like(x), torch.empty_like(x), torch.empty_like(w)
    rstd = (x.float().square().mean(1) + 1e-6).rsqrt()
    backward = tw.grad(kernels.rms_norm, aux=("rstd_ptr",))
    block = tw.next_power_of_2(columns)
    programs = min(PARTS // 2, rows)
    parts = torch.empty(programs, columns, device=x.device)

    def written(warps: int) -> None:
        kernels.rms_norm_backward[(programs,)](
            dy, x, w, rstd, dx, parts, columns, rows, columns, tw.cdiv(rows, programs),
            BLOCK=block, num_warps=warps,
        )  # fmt: skip
        torch.sum(parts, 0, out=total)
        dw.copy_(total)

    total = torch.empty(columns, device=x.device)

    def exact(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x * (x.square().mean(1, keepdim=True) + 1e-6).rsqrt() * w

    return Comparison(
        {f"{n} warps": partial(
            backward[(rows,)], x, w, y, rstd, columns, columns, 1e-6, BLOCK=block, num_warps=n,
            grads={"y_ptr": dy}, into={"x_ptr": dx, "w_ptr": dw},
        ) for n in _warps(block)},
        {f"{n} warps": partial(written, n) for n in _warps(block)}
        | rivals.rms_norm(dy, x, w, rstd),
        [dx, dw], lambda: _by_autograd(exact, [x, w], dy), 5e-3, 3 * x.nbytes, 1.0,
    )  # fmt: skip


def _layer_norm(rows: int, columns: int) -> Comparison:
    x, dy, w, b = _randn(rows, columns), _randn(rows, columns), _randn(columns), _randn(columns)
    y, dx, dw, db = (torch.empty_like(t) for t in (x, x, w, b))
    mean = x.float().mean(1)
    rstd = (x.float().var(1, correction=0) + 1e-5).rsqrt()
    backward = tw.grad(layer_norm.forward_kernel, aux=("mean_ptr", "rstd_ptr"))
    block = tw.next_power_of_2(columns)
    programs = min(PARTS, max(1, rows // 3))
    parts = [torch.empty(programs, columns, device=x.device) for _ in range(2)]

    def written(warps: int) -> None:
        layer_norm.backward_kernel[(programs,)](
            x, dy, dx, w, mean, rstd, *parts, columns, rows, columns, BLOCK=block, num_warps=warps
        )
        layer_norm.sum_parts_kernel[(tw.cdiv(columns, 32),)](
            *parts, dw, db, programs, columns, PARTS=64, BLOCK=32
        )

    def exact(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (columns,), w, b)

    return Comparison(
        {f"{n} warps": partial(
            backward[(rows,)], x, y, w, b, mean, rstd, columns, columns, 1e-5, BLOCK=block,
            num_warps=n, grads={"y_ptr": dy},
            into={"x_ptr": dx, "weight_ptr": dw, "bias_ptr": db},
        ) for n in _warps(block)},
        {f"{n} warps": partial(written, n) for n in _warps(block)}
        | rivals.layer_norm(dy, x, w, b, mean, rstd),
        [dx, dw, db], lambda: _by_autograd(exact, [x, w, b], dy), 5e-3, 3 * x.nbytes, 1.0,
    )  # fmt: skip


def _cross_entropy(rows: int, columns: int) -> Comparison:
    x, label = _randn(rows, columns), torch.randint(columns, (rows,), device=_device())
    loss = torch.empty(rows, device=x.device)
    lse = x.float().logsumexp(1)
    dloss = _randn(rows, dtype=torch.float32)
    dx = torch.empty_like(x)
    backward = tw.grad(kernels.cross_entropy, aux=("lse_ptr",))
    configs = [(1024, 4), (2048, 8), (4096, 8), (8192, 16)] if x.is_cuda else [(64, 4)]

    def exact(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(x, label, reduction="none")

    return Comparison(
        {f"{block}, {n} warps": partial(
            backward[(rows,)], x, label, loss, lse, columns, columns, BLOCK=block, num_warps=n,
            grads={"loss_ptr": dloss}, into={"x_ptr": dx},
        ) for block, n in configs},
        {f"{block}, {n} warps": partial(
            kernels.cross_entropy_backward[(rows,)], dloss, x, label, lse, dx, columns, columns,
            BLOCK=block, num_warps=n,
        ) for block, n in configs},
        [dx], lambda: _by_autograd(exact, [x], dloss), 5e-3, x.nbytes + dx.nbytes, 1.0,
    )  # fmt: skip


def _giou(boxes: int) -> Comparison:
    target = torch.rand(boxes, 4, device=_device())
    target[:, 2:] += target[:, :2]
    predicted = (target + 0.1 * torch.rand(boxes, 4, device=target.device)).contiguous()
    result, valid = (
        torch.empty(boxes, device=target.device),
        torch.empty(boxes, dtype=torch.bool, device=target.device),
    )
    dresult, gradient = torch.randn_like(result), torch.empty_like(predicted)
    backward = tw.grad(giou.giou_kernel)
    moved = 3 * predicted.nbytes + result.nbytes
    source = torch.empty(moved // 2, dtype=torch.int8, device=target.device)
    copy = torch.empty_like(source)

    def launch(block: int, warps: int) -> None:
        backward[(tw.cdiv(boxes, block),)](
            predicted, target, result, valid, boxes, EPSILON=1e-5, BLOCK=block, num_warps=warps,
            grads={"giou_ptr": dresult}, into={"predicted_ptr": gradient},
        )  # fmt: skip

    def exact(p: torch.Tensor) -> torch.Tensor:
        t = target.double()
        size = (torch.minimum(p[:, 2:], t[:, 2:]) - torch.maximum(p[:, :2], t[:, :2])).clamp(min=0)
        around = torch.maximum(p[:, 2:], t[:, 2:]) - torch.minimum(p[:, :2], t[:, :2])
        area = around.prod(1)
        union = (p[:, 2:] - p[:, :2]).prod(1) + (t[:, 2:] - t[:, :2]).prod(1) - size.prod(1)
        value = size.prod(1) / (union + 1e-5) - (area - union) / (area + 1e-5)
        return torch.where(t[:, 3] > 0, value, 0.0)

    return Comparison(
        {f"{b} boxes, {w} warps": partial(launch, b, w)
         for b, w in ((128, 4), (256, 4), (512, 4), (1024, 4), (1024, 8))},
        {"copy": lambda: copy.copy_(source)},
        [gradient], lambda: _by_autograd(exact, [predicted], dresult), 1e-3, moved, 0.85,
        same_results=False,
    )  # fmt: skip


def _matmul(size: int, operand: str, wraps: bool) -> Comparison:
    a, b, dc = (_randn(size, size) for _ in range(3))
    c, gradient = torch.empty_like(a), torch.empty_like(a)
    backward = tw.grad(kernels.matmul)

    def grid(m: int, n: int) -> tuple[int]:
        return (tw.cdiv(size, m) * tw.cdiv(size, n),)

    def launch(m: int, n: int, k: int, warps: int, stages: int) -> None:
        backward[grid(m, n)](
            a, b, c, size, size, size, BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, GROUP=8, WRAPS=wraps,
            num_warps=warps, num_stages=stages, grads={"c_ptr": dc},
            into={f"{operand}_ptr": gradient},
        )  # fmt: skip

    def forward(m: int, n: int, k: int, warps: int, stages: int) -> None:
        kernels.matmul[grid(m, n)](
            a, b, c, size, size, size, BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, GROUP=8, WRAPS=wraps,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip

    # Tiles of the gradient, and the step of its loop.
    tiles = [(128, 256, 64, 8, 3), (256, 128, 64, 8, 3), (128, 128, 64, 8, 3), (128, 128, 64, 4, 4)]
    if not a.is_cuda:
        tiles = [(16, 32, 16, 4, 2)]
    order: Callable[[int, int, int], tuple[int, int, int]] = (
        (lambda x, y, step: (x, step, y)) if operand == "a" else (lambda x, y, step: (step, y, x))
    )
    return Comparison(
        {f"{x}x{y}, steps of {s}, {w} warps, {n} stages": partial(launch, *order(x, y, s), w, n)
         for x, y, s, w, n in tiles},
        {f"{x}x{y}x{s}, {w} warps, {n} stages": partial(forward, x, y, s, w, n)
         for x, y, s, w, n in tiles},
        [gradient],
        lambda: [dc.double() @ b.double().T if operand == "a" else a.double().T @ dc.double()],
        5e-3, 3 * a.nbytes, 0.95, 2 * size**3, same_results=False,
    )  # fmt: skip


def _attention(
    heads: int, positions: int, d: int, causal: bool, added: bool, both: bool = False
) -> Comparison:
    """`added`: compare with one kernel that adds to dQ atomically, so that its results vary; with
    `both`, the derived one may do that, too."""
    q, k, v, do = (_randn(heads, positions, d) for _ in range(4))
    o, dq, dk, dv = (torch.empty_like(q) for _ in range(4))
    lse, delta = (torch.empty(heads, positions, device=q.device) for _ in range(2))
    sums = torch.empty(q.shape if added else 0, device=q.device)
    scale = d**-0.5
    in_bits = scale * math.log2(math.e)
    backward = tw.grad(attention.forward_kernel, aux=("lse_ptr",))
    forward_tiles = (128, 64, 8) if q.is_cuda else (16, 16, 4)
    attention.forward_kernel[(positions // forward_tiles[0], heads)](
        q, k, v, o, lse, positions, in_bits, D=d, BLOCK_M=forward_tiles[0],
        BLOCK_N=forward_tiles[1], CAUSAL=causal, num_warps=forward_tiles[2], num_stages=3,
    )  # fmt: skip

    def derived(into: Mapping[str, torch.Tensor], m: int, n: int, warps: int, stages: int) -> None:
        backward[(positions // m, heads)](
            q, k, v, o, lse, positions, in_bits, D=d, BLOCK_M=m, BLOCK_N=n, CAUSAL=causal,
            num_warps=warps, num_stages=stages, grads={"o_ptr": do}, into=into,
        )  # fmt: skip

    adding = tw.grad(attention.forward_kernel, aux=("lse_ptr",), atomic=("q_ptr",))

    def derived_at_once(m: int, n: int, warps: int, stages: int) -> None:
        adding[(positions // m, heads)](
            q, k, v, o, lse, positions, in_bits, D=d, BLOCK_M=m, BLOCK_N=n, CAUSAL=causal,
            num_warps=warps, num_stages=stages, grads={"o_ptr": do},
            into={"q_ptr": sums, "k_ptr": dk, "v_ptr": dv},
        )  # fmt: skip
        dq.copy_(sums)

    def apart(of_queries: tuple[int, int, int, int], of_keys: tuple[int, int, int, int]) -> None:
        derived({"q_ptr": dq}, *of_queries)
        derived({"k_ptr": dk, "v_ptr": dv}, *of_keys)

    def written(step: int, tile: int, stages: int, warps: int) -> None:
        common: Mapping[str, Any] = {
            "D": d, "CAUSAL": causal, "num_stages": stages, "num_warps": warps
        }  # fmt: skip
        block = min(64, positions)
        attention_backward.delta_kernel[(heads * positions // block,)](
            o, do, delta, D=d, BLOCK=block
        )
        if added:
            sums.zero_()
            attention_backward.gradients_kernel[(positions // tile, heads)](
                q, k, v, do, lse, delta, sums, dk, dv, positions, scale, in_bits, BLOCK_M=step,
                BLOCK_N=tile, **common,
            )  # fmt: skip
            attention_backward.scale_kernel[(q.numel() // 1024,)](sums, dq, scale, BLOCK=1024)
            return
        attention_backward.keys_kernel[(positions // tile, heads)](
            q, k, v, do, lse, delta, dk, dv, positions, scale, in_bits, BLOCK_M=step,
            BLOCK_N=tile, **common,
        )  # fmt: skip
        attention_backward.queries_kernel[(positions // tile, heads)](
            q, k, v, do, lse, delta, dq, positions, scale, in_bits, BLOCK_M=tile,
            BLOCK_N=step, **common,
        )  # fmt: skip

    def expected() -> list[torch.Tensor]:
        picked = [t[:1].double() for t in (q, k, v, do)]
        leaves = [t.requires_grad_() for t in picked[:3]]
        scores = leaves[0] @ leaves[1].mT * scale
        if causal:
            scores = scores.masked_fill(
                torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf
            )
        return list(torch.autograd.grad(scores.softmax(-1) @ leaves[2], leaves, picked[3]))

    # Queries, keys, warps and stages, of the kernel of dQ and of that of dK and dV.
    tiles = [
        ((128, 64, 8, 2), (64, 128, 8, 2)),
        ((64, 64, 4, 3), (64, 64, 4, 3)),
        ((64, 64, 4, 2), (64, 128, 8, 2)),
        ((128, 64, 8, 3), (64, 128, 8, 3)),
        ((64, 64, 4, 2), (64, 64, 4, 2)),
    ]
    # Of one launch for all three: the kernel of dQ saves the sums that the other one needs.
    joint = [(64, 64, 4, 2), (64, 64, 4, 3), (64, 128, 8, 2), (128, 64, 8, 2)]
    hand = [(64, 128, 2, 8), (64, 64, 3, 4), (64, 64, 2, 4)]
    if added:
        hand = [(64, 128, 2, 8), (64, 128, 3, 8)]
    if not q.is_cuda:
        tiles, hand = [((16, 16, 4, 2), (16, 16, 4, 2))], [(16, 16, 2, 4)]
        joint = [(16, 16, 4, 2)]
    into = {"q_ptr": dq, "k_ptr": dk, "v_ptr": dv}
    launches: dict[str, Run] = {f"{x}, {y}": partial(apart, x, y) for x, y in tiles}
    launches |= {f"{x}, in one launch": partial(derived, into, *x) for x in joint}
    if both:
        at_once = [(64, 128, 8, 2), (64, 128, 8, 3)] if q.is_cuda else joint
        launches = {f"{x}, to atomics": partial(derived_at_once, *x) for x in at_once}
    return Comparison(
        launches,
        {f"{m}x{n}, {s} stages, {w} warps": partial(written, m, n, s, w) for m, n, s, w in hand},
        [dq[:1], dk[:1], dv[:1]], expected, 2e-2, 8 * q.nbytes, 0.95,
        5 * 2 * heads * positions**2 * d // (2 if causal else 1),
    )  # fmt: skip


def _selective_scan(batch: int, length: int, channels: int, state: int) -> Comparison:
    fp32 = torch.float32
    x, dy = (_randn(batch, length, channels, dtype=fp32) for _ in range(2))
    delta = torch.rand(batch, length, channels, device=x.device) * 0.1
    a = -torch.rand(channels, state, device=x.device)
    b, c = (_randn(batch, length, state, dtype=fp32) for _ in range(2))
    y = torch.empty_like(x)
    names = ("x_ptr", "delta_ptr", "a_ptr", "b_ptr", "c_ptr")
    inputs = [x, delta, a, b, c]
    gradients = [torch.empty_like(t) for t in inputs]
    backward = tw.grad(kernels.selective_scan)

    def grid(block: int) -> tuple[int, int]:
        return tw.cdiv(channels, block), batch

    def exact(*given: torch.Tensor) -> torch.Tensor:
        x, delta, a, b, c = given
        h = torch.zeros(batch, channels, state, dtype=torch.float64, device=x.device)
        found: list[torch.Tensor] = []
        for t in range(length):
            h = h * (delta[:, t, :, None] * a).exp()
            h = h + (delta[:, t] * x[:, t])[..., None] * b[:, t, None]
            found.append((h * c[:, t, None]).sum(-1))
        return torch.stack(found, 1)

    configs = [(16, 1), (32, 2), (32, 4), (64, 4)]
    return Comparison(
        {f"{block} channels, {w} warps": partial(
            backward[grid(block)], *inputs, y, length, channels, STATE=state, BLOCK=block,
            num_warps=w, grads={"y_ptr": dy}, into=dict(zip(names, gradients, strict=True)),
        ) for block, w in configs},
        {f"forward, {block} channels, {w} warps": partial(
            kernels.selective_scan[grid(block)], *inputs, y, length, channels, STATE=state,
            BLOCK=block, num_warps=w,
        ) for block, w in configs},
        gradients, lambda: _by_autograd(exact, inputs, dy), 1e-3,
        5 * x.nbytes, 0.33, same_results=False,
    )  # fmt: skip


def _rows(make: Callable[[int, int], Comparison]) -> Callable[[bool], Cases]:
    def cases(on_gpu: bool) -> Cases:
        sizes = [(8192, 1024), (8192, 4096), (8192, 8192)] if on_gpu else [(5, 100)]
        name = make.__name__.strip("_")
        return {f"{name} {rows} x {n}": partial(make, rows, n) for rows, n in sizes}

    return cases


def _entropies(on_gpu: bool) -> Cases:
    sizes = [(8192, 32000), (4096, 131072)] if on_gpu else [(5, 100)]
    return {f"cross-entropy {m} x {n}": partial(_cross_entropy, m, n) for m, n in sizes}


def _boxes(on_gpu: bool) -> Cases:
    boxes = 1 << 24 if on_gpu else 1000
    return {f"GIoU {boxes} boxes": partial(_giou, boxes)}


def _products(on_gpu: bool) -> Cases:
    size = 4096 if on_gpu else 64
    return {
        f"matmul {size}, d{operand.upper()}{', wrapped' if wraps else ''}": partial(
            _matmul, size, operand, wraps
        )
        for wraps in (False, True)
        for operand in "ab"
    }


def _heads(on_gpu: bool) -> Cases:
    sizes = [(128, 4096, 64), (128, 4096, 128)] if on_gpu else [(2, 32, 16)]
    rivals = {
        "": (False, False), ", to atomics": (True, False), ", both to atomics": (True, True)
    }  # fmt: skip
    return {
        f"attention D {d}, {n}{', causal' if causal else ''}{rival}":
        partial(_attention, h, n, d, causal, *how)
        for h, n, d in sizes
        for causal in (False, True)
        for rival, how in rivals.items()
        if d != 64 or not any(how)
    }  # fmt: skip


def _scans(on_gpu: bool) -> Cases:
    size = (4, 1024, 2048, 16) if on_gpu else (2, 9, 20, 4)
    return {f"selective scan {size}": partial(_selective_scan, *size)}


FAMILIES: dict[str, Callable[[bool], Cases]] = {
    "giou": _boxes,
    "swiglu": _rows(_swiglu),
    "softmax": _rows(_softmax),
    "rms_norm": _rows(_rms_norm),
    "layer_norm": _rows(_layer_norm),
    "cross_entropy": _entropies,
    "matmul": _products,
    "attention": _heads,
    "scan": _scans,
}
