"""Launches of `kernels/tokens.py`."""

from __future__ import annotations

import torch

from benchmarks.forms.form import Forms, Prepared
from benchmarks.gpu.case import Setting
from tilewright import cdiv

FORMS = Forms("tokens")

HALF = torch.float16
WIDE = torch.bfloat16


@FORMS.form("keys and values written to pages")
def write_cache(setting: Setting) -> Prepared:
    tokens, width = setting.pick(10, 8192, 8192), setting.pick(200, 1024, 1024)
    pages = setting.pick(2, 1024, 1024)
    k, v = (setting.randn(tokens, width, dtype=WIDE) for _ in range(2))
    keys, values = (torch.zeros(pages, 16, width, dtype=WIDE, device=k.device) for _ in range(2))
    slots = torch.randperm(pages * 16, device=setting.device)[:tokens]
    return Prepared(
        lambda kernels: kernels.write_cache[(tokens, cdiv(width, 1024))](
            k, v, keys, values, slots, width, PAGE=16, BLOCK=1024, num_warps=4
        ),
        [keys, values],
        tolerance=0.0,
        reset=lambda: (keys.zero_(), values.zero_()),
    )


@FORMS.form("int8 by tokens")
def to_int8_by_token(setting: Setting) -> Prepared:
    rows, columns = setting.pick(10, 8192, 8192), setting.pick(200, 4096, 4096)
    x = setting.randn(rows, columns, dtype=WIDE)
    y, scales = setting.empty(rows, columns, dtype=torch.int8), setting.empty(rows, 1)
    block = setting.pick(256, 4096, 4096)
    return Prepared(
        lambda kernels: kernels.to_int8_by_token[(rows,)](
            x, y, scales, columns, BLOCK=block, num_warps=8, num_stages=1
        ),
        [y, scales],
        tolerance=1e-2,
    )


@FORMS.form("two parts of attention merged")
def merge_parts(setting: Setting) -> Prepared:
    tokens, heads, d = setting.pick(10, 4096, 4096), setting.pick(3, 32, 32), 128
    a, b = (setting.randn(tokens, heads, d, dtype=WIDE) for _ in range(2))
    lse_a, lse_b = (setting.randn(heads, tokens) for _ in range(2))
    out, lse = torch.empty_like(a), torch.empty_like(lse_a)
    return Prepared(
        lambda kernels: kernels.merge_parts[(tokens, heads)](
            out, lse, a, lse_a, b, lse_b, heads, D=d, BLOCK=128
        ),
        [out, lse],
        tolerance=4e-3,
    )


@FORMS.form("rotary embedding of tiles of heads")
def rotate_heads(setting: Setting) -> Prepared:
    batch, steps = setting.pick(1, 4, 4), setting.pick(10, 2048, 2048)
    heads, kv, d = setting.pick(4, 32, 32), setting.pick(2, 8, 8), 128
    q = setting.randn(batch * steps, heads, d, dtype=WIDE)
    k = setting.randn(batch * steps, kv, d, dtype=WIDE)
    cosines, sines = (setting.randn(steps, d, dtype=WIDE) * 0.5 for _ in range(2))
    first = q.clone(), k.clone()
    return Prepared(
        lambda kernels: kernels.rotate_heads[(batch * steps,)](
            q, k, cosines, sines, steps, HEADS=heads, HEADS_KV=kv, D=d, num_warps=4
        ),
        [q, k],
        tolerance=8e-3,
        reset=lambda: (q.copy_(first[0]), k.copy_(first[1])),
    )


@FORMS.form("gradient of SwiGLU in place")
def swiglu_gradient(setting: Setting) -> Prepared:
    n = setting.pick(5000, 4096 * 14336, 4096 * 14336)
    dy, gate, up = (setting.randn(n, dtype=WIDE) * 0.1 for _ in range(3))
    first = dy.clone(), gate.clone(), up.clone()

    def reset() -> None:
        for tensor, value in zip((dy, gate, up), first, strict=True):
            tensor.copy_(value)

    return Prepared(
        lambda kernels: kernels.swiglu_gradient[(cdiv(n, 1024),)](dy, gate, up, n, BLOCK=1024),
        [dy, gate, up],
        tolerance=8e-3,
        reset=reset,
    )


@FORMS.form("cross-entropy by parts of 65536")
def part_of_loss(setting: Setting) -> Prepared:
    rows, columns = setting.pick(4, 1024, 1024), setting.pick(3000, 128256, 128256)
    block = setting.pick(2048, 65536, 65536)
    parts = cdiv(columns, block)
    logits = setting.randn(rows, columns, dtype=WIDE)
    labels = setting.integers(0, columns, rows, dtype=torch.int64)
    losses, sums = setting.empty(rows), setting.empty(rows, parts)
    return Prepared(
        lambda kernels: kernels.part_of_loss[(rows, parts)](
            logits, losses, sums, labels, columns, parts, PARTS=parts, BLOCK=block, num_warps=32
        ),
        [losses, sums],
        tolerance=1e-4,
    )


def _starts(setting: Setting, sequences: int, most: int) -> tuple[torch.Tensor, int]:
    """Where sequences of different lengths begin, and the sum of the lengths."""
    lengths = [(37 * i + 11) % most + 1 for i in range(sequences)]
    starts = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    return starts.to(setting.device), sum(lengths)


@FORMS.form("ragged rows to padded ones")
def ragged_to_padded(setting: Setting) -> Prepared:
    sequences, most = setting.pick(3, 256, 256), setting.pick(50, 200, 200)
    columns = setting.pick(100, 512, 512)
    starts, total = _starts(setting, sequences, most)
    x, y = setting.randn(total, columns), setting.empty(sequences, most, columns)
    return Prepared(
        lambda kernels: kernels.ragged_to_padded[(sequences, cdiv(most, 32), cdiv(columns, 128))](
            x, starts, y, most, columns, BT=32, BC=128, num_warps=4
        ),
        [y],
        tolerance=0.0,
    )


@FORMS.form("softmax along ragged time")
def softmax_of_ragged(setting: Setting) -> Prepared:
    sequences, most = setting.pick(3, 1024, 1024), setting.pick(50, 500, 500)
    columns = setting.pick(100, 256, 256)
    starts, total = _starts(setting, sequences, most)
    x, y = setting.randn(total, columns), setting.empty(total, columns)
    return Prepared(
        lambda kernels: kernels.softmax_of_ragged[(sequences, cdiv(columns, 64))](
            x, starts, y, columns, BT=64, BC=64, num_warps=4
        ),
        [y],
        tolerance=1e-5,
    )


@FORMS.form("group norm, channels first")
def group_norm(setting: Setting) -> Prepared:
    images, channels, pixels = setting.pick(1, 16, 16), setting.pick(8, 512, 512), 64 * 64
    pixels, groups = setting.pick(100, pixels, pixels), setting.pick(2, 32, 32)
    x = setting.randn(images, channels, pixels, dtype=WIDE)
    weight, bias = setting.randn(channels), setting.randn(channels)
    y = torch.empty_like(x)
    return Prepared(
        lambda kernels: kernels.group_norm[(images, groups)](
            x, weight, bias, y, pixels, channels, 1e-5, CHANNELS=channels // groups, BLOCK=1024,
            num_warps=4,
        ),
        [y],
        tolerance=4e-3,
    )  # fmt: skip


@FORMS.form("largest of 3x3, with places")
def pool(setting: Setting) -> Prepared:
    planes, size = setting.pick(3, 32 * 64, 32 * 64), setting.pick(10, 112, 112)
    half = (size + 1) // 2
    x = setting.randn(planes, size, size, dtype=HALF)
    y = setting.empty(planes, half, half, dtype=HALF)
    places = torch.zeros(planes, half, half, dtype=torch.int8, device=setting.device)
    n = planes * half * half
    return Prepared(
        lambda kernels: kernels.pool[(cdiv(n, 512),)](
            x, y, places, size, size, half, half, n, BLOCK=512, num_warps=4
        ),
        [y, places],
        tolerance=0.0,
    )


@FORMS.form("functions of a library")
def elementwise_functions(setting: Setting) -> Prepared:
    n = setting.pick(5000, 2**26, 2**26)
    x, y = setting.randn(n), setting.empty(n)
    return Prepared(
        lambda kernels: kernels.elementwise_functions[(cdiv(n, 1024),)](
            x, y, n, BLOCK=1024, num_warps=4
        ),
        [y],
        tolerance=1e-4,
    )
