"""Launches of `kernels/attention.py`."""

from __future__ import annotations

import torch

from benchmarks.forms.form import Forms, Prepared
from benchmarks.gpu.case import Setting
from tilewright import cdiv

FORMS = Forms("attention")


def _attend(
    setting: Setting,
    d: int,
    block: tuple[int, int],
    warps: int,
    stages: int,
    *,
    ratio: int = 1,
    causal: bool = False,
    window: int = 0,
    bias: bool = False,
    cap: float = 0.0,
) -> Prepared:
    batch, heads = setting.pick(1, 4, 4), setting.pick(4, 16, 16)
    steps = setting.pick(200, 2048, 2048)
    wide = torch.bfloat16
    q = setting.randn(batch, heads, steps, d, dtype=wide)
    k, v = (setting.randn(batch, heads // ratio, steps, d, dtype=wide) for _ in range(2))
    biases = setting.randn(heads, steps, steps, dtype=wide) if bias else q
    out = torch.empty_like(q)
    return Prepared(
        lambda kernels: kernels.attend[(cdiv(steps, block[0]), batch * heads)](
            q, k, v, biases, out, d**-0.5, steps, cap, HEADS=heads, RATIO=ratio, D=d,
            CAUSAL=causal, WINDOW=window, BIAS=bias, CAP=cap > 0, BM=block[0], BN=block[1],
            num_warps=warps, num_stages=stages,
        ),
        [out],
        tolerance=1e-2,
    )  # fmt: skip


FORMS.add(
    "attention, scores capped, causal",
    lambda s: _attend(s, 128, (128, 64), 8, 2, causal=True, cap=30.0),
)
FORMS.add(
    "attention, window of 256", lambda s: _attend(s, 64, (128, 64), 4, 3, causal=True, window=256)
)
FORMS.add("attention with biases", lambda s: _attend(s, 64, (128, 64), 4, 3, bias=True))
FORMS.add(
    "attention of 4 heads to one, 64x64",
    lambda s: _attend(s, 64, (64, 64), 4, 3, ratio=4, causal=True),
)
FORMS.add("attention D128 128x32, causal", lambda s: _attend(s, 128, (128, 32), 4, 2, causal=True))


@FORMS.form("block-sparse attention 64x64")
def attend_blocks(setting: Setting) -> Prepared:
    heads, steps, d = setting.pick(2, 64, 64), setting.pick(512, 4096, 4096), 128
    count = steps // 64
    wide = torch.bfloat16
    q, k, v = (setting.randn(heads, steps, d, dtype=wide) for _ in range(3))
    # The diagonal, and every fourth block before it.
    rows = [[j for j in range(i + 1) if j == i or (i - j) % 4 == 0] for i in range(count)]
    starts = [sum(len(row) for row in rows[:i]) for i in range(count + 1)]
    blocks = torch.tensor(
        [j for row in rows for j in row], dtype=torch.int32, device=setting.device
    )
    begins = torch.tensor(starts, dtype=torch.int32, device=setting.device)
    out = torch.empty_like(q)
    return Prepared(
        lambda kernels: kernels.attend_blocks[(count, heads)](
            q, k, v, begins, blocks, out, d**-0.5, steps, D=d, BM=64, BN=64,
            num_warps=4, num_stages=2,
        ),
        [out],
        tolerance=1e-2,
    )  # fmt: skip


@FORMS.form("decode, 8 heads to one, 8 parts")
def decode(setting: Setting) -> Prepared:
    batch, kv, ratio, d = setting.pick(2, 16, 16), setting.pick(2, 8, 8), 8, 128
    steps, splits = setting.pick(500, 8192, 8192), 8
    half = torch.float16
    q = setting.randn(batch, kv * ratio, d, dtype=half)
    k, v = (setting.randn(batch, steps, kv, d, dtype=half) for _ in range(2))
    part = setting.empty(batch, kv * ratio, splits, d)
    lse = setting.empty(batch, kv * ratio, splits)
    return Prepared(
        lambda kernels: kernels.decode[(batch, kv, splits)](
            q, k, v, part, lse, d**-0.5, steps, HEADS=kv * ratio, RATIO=ratio, D=d, BH=16, BN=64,
            SPLITS=splits, num_warps=4, num_stages=3,
        ),
        [part, lse],
    )  # fmt: skip


@FORMS.form("decode from int8 keys and values")
def decode_int8(setting: Setting) -> Prepared:
    heads, d, steps = setting.pick(3, 1024, 1024), 128, setting.pick(300, 2048, 2048)
    q = setting.randn(heads, d, dtype=torch.float16)
    k, v = (setting.integers(-100, 100, heads, steps, d, dtype=torch.int8) for _ in range(2))
    scales_k, scales_v = (setting.randn(heads, steps) * 0.01 for _ in range(2))
    out = torch.empty_like(q)
    return Prepared(
        lambda kernels: kernels.decode_int8[(heads,)](
            q, k, v, scales_k, scales_v, out, d**-0.5, steps, HEADS=heads, D=d, BN=64,
            num_warps=4, num_stages=2,
        ),
        [out],
    )  # fmt: skip
