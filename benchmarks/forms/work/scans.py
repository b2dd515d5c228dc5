"""Launches of `kernels/scans.py`."""

from __future__ import annotations

import torch

from benchmarks.forms.form import Forms, Prepared
from benchmarks.gpu.case import Setting
from tilewright import cdiv

FORMS = Forms("scans")


@FORMS.form("running sums of rows of 65536")
def running_sum(setting: Setting) -> Prepared:
    rows, columns = setting.pick(4, 512, 512), setting.pick(3000, 65536, 65536)
    x, y = setting.randn(rows, columns), setting.empty(rows, columns)
    return Prepared(
        lambda kernels: kernels.running_sum[(rows,)](x, y, columns, BLOCK=2048, num_warps=8),
        [y],
        tolerance=1e-4,
    )


@FORMS.form("gated scan by chunks of 64")
def gated_scan(setting: Setting) -> Prepared:
    batch, steps, d = setting.pick(1, 16, 16), setting.pick(128, 2048, 2048), 1024
    gates = torch.rand(batch, steps, d, device=setting.device).to(torch.bfloat16)
    inputs = setting.randn(batch, steps, d, dtype=torch.bfloat16)
    y = setting.empty(batch, steps, d, dtype=torch.bfloat16)
    return Prepared(
        lambda kernels: kernels.gated_scan[(batch, d // 64)](
            gates, inputs, y, steps, d, BT=64, BD=64, num_warps=4
        ),
        [y],
        tolerance=4e-3,
    )


@FORMS.form("selective scan, state in registers")
def selective_scan(setting: Setting) -> Prepared:
    batch, steps, d, n = setting.pick(1, 8, 8), setting.pick(20, 1024, 1024), 2048, 16
    d = setting.pick(64, d, d)
    wide = torch.bfloat16
    x = setting.randn(batch, steps, d, dtype=wide)
    dt = torch.rand(batch, steps, d, device=setting.device).to(wide)
    a = -torch.rand(d, n, device=setting.device)
    b, c = setting.randn(batch, steps, n, dtype=wide), setting.randn(batch, steps, n, dtype=wide)
    y = setting.empty(batch, steps, d, dtype=wide)
    return Prepared(
        lambda kernels: kernels.selective_scan[(batch, d // 64)](
            x, dt, a, b, c, y, steps, d, N=n, BD=64, num_warps=4
        ),
        [y],
        tolerance=4e-3,
    )


@FORMS.form("states of linear attention by chunks")
def chunk_state(setting: Setting) -> Prepared:
    heads, steps = setting.pick(2, 128, 128), setting.pick(128, 2048, 2048)
    k = setting.randn(heads, steps, 64, dtype=torch.bfloat16) * 0.1
    v = setting.randn(heads, steps, 128, dtype=torch.bfloat16)
    decay = -torch.rand(heads, steps, device=setting.device)
    states = setting.empty(heads, steps // 64, 64, 128, dtype=torch.bfloat16)
    return Prepared(
        lambda kernels: kernels.chunk_state[(heads,)](
            k, v, decay, states, steps, D=64, DV=128, BT=64, num_warps=4, num_stages=2
        ),
        [states],
        tolerance=1e-2,
    )


def _products(
    setting: Setting, m: int, n: int, k: int, block: tuple[int, int, int], warps: int
) -> Prepared:
    batch = setting.pick(4, 16384, 16384)
    half = torch.float16
    a, b = setting.randn(batch, m, k, dtype=half), setting.randn(batch, k, n, dtype=half)
    c = setting.empty(batch, m, n, dtype=half)
    bm, bn, bk = block
    return Prepared(
        lambda kernels: kernels.small_products[(batch,)](
            a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(),
            BM=bm, BN=bn, BK=bk, num_warps=warps,
        ),
        [c],
    )  # fmt: skip


FORMS.add("16384 products 32x32x32", lambda s: _products(s, 32, 32, 32, (32, 32, 32), 1))
FORMS.add("16384 products 48x40x56", lambda s: _products(s, 48, 40, 56, (64, 64, 64), 4))


@FORMS.form("causal convolution of width 4, SiLU")
def causal_conv(setting: Setting) -> Prepared:
    batch, steps, d = setting.pick(1, 8, 8), setting.pick(100, 4096, 4096), 2048
    d = setting.pick(64, d, d)
    wide = torch.bfloat16
    x, y = setting.randn(batch, steps, d, dtype=wide), setting.empty(batch, steps, d, dtype=wide)
    weight, bias = setting.randn(d, 4, dtype=wide), setting.randn(d, dtype=wide)
    return Prepared(
        lambda kernels: kernels.causal_conv[(batch, cdiv(steps, 32), d // 64)](
            x, weight, bias, y, steps, d, WIDTH=4, BT=32, BD=64, num_warps=4
        ),
        [y],
        tolerance=4e-3,
    )


@FORMS.form("histogram of 256 bins")
def counts(setting: Setting) -> Prepared:
    n = setting.pick(5000, 2**24, 2**24)
    x = setting.integers(1, 256, n, dtype=torch.int32)
    bins = setting.integers(0, 1, 256, dtype=torch.int32)
    return Prepared(
        lambda kernels: kernels.counts[(cdiv(n, 8192),)](
            x, bins, n, BINS=256, BLOCK=8192, num_warps=8
        ),
        [bins],
        tolerance=0.0,
        reset=bins.zero_,
    )


@FORMS.form("transpose 8192, blocks of 64")
def transpose(setting: Setting) -> Prepared:
    n = setting.pick(100, 8192, 8192)
    x, y = setting.randn(n, n, dtype=torch.float16), setting.empty(n, n, dtype=torch.float16)
    return Prepared(
        lambda kernels: kernels.transpose[(cdiv(n, 64), cdiv(n, 64))](
            x, y, n, n, BM=64, BN=64, num_warps=4
        ),
        [y],
        tolerance=0.0,
    )


@FORMS.form("states over 64 blocks of a sequence")
def states_over_blocks(setting: Setting) -> Prepared:
    heads, blocks = setting.pick(2, 256, 256), setting.pick(3, 64, 64)
    added, states = setting.randn(heads, blocks, 64, 64), setting.empty(heads, blocks, 64, 64)
    factors = torch.rand(heads, blocks, device=setting.device)
    return Prepared(
        lambda kernels: kernels.states_over_blocks[(heads, 4)](
            added, factors, states, blocks, K=64, V=64, BV=16, num_warps=4
        ),
        [states],
    )


@FORMS.form("parts of decoded rows joined in a loop")
def join_parts(setting: Setting) -> Prepared:
    sequences, heads, most = setting.pick(2, 64, 64), 32, setting.pick(4, 32, 32)
    parts = setting.randn(sequences, heads, most, 128)
    sums = setting.randn(sequences, heads, most)
    lengths = setting.integers(1, most * 256 + 1, sequences, dtype=torch.int32)
    y = setting.empty(sequences, heads, 128)
    return Prepared(
        lambda kernels: kernels.join_parts[(sequences, heads)](
            parts, sums, lengths, y, most, PART=256, D=128, num_warps=4, num_stages=2
        ),
        [y],
    )
