"""Level 5: atomic operations with orders and scopes, and programs that wait for others."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

import tilewright.language as tl
from tilewright.conformance.case import Case, Program
from tilewright.conformance.inputs import integral, zeros
from tilewright.runtime.jit import jit

ORDERS = ("relaxed", "acquire", "release", "acq_rel")
SCOPES = ("gpu", "cta", "sys")


@jit
def histogram(x_ptr, counts_ptr, n, BLOCK: tl.constexpr, SEM: tl.constexpr, SCOPE: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0)
    one = tl.full((BLOCK,), 1, counts_ptr.dtype.element_ty)
    tl.atomic_add(counts_ptr + x, one, mask=i < n, sem=SEM, scope=SCOPE)


@jit
def extremes(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0)
    tl.atomic_max(out_ptr, tl.max(x, 0))
    tl.atomic_min(out_ptr + 1, tl.min(x, 0))


@jit
def last_program(x_ptr, parts_ptr, count_ptr, out_ptr, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    part = tl.sum(tl.load(x_ptr + p * BLOCK + tl.arange(0, BLOCK)), 0)
    tl.store(parts_ptr + p, part)
    tl.debug_barrier()
    if tl.atomic_add(count_ptr, 1, sem="acq_rel") == PROGRAMS - 1:
        parts = tl.load(parts_ptr + tl.arange(0, PROGRAMS), volatile=True)
        tl.store(out_ptr, tl.sum(parts, 0))


@jit
def lock(counter_ptr, lock_ptr, ROUNDS: tl.constexpr):
    for _ in range(ROUNDS):
        while tl.atomic_cas(lock_ptr, 0, 1, sem="acquire") == 1:
            pass
        tl.store(counter_ptr, tl.load(counter_ptr, volatile=True) * 3 % 1000003 + 1)
        tl.debug_barrier()
        tl.atomic_xchg(lock_ptr, 0, sem="release")


@jit
def barrier(x_ptr, scratch_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(scratch_ptr + i, tl.load(x_ptr + i))
    tl.debug_barrier()
    tl.store(out_ptr + i, tl.load(scratch_ptr + (BLOCK - 1 - i)))


def _histogram(type: str, sem: str, scope: str) -> Program:
    x = np.abs(integral("i32", (1000,), bound=7))
    constants = {"BLOCK": 256, "SEM": sem, "SCOPE": scope}
    return Program(histogram, [x, zeros(type, 8), 1000], constants, (4,))


def _extremes(type: str) -> Program:
    return Program(
        extremes, [integral(type, (1000,), bound=100), zeros(type, 2), 1000], {"BLOCK": 256}, (4,)
    )


def _last_program() -> Program:
    args = [integral("i32", (8 * 64,)), zeros("i32", 8), zeros("i32", 1), zeros("i32", 1)]
    return Program(last_program, args, {"PROGRAMS": 8, "BLOCK": 64}, (8,))


def _lock() -> Program:
    return Program(lock, [zeros("i32", 1), zeros("i32", 1)], {"ROUNDS": 3}, (8,))


def _barrier() -> Program:
    args = [integral("i32", (256,), bound=100), zeros("i32", 256), zeros("i32", 256)]
    return Program(barrier, args, {"BLOCK": 256})


def cases() -> Iterator[Case]:
    """The cases of level 5, apart from the uses of single names. Results do not depend on the order
    of the programs."""
    for type in ("i32", "u32", "i64", "u64", "fp16", "bf16", "fp32", "fp64"):
        case = partial(Case, "5", atomics=(type,))
        for sem in ORDERS:
            for scope in SCOPES:
                body = partial(_histogram, type, sem, scope)
                yield case("tl.atomic_add, contended", f"{type}, {sem}, {scope}", body)
        if type not in ("fp16", "bf16"):
            yield case("tl.atomic_max and tl.atomic_min", type, partial(_extremes, type))
    case = partial(Case, "5", "programs that communicate", atomics=("i32",))
    yield case("sum by the last program", _last_program)
    yield case("lock", _lock)
    yield Case("5", "barrier", "i32", _barrier)
