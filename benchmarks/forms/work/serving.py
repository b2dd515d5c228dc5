"""Launches of `kernels/serving.py`."""

from __future__ import annotations

import torch

from benchmarks.forms.form import Forms, Prepared
from benchmarks.gpu.case import Setting
from tilewright import cdiv

FORMS = Forms("serving")


@FORMS.form("top 8 of 128 experts")
def top_experts(setting: Setting) -> Prepared:
    tokens = setting.pick(100, 16384, 16384)
    logits = setting.randn(tokens, 128, dtype=torch.bfloat16)
    # Equal logits: the first of them counts under both compilers.
    weights = setting.empty(tokens, 8)
    chosen = setting.integers(0, 1, tokens, 8, dtype=torch.int32)
    return Prepared(
        lambda kernels: kernels.top_experts[(cdiv(tokens, 4),)](
            logits, weights, chosen, tokens, E=128, TOP=8, BT=4, num_warps=4
        ),
        [weights, chosen],
    )


def _paged(setting: Setting, page: int, block: int, warps: int, stages: int) -> Prepared:
    batch, kv, ratio, d, splits = setting.pick(2, 32, 32), 8, 4, 128, 4
    longest = setting.pick(1024, 4096, 4096)
    pages = cdiv(longest, page)
    half = torch.float16
    q = setting.randn(batch, kv * ratio, d, dtype=half)
    keys = setting.randn(batch * pages, page, kv, d, dtype=half)
    values = setting.randn(batch * pages, page, kv, d, dtype=half)
    tables = torch.randperm(batch * pages, device=setting.device).to(torch.int32)
    lengths = setting.integers(longest // 2, longest, batch, dtype=torch.int32)
    part = setting.empty(batch, kv * ratio, splits, d)
    lse = setting.empty(batch, kv * ratio, splits)
    return Prepared(
        lambda kernels: kernels.paged_attention[(batch, kv, splits)](
            q, keys, values, tables, lengths, part, lse, d**-0.5, pages, page * kv * d, kv * d,
            HEADS=kv * ratio, RATIO=ratio, D=d, PAGE=page, BH=16, BN=block, SPLITS=splits,
            num_warps=warps, num_stages=stages,
        ),
        [part, lse],
    )  # fmt: skip


FORMS.add("paged decode, pages of 16, 32 keys", lambda s: _paged(s, 16, 32, 4, 2))
FORMS.add("paged decode, pages of 64, 64 keys", lambda s: _paged(s, 64, 64, 4, 3))


@FORMS.form("sum of 16 parts of decode")
def combine_parts(setting: Setting) -> Prepared:
    heads, splits, d = setting.pick(8, 4096, 4096), 16, 128
    part, lse = setting.randn(heads, splits, d), setting.randn(heads, splits)
    out = setting.empty(heads, d, dtype=torch.float16)
    return Prepared(
        lambda kernels: kernels.combine_parts[(heads,)](
            part, lse, out, SPLITS=splits, D=d, num_warps=4, num_stages=2
        ),
        [out],
    )


@FORMS.form("rotary embedding in place")
def rope_in_place(setting: Setting) -> Prepared:
    tokens, qh, kh, half = setting.pick(16, 8192, 8192), 32, 8, 64
    q = setting.randn(tokens, qh * 2 * half, dtype=torch.bfloat16)
    k = setting.randn(tokens, kh * 2 * half, dtype=torch.bfloat16)
    angle = torch.rand(tokens, half, device=setting.device)
    table = torch.cat([angle.cos(), angle.sin()], 1).to(torch.bfloat16)
    positions = torch.arange(tokens, device=setting.device)
    q0, k0 = q.clone(), k.clone()
    return Prepared(
        lambda kernels: kernels.rope_in_place[(tokens,)](
            q, k, table, positions, tokens, qh * 2 * half, kh * 2 * half, QH=qh, KH=kh, HALF=half,
            num_warps=4,
        ),
        [q, k],
        reset=lambda: (q.copy_(q0), k.copy_(k0)),
    )  # fmt: skip


def _rope_by_block(setting: Setting, block: int) -> Prepared:
    tokens, heads, width = setting.pick(16, 8192, 8192), 32, 64
    x = setting.randn(tokens, heads * width * 2, dtype=torch.bfloat16)
    y, table = torch.empty_like(x), setting.randn(tokens, width * 2, dtype=torch.bfloat16)
    return Prepared(
        lambda kernels: kernels.rope_by_block[(tokens, cdiv(heads * width, block))](
            x, y, table, heads, width, BLOCK=block, num_warps=4
        ),
        [y],
        tolerance=4e-3,
    )


FORMS.add("rotary embedding by blocks of 128", lambda setting: _rope_by_block(setting, 128))
FORMS.add("rotary embedding by blocks of 1024", lambda setting: _rope_by_block(setting, 1024))


@FORMS.form("LoRA shrink, rank 16, split 8")
def lora_shrink(setting: Setting) -> Prepared:
    tokens, k, rank = setting.pick(64, 1024, 1024), setting.pick(512, 4096, 4096), 16
    x = setting.randn(tokens, k, dtype=torch.float16)
    a = setting.randn(4, rank, k, dtype=torch.float16)
    ids = (torch.arange(tokens // 32, device=setting.device) % 5 - 1).to(torch.int32)
    out = setting.empty(tokens, rank)
    return Prepared(
        lambda kernels: kernels.lora_shrink[(tokens // 32, 8)](
            x, a, ids, out, tokens, k, 0.5, R=rank, BM=32, BK=64, SPLIT=8, num_warps=4
        ),
        [out],
        reset=out.zero_,
    )


@FORMS.form("LoRA expand, rank 16")
def lora_expand(setting: Setting) -> Prepared:
    tokens, n, rank = setting.pick(64, 1024, 1024), setting.pick(512, 4096, 4096), 16
    x = setting.randn(tokens, rank)
    b = setting.randn(4, n, rank, dtype=torch.float16)
    ids = (torch.arange(tokens // 32, device=setting.device) % 5 - 1).to(torch.int32)
    out = setting.empty(tokens, n, dtype=torch.float16)
    return Prepared(
        lambda kernels: kernels.lora_expand[(tokens // 32, n // 128)](
            x, b, ids, out, tokens, n, R=rank, BM=32, BN=128, num_warps=4
        ),
        [out],
        reset=out.zero_,
    )


@FORMS.form("softmax at a temperature, top p, 32000")
def sample_weights(setting: Setting) -> Prepared:
    rows, columns = setting.pick(4, 512, 512), setting.pick(1000, 32000, 32000)
    logits, out = setting.randn(rows, columns, dtype=torch.float16), setting.empty(rows, columns)
    return Prepared(
        lambda kernels: kernels.sample_weights[(rows,)](
            logits, out, columns, 0.7, 0.9, BLOCK=setting.pick(1024, 32768, 32768), num_warps=16
        ),
        [out],
        tolerance=1e-2,
    )


@FORMS.form("top 32 of rows of 1024")
def largest_of_rows(setting: Setting) -> Prepared:
    rows = setting.pick(8, 8192, 8192)
    x, values = setting.randn(rows, 1024), setting.empty(rows, 32)
    return Prepared(
        lambda kernels: kernels.largest_of_rows[(rows,)](
            x, values, 1024, TOP=32, BLOCK=1024, num_warps=4
        ),
        [values],
    )


@FORMS.form("sort of rows of 1000")
def sort_rows(setting: Setting) -> Prepared:
    rows = setting.pick(8, 8192, 8192)
    x, y = setting.randn(rows, 1000), setting.empty(rows, 1000)
    return Prepared(
        lambda kernels: kernels.sort_rows[(rows,)](x, y, 1000, BLOCK=1024, num_warps=4), [y]
    )
