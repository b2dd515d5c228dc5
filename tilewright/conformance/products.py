"""Level 3: matrix products."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

import tilewright.language as tl
from tilewright.conformance.case import Case, Program
from tilewright.conformance.inputs import FP8, integral, zeros
from tilewright.runtime.jit import cdiv, jit

OPERANDS = ("i8", *FP8, "fp16", "bf16", "fp32", "fp64")
BLOCKS = ((16, 16, 32), (32, 16, 64), (64, 64, 32), (16, 128, 32))


@jit
def product(
    a_ptr, b_ptr, c_ptr, m, n, k, a_row, a_column, b_row, b_column,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.program_id(1) * N + tl.arange(0, N)
    acc = tl.zeros((M, N), ACC)
    for start in range(0, k, K):
        c = start + tl.arange(0, K)
        a = tl.load(
            a_ptr + i[:, None] * a_row + c[None, :] * a_column,
            mask=(i[:, None] < m) & (c[None, :] < k), other=0,
        )  # fmt: skip
        b = tl.load(
            b_ptr + c[:, None] * b_row + j[None, :] * b_column,
            mask=(c[:, None] < k) & (j[None, :] < n), other=0,
        )  # fmt: skip
        acc = tl.dot(a, b, acc, out_dtype=ACC, input_precision="ieee")
    tl.store(c_ptr + i[:, None] * n + j[None, :], acc, mask=(i[:, None] < m) & (j[None, :] < n))


@jit
def chained(a_ptr, b_ptr, c_ptr, out_ptr, S: tl.constexpr, T: tl.constexpr):
    i = tl.arange(0, S)
    place = i[:, None] * S + i[None, :]
    a, b, c = tl.load(a_ptr + place), tl.load(b_ptr + place), tl.load(c_ptr + place)
    first = tl.dot(a, b, input_precision="ieee").to(T)
    tl.store(out_ptr + place, tl.dot(first, tl.trans(c), input_precision="ieee"))


@jit
def batched(a_ptr, b_ptr, c_ptr, B: tl.constexpr, S: tl.constexpr):
    i = tl.arange(0, S)
    place = tl.arange(0, B)[:, None, None] * S * S + i[None, :, None] * S + i[None, None, :]
    a, b = tl.load(a_ptr + place), tl.load(b_ptr + place)
    tl.store(c_ptr + place, tl.dot(a, b, input_precision="ieee"))


def _result(type: str) -> str:
    return "i32" if type == "i8" else "fp64" if type == "fp64" else "fp32"


def _element(type: str) -> object:
    return {"i32": tl.int32, "fp64": tl.float64, "fp32": tl.float32, "fp16": tl.float16,
            "bf16": tl.bfloat16}[type]  # fmt: skip


def _product(
    type: str, shape: tuple[int, int, int], block: tuple[int, int, int], order: str
) -> Program:
    m, n, k = shape
    a, b = integral(type, (m, k), "a", 1), integral(type, (k, n), "b", 1)
    strides_a = (k, 1) if order[0] == "N" else (1, m)
    strides_b = (n, 1) if order[1] == "N" else (1, k)
    out = _result(type)
    args = [a, b, zeros(out, m, n), m, n, k, *strides_a, *strides_b]
    constants = dict(zip("MNK", block, strict=True)) | {"ACC": _element(out)}
    expected = _by_numpy if order == "NN" and type in ("i8", "fp32", "fp64") else None
    grid = cdiv(m, block[0]), cdiv(n, block[1])
    return Program(product, args, constants, grid, expected=expected)


def _by_numpy(args: Sequence[Any]) -> Sequence[Any]:
    a, b, c = args[:3]
    return [a, b, (a.astype(np.float64) @ b.astype(np.float64)).astype(c.dtype)]


def _chained(type: str) -> Program:
    args = [integral(type, (32, 32), seed, 1) for seed in "abc"]
    constants = {"S": 32, "T": _element(type)}
    return Program(chained, [*args, zeros("fp32", 32, 32)], constants)


def _batched(type: str) -> Program:
    side = 16 if type == "fp64" else 32  # operands and result fit into 64 KiB
    args = [integral(type, (3, side, side), seed, 1) for seed in "ab"]
    return Program(batched, [*args, zeros(_result(type), 3, side, side)], {"B": 3, "S": side})


def cases() -> Iterator[Case]:
    """The cases of level 3. Operands are small whole numbers, so that results are exact."""
    for type in OPERANDS:
        case = partial(Case, "3", products=(type,))
        wide = type not in ("i8", *FP8)  # matrix units take 32 elements of 8 bits along K
        for block in (*BLOCKS, (16, 16, 16)) if wide else BLOCKS:
            size = "x".join(map(str, block))
            yield case("tl.dot", f"{type}, {size}", partial(_product, type, block, block, "NN"))
        for order in ("NN", "NT", "TN", "TT"):
            body = partial(_product, type, (40, 50, 70), (32, 32, 32), order)
            yield case("tl.dot in a loop, with masks", f"{type}, {order}", body)
        if type in ("fp16", "bf16", "fp32"):
            yield case("chained products", type, partial(_chained, type))
        if type not in FP8:
            yield case("batched product", type, partial(_batched, type))
