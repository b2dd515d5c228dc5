"""Measures a jitted JAX function that calls a small kernel against a jitted `jnp.add`, on the CPU.

python -m benchmarks.jax_call                 1,024 elements, the fastest of 200 interleaved rounds
python -m benchmarks.jax_call --size 16 --rounds 50

Both add the same two arrays, and each call is awaited. The difference is the cost of a kernel's
call from XLA over that of XLA's own code.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import tilewright as tw
import tilewright.language as tl
from tilewright.jax import call

CALLS = 200
"""Calls of one function in a row."""


@tw.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


@jax.jit
def add(x: Any, y: Any) -> Any:
    """The sum of two arrays, by the kernel, in one program."""
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return call(add_kernel, x, y, n=x.size, BLOCK=x.size, grid=(1,), out_shape=shape)


def _seconds(function: Callable[..., Any], *args: Any) -> float:
    """Seconds of a call."""
    start = time.perf_counter()
    for _ in range(CALLS):
        function(*args).block_until_ready()
    return (time.perf_counter() - start) / CALLS


def measure(size: int, rounds: int) -> tuple[float, float]:
    """Microseconds of a call with the kernel, and of one of `jnp.add`: of the fastest rounds.

    Args:
        size: the number of elements, a power of two.
        rounds: how often both are measured, one after the other.
    """
    x = jnp.arange(size, dtype=jnp.float32)
    functions = (add, jax.jit(jnp.add))
    for function in functions:
        function(x, x).block_until_ready()
    times = [[_seconds(function, x, x) for function in functions] for _ in range(rounds)]
    ours, theirs = (1e6 * min(column) for column in zip(*times, strict=True))
    return ours, theirs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=200)
    args = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    ours, theirs = measure(args.size, args.rounds)
    print(f"kernel {ours:.2f} us, jnp.add {theirs:.2f} us, difference {ours - theirs:+.2f} us")


if __name__ == "__main__":
    main()
