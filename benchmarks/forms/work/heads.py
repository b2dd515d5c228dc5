"""Launches of `kernels/heads.py`."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.forms.form import Forms, Prepared
from benchmarks.gpu.case import Setting
from tilewright import cdiv, next_power_of_2

FORMS = Forms("heads")

HALF = torch.float16
WIDE = torch.bfloat16
FP8 = torch.float8_e4m3fn


def _padded(
    setting: Setting,
    d: int,
    block: tuple[int, int],
    warps: int,
    bias: str = "none",
    causal: bool = False,
    steps: int = 4096,
) -> Prepared:
    batch, heads = setting.pick(1, 2, 2), setting.pick(2, 32, 32)
    steps = setting.pick(200, steps, steps)
    q, k, v = (setting.randn(batch, steps, heads, d, dtype=HALF) for _ in range(3))
    shape = (batch * heads, steps) if bias == "vector" else (heads, steps, steps)
    added = setting.randn(*(shape if bias != "none" else (1,)), dtype=HALF)
    out, lse = torch.empty_like(q), setting.empty(batch * heads, steps)
    even = steps % block[0] == 0, steps % block[1] == 0
    padded = next_power_of_2(d)
    return Prepared(
        lambda kernels: kernels.attend_padded[(cdiv(steps, block[0]), batch * heads)](
            q, k, v, added, out, lse, d**-0.5, heads * d, heads * d, steps, steps, d, HEADS=heads,
            BIAS=bias, CAUSAL=causal, BD=padded, EVEN_T=even[0], EVEN_S=even[1],
            EVEN_D=padded == d, BM=block[0], BN=block[1], num_warps=warps, num_stages=1,
        ),
        [out, lse],
    )  # fmt: skip


FORMS.add("attention of padded heads, D80", lambda s: _padded(s, 80, (128, 128), 8))
FORMS.add(
    "attention of padded heads, D96, causal", lambda s: _padded(s, 96, (128, 64), 4, causal=True)
)
FORMS.add("attention of even heads, D64", lambda s: _padded(s, 64, (128, 128), 4))
FORMS.add(
    "attention of even heads, D128, causal", lambda s: _padded(s, 128, (128, 128), 8, causal=True)
)
FORMS.add("attention of 4000 keys, D128", lambda s: _padded(s, 128, (128, 128), 8, steps=4000))
FORMS.add("attention with a bias of each key", lambda s: _padded(s, 64, (128, 128), 4, "vector"))
FORMS.add("attention with a bias of each score", lambda s: _padded(s, 64, (128, 128), 4, "matrix"))


def _parts(
    setting: Setting,
    sizes: tuple[int, int, int],
    block: tuple[int, int],
    warps: int,
    stages: int,
    causal: bool,
) -> Prepared:
    d, rotary, dv = sizes
    heads, steps = setting.pick(2, 64, 64), setting.pick(150, 4096, 4096)
    q, k = (setting.randn(heads, steps, d + rotary, dtype=WIDE) for _ in range(2))
    v = setting.randn(heads, steps, dv, dtype=WIDE)
    out = torch.empty_like(v)
    return Prepared(
        lambda kernels: kernels.attend_parts[(cdiv(steps, block[0]), heads)](
            q, k, v, out, (d + rotary) ** -0.5, steps, HEADS=heads, D=d, ROTARY=rotary, DV=dv,
            CAUSAL=causal, BM=block[0], BN=block[1], num_warps=warps, num_stages=stages,
        ),
        [out],
        tolerance=1e-2,
    )  # fmt: skip


FORMS.add(
    "attention of 128 + 64 features, causal",
    lambda s: _parts(s, (128, 64, 128), (128, 64), 8, 2, causal=True),
)
FORMS.add(
    "attention of 128 + 128 features", lambda s: _parts(s, (128, 128, 256), (64, 64), 4, 2, False)
)
FORMS.add(
    "attention of 64 + 32 features", lambda s: _parts(s, (64, 32, 64), (128, 64), 4, 3, False)
)


def _pages(
    setting: Setting,
    tile: int,
    fp8: bool = False,
    window: int = 0,
    cap: bool = False,
    fresh: int = 512,
) -> Prepared:
    sequences, kv, ratio, d, page = setting.pick(2, 8, 8), setting.pick(2, 8, 8), 4, 128, 16
    fresh, before = setting.pick(20, fresh, fresh), setting.pick(40, 2048, 2048)
    length, heads = fresh + before, kv * ratio
    pages = cdiv(length, tile) * tile // page
    dtype = FP8 if fp8 else WIDE
    q = setting.randn(sequences * fresh, heads, d, dtype=WIDE)
    keys, values = (
        setting.randn(sequences * pages, page, kv, d, dtype=WIDE).to(dtype) for _ in range(2)
    )
    table = torch.randperm(sequences * pages, device=setting.device).to(torch.int32)
    lengths = torch.full((sequences,), length, dtype=torch.int32, device=setting.device)
    starts = torch.arange(sequences + 1, device=setting.device).to(torch.int32) * fresh
    scales = torch.full((1,), 0.5, device=setting.device)
    out = torch.empty_like(q)
    rows = 16 if fresh == 1 else 64
    queries = rows // ratio

    def launch(kernels: Any) -> Any:
        return kernels.attend_pages[(cdiv(fresh, queries), kv, sequences)](
            q, keys, values, out, table, lengths, starts, scales, scales, d**-0.5, 30.0, pages,
            HEADS=heads, RATIO=ratio, D=d, PAGE=page, WINDOW=window, CAP=cap, BQ=queries, BM=rows,
            TILE=tile, num_warps=4, num_stages=3,
        )  # fmt: skip

    return Prepared(launch, [out], tolerance=1e-2)


FORMS.add("attention over pages, tiles of 32", lambda s: _pages(s, 32))
FORMS.add("attention over pages, tiles of 64, fp8", lambda s: _pages(s, 64, fp8=True))
FORMS.add("attention over pages, window of 512", lambda s: _pages(s, 32, window=512))
FORMS.add("attention over pages, scores capped", lambda s: _pages(s, 32, cap=True))
FORMS.add("attention over pages, one query", lambda s: _pages(s, 32, fresh=1))


def _fp8(setting: Setting, d: int, block: tuple[int, int], warps: int, stages: int) -> Prepared:
    heads, steps = setting.pick(2, 64, 64), setting.pick(256, 4096, 4096)
    q, k, v = (setting.randn(heads, steps, d, dtype=HALF).to(FP8) for _ in range(3))
    out = setting.empty(heads, steps, d, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.attend_fp8[(cdiv(steps, block[0]), heads)](
            q, k, v, out, d**-0.5 * 1.4427, 0.7, steps, D=d, BM=block[0], BN=block[1],
            num_warps=warps, num_stages=stages,
        ),
        [out],
        tolerance=5e-2,
    )  # fmt: skip


FORMS.add("attention of fp8e4, D128, 128x64", lambda s: _fp8(s, 128, (128, 64), 8, 3))
FORMS.add("attention of fp8e4, D128, 128x128", lambda s: _fp8(s, 128, (128, 128), 8, 2))
FORMS.add("attention of fp8e4, D64, 64x64", lambda s: _fp8(s, 64, (64, 64), 4, 3))
