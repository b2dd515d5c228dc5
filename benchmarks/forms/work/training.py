"""Launches of `kernels/training.py`."""

from __future__ import annotations

import torch

from benchmarks.forms.form import Forms, Prepared
from benchmarks.gpu.case import Setting
from tilewright import cdiv

FORMS = Forms("training")


@FORMS.form("residual added, RMS norm, 8192x4096")
def add_rms_norm(setting: Setting) -> Prepared:
    rows, columns = setting.pick(16, 8192, 8192), setting.pick(256, 4096, 4096)
    half = torch.float16
    x, residual = setting.randn(rows, columns, dtype=half), setting.randn(rows, columns, dtype=half)
    weight, y = setting.randn(columns, dtype=half), setting.empty(rows, columns, dtype=half)
    first = residual.clone()
    x *= 1e-3  # the sum stays finite over the launches that are timed
    return Prepared(
        lambda kernels: kernels.add_rms_norm[(rows,)](
            x, residual, weight, y, columns, 1e-6, BLOCK=columns, num_warps=8
        ),
        [y, residual],
        reset=lambda: residual.copy_(first),
    )


@FORMS.form("packed SwiGLU 8192x11008")
def swiglu_packed(setting: Setting) -> Prepared:
    rows, columns = setting.pick(16, 8192, 8192), setting.pick(200, 11008, 11008)
    x = setting.randn(rows, 2 * columns, dtype=torch.bfloat16)
    y = setting.empty(rows, columns, dtype=torch.bfloat16)
    return Prepared(
        lambda kernels: kernels.swiglu_packed[(rows, cdiv(columns, 1024))](
            x, y, columns, BLOCK=1024, num_warps=4
        ),
        [y],
        tolerance=4e-3,
    )


@FORMS.form("embedding, blocks of 8 rows")
def embedding(setting: Setting) -> Prepared:
    n, columns, words = setting.pick(40, 8192, 8192), setting.pick(256, 4096, 4096), 32000
    words = setting.pick(100, words, words)
    ids = setting.integers(0, words, n, dtype=torch.int64)
    table = setting.randn(words, columns, dtype=torch.bfloat16)
    out = setting.empty(n, columns, dtype=torch.bfloat16)
    return Prepared(
        lambda kernels: kernels.embedding[(cdiv(n, 8), cdiv(columns, 512))](
            ids, table, out, columns, n, BLOCK=512, BN=8, num_warps=4
        ),
        [out],
    )


@FORMS.form("gradient of an embedding, atomics")
def embedding_gradient(setting: Setting) -> Prepared:
    n, columns = setting.pick(40, 8192, 8192), setting.pick(256, 1024, 1024)
    words = setting.pick(100, 32000, 32000)
    ids = setting.integers(0, words, n, dtype=torch.int64)
    grads, table = setting.randn(n, columns), setting.empty(words, columns)
    return Prepared(
        lambda kernels: kernels.embedding_gradient[(cdiv(n, 4), cdiv(columns, 256))](
            ids, grads, table, columns, n, BLOCK=256, BN=4, num_warps=4
        ),
        [table],
        reset=table.zero_,
    )


@FORMS.form("group norm, channels last")
def group_norm_nhwc(setting: Setting) -> Prepared:
    images, pixels, channels = setting.pick(1, 16, 16), setting.pick(100, 4096, 4096), 320
    half = torch.float16
    x = setting.randn(images, pixels, channels, dtype=half)
    weight, bias = setting.randn(channels, dtype=half), setting.randn(channels, dtype=half)
    y = setting.empty(images, pixels, channels, dtype=half)
    return Prepared(
        lambda kernels: kernels.group_norm_nhwc[(images, 20)](
            x, weight, bias, y, pixels, channels, 1e-5, C=16, BP=256, num_warps=8
        ),
        [y],
    )


@FORMS.form("gradient of layer norm, locks")
def norm_gradient(setting: Setting) -> Prepared:
    rows, columns = setting.pick(16, 4096, 4096), setting.pick(200, 4096, 4096)
    slots = setting.pick(4, 96, 96)
    half = torch.float16
    x, dy = setting.randn(rows, columns, dtype=half), setting.randn(rows, columns, dtype=half)
    weight, mean, rstd = setting.randn(columns), setting.randn(rows), setting.randn(rows)
    dx = setting.empty(rows, columns, dtype=half)
    dw, db = setting.empty(slots, columns), setting.empty(slots, columns)
    locks = setting.integers(0, 1, 2 * slots, dtype=torch.int32)
    block = setting.pick(256, 4096, 4096)

    def launch(kernels):
        return kernels.norm_gradient[(rows,)](
            x, dy, weight, mean, rstd, dx, dw, db, locks, columns,
            SLOTS=slots, BLOCK=block, num_warps=8,
        )  # fmt: skip

    return Prepared(launch, [dx, dw, db], tolerance=1e-4, reset=locks.zero_)


@FORMS.form("gradient of layer norm, sum of 96 slots")
def sum_of_slots(setting: Setting) -> Prepared:
    slots, columns = setting.pick(10, 96, 96), setting.pick(200, 8192, 8192)
    dw, db = setting.randn(slots, columns), setting.randn(slots, columns)
    final_w, final_b = setting.empty(columns), setting.empty(columns)
    return Prepared(
        lambda kernels: kernels.sum_of_slots[(cdiv(columns, 128),)](
            dw, db, final_w, final_b, slots, columns, BM=32, BN=128, num_warps=4
        ),
        [final_w, final_b],
        tolerance=1e-5,
    )


def _loss(setting: Setting, columns: int, block: int, warps: int) -> Prepared:
    rows = setting.pick(8, 2048, 2048)
    columns = setting.pick(1001, columns, columns)
    logits = setting.randn(rows, columns, dtype=torch.bfloat16)
    labels = setting.integers(0, columns, rows, dtype=torch.int64)
    losses, lses = setting.empty(rows), setting.empty(rows)
    return Prepared(
        lambda kernels: kernels.smoothed_loss[(rows,)](
            logits, labels, losses, lses, columns, 0.1, BLOCK=block, num_warps=warps
        ),
        [losses, lses],
        tolerance=1e-5,
    )


FORMS.add("smoothed cross-entropy 128256", lambda setting: _loss(setting, 128256, 4096, 8))
FORMS.add("smoothed cross-entropy 50257", lambda setting: _loss(setting, 50257, 8192, 16))
FORMS.add("smoothed cross-entropy 50257, 16384", lambda setting: _loss(setting, 50257, 16384, 16))


@FORMS.form("gradient of smoothed cross-entropy 128256")
def loss_gradient(setting: Setting) -> Prepared:
    rows, columns = setting.pick(8, 1024, 1024), setting.pick(1000, 128256, 128256)
    logits = setting.randn(rows, columns, dtype=torch.bfloat16)
    labels = setting.integers(0, columns, rows, dtype=torch.int64)
    lses, grads = logits.float().logsumexp(1), setting.randn(rows)
    first = logits.clone()
    return Prepared(
        lambda kernels: kernels.loss_gradient[(rows, cdiv(columns, 2048))](
            logits, labels, lses, grads, columns, 0.1, BLOCK=2048, num_warps=8
        ),
        [logits],
        tolerance=4e-3,
        reset=lambda: logits.copy_(first),
    )


@FORMS.form("dropout and residual")
def dropout_residual(setting: Setting) -> Prepared:
    n = setting.pick(5000, 2**26, 2**26)
    half = torch.float16
    x, residual = setting.randn(n, dtype=half), setting.randn(n, dtype=half)
    y = setting.empty(n, dtype=half)
    return Prepared(
        lambda kernels: kernels.dropout_residual[(cdiv(n, 1024),)](
            x, residual, y, n, 0.1, 1234, BLOCK=1024, num_warps=4
        ),
        [y],
    )
