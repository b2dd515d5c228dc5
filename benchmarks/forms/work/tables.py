"""Launches of `kernels/tables.py`."""

from __future__ import annotations

import torch

from benchmarks.forms.form import Forms, Prepared
from benchmarks.gpu.case import Setting
from tilewright import cdiv, next_power_of_2

FORMS = Forms("tables")
HALF, WIDE = torch.float16, torch.bfloat16
INT = torch.int32


@FORMS.form("momentum of 64 tensors by tables")
def sgd_of_tensors(setting: Setting) -> Prepared:
    size, count = setting.pick(3000, 2**20, 2**20), setting.pick(3, 64, 64)
    states = [[setting.randn(size) for _ in range(count)] for _ in range(3)]
    first = [tensor.clone() for tensor in (*states[0], *states[2])]
    tables = [_addresses(setting, tensors) for tensors in states]
    chunks = cdiv(size, 2048)
    each = torch.arange(chunks * count, device=setting.device)
    tensors, places = (each // chunks).to(INT), (each % chunks).to(INT)
    sizes = torch.full((count,), size, dtype=INT, device=setting.device)

    def restore() -> None:
        for tensor, start in zip((*states[0], *states[2]), first, strict=True):
            tensor.copy_(start)

    return Prepared(
        lambda kernels: kernels.sgd_of_tensors[(chunks * count,)](
            *tables, tensors, places, sizes, 0.1, 0.9, 0.01, BLOCK=2048, num_warps=8
        ),
        [*states[0], *states[2]],
        reset=restore,
    )


def _addresses(setting: Setting, tensors: list[torch.Tensor]) -> torch.Tensor:
    found = [0 if tensor.is_meta else tensor.data_ptr() for tensor in tensors]
    return torch.tensor(found, dtype=torch.int64, device=setting.device)


@FORMS.form("sum of squares of gradients")
def square_sums(setting: Setting) -> Prepared:
    n = setting.pick(5000, 2**27, 2**27)
    x, total = setting.randn(n, dtype=WIDE), setting.empty(1)
    return Prepared(
        lambda kernels: kernels.square_sums[(1056,)](x, total, n, BLOCK=4096, num_warps=8),
        [total],
        reset=total.zero_,
    )


@FORMS.form("moments of rows and columns")
def factored_moments(setting: Setting) -> Prepared:
    r, c = setting.pick(70, 8192, 8192), setting.pick(130, 8192, 8192)
    g, rows, columns = setting.randn(r, c, dtype=WIDE), setting.empty(r), setting.empty(c)

    def clear() -> None:
        rows.zero_()
        columns.zero_()

    return Prepared(
        lambda kernels: kernels.factored_moments[(cdiv(r, 64), cdiv(c, 128))](
            g, rows, columns, r, c, 0.99, BR=64, BC=128, num_warps=8
        ),
        [rows, columns],
        reset=clear,
    )


@FORMS.form("step by moments of rows and columns")
def factored_step(setting: Setting) -> Prepared:
    r, c = setting.pick(70, 8192, 8192), setting.pick(130, 8192, 8192)
    start, g = setting.randn(r, c, dtype=WIDE), setting.randn(r, c, dtype=WIDE)
    p, rows, columns = start.clone(), setting.randn(r).abs(), setting.randn(c).abs()
    mean = torch.ones(1, device=setting.device)
    return Prepared(
        lambda kernels: kernels.factored_step[(cdiv(r, 32), cdiv(c, 256))](
            p, g, rows, columns, mean, r, c, 1e-3, BR=32, BC=256, num_warps=8
        ),
        [p],
        tolerance=4e-3,
        reset=lambda: p.copy_(start),
    )


@FORMS.form("state of bytes by a table of 256")
def adam_by_table(setting: Setting) -> Prepared:
    n = setting.pick(5000, 2**25, 2**25)
    blocks = cdiv(n, 2048)
    start, g = setting.randn(n, dtype=WIDE), setting.randn(n, dtype=WIDE)
    codes0 = setting.integers(0, 256, n, dtype=torch.uint8)
    maxima0 = setting.randn(blocks).abs()
    table = torch.linspace(-1, 1, 256, device=setting.device)
    p, codes, maxima = start.clone(), codes0.clone(), maxima0.clone()

    def restore() -> None:
        for tensor, first in ((p, start), (codes, codes0), (maxima, maxima0)):
            tensor.copy_(first)

    return Prepared(
        lambda kernels: kernels.adam_by_table[(blocks,)](
            p, g, codes, maxima, table, n, 1e-3, 0.9, 1e-8, BLOCK=2048, STEPS=8, num_warps=8
        ),
        [p, codes, maxima],
        tolerance=1e-2,
        reset=restore,
    )


@FORMS.form("running mean of weights, and bf16")
def masters_to_bf16(setting: Setting) -> Prepared:
    n = setting.pick(5000, 2**26, 2**26)
    master, start, out = setting.randn(n), setting.randn(n), setting.empty(n, dtype=WIDE)
    mean = start.clone()
    return Prepared(
        lambda kernels: kernels.masters_to_bf16[(cdiv(n, 1024),)](
            master, mean, out, n, 0.999, BLOCK=1024, num_warps=4
        ),
        [mean, out],
        reset=lambda: mean.copy_(start),
    )


@FORMS.form("codes of 4 bits by a table of 16")
def four_bit_codes(setting: Setting) -> Prepared:
    n = setting.pick(4096, 2**27, 2**27)
    packed = setting.integers(0, 256, n // 2, dtype=torch.uint8)
    maxima, table = setting.randn(n // 64), setting.randn(16)
    y = setting.empty(n, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.four_bit_codes[(cdiv(n // 2, 1024),)](
            packed, maxima, table, y, n, BLOCK=1024, GROUP=64, num_warps=4
        ),
        [y],
    )


@FORMS.form("4-bit weights by a table of groups, to fp16")
def weights_by_order(setting: Setting) -> Prepared:
    k, n = setting.pick(256, 8192, 8192), setting.pick(128, 8192, 8192)
    words = (-(2**31), 2**31)
    packed = setting.integers(*words, k // 8, n, dtype=INT)
    zeros = setting.integers(*words, k // 128, n // 8, dtype=INT)
    scales = setting.randn(k // 128, n, dtype=HALF)
    groups = setting.integers(0, k // 128, k, dtype=INT)
    y = setting.empty(k, n, dtype=HALF)
    return Prepared(
        lambda kernels: kernels.weights_by_order[(cdiv(k, 64), cdiv(n, 128))](
            packed, zeros, scales, groups, y, k, n, BK=64, BN=128, num_warps=8
        ),
        [y],
    )


@FORMS.form("sparse matrix by rows, times a dense one")
def sparse_rows(setting: Setting) -> Prepared:
    rows, d = setting.pick(20, 65536, 65536), setting.pick(50, 256, 256)
    starts = torch.arange(rows + 1, dtype=INT, device=setting.device) * 16
    columns = setting.integers(0, rows, rows * 16, dtype=INT)
    values, x = setting.randn(rows * 16), setting.randn(rows, d, dtype=HALF)
    y = setting.empty(rows, d, dtype=HALF)
    return Prepared(
        lambda kernels: kernels.sparse_rows[(rows, cdiv(d, 256))](
            starts, columns, values, x, y, d, BLOCK=256, num_warps=2
        ),
        [y],
        tolerance=4e-3,
    )


@FORMS.form("softmax over edges of nodes, 8 heads")
def softmax_of_segments(setting: Setting) -> Prepared:
    nodes = setting.pick(10, 65536, 65536)
    starts = torch.arange(nodes + 1, dtype=INT, device=setting.device) * 24
    x, y = setting.randn(nodes * 24, 8), setting.empty(nodes * 24, 8)
    return Prepared(
        lambda kernels: kernels.softmax_of_segments[(nodes,)](
            x, starts, y, H=8, BLOCK=32, num_warps=1
        ),
        [y],
    )


@FORMS.form("means of ragged rows")
def mean_of_ragged(setting: Setting) -> Prepared:
    count, d = setting.pick(5, 1024, 1024), setting.pick(70, 1024, 1024)
    starts = torch.arange(count + 1, dtype=INT, device=setting.device) * 100
    x, y = setting.randn(count * 100, d, dtype=HALF), setting.empty(count, d, dtype=HALF)
    return Prepared(
        lambda kernels: kernels.mean_of_ragged[(count, cdiv(d, 128))](
            x, starts, y, d, BR=32, BD=128, num_warps=4
        ),
        [y],
    )


@FORMS.form("penalties of tokens, 128256")
def penalties(setting: Setting) -> Prepared:
    rows, v = setting.pick(3, 256, 256), setting.pick(1000, 128256, 128256)
    start = setting.randn(rows, v)
    logits, counts = start.clone(), setting.integers(0, 3, rows, v, dtype=INT)
    seen = setting.integers(0, 2, rows, v, dtype=torch.uint8)
    factors = [setting.randn(rows).abs() + 0.5 for _ in range(3)]
    return Prepared(
        lambda kernels: kernels.penalties[(rows, cdiv(v, 1024))](
            logits, counts, seen, *factors, v, BLOCK=1024, num_warps=4
        ),
        [logits],
        reset=lambda: logits.copy_(start),
    )


@FORMS.form("tokens of some likelihood, 128256")
def likely_tokens(setting: Setting) -> Prepared:
    rows, v = setting.pick(3, 256, 256), setting.pick(1000, 128256, 128256)
    x, y = setting.randn(rows, v) * 0.1, setting.empty(rows, v)
    return Prepared(
        lambda kernels: kernels.likely_tokens[(rows,)](x, y, v, 1e-9, BLOCK=4096, num_warps=8),
        [y],
    )


@FORMS.form("experts by groups, 8 of 256")
def groups_of_experts(setting: Setting) -> Prepared:
    n = setting.pick(10, 16384, 16384)
    logits, bias = setting.randn(n, 256), setting.randn(256) * 0.1
    weights, ids = setting.empty(n, 8), setting.empty(n, 8, dtype=INT)
    return Prepared(
        lambda kernels: kernels.groups_of_experts[(cdiv(n, 4),)](
            logits, bias, weights, ids, n, E=256, G=8, TOPG=4, TOP=8, BT=4, num_warps=4
        ),
        [weights, ids],
    )


@FORMS.form("keys to slots of a cache in fp8")
def cache_fp8(setting: Setting) -> Prepared:
    tokens, heads, d = setting.pick(7, 8192, 8192), setting.pick(3, 8, 8), 128
    keys = setting.randn(tokens, heads, d, dtype=WIDE)
    slots = torch.arange(tokens - 1, -1, -1, device=setting.device)
    cache = setting.empty(tokens, heads, d, dtype=torch.float8_e4m3fn)
    scales = setting.empty(tokens, heads)
    return Prepared(
        lambda kernels: kernels.cache_fp8[(tokens, cdiv(heads, 8))](
            keys, slots, cache, scales, heads, D=d, BH=8, num_warps=4
        ),
        [cache, scales],
        tolerance=4e-3,
    )


@FORMS.form("weighted keys and values of RWKV")
def weighted_keys(setting: Setting) -> Prepared:
    batch, t, c = (
        setting.pick(2, 32, 32),
        setting.pick(20, 1024, 1024),
        setting.pick(64, 4096, 4096),
    )
    w, u = setting.randn(c), setting.randn(c)
    k, v = setting.randn(batch, t, c, dtype=WIDE), setting.randn(batch, t, c, dtype=WIDE)
    y = setting.empty(batch, t, c, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.weighted_keys[(c // 32, batch)](
            w, u, k, v, y, t, c, BC=32, num_warps=1
        ),
        [y],
        tolerance=1e-2,
    )


@FORMS.form("Hadamard transforms of 128")
def hadamard(setting: Setting) -> Prepared:
    rows = setting.pick(50, 2**19, 2**19)
    x, y = setting.randn(rows, 128, dtype=HALF), setting.empty(rows, 128, dtype=HALF)
    return Prepared(
        lambda kernels: kernels.hadamard[(cdiv(rows, 32),)](
            x, y, rows, 0.088, N=128, LOG=7, BR=32, num_warps=4
        ),
        [y],
    )


@FORMS.form("linear recurrence by scans")
def linear_recurrence(setting: Setting) -> Prepared:
    batch, t, c = (
        setting.pick(2, 16, 16),
        setting.pick(128, 2048, 2048),
        setting.pick(64, 2048, 2048),
    )
    a, b = setting.randn(batch, t, c).sigmoid().to(WIDE), setting.randn(batch, t, c, dtype=WIDE)
    h = setting.empty(batch, t, c, dtype=WIDE)
    return Prepared(
        lambda kernels: kernels.linear_recurrence[(c // 32, batch)](
            a, b, h, t, c, BT=64, BC=32, num_warps=4
        ),
        [h],
        tolerance=1e-2,
    )


@FORMS.form("bias, dropout, residual, layer norm")
def bias_dropout_norm(setting: Setting) -> Prepared:
    rows, columns = setting.pick(9, 16384, 16384), setting.pick(300, 2048, 2048)
    x, residual = (setting.randn(rows, columns, dtype=HALF) for _ in range(2))
    bias, weight, shift = (setting.randn(columns, dtype=HALF) for _ in range(3))
    out, y = (setting.empty(rows, columns, dtype=HALF) for _ in range(2))
    return Prepared(
        lambda kernels: kernels.bias_dropout_norm[(rows,)](
            x, bias, residual, weight, shift, out, y, columns, 0.1, 7, 1e-5,
            BLOCK=next_power_of_2(columns), num_warps=8,
        ),
        [out, y],
        tolerance=4e-3,
    )  # fmt: skip


@FORMS.form("bytes from the least to the most of rows")
def bytes_by_rows(setting: Setting) -> Prepared:
    rows, columns = setting.pick(9, 16384, 16384), setting.pick(300, 4096, 4096)
    x = setting.randn(rows, columns, dtype=WIDE)
    y = setting.empty(rows, columns, dtype=torch.uint8)
    scales, zeros = setting.empty(rows), setting.empty(rows)
    return Prepared(
        lambda kernels: kernels.bytes_by_rows[(rows,)](
            x, y, scales, zeros, columns, BLOCK=next_power_of_2(columns), num_warps=8
        ),
        [y, scales, zeros],
        tolerance=1e-2,
    )


@FORMS.form("distillation at a temperature, 32000")
def distillation(setting: Setting) -> Prepared:
    rows, v = setting.pick(4, 4096, 4096), setting.pick(700, 32000, 32000)
    student, teacher = (setting.randn(rows, v, dtype=WIDE) for _ in range(2))
    losses = setting.empty(rows)
    return Prepared(
        lambda kernels: kernels.distillation[(rows,)](
            student, teacher, losses, v, 2.0, BLOCK=4096, num_warps=8
        ),
        [losses],
        tolerance=4e-3,
    )


@FORMS.form("rotary embedding of three positions")
def rotate_sections(setting: Setting) -> Prepared:
    tokens, heads, d = setting.pick(5, 8192, 8192), setting.pick(3, 28, 28), 128
    start = setting.randn(tokens, heads, d, dtype=WIDE)
    q = start.clone()
    cos, sin = (setting.randn(3, tokens, d // 2, dtype=WIDE) for _ in range(2))
    return Prepared(
        lambda kernels: kernels.rotate_sections[(tokens, 1)](
            q, cos, sin, tokens, heads, 16, 40, D=d, BH=32, num_warps=4
        ),
        [q],
        tolerance=4e-3,
        reset=lambda: q.copy_(start),
    )


@FORMS.form("gradient of rows of unit length")
def unit_rows_gradient(setting: Setting) -> Prepared:
    rows, columns = setting.pick(9, 65536, 65536), setting.pick(300, 768, 768)
    x, dy, dx = (setting.randn(rows, columns, dtype=HALF) for _ in range(3))
    return Prepared(
        lambda kernels: kernels.unit_rows_gradient[(rows,)](
            x, dy, dx, columns, BLOCK=next_power_of_2(columns), num_warps=4
        ),
        [dx],
        tolerance=4e-3,
    )
