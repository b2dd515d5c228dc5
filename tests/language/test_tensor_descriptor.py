"""Tensor descriptors: against NumPy on the interpreter; CPU and emulated GPU do the same."""

from typing import Any

import numpy as np
import pytest

from tests.arrays import aligned, block_of, has_nan
from tests.frontend.kernels import build, fails, kernel_from
from tests.ir_values import random_array
from tests.language.all_targets import run_everywhere
from tests.targets.nvidia.lowered import ptx_of
from tilewright.base import knobs
from tilewright.frontend.build import build_module
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.interpret import interpret
from tilewright.ir.printer import print_module
from tilewright.ir.types import SCALARS, Tile, text_of
from tilewright.language.types import str_to_ty

ELEMENTS = [t for t in SCALARS if not t.is_bool()]


COPY = """
def kernel(x, y, M, N, row, column, PAD: tl.constexpr):
    d = tl.make_tensor_descriptor(x, [M, N], [32, 1], [8, 16], padding_option=PAD)
    e = tl.make_tensor_descriptor(y, [8, 16], [16, 1], [8, 16])
    tl.store_tensor_descriptor(e, [0, 0], tl.load_tensor_descriptor(d, [row, column]))
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_block_is_read_and_padded(element: Any) -> None:
    x = aligned(random_array(Tile((20, 32), element), np.random.default_rng(1)))
    for i, at in enumerate(((8, 16), (-3, 5), (16, 20), (-8, 0), (2**31 - 4, 2))):
        padding = "nan" if i % 2 and has_nan(element) else "zero"
        y = aligned(np.zeros((8, 16), x.dtype))
        run_everywhere(COPY, x, y, 20, 27, *at, constexprs={"PAD": padding})
        fill = np.nan if padding == "nan" else np.zeros((), x.dtype)
        want = block_of(x[:, :27], at, (8, 16), fill)
        np.testing.assert_array_equal(y.view(np.uint8), want.view(np.uint8))


@pytest.mark.parametrize("stride", [1, 3, 27, 40])
def test_compile_time_strides_need_not_be_aligned(stride: int) -> None:
    x = aligned(np.arange(8 * 40, dtype=np.int16))
    y = aligned(np.zeros((8, 16), np.int16))
    run_everywhere(COPY.replace("[32, 1]", f"[{stride}, 1]"), x, y, 8, 27, 1, 13,
                   constexprs={"PAD": "zero"})  # fmt: skip
    rows = np.lib.stride_tricks.as_strided(x, (8, 27), (2 * stride, 2))
    np.testing.assert_array_equal(y, block_of(rows, (1, 13), (8, 16), np.int16(0)))


SHAPES = [((40,), (16,), (30,)), ((3, 24), (2, 8), (2, 20)), ((3, 5, 24), (2, 4, 8), (-1, 3, 20)),
          ((2, 3, 2, 8), (1, 2, 2, 8), (1, 2, -1, 0)),
          ((2, 2, 3, 2, 8), (2, 1, 2, 2, 4), (1, 1, 2, 1, 6))]  # fmt: skip


@pytest.mark.parametrize(("shape", "block", "at"), SHAPES)
def test_every_rank_is_written_where_it_is_inside(
    shape: tuple[int, ...], block: tuple[int, ...], at: tuple[int, ...]
) -> None:
    count = int(np.prod(block))
    strides = [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
    text = f"""
    def kernel(y, {", ".join(f"n{i}" for i in range(len(shape)))}):
        d = tl.make_tensor_descriptor(
            y, [{", ".join(f"n{i}" for i in range(len(shape)))}], {strides}, {list(block)})
        d.store({list(at)}, (tl.arange(0, {count}) + 1).reshape({block}))
    """
    y = aligned(np.zeros(shape, np.float32))
    run_everywhere(text, y, *shape)
    want = np.zeros(shape, np.float32)
    values = np.arange(1, count + 1).reshape(block)
    for where in np.ndindex(*block):
        index = tuple(a + w for a, w in zip(at, where, strict=True))
        if all(0 <= i < n for i, n in zip(index, shape, strict=True)):
            want[index] = values[where]
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("element", ["fp32", "fp16", "bf16", "i32", "u32", "i64", "u64"])
def test_blocks_are_added_atomically(element: str) -> None:
    text = """
    def kernel(x, M):
        d = tl.make_tensor_descriptor(x, [M, 16], [16, 1], [4, 16])
        v = tl.arange(0, 64).reshape(4, 16)
        d.atomic_add([tl.program_id(0) - 1, 4], v.to(d.dtype))
    """
    dtype = next(t for t in SCALARS if t.short == element).numpy
    x = aligned(np.ones((5, 16), dtype))
    run_everywhere(text, x, 5, grid=(4,))
    want = np.ones((5, 16), np.int64)
    values = np.arange(64).reshape(4, 16)[:, :12]
    for start in range(-1, 3):
        for i in range(4):
            if 0 <= start + i < 5:
                want[start + i, 4:] += values[i]
    np.testing.assert_array_equal(x.astype(np.int64), want.astype(dtype).astype(np.int64))


@pytest.mark.parametrize("element", ["i32", "u32", "i64", "u64"])
@pytest.mark.parametrize("kind", ["min", "max", "and", "or", "xor"])
def test_blocks_are_combined_atomically(kind: str, element: str) -> None:
    text = f"""
    def kernel(x, values):
        d = tl.make_tensor_descriptor(x, [3, 8], [8, 1], [4, 8])
        e = tl.make_tensor_descriptor(values, [4, 8], [8, 1], [4, 8])
        d.atomic_{kind}([0, 0], e.load([0, 0]))
    """
    rng = np.random.default_rng(4)
    dtype = next(t for t in SCALARS if t.short == element)
    x, values = (aligned(random_array(Tile((n, 8), dtype), rng)) for n in (3, 4))
    fold: Any = {"min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
                 "or": np.bitwise_or, "xor": np.bitwise_xor}[kind]  # fmt: skip
    want = fold(x, values[:3])
    run_everywhere(text, x, values)
    np.testing.assert_array_equal(x, want)


@pytest.mark.parametrize("element", ["fp16", "bf16"])
def test_extrema_of_narrow_floats(element: str) -> None:
    """Of a number and a NaN, the number; -0.0 is less than 0.0."""
    text = """
    def kernel(x, y, values):
        e = tl.make_tensor_descriptor(values, [4, 8], [8, 1], [4, 8])
        d = tl.make_tensor_descriptor(x, [3, 8], [8, 1], [4, 8])
        d.atomic_min([0, 0], e.load([0, 0]))
        d = tl.make_tensor_descriptor(y, [3, 8], [8, 1], [4, 8])
        d.atomic_max([0, 0], e.load([0, 0]))
    """
    dtype = next(t for t in SCALARS if t.short == element).numpy
    rng = np.random.default_rng(7)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 2.0, -3.0, 1e-7])
    x, y, values = (aligned(rng.choice(special, (n, 8)).astype(dtype)) for n in (3, 3, 4))
    want = [
        np.array(
            [pick(a, b) for a, b in zip(before.flat, values[:3].flat, strict=True)], dtype
        ).reshape(3, 8)
        for pick, before in ((_least, x), (_greatest, y))
    ]
    run_everywhere(text, x, y, values)
    for found, expected in zip((x, y), want, strict=True):
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def _least(a: float, b: float) -> float:
    if np.isnan(a) or np.isnan(b):
        return b if np.isnan(a) else a
    return min(a, b, key=lambda v: (float(v), not np.signbit(v)))


def _greatest(a: float, b: float) -> float:
    if np.isnan(a) or np.isnan(b):
        return b if np.isnan(a) else a
    return max(a, b, key=lambda v: (float(v), not np.signbit(v)))


@pytest.mark.parametrize("index", ["i16", "i32"])
@pytest.mark.parametrize("element", ["fp32", "fp16", "i8"])
def test_rows_are_gathered_and_scattered(element: str, index: str) -> None:
    text = """
    def kernel(x, y, z, rows, column):
        d = tl.make_tensor_descriptor(x, [10, 40], [64, 1], [1, 32])
        e = tl.make_tensor_descriptor(y, [8, 32], [32, 1], [8, 32])
        f = tl.make_tensor_descriptor(z, [10, 40], [64, 1], [1, 32])
        i = tl.load(rows + tl.arange(0, 8))
        v = d.gather(i, column)
        e.store([0, 0], v)
        f.scatter(v, i, column + 1)
    """
    dtypes = {t.short: t.numpy for t in SCALARS}
    x = aligned(np.arange(640).reshape(10, 64).astype(dtypes[element]))
    rows = np.array([3, 9, -1, 10, 0, 5, -(2**15), 4], dtypes[index])
    for column in (0, 16, -5):
        y = aligned(np.zeros((8, 32), x.dtype))
        z = aligned(np.zeros((10, 64), x.dtype))
        run_everywhere(text, x, y, z, rows, column)
        want, scattered = np.zeros_like(y), np.zeros_like(z)
        for i, row in enumerate(rows.tolist()):
            for j in range(32):
                if 0 <= row < 10 and 0 <= column + j < 40:
                    want[i, j] = x[row, column + j]
                if 0 <= row < 10 and 0 <= column + 1 + j < 40:
                    scattered[row, column + 1 + j] = want[i, j]
        np.testing.assert_array_equal(y, want)
        np.testing.assert_array_equal(z, scattered)


def test_descriptors_are_values() -> None:
    """They are carried, joined, passed and returned; attributes are what they should be."""
    text = """
    @jit
    def other(d, e, turn):
        if turn:
            return e, d
        return d, e

    def kernel(x, y, z, N, turn):
        d = tl.make_tensor_descriptor(x, [8, N], [32, 1], [8, 16])
        e = tl.make_tensor_descriptor(y, [8, N], [32, 1], [8, 16])
        tl.static_assert(d.dtype == tl.float32)
        tl.static_assert(d.block_shape[1] == 16)
        tl.static_assert(d.block_type == tl.block_type(tl.float32, (8, 16)))
        tl.static_assert(isinstance(d, tl.tensor_descriptor))
        tl.static_assert(d.strides[-1] == 1)
        pair = other(d, e, turn)
        if turn > 1:
            pair = (d, d)
        sum = tl.zeros(d.block_shape, d.dtype)
        for j in range(0, d.shape[1], 16):
            sum += pair[0].load([0, j]) - 2 * pair[1].load([0, j])
            pair = (pair[1], pair[0])
        tl.make_tensor_descriptor(z, [8, 16], [16, 1], [8, 16]).store([0, 0], sum)
    """
    rng = np.random.default_rng(3)
    x, y = (aligned(rng.integers(-9, 9, (8, 32)).astype(np.float32)) for _ in range(2))
    for turn in (0, 1, 2):
        z = aligned(np.zeros((8, 16), np.float32))
        run_everywhere(text, x, y, z, 20, turn)
        a, b = ((x, y), (y, x), (x, x))[turn]
        a, b = (np.where(np.arange(32) < 20, v, 0) for v in (a, b))
        want = a[:, :16] - 2 * b[:, :16] + b[:, 16:] - 2 * a[:, 16:]
        np.testing.assert_array_equal(z, want)


# -- as arguments ----------------------------------------------------------------------------------


def test_argument_is_passed_in_parts() -> None:
    kernel = kernel_from("""
    def kernel(d, pair):
        pair[1].store([0], d.load([1, 2]).sum(0))
    """)
    types = {"d": "tensordesc<fp16[8, 16],padding=nan>", "pair": ("i32", "tensordesc<fp16[16]>")}
    module = build(kernel, types)
    entry = module.entry
    assert list(zip(entry.arg_names, map(lambda a: text_of(a.type), entry.args), strict=True)) == [
        ("d", "ptr<fp16>"), ("d.shape.0", "i32"), ("d.shape.1", "i32"), ("d.strides.0", "i64"),
        ("pair.0", "i32"), ("pair.1", "ptr<fp16>"), ("pair.1.shape.0", "i32"),
    ]  # fmt: skip
    facts = [attrs.get("divisibility") for attrs in entry.arg_attrs]
    assert facts == [16, None, None, 8, None, 16, None]
    x, y = aligned(np.ones((3, 24), np.float16)), aligned(np.zeros(20, np.float16))
    interpret(module, (1, 1, 1), [x, 3, 24, 24, 5, y, 20])
    assert np.isnan(y[:16]).all()
    assert (y[16:] == 0).all()


UNKNOWN = ["tensordesc<fp16>", "tensordesc<fp16[]>", "tensordesc<half9[4]>", "tensordesc<fp16[0]>"]


@pytest.mark.parametrize("name", UNKNOWN)
def test_type_string_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match=r"there is no (element )?type|must be 1 or more"):
        str_to_ty(name)


@pytest.mark.parametrize(
    "name", ["tensordesc<fp16[64, 32]>", "tensordesc<float16[64,32],swizzled>"]
)
def test_type_string_names_a_block(name: str) -> None:
    found: Any = str_to_ty(name)
    assert str(found) == "tensor_descriptor<<['64', '32'], fp16>>"


def test_operands_of_a_product_are_prefetched_by_vectors() -> None:
    kernel = kernel_from("""
    def kernel(a, b, c, K):
        i, j = tl.program_id(0) * 64, tl.program_id(1) * 64
        acc = tl.zeros((64, 64), tl.float32)
        for k in range(0, K, 32):
            acc = tl.dot(a.load([i, k]), b.load([k, j]), acc)
        c.store([i, j], acc.to(tl.float16))
    """)
    types = {"a": "tensordesc<fp16[64, 32]>", "b": "tensordesc<fp16[32, 64]>",
             "c": "tensordesc<fp16[64, 64]>", "K": "i32"}  # fmt: skip
    attrs = {(i, 0): [["tw.alias", i]] for i in range(3)}
    attrs |= {(i, n): [["tt.divisibility", 16]] for i in range(3) for n in (1, 2)}
    ptx = ptx_of(build_module(kernel, types, {}, attrs), num_warps=4, num_stages=3)
    assert "wgmma.mma_async" in ptx
    assert "cp.async.bulk.tensor.2d.shared::cluster.global" in ptx
    assert "st.global.v4.b32" in ptx
    assert "ld.global" not in ptx


REJECTED = [
    ("tl.make_tensor_descriptor(x, [], [], [])", "Expected 1 <= ndim <= 5 but got 0 dimensions"),
    ("tl.make_tensor_descriptor(x, [1]*6, [1]*6, [1]*6)",
     "Expected 1 <= ndim <= 5 but got 6 dimensions"),
    ("tl.make_tensor_descriptor(x, [n, n], [1], [4, 4])", "Expected 2 strides but got 1"),
    ("tl.make_tensor_descriptor(x, [n, n], [n, 1], [4])",
     "Expected block_shape to have 2 dimensions but got 1"),
    ("tl.make_tensor_descriptor(n, [n], [1], [4])", "Expected `base` to be a scalar pointer"),
    ("tl.make_tensor_descriptor(x + i, [n], [1], [4])", "Expected `base` to be a scalar pointer"),
    ("tl.make_tensor_descriptor(x.to(tl.pointer_type(tl.int1)), [n], [1], [16])",
     "A tensor descriptor can't describe an array of int1"),
    ("tl.make_tensor_descriptor(x, [n], [n], [4])",
     "Tensor descriptor last dim must be 1 but got int32[]"),
    ("tl.make_tensor_descriptor(x, [n], [2], [4])",
     "Tensor descriptor last dim must be 1 but got 2"),
    ("tl.make_tensor_descriptor(x, [n], [1], [2])",
     "Descriptor block shape must have at least 16 bytes in the last dimension, but got 2 * 4"),
    ("tl.make_tensor_descriptor(x, [n], [1], [0])", "Shape element 0 must be 1 or more"),
    ("tl.make_tensor_descriptor(x, [n], [1], [4], padding_option='one')", "Padding option `one`"),
    ("tl.make_tensor_descriptor(p, [n], [1], [4], padding_option='nan')",
     "Padding option `nan` is not supported for integer blocks"),
    ("d.load([0])", "expected 2 offsets, but got 1"),
    ("d.load([0, n.to(tl.int64)])", "Expected a 32-bit integer; add a `.to(tl.int32)`"),
    ("d.load([0, i])", "offsets[1] must be a scalar integer, got <['4'], int32>"),
    ("d.load([0, 1.5])", "offsets[1] must be a scalar integer, got fp32"),
    ("d.store([0, 0, 0], 1)", "expected 2 offsets, but got 3"),
    ("d.store([0, 0], i)", "expected value shape [2, 4], got [4]"),
    ("tl.load_tensor_descriptor(x, [0])", "expected a tensor descriptor, got pointer<fp32>"),
    ("d.gather(i, 0)", "descriptor block must have 1 row, but got [2, 4]"),
    ("e.gather(i, 0)", "descriptor must be 2D, but got [4]"),
    ("r.gather(3, 0)", "x offsets must be 1D, but got []"),
    ("r.gather(i.to(tl.int64), 0)", "x offsets must have dtype int16 or int32, but got int64"),
    ("r.gather(i, 0)", "descriptor gather must have at least 8 rows, but got [4]"),
    ("s.gather(tl.arange(0, 8), 0)",
     "descriptor gather of fp32 must have at least 8 columns, but got 4"),
    ("s.scatter(tl.zeros((8, 4), tl.float32), tl.arange(0, 8), 0)",
     "descriptor scatter of fp32 must have at least 8 columns, but got 4"),
    ("r.scatter(tl.zeros((4, 8), tl.float32), tl.arange(0, 8), 0)",
     "expected value shape [8, 8], got [4, 8]"),
    ("d.atomic_max([0, 0], d.load([0, 0]))", "Unsupported dtype"),
    ("d.atomic_and([0, 0], d.load([0, 0]))", "Unsupported dtype"),
    ("tl.load(d)", "Unsupported ptr type tensor_descriptor<<['2', '4'], fp32>> in `tl.load`"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "message"), REJECTED)
def test_wrong_operands_are_rejected(expression: str, message: str) -> None:
    text = f"""
    def k(x, p, n):
        i = tl.arange(0, 4)
        d = tl.make_tensor_descriptor(x, [n, n], [4, 1], [2, 4])
        e = tl.make_tensor_descriptor(x, [n], [1], [4])
        r = tl.make_tensor_descriptor(x, [n, n], [4, 1], [1, 8])
        s = tl.make_tensor_descriptor(x, [n, n], [4, 1], [1, 4])
        {expression}
    """
    error = fails(text, np.ones(16, np.float32), np.ones(16, np.int32), 5)
    assert str(error.__cause__).startswith(message)
    assert str(error).startswith("at 7:4:")


@pytest.mark.parametrize("kind", ["min", "max"])
def test_strictly_extrema_of_narrow_floats_require_tensor_copies(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knobs.language, "strict_triton", True)
    text = f"""
    def k(x):
        d = tl.make_tensor_descriptor(x, [8], [1], [8])
        d.atomic_{kind}([0], d.load([0]))
    """
    error = fails(text, np.ones(8, np.float16))
    assert str(error.__cause__) == "16-bit float types require native tma support"
    native = FrontendOptions(native_descriptors=True)
    module = build(kernel_from(text), {"x": "*fp16"}, options=native)
    assert f'kind="{kind}"' in print_module(module)


def test_a_plain_load_of_a_descriptor_suggests_its_method() -> None:
    text = "def k(x):\n    tl.load(tl.make_tensor_descriptor(x, [8], [1], [8]))\n"
    assert "desc.load(" in str(fails(text, np.ones(8, np.float16)))
