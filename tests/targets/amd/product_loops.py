"""Instructions in the loops of products, by tilewright and by Triton from the same TTIR.

    TILEWRIGHT_TRITON_PYTHON=… python -m tests.targets.amd.product_loops

prints both; the tests compare with what is recorded here. Results have 128 x 128 elements; rows of
operands have 64 bytes a step, with four waves, or 128, with eight, and are known to be aligned.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import tilewright as tw
import tilewright.language as tl
from tests.plug_in_metadata import on_module_path, write_metadata
from tests.targets.amd.sources import ALIGNED, WAVE_32, WAVE_64
from tilewright.compiler.driver import compile
from tilewright.compiler.source import ASTSource
from tilewright.ir.types import dtype_of, scalar_type
from tilewright.targets.amd.features import processor
from tilewright.targets.protocol import GPUTarget

ROWS = "a_row", "b_row", "c_row"
RANGE = [["tt.pointer_range", 32]]
PLUG_IN = Path(__file__).parents[3] / "plugins" / "triton"


@tw.jit
def product(
    a, b, c, K, a_row, b_row, c_row, BK: tl.constexpr, ALONG_K: tl.constexpr, MASKED: tl.constexpr
):  # fmt: skip
    m = tl.program_id(0) * 128 + tl.arange(0, 128)[:, None]
    n = tl.program_id(1) * 128 + tl.arange(0, 128)[None, :]
    k = tl.arange(0, BK)
    a += m * a_row + k[None, :]
    b += n * b_row + k[:, None] if ALONG_K else k[:, None] * b_row + n
    acc = tl.zeros((128, 128), tl.int32 if a.dtype.element_ty == tl.int8 else tl.float32)
    for start in range(0, K, BK):
        if MASKED:
            x = tl.load(a, mask=k[None, :] < K - start, other=0.0)
            y = tl.load(b, mask=k[:, None] < K - start, other=0.0)
        else:
            x, y = tl.load(a), tl.load(b)
        acc = tl.dot(x, y, acc, out_dtype=acc.dtype)
        a += BK
        b += BK if ALONG_K else BK * b_row
    tl.store(c + m * c_row + n, acc.to(tl.float16))


class Loop(NamedTuple):
    """A product.

    Attributes:
        k: the columns of a step.
        along_k: whether the right operand is contiguous along K.
        masked: whether loads are masked along K.
        range: whether arguments have a pointer range.
        type: of the operands.
    """

    k: int
    along_k: bool
    masked: bool
    range: bool
    type: str = "fp16"

    def __str__(self) -> str:
        words = [self.type, "K" if self.along_k else "N"]
        words += ["masked" * self.masked, "range" * self.range]
        return " ".join([f"128x128x{self.k}", *filter(None, words)])


LOOPS = [
    Loop(k, along_k, masked, range)
    for masked, range in ((False, True), (True, True), (True, False))
    for along_k in (True, False)
    for k in (32, 64)
]
NARROW_LOOPS = {
    WAVE_64: [Loop(k, along_k, False, True, type) for type in ("i8", "fp8e4b8")
              for along_k in (True, False) for k in (64, 128)],
    WAVE_32: [Loop(k, along_k, False, True, "i8") for along_k in (True, False) for k in (64, 128)],
}  # fmt: skip
_BYTES_64 = 57, 57, 120, 129, 57, 57, 120, 129
_BYTES_32 = 161, 189, 1099, 997
_COUNTS = {
    WAVE_64: (56, 58, 65, 78, 64, 69, 72, 86, 85, 87, 97, 104, *_BYTES_64),
    WAVE_32: (123, 141, 264, 305, 131, 151, 286, 318, 213, 288, 437, 817, *_BYTES_32),
}
RECORDED = {
    arch: dict(zip([*LOOPS, *NARROW_LOOPS[arch]], counts, strict=True))
    for arch, counts in _COUNTS.items()
}
"""The instructions of each loop by Triton 3.6, from the TTIR that the plug-in writes; by
Triton 3.7.1 where it has fewer."""


def instructions(loop: Loop, target: GPUTarget) -> int:
    """The instructions from the first one of a loop to its last branch back."""
    types = {**dict.fromkeys("ab", f"*{loop.type}"), "c": "*fp16"}
    types |= dict.fromkeys(("K", *ROWS), "i32")
    constants = {"BK": loop.k, "ALONG_K": loop.along_k, "MASKED": loop.masked}
    attrs = {(i,): [*ALIGNED, *(RANGE if loop.range and i < 3 else [])] for i in range(7)}
    source = ASTSource(product, types, constants, attrs)
    row_bytes = loop.k * dtype_of(scalar_type(loop.type)).nbytes_in_memory
    return _longest_loop(source, target, row_bytes // 16)


@tw.jit
def attention(
    q, k, v, out, keys, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr
):  # fmt: skip
    m, n, d = tl.arange(0, M)[:, None], tl.arange(0, N), tl.arange(0, D)
    query = tl.load(q + m * D + d[None, :])
    k += n[None, :] * D + d[:, None]
    v += n[:, None] * D + d[None, :]
    acc = tl.zeros((M, D), tl.float32)
    most, total = tl.full((M,), float("-inf"), tl.float32), tl.zeros((M,), tl.float32)
    for _ in range(0, keys, N):
        score = tl.dot(query, tl.load(k)) * scale
        before, most = most, tl.maximum(most, tl.max(score, 1))
        weight, shrink = tl.exp2(score - most[:, None]), tl.exp2(before - most)
        total = total * shrink + tl.sum(weight, 1)
        acc = tl.dot(weight.to(tl.float16), tl.load(v), acc * shrink[:, None])
        k += N * D
        v += N * D
    tl.store(out + m * D + d[None, :], acc / total[:, None])


class Chain(NamedTuple):
    """Attention: the left operand of the second product of a loop comes from the first."""

    rows: int
    depth: int
    warps: int

    def __str__(self) -> str:
        return f"{self.rows}x64x{self.depth}, {self.warps} waves"


CHAINS = [
    Chain(128, 64, 4),
    Chain(128, 128, 4),
    Chain(128, 64, 8),
    Chain(128, 128, 8),
    Chain(64, 64, 4),
]
_COUNTS_OF_CHAINS = {WAVE_64: (411, 580, 404, 440, 437), WAVE_32: (1184, 1891, 773, 1235, 783)}
RECORDED_CHAINS = {
    arch: dict(zip(CHAINS, counts, strict=True)) for arch, counts in _COUNTS_OF_CHAINS.items()
}
"""The instructions of their loops by Triton 3.6, from the TTIR that the plug-in writes."""


def instructions_of_chain(chain: Chain, target: GPUTarget) -> int:
    """The instructions from the first one of the loop to its last branch back."""
    types = {
        **dict.fromkeys(("q", "k", "v"), "*fp16"),
        "out": "*fp32",
        "keys": "i32",
        "scale": "fp32",
    }
    constants = {"M": chain.rows, "N": 64, "D": chain.depth}
    attrs = {(i,): [*ALIGNED, *(RANGE if i < 4 else [])] for i in range(5)}
    return _longest_loop(ASTSource(attention, types, constants, attrs), target, chain.warps)


def _longest_loop(source: ASTSource, target: GPUTarget, warps: int) -> int:
    options = {"num_warps": warps, "num_stages": 2}
    return max(loops_of(str(compile(source, target, options).asm["amdgcn"])), default=0)


def loops_of(assembly: str) -> Iterator[int]:
    """The lengths of the loops: an instruction that branches to a label above ends one."""
    labels: dict[str, int] = {}
    count = 0
    for line in assembly.splitlines():
        text = line.partition(";")[0].strip()
        if label := re.fullmatch(r"(\.LBB\w+):", text):
            labels[label[1]] = count
        elif text and not text.startswith((".", "//")) and not text.endswith(":"):
            count += 1
            branch = re.match(r"s_c?branch\w*\s+(\S+)", text)
            if branch and branch[1] in labels:
                yield count - labels[branch[1]]
        if line.startswith(".Lfunc_end"):
            return


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_metadata(PLUG_IN, Path(folder))
        with on_module_path(Path(folder)):
            for arch in (WAVE_64, WAVE_32):
                lanes = processor(arch).lanes
                ours = GPUTarget("hip", arch, lanes)
                theirs = GPUTarget("triton", f"hip/{arch}", lanes)
                print(arch)
                for loop in RECORDED[arch]:
                    _show(loop, instructions(loop, ours), instructions(loop, theirs))
                for chain in RECORDED_CHAINS[arch]:
                    counts = [instructions_of_chain(chain, target) for target in (ours, theirs)]
                    _show(chain, *counts)


def _show(loop: Loop | Chain, ours: int, theirs: int) -> None:
    print(f"{loop!s:45} {ours:4} {theirs:4} {ours / theirs:6.2f}")


if __name__ == "__main__":
    main()
