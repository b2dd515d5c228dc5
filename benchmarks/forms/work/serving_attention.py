"""Launches of `kernels/serving_attention.py`."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.forms.form import Forms, Prepared
from benchmarks.gpu.case import Setting
from tilewright import cdiv

FORMS = Forms("serving_attention")

HALF = torch.float16
WIDE = torch.bfloat16
FP8 = torch.float8_e5m2


def _by_descriptors(
    setting: Setting,
    d: int,
    block: tuple[int, int],
    warps: int,
    stages: int,
    causal: bool = False,
    fp8: bool = False,
) -> Prepared:
    batch, heads = setting.pick(1, 4, 4), setting.pick(2, 32, 32)
    steps = setting.pick(256, 4096, 4096)
    q, k, v = (setting.randn(batch, heads, steps, d, dtype=HALF) * 0.5 for _ in range(3))
    if fp8:
        q, k = q.to(FP8), k.to(FP8)
        v = v.permute(0, 1, 3, 2).contiguous().to(FP8)
    out, lse = setting.empty(batch, heads, steps, d, dtype=HALF), setting.empty(batch, heads, steps)

    def launch(kernels: Any) -> Any:
        make = kernels.descriptors.TensorDescriptor.from_tensor
        values = make(v.view(-1, steps), [d, block[1]]) if fp8 else make(v.view(-1, d), key)
        given = make(q.view(-1, d), query), make(k.view(-1, d), key), values
        return kernels.attend_by_descriptors[(cdiv(steps, block[0]), batch * heads)](
            *given, make(out.view(-1, d), query), lse, 0.5, steps, HEADS=heads, D=d, BM=block[0],
            BN=block[1], CAUSAL=causal, FP8=fp8, num_warps=warps, num_stages=stages,
        )  # fmt: skip

    query, key = [block[0], d], [block[1], d]
    return Prepared(launch, [out], tolerance=3e-2 if fp8 else 2e-3)


for _name, _d, _block, _warps, _stages, _causal, _fp8 in (
    ("D64, full, 128x64", 64, (128, 64), 4, 3, False, False),
    ("D64, causal, 128x64", 64, (128, 64), 4, 3, True, False),
    ("D128, full, 128x64", 128, (128, 64), 8, 3, False, False),
    ("D128, full, 128x128", 128, (128, 128), 8, 2, False, False),
    ("D128, causal, 128x64", 128, (128, 64), 8, 3, True, False),
    ("D128, causal, 64x64", 128, (64, 64), 4, 3, True, False),
    ("D64, fp8, 128x64", 64, (128, 64), 4, 3, False, True),
    ("D128, fp8, 128x128", 128, (128, 128), 8, 3, False, True),
    ("D128, fp8, causal, 128x64", 128, (128, 64), 8, 3, True, True),
):
    FORMS.add(
        f"attention by descriptors, {_name}",
        lambda s, d=_d, block=_block, warps=_warps, stages=_stages, causal=_causal, fp8=_fp8: (
            _by_descriptors(s, d, block, warps, stages, causal, fp8)
        ),
    )


@FORMS.form("attention of packed sequences, causal")
def attend_packed(setting: Setting) -> Prepared:
    heads, ratio, d = setting.pick(4, 32, 32), setting.pick(2, 4, 4), 128
    many = [900, 1500, 100, 2048, 3000, 17]
    lengths = setting.pick([5, 130, 64], many, many)
    starts = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32).to(setting.device)
    total = sum(lengths)
    q = setting.randn(total, heads, d, dtype=WIDE)
    k, v = (setting.randn(total, heads // ratio, d, dtype=WIDE) for _ in range(2))
    out = torch.empty_like(q)
    grid = len(lengths), heads, cdiv(max(lengths), 128)
    return Prepared(
        lambda kernels: kernels.attend_packed[grid](
            q, k, v, out, starts, d**-0.5 * 1.4427, heads * d, HEADS=heads, RATIO=ratio, D=d,
            BM=128, BN=128, num_warps=8, num_stages=1,
        ),
        [out],
        tolerance=1e-2,
    )  # fmt: skip


@FORMS.form("attention of int8 scores, D128")
def attend_int8(setting: Setting) -> Prepared:
    heads, steps, d = setting.pick(2, 64, 64), setting.pick(200, 4096, 4096), 128
    q, k = (setting.integers(-60, 60, heads, steps, d, dtype=torch.int8) for _ in range(2))
    v = setting.randn(heads, steps, d, dtype=HALF)
    scales_q = torch.rand(heads, cdiv(steps, 128), device=setting.device) * 0.01
    scales_k = torch.rand(heads, cdiv(steps, 64), device=setting.device) * 0.01
    out = torch.empty_like(v)
    return Prepared(
        lambda kernels: kernels.attend_int8[(cdiv(steps, 128), heads)](
            q, k, v, scales_q, scales_k, out, steps, HEADS=heads, D=d, BM=128, BN=64,
            num_warps=8, num_stages=4,
        ),
        [out],
        tolerance=1e-2,
    )  # fmt: skip


@FORMS.form("prefill from pages of 16")
def prefill_pages(setting: Setting) -> Prepared:
    sequences, kv, ratio, d, page = setting.pick(2, 8, 8), setting.pick(2, 8, 8), 4, 128, 16
    fresh, before = setting.pick(20, 512, 512), setting.pick(40, 1024, 1024)
    length = fresh + before
    pages = cdiv(length, page)
    heads, total = kv * ratio, sequences * fresh
    q = setting.randn(total, heads, d, dtype=WIDE)
    shape = sequences * pages, page, kv, d
    keys, values = (setting.randn(*shape, dtype=WIDE) for _ in range(2))
    table = torch.randperm(sequences * pages, device=setting.device).to(torch.int32)
    lengths = torch.full((sequences,), length, dtype=torch.int32, device=setting.device)
    contexts = torch.full((sequences,), before, dtype=torch.int32, device=setting.device)
    starts = torch.arange(sequences + 1, device=setting.device).to(torch.int32) * fresh
    out = torch.empty_like(q)
    return Prepared(
        lambda kernels: kernels.prefill_pages[(cdiv(fresh, 16), kv, sequences)](
            q, keys, values, out, table, lengths, contexts, starts, d**-0.5, pages, heads * d,
            HEADS_KV=kv, RATIO=ratio, D=d, PAGE=page, BQ=16, BM=64, BN=32,
            num_warps=4, num_stages=3,
        ),
        [out],
        tolerance=1e-2,
    )  # fmt: skip


@FORMS.form("decode from latents of 512 + 64")
def decode_latents(setting: Setting) -> Prepared:
    batch, heads, d, rotary = setting.pick(2, 64, 64), setting.pick(16, 128, 128), 512, 64
    steps, splits = setting.pick(100, 2048, 2048), setting.pick(2, 8, 8)
    q = setting.randn(batch, heads, d + rotary, dtype=WIDE)
    cache = setting.randn(batch * steps, d + rotary, dtype=WIDE)
    places = torch.randperm(batch * steps, device=setting.device).to(torch.int32)
    starts = torch.arange(batch + 1, device=setting.device).to(torch.int32) * steps
    part = setting.empty(batch, heads, splits, d + 1)
    return Prepared(
        lambda kernels: kernels.decode_latents[(batch, heads // 16, splits)](
            q, cache, places, starts, part, 0.04, HEADS=heads, BH=16, BN=32, D=d, ROTARY=rotary,
            SPLITS=splits, num_warps=4, num_stages=2,
        ),
        [part],
        tolerance=1e-2,
    )  # fmt: skip


@FORMS.form("attention to blocks of 64 tokens, 2 warps")
def attend_to_blocks(setting: Setting) -> Prepared:
    tokens, groups, heads, d = setting.pick(200, 4096, 4096), setting.pick(2, 4, 4), 16, 128
    q = setting.randn(tokens, groups * heads, d, dtype=WIDE)
    k, v = (setting.randn(tokens // 64, groups, d, dtype=WIDE) for _ in range(2))
    out = torch.empty_like(q)
    return Prepared(
        lambda kernels: kernels.attend_to_blocks[(tokens, groups)](
            q, k, v, out, tokens // 64, d**-0.5, GROUP=heads, D=d, SPAN=64, BN=64,
            num_warps=2, num_stages=3,
        ),
        [out],
        tolerance=1e-2,
    )  # fmt: skip
