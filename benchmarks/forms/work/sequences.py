"""Launches of `kernels/sequences.py`."""

from __future__ import annotations

import torch

from benchmarks.forms.form import Forms, Prepared
from benchmarks.gpu.case import Setting
from tilewright import cdiv

FORMS = Forms("sequences")
WIDE = torch.bfloat16


@FORMS.form("step of a causal convolution")
def conv_update(setting: Setting) -> Prepared:
    batch, d = setting.pick(3, 256, 256), setting.pick(100, 8192, 8192)
    x, y = setting.randn(batch, d, dtype=WIDE), setting.empty(batch, d, dtype=WIDE)
    state, weight = setting.randn(batch, d, 3, dtype=WIDE), setting.randn(d, 4, dtype=WIDE)
    bias, first = setting.randn(d, dtype=WIDE), state.clone()
    return Prepared(
        lambda kernels: kernels.conv_update[(batch, cdiv(d, 256))](
            x, state, weight, bias, y, d, WIDTH=4, BD=256, num_warps=4
        ),
        [y, state],
        tolerance=4e-3,
        reset=lambda: state.copy_(first),
    )


@FORMS.form("step of a state-space model")
def state_update(setting: Setting) -> Prepared:
    batch, heads, p, n = setting.pick(2, 128, 128), setting.pick(3, 64, 64), 64, 128
    state = setting.randn(batch, heads, p, n)
    x, dt = setting.randn(batch, heads, p, dtype=WIDE), setting.randn(batch, heads, dtype=WIDE)
    a = -torch.rand(heads, device=setting.device)
    b, c = setting.randn(batch, n, dtype=WIDE), setting.randn(batch, n, dtype=WIDE)
    y, first = torch.empty_like(x), state.clone()
    return Prepared(
        lambda kernels: kernels.state_update[(batch, heads)](
            state, x, dt, a, b, c, y, P=p, N=n, HEADS=heads, num_warps=4
        ),
        [y, state],
        tolerance=4e-3,
        reset=lambda: state.copy_(first),
    )


@FORMS.form("outputs of chunks of a state-space model")
def chunk_outputs(setting: Setting) -> Prepared:
    heads, steps, n, p = setting.pick(2, 64, 64), setting.pick(512, 4096, 4096), 128, 64
    c, b = setting.randn(heads, steps, n, dtype=WIDE), setting.randn(heads, steps, n, dtype=WIDE)
    x = setting.randn(heads, steps, p, dtype=WIDE)
    sums = -torch.rand(heads, steps // 256, 256, device=setting.device).cumsum(2) * 0.1
    states = setting.randn(heads, steps // 256, n, p, dtype=WIDE)
    y = torch.empty_like(x)
    return Prepared(
        lambda kernels: kernels.chunk_outputs[(heads, steps // 256, 4)](
            c, b, x, sums, states, y, steps, N=n, P=p, L=256, BL=64, num_warps=4, num_stages=3
        ),
        [y],
        tolerance=1e-2,
    )


@FORMS.form("inverses of a delta rule's chunks")
def delta_inverse(setting: Setting) -> Prepared:
    heads, steps, d = setting.pick(2, 32, 32), setting.pick(128, 4096, 4096), 128
    k = setting.randn(heads, steps, d, dtype=WIDE) * d**-0.5
    beta = torch.rand(heads, steps, device=setting.device)
    out = setting.empty(heads, steps, 64, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.delta_inverse[(heads, steps // 64)](
            k, beta, out, steps, D=d, L=64, num_warps=4
        ),
        [out],
        tolerance=1e-2,
    )


@FORMS.form("states of a gated delta rule")
def delta_states(setting: Setting) -> Prepared:
    heads, steps, d, dv = setting.pick(2, 64, 64), setting.pick(128, 2048, 2048), 128, 128
    k, w = (setting.randn(heads, steps, d, dtype=WIDE) * 0.05 for _ in range(2))
    u = setting.randn(heads, steps, dv, dtype=WIDE)
    gates = -torch.rand(heads, steps, device=setting.device)
    states = setting.empty(heads, steps // 64, d, dv, dtype=WIDE)
    new = torch.empty_like(u)
    return Prepared(
        lambda kernels: kernels.delta_states[(heads, dv // 64)](
            k, w, u, gates, states, new, steps, D=d, DV=dv, BV=64, L=64, num_warps=4, num_stages=2
        ),
        [states, new],
        tolerance=1e-2,
    )


@FORMS.form("cumulative sum by looking back")
def look_back_sum(setting: Setting) -> Prepared:
    n = setting.pick(5000, 2**22, 2**22)
    programs = cdiv(n, 4096)
    x, y, sums = setting.randn(n), setting.empty(n), setting.empty(programs)
    flags = setting.integers(0, 1, programs + 1, dtype=torch.int32)

    def launch(kernels):
        flags.zero_()  # the ticket is the last of them
        return kernels.look_back_sum[(programs,)](
            x, y, flags, sums, flags[programs:], n, BLOCK=4096, num_warps=8
        )

    return Prepared(launch, [y], tolerance=1e-3)


@FORMS.form("counts of experts by blocks of tokens")
def align_experts(setting: Setting) -> Prepared:
    n = setting.pick(1000, 2**20, 2**20)
    chosen = setting.integers(0, 64, n, dtype=torch.int32)
    counts = setting.integers(0, 1, cdiv(n, 1024), 64, dtype=torch.int32)
    return Prepared(
        lambda kernels: kernels.align_experts[(cdiv(n, 1024),)](
            chosen, counts, n, EXPERTS=64, BLOCK=1024, num_warps=4
        ),
        [counts],
        tolerance=0.0,
    )


@FORMS.form("tokens permuted for two experts each")
def permute_tokens(setting: Setting) -> Prepared:
    tokens, columns = setting.pick(20, 8192, 8192), setting.pick(300, 4096, 4096)
    x = setting.randn(tokens, columns, dtype=WIDE)
    order = torch.randperm(2 * tokens, device=setting.device).to(torch.int32)
    y = setting.empty(2 * tokens, columns, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.permute_tokens[(tokens,)](
            x, order, y, columns, TOP=2, BLOCK=1024, num_warps=4
        ),
        [y],
        tolerance=0.0,
    )


@FORMS.form("sums of segments of rows")
def segment_sums(setting: Setting) -> Prepared:
    segments, columns = setting.pick(10, 1024, 1024), setting.pick(100, 1024, 1024)
    lengths = torch.arange(segments, device=setting.device) % 97
    offsets = torch.zeros(segments + 1, dtype=torch.int32, device=setting.device)
    offsets[1:] = lengths.cumsum(0)
    x = setting.randn(sum(i % 97 for i in range(segments)), columns)
    y = setting.empty(segments, columns)
    return Prepared(
        lambda kernels: kernels.segment_sums[(segments, cdiv(columns, 128))](
            x, offsets, y, columns, BR=16, BC=128, num_warps=4
        ),
        [y],
        tolerance=1e-5,
    )


@FORMS.form("bags of 20 rows of a table")
def bag_of_rows(setting: Setting) -> Prepared:
    bags, columns, rows = setting.pick(10, 16384, 16384), 256, setting.pick(50, 10**6, 10**6)
    table = setting.randn(rows, columns, dtype=torch.float16)
    ids = setting.integers(0, rows, bags, 20, dtype=torch.int64)
    weights, y = setting.randn(bags, 20), setting.empty(bags, columns, dtype=torch.float16)
    return Prepared(
        lambda kernels: kernels.bag_of_rows[(bags, 1)](
            table, ids, weights, y, columns, BAG=20, BLOCK=256, num_warps=1
        ),
        [y],
    )
