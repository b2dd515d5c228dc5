"""Convolution of 48 channels, normalised. Needs only NumPy: python examples/convolution.py

The first half of a ConvNeXt block (Liu et al., 2022), along time: each channel is convolved with
its own seven taps (a *depthwise* convolution), then the channels of each step are normalised to
mean 0 and variance 1. No extent here is a power of two. Tiles have the extents of the data: 48
channels, 7 taps, and 58 output steps computed from 64 input steps (a halo of three on either side).
So the channels need no mask, and no neutral element for masked channels in their sum.

A tile of input steps is loaded once; each tap multiplies a slice of it, shifted by one step.

Triton's tiles must be powers of two: there, 64 channels would be processed with 16 masked, and the
steps would be loaded again for each tap.
"""

from __future__ import annotations

import numpy as np
from report import QUICK, check, compare_speed

import tilewright as tw
import tilewright.language as tl

CHANNELS, TAPS, STEPS = 48, 7, 58


@tw.jit
def convolution_kernel(
    x_ptr, weight_ptr, out_ptr, steps, epsilon,
    CHANNELS: tl.constexpr, TAPS: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    channel = tl.arange(0, CHANNELS)[None, :]
    first = tl.program_id(0) * STEPS
    sequence = tl.program_id(1).to(tl.int64) * steps * CHANNELS

    # Zero padding before the first and after the last step.
    step = (first - TAPS // 2 + tl.arange(0, STEPS + TAPS - 1))[:, None]
    inside = (step >= 0) & (step < steps)
    x = tl.load(x_ptr + sequence + step * CHANNELS + channel, mask=inside, other=0.0)
    weight = tl.load(weight_ptr + tl.arange(0, TAPS)[:, None] * CHANNELS + channel)

    acc = tl.zeros((STEPS, CHANNELS), tl.float32)
    for tap in tl.static_range(TAPS):
        acc += x[tap : tap + STEPS] * weight[tap]

    centred = acc - tl.sum(acc, axis=1, keep_dims=True) / CHANNELS
    variance = tl.sum(centred * centred, axis=1, keep_dims=True) / CHANNELS
    result = centred * tl.rsqrt(variance + epsilon)
    step = (first + tl.arange(0, STEPS))[:, None]
    tl.store(out_ptr + sequence + step * CHANNELS + channel, result, mask=step < steps)


__tilewright_signatures__ = {
    "convolution_kernel": (
        "x_ptr=*fp32:16, weight_ptr=*fp32:16, out_ptr=*fp32:16, steps=i32, epsilon=fp32",
        {"CHANNELS": CHANNELS, "TAPS": TAPS, "STEPS": STEPS},
    ),
}


def convolve(
    x: np.ndarray, weight: np.ndarray, out: np.ndarray, epsilon: float = 1e-5
) -> np.ndarray:
    """Convolve sequences of shape (batch, steps, channels) with `weight` of shape (taps, channels),
    and normalise over the channels.

    All arrays are contiguous fp32; the number of taps is odd.
    """
    batch, steps, channels = x.shape
    convolution_kernel[(tw.cdiv(steps, STEPS), batch)](
        x, weight, out, steps, epsilon, CHANNELS=channels, TAPS=len(weight), STEPS=STEPS
    )
    return out


def numpy_convolve(x: np.ndarray, weight: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
    steps, margin = x.shape[1], len(weight) // 2
    padded = np.pad(x, ((0, 0), (margin, margin), (0, 0)))
    acc = np.zeros_like(x)
    for tap, row in enumerate(weight):
        acc += padded[:, tap : tap + steps] * row
    centred = acc - acc.mean(axis=2, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=2, keepdims=True) + epsilon)


def main() -> None:
    batch, steps = (2, 101) if QUICK else (16, 10_007)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch, steps, CHANNELS), dtype=np.float32)
    weight = rng.standard_normal((TAPS, CHANNELS), dtype=np.float32)
    out = np.empty_like(x)
    exact = numpy_convolve(x.astype(np.float64), weight)
    check(f"{batch} sequences of {steps} steps", convolve(x, weight, out), exact, 1e-5)
    short = x[:1, :2].copy()  # fewer steps than taps
    exact = numpy_convolve(short.astype(np.float64), weight[:5])
    check("two steps, five taps", convolve(short, weight[:5], np.empty_like(short)), exact, 1e-5)
    compare_speed({
        "tilewright": lambda: convolve(x, weight, out),
        "NumPy": lambda: numpy_convolve(x, weight),
    })  # fmt: skip


if __name__ == "__main__":
    main()
