"""Block pointers: against NumPy on the interpreter, then on the CPU and an emulated GPU alike."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.arrays import block_of, has_nan
from tests.frontend.kernels import build, fails, kernel_from
from tests.ir_values import random_array
from tests.language.all_targets import run_everywhere
from tests.targets.nvidia.lowered import ptx_of
from tilewright.frontend.build import build_module
from tilewright.ir.types import SCALARS, Tile, text_of
from tilewright.ops.control import For
from tilewright.ops.memory import Load

COPY = """
def kernel(x, y, M, N, sm, sn, om, on, BM: tl.constexpr, BN: tl.constexpr, CHECK: tl.constexpr,
           PAD: tl.constexpr, ORDER: tl.constexpr):
    source = tl.make_block_ptr(x, (M, N), (sm, sn), (om, on), (BM, BN), ORDER)
    target = tl.make_block_ptr(y, (BM, BN), (BN, 1), (0, 0), (BM, BN), (1, 0))
    tl.store(target, tl.load(source, boundary_check=CHECK, padding_option=PAD))
"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("at", "order", "transposed", "padding"),
    [
        ((8, 32), (1, 0), False, "zero"),
        ((-3, 5), (1, 0), False, "nan"),
        ((16, -7), (0, 1), True, "nan"),
        ((-16, 7), (0, 1), True, "zero"),
        ((2, 3), (0, 1), False, "zero"),
    ],
)
@pytest.mark.parametrize("element", [t for t in SCALARS if not t.is_bool()], ids=str)
def test_block_is_read_and_padded(
    element: Any, at: tuple[int, int], order: tuple[int, int], transposed: bool, padding: str
) -> None:
    rng = np.random.default_rng(1)
    x = random_array(Tile((20, 37), element), rng)
    if padding == "nan" and not has_nan(element):
        padding = "zero"
    a = x.T if transposed else x
    y = np.zeros((8, 16), a.dtype)
    constants = {"BM": 8, "BN": 16, "CHECK": (0, 1), "PAD": padding, "ORDER": order}
    strides = (1, 37) if transposed else (37, 1)
    run_everywhere(COPY, x.reshape(-1), y, *a.shape, *strides, *at, constexprs=constants)
    fill = np.nan if padding == "nan" else np.zeros((), x.dtype)
    want = block_of(a, at, (8, 16), fill)
    np.testing.assert_array_equal(y.view(np.uint8), want.view(np.uint8))


def test_only_the_named_axes_are_checked() -> None:
    """Elements outside along an unchecked axis are read as if the array continued."""
    memory = np.arange(1000, dtype=np.int32)
    for check in ((), (0,), (1,), (0, 1), (-1,), (-2, 1)):
        y = np.zeros((8, 16), np.int32)
        constants = {"BM": 8, "BN": 16, "CHECK": check, "PAD": "zero", "ORDER": (1, 0)}
        run_everywhere(COPY, memory, y, 20, 37, 37, 1, 15, 30, constexprs=constants)
        rows, columns = np.arange(15, 23)[:, None], np.arange(30, 46)[None, :]
        want = memory[rows * 37 + columns]
        inside = np.ones((8, 16), np.bool_)
        if {0, -2} & set(check):
            inside &= rows < 20
        if {1, -1} & set(check):
            inside &= columns < 37
        np.testing.assert_array_equal(y, np.where(inside, want, 0))


@pytest.mark.parametrize("at", list(product((-5, 0, 4), (-20, 0, 30), (-1, 0))))
def test_block_is_written_where_it_is_inside(at: tuple[int, int, int]) -> None:
    text = """
    def kernel(y, a, b, c, i, j, k):
        p = tl.make_block_ptr(y, (a, b, c), (b * c, c, 1), (i, j, k), (4, 16, 2), (2, 1, 0))
        n = tl.arange(0, 128).reshape(4, 16, 2)
        tl.store(p, n + 1, boundary_check=(0, 1, 2))
    """
    y = np.zeros((6, 37, 1), np.int64)
    run_everywhere(text, y, *y.shape, *at)
    want = np.zeros_like(y)
    for i, j, k in np.ndindex(4, 16, 2):
        index = at[0] + i, at[1] + j, at[2] + k
        if all(0 <= x < n for x, n in zip(index, y.shape, strict=True)):
            want[index] = i * 32 + j * 2 + k + 1
    np.testing.assert_array_equal(y, want)


def test_extents_that_are_not_positive_are_empty() -> None:
    for extent in (0, -1, -(2**31)):
        x, y = np.ones(64, np.float32), np.full((8, 16), 5, np.float32)
        constants = {"BM": 8, "BN": 16, "CHECK": (0, 1), "PAD": "nan", "ORDER": (1, 0)}
        run_everywhere(COPY, x, y, 4, extent, 16, 1, 0, 0, constexprs=constants)
        assert np.isnan(y).all()


def test_far_offsets_stay_outside() -> None:
    """Where an index passes the ends of int32 it is outside, and does not come round."""
    text = """
    def kernel(x, y, n, at):
        p = tl.make_block_ptr(x, (n,), (1,), (at,), (16,), (0,))
        i = tl.arange(0, 16)
        tl.store(y + i, tl.load(p, boundary_check=(0,)))
    """
    for at in (2**31 - 1, -(2**31), -(2**31) + 1, -15):
        x = np.arange(1, 17, dtype=np.int32)
        y = np.full(16, 7, np.int32)
        run_everywhere(text, x, y, 16, at)
        want = block_of(x, (at,), (16,), 0)
        np.testing.assert_array_equal(y, want)


def test_pointers_advance_in_loops_and_branches() -> None:
    text = """
    @jit
    def next(p, step):
        return p.advance((0, step))

    def kernel(x, y, M, N, turn):
        p = tl.make_block_ptr(x, (M, N), (N, 1), (0, 0), (4, 8), (1, 0))
        q = tl.make_block_ptr(x, (M, N), (N, 1), (4, 0), (4, 8), (1, 0))
        if turn > 0:
            p, q = q, p
        total = tl.zeros((4, 8), tl.float32)
        for j in range(0, N, 8):
            total += tl.load(p, None, None, (0, 1), "zero") - 2 * tl.load(q, boundary_check=[0, 1])
            p = tl.advance(p, [0, 8])
            q = next(q, 8)
        both = (p, q)
        k = 0
        while k < 2:
            both = (both[0].advance((0, -8)), both[1])
            k += 1
        total += tl.load(both[0], boundary_check=(0, 1))
        target = tl.make_block_ptr(y, (4, 8), (8, 1), (0, 0), (4, 8), (1, 0))
        tl.store(target, total)
    """
    rng = np.random.default_rng(2)
    x = rng.integers(-9, 9, (7, 29)).astype(np.float32)
    for turn in (0, 1):
        y = np.zeros((4, 8), np.float32)
        run_everywhere(text, x, y, *x.shape, turn)
        at, other = (4, 0) if turn else (0, 4)
        blocks = [block_of(x, (at, j), (4, 8), 0) for j in range(0, 32, 8)]
        others = [block_of(x, (other, j), (4, 8), 0) for j in range(0, 32, 8)]
        np.testing.assert_array_equal(y, sum(blocks) - 2 * sum(others) + blocks[2])


def test_offsets_may_be_run_time_values() -> None:
    text = """
    def kernel(x, y, rows, columns):
        p = tl.make_block_ptr(x, (8, 32), (32, 1), (0, 0), (2, 4), (1, 0))
        p = tl.advance(p, (rows, 0)).advance((0, columns))
        tl.store(y + tl.arange(0, 8), tl.load(p).ravel())
    """
    x, y = np.arange(256, dtype=np.int32), np.zeros(8, np.int32)
    run_everywhere(text, x, y, 3, 21)
    np.testing.assert_array_equal(y, x.reshape(8, 32)[3:5, 21:25].ravel())


def test_only_advancing_pointers_are_carried() -> None:
    text = """
    def kernel(x, M, N):
        p = tl.make_block_ptr(x, (M, N), (N, 1), (0, 0), (4, 8), (1, 0))
        for j in range(0, N, 8):
            tl.store(p, 1.0, boundary_check=(0, 1))
            p = tl.advance(p, (0, 8))
    """
    module = build(kernel_from(text), {"x": "*fp32", "M": "i32", "N": "i32"})
    loop = next(op for op in module.walk() if isinstance(op, For))
    assert [text_of(v.type) for v in loop.inits] == ["i32"]


def test_bools_are_read_and_written_as_bytes() -> None:
    x, y = np.array([True, False, True, True]), np.zeros(4, np.bool_)
    text = """
    def kernel(x, y):
        p = tl.make_block_ptr(x, (4,), (1,), (0,), (4,), (0,))
        q = tl.make_block_ptr(y, (4,), (1,), (0,), (4,), (0,))
        v = tl.load(p)
        tl.static_assert(v.dtype == tl.int8)
        tl.store(q, 1 - v)
    """
    run_everywhere(text, x, y)
    np.testing.assert_array_equal(y, ~x)


def test_value_is_cast_and_a_number_fills_the_block() -> None:
    y = np.zeros((4, 4), np.float16)
    text = """
    def kernel(y):
        p = tl.make_block_ptr(y, (4, 4), (4, 1), (0, 0), (2, 4), (1, 0))
        tl.static_assert(p.dtype.element_ty == tl.block_type(tl.float16, (2, 4)))
        tl.static_assert(p.dtype.element_ty.element_ty == tl.float16)
        tl.static_assert(p.type.is_ptr())
        tl.store(p, (tl.arange(0, 8).reshape(2, 4) / 3).to(p.dtype.element_ty))
        tl.store(tl.advance(p, (2, 0)), 7)
    """
    run_everywhere(text, y)
    want = np.full((4, 4), 7, np.float16)
    want[:2] = (np.arange(8, dtype=np.float32) / np.float32(3)).astype(np.float16).reshape(2, 4)
    np.testing.assert_array_equal(y, want)


def test_cache_hints_reach_the_op_and_zero_padding_has_no_operand() -> None:
    text = """
    def kernel(x):
        p = tl.make_block_ptr(x, (4, 4), (4, 1), (0, 0), (2, 4), (1, 0))
        tl.load(p, None, None, (0,), "zero", ".cg", "evict_last", True)
    """
    module = build(kernel_from(text), {"x": "*fp32"})
    load = next(op for op in module.walk() if isinstance(op, Load))
    assert (load.cache, load.evict, load.volatile) == ("cg", "evict_last", True)
    assert load.mask is not None
    assert load.other is None


def test_operands_of_a_product_are_prefetched_by_vectors() -> None:
    """Advancing block pointers keep what hand-written pointers get on a GPU."""
    text = """
    def kernel(a, b, c, M, N, K):
        i, j = tl.program_id(0) * 64, tl.program_id(1) * 64
        p = tl.make_block_ptr(a, (M, K), (K, 1), (i, 0), (64, 32), (1, 0))
        q = tl.make_block_ptr(b, (K, N), (N, 1), (0, j), (32, 64), (1, 0))
        acc = tl.zeros((64, 64), tl.float32)
        for k in range(0, K, 32):
            x = tl.load(p, boundary_check=(0, 1), padding_option="zero")
            y = tl.load(q, boundary_check=(0, 1), padding_option="zero")
            acc = tl.dot(x, y, acc)
            p = tl.advance(p, (0, 32))
            q = tl.advance(q, (32, 0))
        r = tl.make_block_ptr(c, (M, N), (N, 1), (i, j), (64, 64), (1, 0))
        tl.store(r, acc.to(tl.float16), boundary_check=(0, 1))
    """
    kernel = kernel_from(text)
    types = dict.fromkeys("abc", "*fp16") | dict.fromkeys("MNK", "i32")
    attrs = {(i,): [["tt.divisibility", 16]] for i in range(6)}
    for i in range(3):
        attrs[i,].append(["tw.alias", i])
    ptx = ptx_of(build_module(kernel, types, {}, attrs), num_warps=4, num_stages=3)
    assert "wgmma.mma_async" in ptx
    assert "cp.async.cg.shared.global" in ptx
    assert "st.global.v4.b32" in ptx
    assert "ld.global" not in ptx


REJECTED = [
    ("tl.make_block_ptr(n, (4,), (1,), (0,), (4,), (0,))",
     "Expected `base` to be a pointer type (but not a block pointer type or others), got int32"),
    ("tl.make_block_ptr(x + i, (4,), (1,), (0,), (4,), (0,))",
     "Expected `base` to be a pointer type (but not a block pointer type or others)"),
    ("tl.make_block_ptr(p, (4,), (1,), (0,), (4,), (0,))",
     "Expected `base` to be a pointer type (but not a block pointer type or others)"),
    ("tl.make_block_ptr(x, (4, 4), (1,), (0,), (4,), (0,))",
     "Expected shape/strides/offsets/block_shape to have the same length"),
    ("tl.make_block_ptr(x, (4,), (1,), (0, 0), (4,), (0,))",
     "Expected shape/strides/offsets/block_shape to have the same length"),
    ("tl.make_block_ptr(x, (4, 4), (4, 1), (0, 0), (4, 4), (1, 1))",
     "Expected a permutation of (0, 1, ..., len(order)-1) in order"),
    ("tl.make_block_ptr(x, (4, 4), (4, 1), (0, 0), (4, 4), (0,))",
     "Expected order to have 2 axes, got 1"),
    ("tl.make_block_ptr(x, (4,), (1,), (tl.full((), 0, tl.int64),), (4,), (0,))",
     "Block pointers only support 32 bit `offsets/block_shape`, add a `.to(tl.int32)`"),
    ("tl.make_block_ptr(x, (1.5,), (1,), (0,), (4,), (0,))",
     "shape[0] must be a scalar integer, got fp32"),
    ("tl.make_block_ptr(x, (4,), (1,), (i,), (4,), (0,))",
     "offsets[0] must be a scalar integer, got <['4'], int32>"),
    ("tl.make_block_ptr(x, (4,), (1,), (0,), (0,), (0,))", "Shape element 0 must be 1 or more"),
    ("tl.load(p, mask=n > 0)",
     "`mask` and `other` arguments cannot be specified for loading block pointers"),
    ("tl.load(p, other=1.0)",
     "`mask` and `other` arguments cannot be specified for loading block pointers"),
    ("tl.store(p, 1.0, n > 0)",
     "`mask` and `other` arguments cannot be specified for loading block pointers"),
    ("tl.load(p, boundary_check=(2,))", "boundary_check (2,) names an axis that"),
    ("tl.load(p, boundary_check=(-3,))", "boundary_check (-3,) names an axis that"),
    ("tl.load(p, boundary_check=(0, -2))", "Duplicate dimension in `boundary_check`: (0, -2)"),
    ("tl.load(p, padding_option='one')", "Padding option `one` is not supported"),
    ("tl.load(p, boundary_check=(0,), cache_modifier='.xx')", "Unsupported cache modifier '.xx'"),
    ("tl.store(p, i)", "Block shape([2, 4]) and value shape([4]) mismatch"),
    ("tl.store(x, 1.0, boundary_check=(0,))", "`padding_option` or `boundary_check`"),
    ("y = tl.advance(p, (0,))", "Expected 2 offsets for a block of rank 2, got 1"),
    ("y = tl.advance(x, (0,))", "advance takes a block pointer, got pointer<fp32>"),
    ("y = x.advance((0,))", "advance takes a block pointer, got pointer<fp32>"),
    ("tl.atomic_add(p, 1.0)",
     "Unsupported ptr type pointer<<['2', '4'], fp32>> in `tl.atomic_add`"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "message"), REJECTED)
def test_wrong_operands_are_rejected(expression: str, message: str) -> None:
    text = (
        "def k(x, n):\n    i = tl.arange(0, 4)\n"
        "    p = tl.make_block_ptr(x, (4, 4), (4, 1), (0, 0), (2, 4), (1, 0))\n"
        f"    {expression}\n"
    )
    error = fails(text, np.ones(16, np.float32), 5)
    assert str(error.__cause__).startswith(message)
    assert str(error).startswith("at 4:")


def test_integers_are_not_padded_with_nan() -> None:
    text = """
    def k(x):
        p = tl.make_block_ptr(x, (4,), (1,), (0,), (4,), (0,))
        tl.load(p, boundary_check=(0,), padding_option="nan")
    """
    message = "Padding option `nan` is not supported for integer block pointers"
    assert str(fails(text, np.ones(4, np.int32)).__cause__) == message


def test_constants_are_not_stored_to() -> None:
    text = """
    def k(x):
        p = tl.make_block_ptr(x, (4,), (1,), (0,), (4,), (0,))
        tl.store(p, tl.load(p))
    """
    with pytest.raises(Exception, match="Cannot store to a constant pointer"):
        build(kernel_from(text), {"x": "*kfp32"})


@pytest.mark.parametrize("call", ["tl.advance(p, (0,))", "p.advance((0,))"])
def test_result_of_advance_must_be_used(call: str) -> None:
    text = f"""
    def k(x):
        p = tl.make_block_ptr(x, (4,), (1,), (0,), (4,), (0,))
        {call}
    """
    last = str(fails(text, np.ones(4, np.int32))).splitlines()[-1]
    assert last.startswith(f"The result of {call.partition('(')[0]} is not being used. ")


def test_types_must_stay_the_same_in_a_loop() -> None:
    text = """
    def k(x, n):
        p = tl.make_block_ptr(x, (4,), (1,), (0,), (4,), (0,))
        for i in range(n):
            p = tl.make_block_ptr(x, (4,), (1,), (0,), (2,), (0,))
    """
    message = "Loop-carried variable p has initial type pointer<<['4'], fp32>> but is re-assigned"
    assert message in str(fails(text, np.ones(4, np.float32), 3))


def test_the_pointer_itself_is_a_scalar() -> None:
    text = """
    def kernel(out):
        p = tl.make_block_ptr(out, (4,), (1,), (0,), (4,), (0,))
        tl.static_assert(len(p.shape) == 0)
        tl.static_assert(p.numel == 1)
        tl.store(p, tl.full(p.dtype.element_ty.shape, 7, tl.int32))
    """
    out = np.zeros(4, np.int32)
    run_everywhere(text, out)
    assert out.tolist() == [7] * 4
