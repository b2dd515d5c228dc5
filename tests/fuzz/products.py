"""Random kernels around loops of products: what pipelines, copying warps and matrix instructions
make of the forms in which people write them.

    program = random_products(7)
    print(program.kernel.src)

All numbers are small integers, so that sums of any order are exact, and results equal bit for bit.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np

from tests.fuzz.programs.check import load
from tests.gpu.programs import Program
from tilewright.ir.types import DType, scalar_type

TYPES = ("fp16", "fp16", "bf16", "fp32", "i8", "fp8e4nv", "fp8e5")
_NAMES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
EPILOGUES = ("plain", "bias", "relu", "residual", "rows", "atomic", "second", "chain")


class Shape(NamedTuple):
    """The extents of the matrices, or of a tile."""

    m: int
    n: int
    k: int


class _Kernel:
    """The choices for a kernel, and its lines."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        chance = self.random
        self.type = chance.choice(TYPES)
        self.sum = "i32" if self.type == "i8" else "fp32"
        self.total = "tl.int32" if self.type == "i8" else "tl.float32"
        eight = self.type not in ("fp16", "bf16", "fp32")
        steps = (32, 64, 128) if eight else (16, 32, 64)
        self.tile = Shape(
            chance.choice((32, 64, 64, 128)), chance.choice((16, 32, 64, 64, 128)),
            chance.choice(steps),
        )  # fmt: skip
        self.orders = chance.choice(("nn", "nn", "nt", "tn", "tt"))
        self.extents = Shape(*(self._extent(block) for block in self.tile))
        self.stored = self._stored(random.Random(seed + 2**32))
        self.persistent = chance.random() < 0.4
        self.epilogue = chance.choice(EPILOGUES)
        self.forms = [self._form(which) for which in range(2)]
        self.wraps = chance.random() < 0.3
        self.lines: list[str] = []

    def _stored(self, chance: random.Random) -> tuple[str, str]:
        """The types in memory of the operands, of which one may be narrower than in products."""
        stored = [self.type, self.type]
        if self.type in ("fp16", "bf16", "fp32") and chance.random() < 0.3:
            stored[chance.randrange(2)] = "i8"
        return stored[0], stored[1]

    def _extent(self, block: int) -> int:
        """A multiple of the block or not, a multiple of 16 or not."""
        blocks = self.random.choice((0, 1, 1, 2, 3, 5))
        rest = self.random.choice((0, 0, 16, 8, 1, block // 2))
        return max(1, min(blocks * block + rest, 320))

    def _form(self, which: int) -> str:
        """Rows of a descriptor's tensor begin at multiples of 16 bytes."""
        across = self.orders[which] == ("n", "t")[which]
        row = self.extents.k if across else self.extents[which]
        whole = row * _dtype(self.stored[which]).nbytes_in_memory % 16 == 0
        return self.random.choice(("pointers", "advance", *(["descriptor"] * 2 if whole else [])))

    def emit(self, depth: int, *lines: str) -> None:
        self.lines += ["    " * (depth + 1) + line for line in lines]

    # -- operands -------------------------------------------------------------------------------

    def prepare(self, depth: int, which: int) -> None:
        """What an operand needs before the loop along K."""
        name, outer = "ab"[which], ("rows", "columns")[which]
        form, bound = self.forms[which], ("M", "N")[which]
        across = self.orders[which] == ("n", "t")[which]  # whether adjacent elements are along K
        block = ("BM", "BN")[which]
        if form == "descriptor":
            shape, strides, tile = f"[{bound}, K]", "[K, 1]", f"[{block}, BK]"
            if not across:
                shape, strides, tile = f"[K, {bound}]", f"[{bound}, 1]", f"[BK, {block}]"
            self.emit(
                depth,
                f"{name}_desc = tl.make_tensor_descriptor({name}_ptr, {shape}, {strides}, {tile})",
            )
            return
        index = f"({outer} % {bound})" if self.wraps else outer
        stride = f"{index} * K + inner" if across else f"inner * {bound} + {index}"
        if form == "advance":
            self.emit(depth, f"{name}_tile = {name}_ptr + {self._spread(which, stride)}")

    def _spread(self, which: int, offset: str) -> str:
        """An offset as a tile of (rows, inner) for A, of (inner, columns) for B."""
        if which == 0:
            return offset.replace("rows", "rows[:, None]").replace("inner", "inner[None, :]")
        return offset.replace("columns", "columns[None, :]").replace("inner", "inner[:, None]")

    def load(self, depth: int, which: int) -> None:
        self._load(depth, which)
        if self.stored[which] != self.type:
            self.emit(depth, f"{'ab'[which]} = {'ab'[which]}.to(tl.{_NAMES[self.type]})")

    def _load(self, depth: int, which: int) -> None:
        name, outer = "ab"[which], ("rows", "columns")[which]
        form, bound = self.forms[which], ("M", "N")[which]
        begin = ("i * BM", "j * BN")[which]
        across = self.orders[which] == ("n", "t")[which]
        if form == "descriptor":
            place = f"[{begin}, k]" if across else f"[k, {begin}]"
            turned = (which == 0) != across
            self.emit(depth, f"{name} = {name}_desc.load({place}){'.T' if turned else ''}")
            return
        mask = "inner < K - k" if self.wraps else f"(inner < K - k) & ({outer} < {bound})"
        mask = self._spread(which, mask)
        if form == "advance":
            self.emit(depth, f"{name} = tl.load({name}_tile, mask={mask}, other=0)")
            return
        index = f"({outer} % {bound})" if self.wraps else outer
        offset = f"{index} * K + (k + inner)" if across else f"(k + inner) * {bound} + {index}"
        self.emit(
            depth,
            f"{name} = tl.load({name}_ptr + {self._spread(which, offset)}, mask={mask}, other=0)",
        )

    def advance(self, depth: int, which: int) -> None:
        if self.forms[which] == "advance":
            across = self.orders[which] == ("n", "t")[which]
            by = "BK" if across else f"BK * {('M', 'N')[which]}"
            self.emit(depth, f"{'ab'[which]}_tile += {by}")

    # -- the kernel -----------------------------------------------------------------------------

    def text(self) -> str:
        self.emit(0, "tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)")
        depth = 0
        if self.persistent:
            self.emit(
                0, "for tile in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):"
            )
            depth = 1
        else:
            self.emit(0, "tile = tl.program_id(0)")
        if self.random.random() < 0.5:
            self.emit(depth, "i, j = tile // tiles_n, tile % tiles_n")
        else:
            self.emit(depth, "i, j = tile % tiles_m, tile // tiles_m")
        self.emit(
            depth,
            "rows, columns = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)",
            "inner = tl.arange(0, BK)",
            f"acc = tl.zeros((BM, BN), {self.total})",
        )
        if self.epilogue == "rows":
            self.emit(depth, f"more = tl.zeros((BM,), {self.total})")
        for which in range(2):
            self.prepare(depth, which)
        self.loop(depth)
        self.store(depth)
        body = "\n".join(self.lines)
        return (
            "import tilewright as tw\nimport tilewright.language as tl\n\n\n@tw.jit\n"
            "def kernel(\n    a_ptr, b_ptr, c_ptr, d_ptr, M, N, K,\n"
            f"    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,\n):\n{body}\n"
        )

    def loop(self, depth: int) -> None:
        chance = self.random
        stages = chance.choice(("", "", f", num_stages={chance.randint(1, 5)}"))
        self.emit(depth, f"for k in tl.range(0, K, BK{stages}):")
        inside = depth + 1
        self.load(inside, 0)
        if not self.type.startswith("fp8") and chance.random() < 0.25:
            computed = "tl.maximum(a, 0)", "-a", "tl.where(a > 1, a, 0)"
            self.emit(inside, f"a = ({chance.choice(computed)}).to(a.dtype)")
        self.load(inside, 1)
        kind = chance.randrange(4)
        product = f"out_dtype={self.total}"
        if kind == 0:
            self.emit(inside, f"acc += tl.dot(a, b, {product})")
        elif kind == 1:
            self.emit(inside, f"acc = -tl.dot(a, b, acc, {product})")
        else:
            self.emit(inside, f"acc = tl.dot(a, b, acc, {product})")
        if self.epilogue == "rows":
            self.emit(inside, f"more += tl.sum(a.to({self.total}), 1)")
        for which in range(2):
            self.advance(inside, which)

    def store(self, depth: int) -> None:
        place = "rows[:, None] * N + columns[None, :]"
        mask = "(rows < M)[:, None] & (columns < N)[None, :]"
        kind = self.epilogue
        if kind == "bias":
            self.emit(depth, "acc += tl.load(d_ptr + columns, mask=columns < N, other=0)[None, :]")
        elif kind == "relu":
            self.emit(depth, "acc = tl.maximum(acc, 0)")
        elif kind == "residual":
            self.emit(depth, f"acc += tl.load(d_ptr + {place}, mask={mask}, other=0)")
        elif kind == "rows":
            self.emit(
                depth, "tl.store(d_ptr + tile * BM + tl.arange(0, BM), more + tl.max(acc, 1))"
            )
        elif kind == "atomic":
            self.emit(depth, f"tl.atomic_add(d_ptr + {place}, acc, mask={mask})")
        elif kind == "second":
            self.emit(depth, f"tl.store(d_ptr + {place}, -acc, mask={mask})")
        elif kind == "chain" and self.type in ("fp16", "fp32"):
            type = "tl.float16" if self.type == "fp16" else "tl.float32"
            self.emit(
                depth,
                f"signs = tl.where(acc > 2, 2, 1).to({type})",
                f"acc += tl.dot(signs, tl.full((BN, BN), 2, {type}))",
            )
        if self.random.random() < 0.4 and self.extents.n % 16 == 0:
            self.emit(depth, "out = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN])",
                      "out.store([i * BM, j * BN], acc.to(c_ptr.dtype.element_ty))")  # fmt: skip
        else:
            self.emit(
                depth, f"tl.store(c_ptr + {place}, acc.to(c_ptr.dtype.element_ty), mask={mask})"
            )


def random_products(seed: int) -> Program:
    """The program of a seed, for any target."""
    made = _Kernel(seed)
    m, n, k = made.extents
    tiles = -(-m // made.tile.m) * -(-n // made.tile.n)
    rng = np.random.default_rng(seed)
    element, total = _dtype(made.type), _dtype(made.sum)
    sizes = zip((m * k, k * n), map(_dtype, made.stored), strict=True)
    arrays = [_numbers(rng, size, stored) for size, stored in sizes]
    out = total if made.random.random() < 0.5 or made.type.startswith("fp8") else element
    space = max(m * n, tiles * made.tile.m, n)
    arrays += [_numbers(rng, m * n, out), _numbers(rng, space, total)]
    grid = (made.random.randint(1, min(tiles, 4)),) if made.persistent else (tiles,)
    constants = {"BM": made.tile.m, "BN": made.tile.n, "BK": made.tile.k}
    return Program(load(made.text()).kernel, [*arrays, m, n, k], constants, grid)


def random_options(seed: int) -> dict[str, Any]:
    """Options to compile the program of a seed with."""
    chance = random.Random(~seed)
    return {
        "num_warps": chance.choice((2, 4, 4, 8)),
        "num_stages": chance.randint(1, 5),
        "tensor_copies": chance.random() < 0.8,
        "random_delays": chance.choice((0, 0, 0, 1 + seed)),
    }


def _dtype(name: str) -> DType:
    found = scalar_type(name)
    assert isinstance(found, DType)
    return found


def _numbers(rng: np.random.Generator, size: int, dtype: DType) -> np.ndarray:
    return rng.integers(-2, 3, size).astype(dtype.numpy)
