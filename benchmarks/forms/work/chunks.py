"""Launches of `kernels/chunks.py`."""

from __future__ import annotations

import torch

from benchmarks.forms.form import Forms, Prepared
from benchmarks.gpu.case import Setting
from tilewright import cdiv

FORMS = Forms("chunks")
WIDE = torch.bfloat16


def _states(setting: Setting, block: tuple[int, int, int], warps: int, stages: int) -> Prepared:
    steps, heads, ratio = (
        setting.pick(512, 8192, 8192),
        setting.pick(2, 80, 80),
        setting.pick(2, 80, 80),
    )
    p, n, length, (bp, bn, bk) = 64, 128, 256, block
    chunks = steps // length
    x = setting.randn(steps, heads, p, dtype=WIDE)
    b = setting.randn(steps, heads // ratio, n, dtype=WIDE)
    dt = torch.rand(chunks, heads, length, device=setting.device)
    sums = -torch.rand(chunks, heads, length, device=setting.device).cumsum(2) * 0.1
    states = setting.empty(chunks, heads, p, n)
    return Prepared(
        lambda kernels: kernels.chunk_states[(cdiv(p, bp) * cdiv(n, bn), chunks, heads)](
            x, b, states, dt, sums, p, n, steps, HEADS=heads, RATIO=ratio, L=length,
            BP=bp, BN=bn, BK=bk, num_warps=warps, num_stages=stages,
        ),
        [states],
        tolerance=1e-2,
    )  # fmt: skip


FORMS.add("states of chunks, 64x128x32", lambda s: _states(s, (64, 128, 32), 4, 4))
FORMS.add("states of chunks, 64x32x32", lambda s: _states(s, (64, 32, 32), 2, 5))


@FORMS.form("products within chunks")
def products_in_chunks(setting: Setting) -> Prepared:
    chunks, length, k, groups = setting.pick(2, 128, 128), 256, 128, setting.pick(2, 8, 8)
    a, b = (setting.randn(chunks, length, groups, k, dtype=WIDE) for _ in range(2))
    out = torch.zeros(chunks, groups, length, length, device=setting.device)
    return Prepared(
        lambda kernels: kernels.products_in_chunks[(16, chunks, groups)](
            a, b, out, length, k, GROUPS=groups, CAUSAL=True, BM=64, BN=64, BK=32,
            num_warps=4, num_stages=4,
        ),
        [out],
        tolerance=1e-2,
        reset=out.zero_,
    )  # fmt: skip


@FORMS.form("states before chunks")
def pass_states(setting: Setting) -> Prepared:
    batch, chunks, heads = setting.pick(1, 2, 2), setting.pick(3, 32, 32), setting.pick(2, 80, 80)
    size = 64 * 128
    states, out = (
        setting.randn(batch, chunks, heads, size),
        setting.empty(batch, chunks, heads, size),
    )
    decays, last = -torch.rand(batch, heads, chunks), setting.empty(batch, heads, size)
    decays = decays.to(setting.device)
    return Prepared(
        lambda kernels: kernels.pass_states[(cdiv(size, 256), batch, heads)](
            states, out, last, decays, chunks, size, HEADS=heads, B=256, num_warps=4
        ),
        [out, last],
        tolerance=1e-4,
    )


def _gated(setting: Setting, bk: int, bv: int, warps: int, stages: int) -> Prepared:
    batch, steps, heads = setting.pick(1, 4, 4), setting.pick(128, 4096, 4096), 8
    heads, d, chunk = setting.pick(2, heads, heads), 128, 64
    q, k, v = (setting.randn(batch, steps, heads, d, dtype=WIDE) * 0.3 for _ in range(3))
    h = setting.randn(batch, steps // chunk, heads, d, d, dtype=WIDE) * 0.3
    g = -torch.rand(batch, steps // chunk, chunk, heads, device=setting.device).cumsum(2) * 0.1
    out = torch.empty_like(v)
    return Prepared(
        lambda kernels: kernels.gated_outputs[(d // bv, steps // chunk, batch * heads)](
            q, k, v, h, g, out, d**-0.5, steps, HEADS=heads, K=d, V=d, BT=chunk, BK=bk, BV=bv,
            num_warps=warps, num_stages=stages,
        ),
        [out],
        tolerance=1e-2,
    )  # fmt: skip


FORMS.add("outputs of gated chunks, 128x128", lambda s: _gated(s, 128, 128, 8, 3))
FORMS.add("outputs of gated chunks, 64x64", lambda s: _gated(s, 64, 64, 4, 3))
FORMS.add("outputs of gated chunks, 32x32", lambda s: _gated(s, 32, 32, 2, 3))


@FORMS.form("scaled products of keys in chunks")
def scaled_keys(setting: Setting) -> Prepared:
    batch, steps, heads = setting.pick(1, 4, 4), setting.pick(128, 4096, 4096), 16
    heads, d = setting.pick(2, heads, heads), 128
    k = setting.randn(batch, steps, heads, d, dtype=WIDE) * d**-0.5
    g = -torch.rand(batch, steps // 64, 64, heads, device=setting.device).cumsum(2) * 0.1
    beta = torch.rand(batch, steps, heads, device=setting.device).to(WIDE)
    out = setting.empty(batch, steps, heads, 64)
    return Prepared(
        lambda kernels: kernels.scaled_keys[(cdiv(steps, 64), batch * heads)](
            k, g, beta, out, steps, HEADS=heads, K=d, BT=64, BK=64, num_warps=4, num_stages=3
        ),
        [out],
        tolerance=1e-2,
    )


def _inverses(setting: Setting, precision: str) -> Prepared:
    batch, steps, heads = setting.pick(1, 4, 4), setting.pick(64, 4096, 4096), 16
    heads = setting.pick(2, heads, heads)
    a = setting.randn(batch, steps, heads, 32) * 0.1
    out = torch.zeros_like(a)
    return Prepared(
        lambda kernels: kernels.inverses_of_chunks[(cdiv(steps, 32), batch * heads)](
            a, out, steps, HEADS=heads, BT=32, PRECISION=precision, num_warps=2, num_stages=3
        ),
        [out],
        reset=out.zero_,
    )


FORMS.add("inverses of triangles 32x32, ieee", lambda s: _inverses(s, "ieee"))
FORMS.add("inverses of triangles 32x32, tf32", lambda s: _inverses(s, "tf32"))


def _delta_steps(setting: Setting, batch: int, steps: int) -> Prepared:
    batch, steps = setting.pick(2, batch, batch), setting.pick(3, steps, steps)
    heads, d = setting.pick(2, 16, 16), 128
    q, k, v = (setting.randn(batch, steps, heads, d, dtype=WIDE) for _ in range(3))
    g = -torch.rand(batch, steps, heads, device=setting.device)
    beta = torch.rand(batch, steps, heads, device=setting.device)
    out, state = torch.empty_like(v), setting.randn(batch, heads, d, d)
    first = state.clone()
    return Prepared(
        lambda kernels: kernels.delta_steps[(d // 8, batch * heads)](
            q, k, v, g, beta, out, state, d**-0.5, steps, HEADS=heads, K=d, V=d, BV=8,
            num_warps=1, num_stages=3,
        ),
        [out, state],
        tolerance=4e-3,
        reset=lambda: state.copy_(first),
    )  # fmt: skip


FORMS.add("one step of a gated delta rule", lambda s: _delta_steps(s, 128, 1))
FORMS.add("512 steps of a gated delta rule", lambda s: _delta_steps(s, 4, 512))


@FORMS.form("cumulative sums within chunks")
def sums_in_chunks(setting: Setting) -> Prepared:
    batch, steps, heads = setting.pick(1, 8, 8), setting.pick(128, 4096, 4096), 8
    heads, size = setting.pick(2, heads, heads), 128
    x, y = setting.randn(batch, steps, heads, size), setting.empty(batch, steps, heads, size)
    return Prepared(
        lambda kernels: kernels.sums_in_chunks[(size // 32, steps // 64, batch * heads)](
            x, y, steps, S=size, HEADS=heads, BT=64, BS=32, num_warps=4
        ),
        [y],
        tolerance=1e-4,
    )


@FORMS.form("states of a delta rule, one part in a chunk")
def states_in_parts(setting: Setting) -> Prepared:
    steps, heads, d = setting.pick(70, 4096, 4096), setting.pick(2, 16, 16), 128
    k, v = (setting.randn(steps, heads, d, dtype=WIDE) * d**-0.5 for _ in range(2))
    w = k * 0.5  # with others, the states grow, and with them the differences of roundings
    u = setting.randn(steps, heads, d, dtype=WIDE) * 0.1
    states = setting.empty(cdiv(steps, 16), heads, d, d, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.states_in_parts[(d // 16, heads)](
            k, v, w, u, states, steps, HEADS=heads, K=d, V=d, BT=16, BC=16, BV=16,
            num_warps=4, num_stages=3,
        ),
        [states],
        tolerance=1e-2,
    )  # fmt: skip
