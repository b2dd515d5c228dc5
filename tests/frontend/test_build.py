"""Modules that the front end builds: names, attributes, locations, well-known kernels."""

import inspect
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.kernels import build, jit, kernel_from, launch
from tilewright.base import knobs
from tilewright.frontend.build import build_module
from tilewright.frontend.options import FrontendOptions
from tilewright.frontend.source import SourceFunction
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.ir.types import FP32, I32, Pointer


@jit
def softmax(out, x, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + i, mask=i < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * stride + i, powers / tl.sum(powers, axis=0), mask=i < columns)


@jit
def leaky(x):
    return tl.where(x >= 0, x, 0.5 * x)


@jit
def matmul(
    a, b, c, M, N, K, am, ak, bk, bn, cm, cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, ACT: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    rows = tl.cdiv(M, BM)
    columns = tl.cdiv(N, BN)
    in_group = GROUP * columns
    first = (pid // in_group) * GROUP
    size = min(rows - first, GROUP)
    pm = first + (pid % in_group) % size
    pn = (pid % in_group) // size
    om = (pm * BM + tl.arange(0, BM)) % M
    on = (pn * BN + tl.arange(0, BN)) % N
    ok = tl.arange(0, BK)
    a_ptrs = a + (om[:, None] * am + ok[None, :] * ak)
    b_ptrs = b + (ok[:, None] * bk + on[None, :] * bn)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        x = tl.load(a_ptrs, mask=ok[None, :] < K - k * BK, other=0.0)
        y = tl.load(b_ptrs, mask=ok[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(x, y, acc)
        a_ptrs += BK * ak
        b_ptrs += BK * bk
    if ACT == "leaky":
        acc = leaky(acc)
    om = pm * BM + tl.arange(0, BM)
    on = pn * BN + tl.arange(0, BN)
    mask = (om[:, None] < M) & (on[None, :] < N)
    tl.store(c + cm * om[:, None] + cn * on[None, :], acc.to(tl.float16), mask=mask)


@jit
def layer_norm(x, y, w, b, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x += row * N
    y += row * N
    mean = 0
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for offset in range(0, N, BLOCK):
        i = offset + tl.arange(0, BLOCK)
        total += tl.load(x + i, mask=i < N, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / N
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for offset in range(0, N, BLOCK):
        i = offset + tl.arange(0, BLOCK)
        v = tl.load(x + i, mask=i < N, other=0.0).to(tl.float32)
        v = tl.where(i < N, v - mean, 0.0)
        total += v * v
    rstd = 1 / tl.sqrt(tl.sum(total, axis=0) / N + eps)
    for offset in range(0, N, BLOCK):
        i = offset + tl.arange(0, BLOCK)
        mask = i < N
        v = (tl.load(x + i, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
        tl.store(y + i, v * tl.load(w + i, mask=mask) + tl.load(b + i, mask=mask), mask=mask)


@jit
def attend(
    acc, total, top, q, k_ptrs, v_ptrs, stride, first, scale, rows,
    BM: tl.constexpr, BN: tl.constexpr, DIAGONAL: tl.constexpr,
):  # fmt: skip
    """The part of attention before the diagonal, or that on it."""
    if DIAGONAL:
        low, high = first * BM, (first + 1) * BM
        low = tl.multiple_of(low, BM)
    else:
        low, high = 0, first * BM
    columns = tl.arange(0, BN)
    k_ptrs += low * stride
    v_ptrs += low * stride
    for start in range(low, high, BN):
        scores = tl.dot(q, tl.load(k_ptrs)) * scale
        if DIAGONAL:
            scores += tl.where(rows[:, None] >= start + columns[None, :], 0, -1.0e6)
        higher = tl.maximum(top, tl.max(scores, 1))
        powers = tl.math.exp2(scores - higher[:, None])
        alpha = tl.math.exp2(top - higher)
        total = total * alpha + tl.sum(powers, 1)
        acc = tl.dot(powers.to(q.dtype), tl.load(v_ptrs), acc * alpha[:, None])
        top = higher
        k_ptrs += BN * stride
        v_ptrs += BN * stride
    return acc, total, top


@jit
def attention(
    out, q, k, v, scale, head, stride,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0)
    offset = tl.program_id(1).to(tl.int64) * head
    rows = first * BM + tl.arange(0, BM)
    columns, depth = tl.arange(0, BN), tl.arange(0, D)
    k_ptrs = k + offset + columns[None, :] * stride + depth[:, None]
    v_ptrs = v + offset + columns[:, None] * stride + depth[None, :]
    tile = offset + rows[:, None] * stride + depth[None, :]
    top = tl.zeros([BM], dtype=tl.float32) - float("inf")
    total = tl.zeros([BM], dtype=tl.float32)
    acc = tl.zeros([BM, D], dtype=tl.float32)
    scale *= 1.44269504  # 1 / ln 2
    x = tl.load(q + tile)
    for diagonal in tl.static_range(2):
        acc, total, top = attend(
            acc, total, top, x, k_ptrs, v_ptrs, stride, first, scale, rows, BM, BN, diagonal
        )
    tl.store(out + tile, (acc / total[:, None]).to(out.type.element_ty))


def test_attention() -> None:
    rng = np.random.default_rng(3)
    heads, n, d = 2, 64, 16
    q, k, v = rng.standard_normal((3, heads, n, d)).astype(np.float16)
    out = np.zeros_like(q)
    args = (out, q, k, v, 0.25, n * d, d)
    launch(attention, *args, grid=(n // 32, heads), D=d, BM=32, BN=16)
    scores = 0.25 * np.einsum("hmd,hnd->hmn", q.astype(np.float32), k.astype(np.float32))
    scores = np.where(np.tril(np.ones((n, n), bool)), scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    shares = powers / powers.sum(-1, keepdims=True)
    expected = np.einsum("hmn,hnd->hmd", shares, v.astype(np.float32))
    np.testing.assert_allclose(out.astype(np.float32), expected, rtol=5e-3, atol=5e-3)


def test_softmax() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 50)).astype(np.float32)
    out = np.zeros_like(x)
    launch(softmax, out, x, 50, 50, grid=3, BLOCK=64)
    powers = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, powers / powers.sum(1, keepdims=True), rtol=1e-5)


def test_matmul() -> None:
    rng = np.random.default_rng(1)
    m, n, k = 40, 24, 37
    a = rng.standard_normal((m, k)).astype(np.float16)
    b = rng.standard_normal((k, n)).astype(np.float16)
    c = np.zeros((m, n), np.float16)
    blocks = {"BM": 16, "BN": 16, "BK": 16, "GROUP": 2, "ACT": "leaky"}
    launch(matmul, a, b, c, m, n, k, k, 1, n, 1, n, 1, grid=3 * 2, **blocks)
    product = a.astype(np.float32) @ b.astype(np.float32)
    expected = np.where(product >= 0, product, 0.5 * product)
    np.testing.assert_allclose(c.astype(np.float32), expected, rtol=2e-3, atol=2e-3)


def test_layer_norm() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((2, 100)).astype(np.float16)
    w, b = rng.standard_normal((2, 100)).astype(np.float16)
    y = np.zeros_like(x)
    launch(layer_norm, x, y, w, b, 100, 1e-5, grid=2, BLOCK=32)
    v = x.astype(np.float32)
    mean, var = v.mean(1, keepdims=True), v.var(1, keepdims=True)
    expected = (v - mean) / np.sqrt(var + 1e-5) * w + b
    np.testing.assert_allclose(y.astype(np.float32), expected, rtol=4e-3, atol=4e-3)


KERNELS: list[tuple[SourceFunction, dict[str, Any], dict[str, Any]]] = [
    (softmax, {"out": "*fp32", "x": "*fp32", "stride": "i32", "columns": "i32"}, {"BLOCK": 64}),
    (layer_norm, {n: "*fp16" for n in "xywb"} | {"N": "i32", "eps": "fp32"}, {"BLOCK": 64}),
]


@pytest.mark.parametrize(("fn", "signature", "constexprs"), KERNELS)
def test_module_is_the_same_each_time_and_survives_its_text(
    fn: SourceFunction, signature: dict[str, Any], constexprs: dict[str, Any]
) -> None:
    text = print_module(build(fn, signature, constexprs), locations=True)
    assert print_module(build(fn, signature, constexprs), locations=True) == text
    assert print_module(parse_module(text), locations=True) == text


def test_arguments_have_their_names_types_and_attributes() -> None:
    kernel = kernel_from("def kernel(x, N: tl.constexpr, n, y):\n    pass\n")
    attrs = {(0,): [["tt.divisibility", 16], ["tw.alias", 1]], (2,): [["tt.divisibility", 8]],
             (3,): [["tt.pointer_range", 32]]}  # fmt: skip
    module = build_module(kernel, {"x": "*kfp32", "n": "i32", "y": "*fp32"}, {"N": 1}, attrs)
    entry = module.entry
    assert entry.name == "kernel"
    assert entry.arg_names == ["x", "n", "y"]
    assert [a.type for a in entry.args] == [Pointer(FP32, True), I32, Pointer(FP32)]
    assert entry.arg_attrs == [
        {"divisibility": 16, "alias": 1},
        {"divisibility": 8},
        {"pointer_range": 32},
    ]


def test_values_of_parameters() -> None:
    kernel = kernel_from("""
    def kernel(x, N: tl.constexpr, one, d: tl.constexpr = 5, *rest):
        tl.static_assert(one == 1 and d == 5 and N == 3 and len(rest) == 2)
        tl.static_assert(rest[1].dtype == tl.int8)
    """)
    signature = {"x": "i32", "N": "constexpr", "one": "constexpr", "rest": ("i32", "i8")}
    module = build(kernel, signature, {"N": tl.constexpr(3), (2,): 1})
    assert module.entry.arg_names == ["x", "rest.0", "rest.1"]


def test_name_of_the_kernel_can_be_chosen() -> None:
    def name(specialization: Any) -> str:
        return f"k_{specialization.constants['N']}_{specialization.signature['x'][1:]}"

    fn = kernel_from("def kernel(x, N: tl.constexpr):\n    pass\n").fn
    kernel = SourceFunction(fn, repr=name)
    assert build(kernel, {"x": "*fp32", "N": "constexpr"}, {"N": 8}).entry.name == "k_8_fp32"


def test_ops_have_locations() -> None:
    module = build(softmax, KERNELS[0][1], KERNELS[0][2])
    lines, start = inspect.getsourcelines(softmax.fn)
    reference = {"program.id": "tl.program_id(0)", "math.exp": "tl.exp", "mem.store": "tl.store("}
    for op in module.walk():
        assert op.loc is not None
        assert (op.loc.file, op.loc.function) == (__file__, "softmax")
        if op.name in reference:
            text = lines[op.loc.line - start]
            assert text[op.loc.column - 1 :].startswith(reference[op.name])
    assert module.entry.loc is not None
    assert module.entry.loc.line == start + 1


def test_columns_count_indentation_of_the_file() -> None:
    def inner(x):
        tl.store(x, 1)

    module = build(jit(inner), {"x": "*i32"})
    store = next(op for op in module.walk() if op.name == "mem.store")
    assert store.loc is not None
    assert store.loc.column == 9


def test_strictness_follows_the_setting() -> None:
    assert FrontendOptions().strict_triton is False
    with knobs.language.scope():
        knobs.language.strict_triton = True
        assert FrontendOptions().strict_triton is True
    assert knobs.Language.strict_triton.keyed
