"""Kernels that use aggregates, loops that are left, and tiles that are cut: undecorated."""

import tilewright
import tilewright.language as tl


@tilewright.aggregate
class Stream:
    """A place in an array, and what has been added up so far."""

    pointer: tl.tensor
    total: tl.tensor
    size: tl.constexpr

    @tilewright.jit
    def step(self):
        values = tl.load(self.pointer + tl.arange(0, self.size))
        return Stream(self.pointer + self.size, self.total + values, self.size)

    @tilewright.jit
    def __add__(self, other):
        return tl.aggregate_replace(self, total=self.total + other.total)


def streams(out, x, y, n, size: tl.constexpr):
    zero = tl.zeros((size,), tl.float32)
    a = Stream(x, zero, size)
    b = Stream(y, zero, size)
    for _ in range(n):
        a = a.step()
        if n > 2:
            b = b.step()
    tl.store(out + tl.arange(0, size), (a + b).total)


def first_above(out, x, rows, limit, N: tl.constexpr):
    row = tl.program_id(0)
    found = -1
    total = tl.zeros((N,), tl.float32)
    for i in range(rows):
        values = tl.load(x + (row * rows + i) * N + tl.arange(0, N))
        largest = tl.max(values, 0)
        if largest < 0:
            continue
        total += values
        if largest > limit:
            found = i
            break
    for part in (0, 1):
        if found < 0:
            break
        tl.store(out + (row * 2 + part) * N + tl.arange(0, N), total + part)


def cut(out, x, i, N: tl.constexpr):
    place = tl.arange(0, N)
    tile = tl.load(x + place[:, None] * N + place[None, :])
    pointers = out + place
    half = tl.arange(0, N // 2)
    tl.store(pointers, tile[i])
    tl.store(pointers + N, tile[:, -2])
    tl.store(out + 2 * N + half, tile[3, ::2])
    tl.store(out + 2 * N + N // 2 + half, tile[N // 2 :, i])
    tl.store(out + 3 * N, tile[i, 1] + tile[0, i])
    tl.store(pointers[1:2] + 3 * N, tile[::-1, 2][0:1])
    tl.store(pointers[i] + 4 * N, i)


def annotated(out, stride, n, scale, wide):
    tl.static_assert(stride.dtype == tl.int64)
    tl.static_assert(n.dtype == tl.int32 or n.dtype == tl.int64)
    tl.static_assert(scale.dtype == tl.float32)
    tl.store(out, (1 << 30) * stride * 4 + n)
    tl.store(out + 1, (tl.exp(scale) * wide).to(tl.int64))


annotated.__annotations__ = {"stride": tl.int64, "n": int, "scale": float, "wide": "tl.int64"}
