"""Launches of `kernels/images.py`."""

from __future__ import annotations

import torch

from benchmarks.forms.form import Forms, Prepared
from benchmarks.gpu.case import Setting
from tilewright import cdiv, next_power_of_2

FORMS = Forms("images")
HALF = torch.float16


def _boxes(setting: Setting, n: int) -> torch.Tensor:
    corners, sizes = setting.randn(n, 2) * 100, setting.randn(n, 2).abs() * 30 + 1
    return torch.cat((corners, corners + sizes), 1).contiguous()


@FORMS.form("bytes of pixels to normalised channels")
def normalise_pixels(setting: Setting) -> Prepared:
    images, pixels = setting.pick(2, 128, 128), setting.pick(100, 224 * 224, 224 * 224)
    x = setting.integers(0, 256, images, pixels, 3, dtype=torch.uint8)
    y = setting.empty(images, 3, pixels, dtype=HALF)
    mean, std = setting.randn(3), setting.randn(3).abs() + 0.1
    n = images * pixels
    return Prepared(
        lambda kernels: kernels.normalise_pixels[(cdiv(n, 1024),)](
            x, y, mean, std, pixels, n, BLOCK=1024, num_warps=4
        ),
        [y],
    )


@FORMS.form("overlaps of boxes, 4096 and 8192")
def overlaps(setting: Setting) -> Prepared:
    n, m = setting.pick(50, 4096, 4096), setting.pick(70, 8192, 8192)
    a, b, y = _boxes(setting, n), _boxes(setting, m), setting.empty(n, m)
    return Prepared(
        lambda kernels: kernels.overlaps[(cdiv(n, 32), cdiv(m, 128))](
            a, b, y, n, m, BN=32, BM=128, num_warps=4
        ),
        [y],
    )


@FORMS.form("loss of pairs of boxes")
def box_loss(setting: Setting) -> Prepared:
    n = setting.pick(500, 2**22, 2**22)
    a, b, losses = _boxes(setting, n), _boxes(setting, n), setting.empty(n)
    return Prepared(
        lambda kernels: kernels.box_loss[(cdiv(n, 1024),)](a, b, losses, n, BLOCK=1024),
        [losses],
    )


@FORMS.form("bilinear samples in cells of boxes")
def roi_align(setting: Setting) -> Prepared:
    images, size, channels = setting.pick(1, 4, 4), setting.pick(20, 100, 100), 256
    count = setting.pick(3, 2000, 2000)
    x = setting.randn(images, size, size, channels, dtype=HALF)
    boxes = _boxes(setting, count).abs()
    image = setting.integers(0, images, count, 1, dtype=torch.float32)
    rois = torch.cat((image, boxes), 1).contiguous()
    y = setting.empty(count, 49, channels, dtype=HALF)
    return Prepared(
        lambda kernels: kernels.roi_align[(count, 49, cdiv(channels, 256))](
            x, rois, y, size, size, channels, 0.25, POOL=7, SAMPLES=2, BC=256, num_warps=4
        ),
        [y],
    )


@FORMS.form("channels shuffled to pixels")
def shuffle_pixels(setting: Setting) -> Prepared:
    images, c, size = setting.pick(1, 16, 16), setting.pick(3, 64, 64), setting.pick(7, 128, 128)
    x = setting.randn(images, c * 4, size, size, dtype=HALF)
    y = setting.empty(images, c, size * 2, size * 2, dtype=HALF)
    return Prepared(
        lambda kernels: kernels.shuffle_pixels[(cdiv(y.numel(), 1024),)](
            x, y, c, size, size, y.numel(), R=2, BLOCK=1024, num_warps=4
        ),
        [y],
    )


@FORMS.form("instance norm of maps of 64 x 64")
def instance_norm(setting: Setting) -> Prepared:
    planes, channels, pixels = setting.pick(6, 8192, 8192), setting.pick(3, 256, 256), 4096
    x, y = setting.randn(planes, pixels, dtype=HALF), setting.empty(planes, pixels, dtype=HALF)
    weight, bias = setting.randn(channels), setting.randn(channels)
    return Prepared(
        lambda kernels: kernels.instance_norm[(planes,)](
            x, weight, bias, y, pixels, channels, 1e-5, BLOCK=1024, num_warps=4
        ),
        [y],
        tolerance=4e-3,
    )


@FORMS.form("sums for the gradient of batch norm")
def batch_norm_sums(setting: Setting) -> Prepared:
    rows, c = setting.pick(300, 200704, 200704), setting.pick(64, 256, 256)
    x, dy = setting.randn(rows, c, dtype=HALF), setting.randn(rows, c, dtype=HALF)
    mean, rstd = setting.randn(c), setting.randn(c).abs()
    dw, db = setting.empty(c), setting.empty(c)

    def clear() -> None:
        dw.zero_()
        db.zero_()

    return Prepared(
        lambda kernels: kernels.batch_norm_sums[(264, cdiv(c, 64))](
            x, dy, mean, rstd, dw, db, rows, c, BR=32, BC=64, num_warps=8
        ),
        [dw, db],
        tolerance=4e-3,
        reset=clear,
    )


@FORMS.form("means of 3x3 pixels")
def mean_pool(setting: Setting) -> Prepared:
    planes, size = setting.pick(3, 4096, 4096), setting.pick(9, 112, 112)
    x = setting.randn(planes, size, size, dtype=HALF)
    half = cdiv(size, 2)
    y = setting.empty(planes, half, half, dtype=HALF)
    return Prepared(
        lambda kernels: kernels.mean_pool[(cdiv(y.numel(), 512),)](
            x, y, size, size, half, half, y.numel(), BLOCK=512, num_warps=4
        ),
        [y],
    )


@FORMS.form("softmax of 150 channels of pixels")
def softmax_of_channels(setting: Setting) -> Prepared:
    images, c, pixels = setting.pick(1, 8, 8), setting.pick(19, 150, 150), 128 * 128
    x, y = (setting.randn(images, c, pixels, dtype=HALF) for _ in range(2))
    return Prepared(
        lambda kernels: kernels.softmax_of_channels[(cdiv(pixels, 64), images)](
            x, y, pixels, C=c, BC=next_power_of_2(c), BLOCK=64, num_warps=4
        ),
        [y],
        tolerance=4e-3,
    )


@FORMS.form("focal loss")
def focal_loss(setting: Setting) -> Prepared:
    n = setting.pick(3000, 2**25, 2**25)
    x, losses = setting.randn(n, dtype=HALF), setting.empty(n)
    target = setting.integers(0, 2, n, dtype=HALF)
    return Prepared(
        lambda kernels: kernels.focal_loss[(cdiv(n, 1024),)](
            x, target, losses, n, 0.25, BLOCK=1024, num_warps=4
        ),
        [losses],
        tolerance=4e-3,
    )


@FORMS.form("pixels to channels by differences")
def pixels_to_channels(setting: Setting) -> Prepared:
    images, c, size = setting.pick(1, 16, 16), setting.pick(3, 64, 64), setting.pick(8, 64, 64)
    x = setting.randn(images, c, 2 * size, 2 * size, dtype=HALF)
    y = setting.empty(images, c * 4, size, size, dtype=HALF)
    return Prepared(
        lambda kernels: kernels.pixels_to_channels[(cdiv(y.numel(), 1024),)](
            x, y, y.numel(), c * 4, size, size, 2, BLOCK=1024, num_warps=4
        ),
        [y],
    )


def _loss_of_places(setting: Setting, places: int) -> Prepared:
    images, classes = setting.pick(2, 2048, 2048) // places or 1, setting.pick(700, 32000, 32000)
    x = setting.randn(images, classes, places, dtype=HALF)
    labels = setting.integers(0, classes, images, places, dtype=torch.int64)
    losses = setting.empty(images, places)
    return Prepared(
        lambda kernels: kernels.loss_of_places[(cdiv(places, 4), images)](
            x, labels, losses, classes, places, BC=512, BP=4, num_warps=4
        ),
        [losses],
    )


FORMS.add("loss of one place, tiles of 512x4", lambda s: _loss_of_places(s, 1))
FORMS.add("loss of 64 places, tiles of 512x4", lambda s: _loss_of_places(s, 64))
