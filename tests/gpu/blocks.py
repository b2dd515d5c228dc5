"""Programs with block pointers, tensor descriptors and atomics, for the GPU tests."""

from __future__ import annotations

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tests.frontend.kernels import kernel_from
from tests.gpu.programs import At, Program
from tests.gpu.recipes import TYPES, integral, rng_of, specials


@tw.jit
def pointer_copy_kernel(
    x_ptr, out_ptr, rows, columns, x_row, x_column, shift,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PADDING: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    x = tl.make_block_ptr(
        x_ptr, (rows, columns), (x_row, x_column), (row - shift, column + shift),
        (ROWS, COLUMNS), (1, 0),
    )  # fmt: skip
    out = tl.make_block_ptr(
        out_ptr, (rows, columns), (columns, 1), (row, column), (ROWS, COLUMNS), (1, 0)
    )
    tile = tl.load(x, boundary_check=(0, 1), padding_option=PADDING)
    tl.store(out, tile, boundary_check=(0, 1))


def pointer_copy(type: str, size: tuple[int, int], order: str, shift: int) -> Program:
    """A matrix copied by block pointers, some rows down and columns to the left."""
    rows, columns = size
    x = specials(type, (rows * columns,), rng_of(type, size))
    strides = (columns, 1) if order == "r" else (1, rows)
    padding = "nan" if TYPES[type].is_floating() else "zero"
    args = [x, np.zeros_like(x), rows, columns, *strides, shift]
    constants = {"ROWS": 16, "COLUMNS": 32, "PADDING": padding}
    return Program(pointer_copy_kernel, args, constants, (tw.cdiv(rows, 16), tw.cdiv(columns, 32)))


@tw.jit
def pointer_product_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    a = tl.make_block_ptr(a_ptr, (M, K), (K, 1), (row, 0), (BM, BK), (1, 0))
    b = tl.make_block_ptr(b_ptr, (K, N), (N, 1), (0, column), (BK, BN), (1, 0))
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        x = tl.load(a, boundary_check=(0, 1), padding_option="zero")
        y = tl.load(b, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(x, y, acc)
        a = tl.advance(a, (0, BK))
        b = tl.advance(b, (BK, 0))
    c = tl.make_block_ptr(c_ptr, (M, N), (N, 1), (row, column), (BM, BN), (1, 0))
    tl.store(c, acc, boundary_check=(0, 1))


@tw.jit
def descriptor_product_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, [K, N], [N, 1], [BK, BN])
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([row, k]), b.load([k, column]), acc)
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN])
    c.store([row, column], acc)


def product(kernel: str, type: str, shape: tuple[int, int, int], step: int) -> Program:
    """A product of small whole numbers, which is exact."""
    m, n, k = shape
    rng = rng_of(type, shape)
    a, b = integral(type, (m, k), rng), integral(type, (k, n), rng)
    args = [a.reshape(-1), b.reshape(-1), np.zeros(m * n, np.float32), m, n, k]
    made = {"pointers": pointer_product_kernel, "descriptors": descriptor_product_kernel}[kernel]
    grid = tw.cdiv(m, 64), tw.cdiv(n, 64)
    return Program(made, args, {"BM": 64, "BN": 64, "BK": step}, grid)


@tw.jit
def rows_kernel(x_ptr, y_ptr, rows_ptr, sums_ptr, M, N, column, COLUMNS: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [1, COLUMNS])
    y = tl.make_tensor_descriptor(y_ptr, [M, N], [N, 1], [1, COLUMNS])
    sums = tl.make_tensor_descriptor(sums_ptr, [M, N], [N, 1], [16, COLUMNS])
    rows = tl.load(rows_ptr + tl.arange(0, 16))
    tile = x.gather(rows, column)
    y.scatter(tile, rows, column + 3)
    sums.atomic_add([-2, column], tile)


def rows(type: str, column: int) -> Program:
    """Rows gathered, scattered and added by descriptors."""
    rng = rng_of(type, column)
    x, sums = (integral(type, (20 * 64,), rng) for _ in range(2))
    chosen = np.array([3, 19, -1, 20, 0, 5, -(2**31), 2**31 - 1, 7, 8, 9, 10, 12, 1, 2, 18])
    args = [x, np.zeros_like(x), chosen.astype(np.int32), sums, 20, 64, column]
    return Program(rows_kernel, args, {"COLUMNS": 32})


ATOMIC = """
def kernel(x, values, old, n):
    i = tl.program_id(0) * 256 + tl.arange(0, 256)
    v = tl.load(values + i)
    tl.store(old + i, tl.atomic_{kind}(x + i, v, mask=i < n, sem="{sem}", scope="{scope}"))
    tl.atomic_{kind}(x + i, v, mask=i >= n)
"""


def atomic(kind: str, type: str, sem: str, scope: str) -> Program:
    """An operation with its result and without; each element has its own place."""
    rng = rng_of(kind, type)
    exact = TYPES[type].is_floating() and kind != "xchg"
    make = integral if exact else specials
    x, values, old = (make(type, (512,), rng) for _ in range(3))
    kernel = kernel_from(ATOMIC.format(kind=kind, sem=sem, scope=scope))
    return Program(kernel, [x, values, old, 300], grid=(2,))


CONTENDED = """
def kernel(x, values, n):
    i = tl.program_id(0) * 256 + tl.arange(0, 256)
    v = tl.load(values + i)
    tl.atomic_{kind}(x + i % 3, v, mask=i < n)
    tl.atomic_{kind}(x + 3, tl.load(values + tl.program_id(0)))
"""


def contended(kind: str, type: str) -> Program:
    """Many threads and programs at the same few addresses; the order does not matter."""
    rng = rng_of(kind, type)
    kernel = kernel_from(CONTENDED.format(kind=kind))
    low = 0 if type.startswith("u") else -1  # sums that fp16 and bf16 hold
    x, values = (rng.integers(low, 2, n).astype(TYPES[type].numpy) for n in (4, 4096))
    return Program(kernel, [x, values, 4000], grid=(16,))


COPY = """
def kernel(x, y, n):
    i = tl.program_id(0) * 256 + tl.arange(0, 256)
    v = tl.atomic_load(x + i, mask=i < n, sem="{load}", scope="{scope}")
    tl.atomic_store(y + i, v, mask=i != 7, sem="{store}", scope="{scope}")
"""


def atomic_copy(type: str, load: str, store: str, scope: str) -> Program:
    """Loads and stores, each of one element."""
    rng = rng_of(type, load)
    kernel = kernel_from(COPY.format(load=load, store=store, scope=scope))
    x, y = (specials(type, (512,), rng) for _ in range(2))
    return Program(kernel, [x, y, 300], grid=(2,))


@tw.jit
def relay_kernel(data_ptr, flags_ptr, gave_up_ptr, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    index = tl.arange(0, BLOCK)
    if program > 0:
        tl.atomic_poll(flags_ptr + program - 1, 1)
    x = tl.load(data_ptr + program * BLOCK + index)
    tl.store(data_ptr + (program + 1) * BLOCK + index, x + 1)
    tl.atomic_store(flags_ptr + program, 1)
    tl.store(gave_up_ptr + program, tl.atomic_poll(flags_ptr + program, 2, timeout_ns=1000))


def relay(programs: int) -> Program:
    """Each program waits for the one before it, and reads what that has written."""
    data = np.zeros((programs + 1) * 512, np.int32)
    flags, gave_up = np.zeros(programs, np.int32), np.ones(programs, np.int8)
    return Program(relay_kernel, [data, flags, gave_up], {"BLOCK": 512}, (programs,))


ADVICE = """
def kernel(x, y, n):
    i = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    v = tl.load(x + i, mask=i < n, cache_modifier="{load}", eviction_policy="{evict}",
                volatile={volatile})
    tl.store(y + i, v, mask=i < n, cache_modifier="{store}", eviction_policy="{evict}")
    w = tl.load(x + i, cache_modifier="{load}", eviction_policy="{evict}", volatile={volatile})
    tl.store(y + 2048 + i, w, cache_modifier="{store}", eviction_policy="{evict}")
"""


def advice(type: str, load: str, store: str, evict: str, volatile: bool) -> Program:
    """Advice on caching changes nothing of what is read and written."""
    text = ADVICE.format(load=load, store=store, evict=evict, volatile=volatile)
    x = specials(type, (2048,), rng_of(type))
    y = np.zeros(4096, x.dtype)
    return Program(kernel_from(text), [At(x), At(y), 1500], grid=(2,))
