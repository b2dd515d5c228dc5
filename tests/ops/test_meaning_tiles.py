"""What the ops on whole tiles mean: shapes, reductions, scans, products of matrices.

Expectations come from Python lists and index arithmetic, not from the NumPy calls of the ops.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import reduce as fold
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.ops.exact import FORMATS, INTEGERS
from tests.ops.harness import array_of, numbers_of, run_op, run_text
from tilewright.ir.types import FP32, I32, Pointer, Tile, numpy_of, scalar_type, text_of
from tilewright.ops import dot, histogram, shape, sort

TYPES = [*INTEGERS, *FORMATS, "ptr<fp32>"]
Index = tuple[int, ...]


def element(short: str) -> Any:
    return Pointer(FP32) if short == "ptr<fp32>" else scalar_type(short)


def tile_of(short: str, dims: Index, start: int = 0) -> tuple[Tile, Any]:
    """A tile's type and a value whose elements have distinct bytes where possible."""
    t = Tile(dims, element(short))
    size = numpy_of(t).itemsize
    raw = np.arange(start, start + t.numel * size, dtype=np.uint64).astype(np.uint8)
    value = (raw % 3 == 1) if short == "i1" else raw.view(numpy_of(t))
    return t, value.reshape(dims)


def check_moves(source: Any, result: Any, dims: Index, origin: Callable[[Index], Index]) -> None:
    """Element i of the result has the bytes of element origin(i) of the source."""
    assert result.shape == dims
    assert result.dtype == source.dtype
    for index in product(*map(range, dims)):
        assert result[index].tobytes() == source[origin(index)].tobytes(), index


@pytest.mark.parametrize(("start", "end"), [(0, 1), (0, 7), (-3, 5), (2**31 - 2, 2**31)])
def test_arange(start: int, end: int) -> None:
    (out,) = run_op(shape.Arange, [], [], start=start, end=end)
    assert out.dtype == np.int32
    assert out.tolist() == list(range(start, end))


@pytest.mark.parametrize("short", TYPES)
def test_splat(short: str) -> None:
    t, value = tile_of(short, (1,), 77)
    scalar = int(value[0]) if short == "ptr<fp32>" else np.asarray(value[0])
    (out,) = run_op(shape.Splat, [t.element], [scalar], shape=(2, 3))
    check_moves(value, out, (2, 3), lambda i: (0,))


@pytest.mark.parametrize("short", TYPES)
def test_expand_dims(short: str) -> None:
    t, value = tile_of(short, (2, 3))
    for axis in range(3):
        (out,) = run_op(shape.ExpandDims, [t], [value], axis=axis)
        dims = [2, 3]
        dims.insert(axis, 1)
        check_moves(value, out, tuple(dims), lambda i, a=axis: i[:a] + i[a + 1 :])


@pytest.mark.parametrize("short", TYPES)
def test_broadcast(short: str) -> None:
    t, value = tile_of(short, (1, 3, 1))
    (out,) = run_op(shape.Broadcast, [t], [value], shape=(2, 3, 5))
    check_moves(value, out, (2, 3, 5), lambda i: (0, i[1], 0))


@pytest.mark.parametrize("short", TYPES)
def test_reshape_keeps_the_row_major_order(short: str) -> None:
    t, value = tile_of(short, (3, 4))
    (out,) = run_op(shape.Reshape, [t], [value], shape=(2, 6))
    check_moves(value, out, (2, 6), lambda i: divmod(6 * i[0] + i[1], 4))
    one, value = tile_of(short, (1, 1))
    (out,) = run_op(shape.Reshape, [one], [value], shape=())
    check_moves(value, out, (), lambda i: (0, 0))


def test_reshape_of_a_permuted_tile() -> None:
    t, value = tile_of("i32", (3, 4))
    fn = """func @f(%a: 3x4xi32) -> 12xi32 {
      %b = tile.permute %a, order=(1, 0,) : 3x4xi32 -> 4x3xi32
      %c = tile.reshape %b, shape=(12,) : 4x3xi32 -> 12xi32
      control.return [%c] : 12xi32 -> ()
    }"""
    (out,) = run_text(fn, [value])
    check_moves(value, out, (12,), lambda i: (i[0] % 3, i[0] // 3))
    assert t.numel == 12


@pytest.mark.parametrize("short", TYPES)
def test_permute(short: str) -> None:
    t, value = tile_of(short, (2, 3, 4))
    for order in [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)]:
        (out,) = run_op(shape.Permute, [t], [value], order=order)
        dims = tuple((2, 3, 4)[k] for k in order)

        def origin(i: Index, order: Index = order) -> Index:
            return tuple(i[order.index(axis)] for axis in range(3))

        check_moves(value, out, dims, origin)


@pytest.mark.parametrize("short", TYPES)
def test_join_and_split_are_inverse(short: str) -> None:
    (t, a), (_, b) = tile_of(short, (2, 3)), tile_of(short, (2, 3), 100)
    (joined,) = run_op(shape.Join, [t, t], [a, b])
    both = np.concatenate([a.ravel(), b.ravel()])
    check_moves(both, joined, (2, 3, 2), lambda i: (6 * i[2] + 3 * i[0] + i[1],))
    halves = run_op(shape.Split, [Tile((2, 3, 2), t.element)], [joined])
    assert [h.tobytes() for h in halves] == [a.tobytes(), b.tobytes()]
    scalars = run_op(shape.Split, [Tile((2,), t.element)], [joined[0, 0]])
    assert [s.shape for s in scalars] == [(), ()]
    assert [s.tobytes() for s in scalars] == [a[0, 0].tobytes(), b[0, 0].tobytes()]


def test_join_of_scalars() -> None:
    (out,) = run_op(shape.Join, [I32, I32], [np.int32(4), np.int32(5)])
    assert out.tolist() == [4, 5]


@pytest.mark.parametrize("short", TYPES)
def test_cat(short: str) -> None:
    for axis, (a_dims, b_dims) in enumerate([((2, 3), (4, 3)), ((2, 3), (2, 1))]):
        (s, a), (t, b) = tile_of(short, a_dims), tile_of(short, b_dims, 50)
        (out,) = run_op(shape.Cat, [s, t], [a, b], axis=axis)
        border = a_dims[axis]
        for index in product(*map(range, out.shape)):
            moved = list(index)
            moved[axis] -= border if index[axis] >= border else 0
            source = b if index[axis] >= border else a
            assert out[index].tobytes() == source[tuple(moved)].tobytes()
        assert out.shape[axis] == border + b_dims[axis]


@pytest.mark.parametrize("short", TYPES)
def test_flip(short: str) -> None:
    t, value = tile_of(short, (3, 4))
    (rows,) = run_op(shape.Flip, [t], [value], axis=0)
    check_moves(value, rows, (3, 4), lambda i: (2 - i[0], i[1]))
    (columns,) = run_op(shape.Flip, [t], [value], axis=1)
    check_moves(value, columns, (3, 4), lambda i: (i[0], 3 - i[1]))


@pytest.mark.parametrize("index_type", [t for t in INTEGERS if t != "i1"])
@pytest.mark.parametrize("short", TYPES)
def test_gather_clamps(short: str, index_type: str) -> None:
    t, value = tile_of(short, (3, 2))
    reference = [[0, 2], [1, 1], [2, 0], [INTEGERS[index_type].low, INTEGERS[index_type].high]]
    index = np.array(reference, numpy_of(scalar_type(index_type)))
    types = [t, Tile((4, 2), scalar_type(index_type))]
    (out,) = run_op(shape.Gather, types, [value, index], axis=0)
    check_moves(value, out, (4, 2), lambda i: (min(max(reference[i[0]][i[1]], 0), 2), i[1]))


# -- reductions and scans --------------------------------------------------------------------------


def combining(op: str, types: list[str], dims: Index, attrs: str, body: str, out: Index) -> str:
    """A function of one reduction or scan, whose combine region has this body."""
    tiles = [text_of(Tile(dims, scalar_type(t))) for t in types]
    outs = [text_of(Tile(out, scalar_type(t))) if out else t for t in types]
    args = ", ".join(f"%s{i}: {t}" for i, t in enumerate(tiles))
    scalars = ", ".join(f"%{side}{i}: {t}" for side in "ab" for i, t in enumerate(types))
    results = ", ".join(f"%r{i}" for i in range(len(types)))
    return f"""func @f({args}) -> ({", ".join(outs)}) {{
      {results} = {op} [{", ".join(f"%s{i}" for i in range(len(types)))}], {attrs}
        : ({", ".join(tiles)}) -> ({", ".join(outs)}) {{
        ({scalars})
        {body}
      }}
      control.return [{results}] : ({", ".join(outs)}) -> ()
    }}"""


def simple_body(op: str, t: str) -> str:
    extra = ", propagate_nan=False" if op in ("arith.min", "arith.max") else ""
    return f"%c = {op} %a0, %b0{extra} : ({t}, {t}) -> {t}\ncontrol.yield [%c] : {t} -> ()"


INTEGER_COMBINE: dict[str, Callable[[int, int], int]] = {
    "arith.add": lambda a, b: a + b,
    "arith.mul": lambda a, b: a * b,
    "arith.min": min,
    "arith.max": max,
    "arith.and": lambda a, b: a & b,
    "arith.or": lambda a, b: a | b,
    "arith.xor": lambda a, b: a ^ b,
}


@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("op", INTEGER_COMBINE)
@pytest.mark.parametrize("short", ["i8", "u16", "i32", "u64"])
def test_integer_reductions_and_scans(short: str, op: str, length: int) -> None:
    t, f = INTEGERS[short], INTEGER_COMBINE[op]
    rows = [t.samples(40)[k : k + length] for k in (0, 7, 11)]
    value = np.array(rows, numpy_of(scalar_type(short)))

    def combine(a: int, b: int) -> int:
        return t.wrap(f(a, b))

    body, dims = simple_body(op, short), (3, length)
    (total,) = run_text(combining("tile.reduce", [short], dims, "axis=1", body, (3,)), [value])
    assert total.tolist() == [fold(combine, row) for row in rows]
    for reverse in (False, True):
        attrs = f"axis=1, reverse={reverse}"
        (out,) = run_text(combining("tile.scan", [short], dims, attrs, body, dims), [value])
        for row, found in zip(rows, out.tolist(), strict=True):
            line = row[::-1] if reverse else row
            prefixes = [fold(combine, line[: i + 1]) for i in range(length)]
            assert found == (prefixes[::-1] if reverse else prefixes)


def test_reduction_along_each_axis_of_rank_3() -> None:
    dims = (2, 3, 5)
    value = np.arange(30, dtype=np.int32).reshape(dims)
    for axis in range(3):
        out = dims[:axis] + dims[axis + 1 :]
        text = combining(
            "tile.reduce", ["i32"], dims, f"axis={axis}", simple_body("arith.add", "i32"), out
        )
        (total,) = run_text(text, [value])
        for index in product(*map(range, out)):
            parts = [value[(*index[:axis], k, *index[axis:])] for k in range(dims[axis])]
            assert total[index] == sum(int(p) for p in parts)


@pytest.mark.parametrize("short", ["fp16", "bf16", "fp32", "fp64"])
@pytest.mark.parametrize("length", [1, 2, 7, 16])
def test_float_sum_is_a_balanced_tree(short: str, length: int) -> None:
    f = FORMATS[short]
    start = f.encode(1.0)
    patterns = [start + (k * 2654435761) % (1 << f.mantissa) for k in range(length)]
    (total,) = run_text(
        combining("tile.reduce", [short], (length,), "axis=0", simple_body("arith.add", short), ()),
        [array_of(short, patterns)],
    )
    level = [Fraction(f.decode(p)) for p in patterns]
    while len(level) > 1:
        pairs = [level[i] + level[i + 1] for i in range(0, len(level) - 1, 2)]
        rest = level[-1:] if len(level) % 2 else []
        level = [Fraction(f.decode(f.encode(p))) for p in pairs] + rest
    assert numbers_of(short, total) == [f.encode(level[0])]


def test_max_of_a_row_with_nans() -> None:
    nan = math.nan
    value = np.array([[nan, 1, nan, -2, nan], [nan] * 5, [-0.0, -0.0, 0.0, -0.0, nan]], np.float32)
    (top,) = run_text(
        combining(
            "tile.reduce", ["fp32"], (3, 5), "axis=1", simple_body("arith.max", "fp32"), (3,)
        ),
        [value],
    )
    assert [str(float(v)) for v in top] == ["1.0", "nan", "0.0"]


# The larger value, and of equal ones the one with the smaller index.
ARGMAX = """
%more = arith.cmp %a0, %b0, predicate="gt" : (fp32, fp32) -> i1
%same = arith.cmp %a0, %b0, predicate="eq" : (fp32, fp32) -> i1
%first = arith.cmp %a1, %b1, predicate="lt" : (i32, i32) -> i1
%tie = arith.and %same, %first : (i1, i1) -> i1
%left = arith.or %more, %tie : (i1, i1) -> i1
%v = arith.select %left, %a0, %b0 : (i1, fp32, fp32) -> fp32
%i = arith.select %left, %a1, %b1 : (i1, i32, i32) -> i32
control.yield [%v, %i] : (fp32, i32) -> ()
"""


@pytest.mark.parametrize("length", [1, 4, 9])
def test_argmax_reduces_two_tiles_together(length: int) -> None:
    rng = np.random.default_rng(length)
    value = rng.integers(0, 4, (6, length)).astype(np.float32)
    index = np.tile(np.arange(length, dtype=np.int32), (6, 1))
    text = combining("tile.reduce", ["fp32", "i32"], (6, length), "axis=1", ARGMAX, (6,))
    top, where = run_text(text, [value, index])
    rows = value.tolist()
    assert top.tolist() == [max(row) for row in rows]
    assert where.tolist() == [row.index(max(row)) for row in rows]


# x -> m x + c after x -> n x + d: associative, but its operands may not be swapped.
AFFINE = """
%m = arith.mul %a0, %b0 : (i32, i32) -> i32
%s = arith.mul %a1, %b0 : (i32, i32) -> i32
%c = arith.add %s, %b1 : (i32, i32) -> i32
control.yield [%m, %c] : (i32, i32) -> ()
"""


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_keeps_the_order_of_its_operands(reverse: bool) -> None:
    m, c = [2, 3, -1, 5, 2, 7], [1, 0, 4, -2, 3, 1]
    attrs = f"axis=0, reverse={reverse}"
    text = combining("tile.scan", ["i32", "i32"], (6,), attrs, AFFINE, (6,))
    got_m, got_c = run_text(text, [np.array(m, np.int32), np.array(c, np.int32)])
    steps = list(zip(m, c, strict=True))
    expected: list[tuple[int, int]] = []
    for step in steps[::-1] if reverse else steps:
        a, b = expected[-1] if expected else (1, 0)
        expected.append((a * step[0], b * step[0] + step[1]))
    expected = expected[::-1] if reverse else expected
    assert list(zip(got_m.tolist(), got_c.tolist(), strict=True)) == expected


# -- products of matrices --------------------------------------------------------------------------

DOTS = [
    ("i8", "i8", "i32"), ("u8", "u8", "i32"), ("fp16", "fp16", "fp16"), ("fp16", "fp16", "fp32"),
    ("bf16", "bf16", "fp32"), ("fp32", "fp32", "fp32"), ("fp64", "fp64", "fp64"),
    *product(list(FORMATS)[:4], list(FORMATS)[:4], ("fp16", "fp32")),
]  # fmt: skip


def exact_product(lhs: Any, rhs: Any, acc: Any) -> list[Any]:
    """acc + lhs @ rhs of nested lists of exact numbers."""
    inner, columns = len(rhs), len(rhs[0])
    return [
        [acc[i][j] + sum(lhs[i][k] * rhs[k][j] for k in range(inner)) for j in range(columns)]
        for i in range(len(lhs))
    ]


def random_matrix(short: str, dims: Index, seed: int) -> tuple[Any, Any]:
    """An array, and the same numbers as nested lists: integers, or floats of at most 2 in size."""
    rng = np.random.default_rng(seed)
    if short in INTEGERS:
        t = INTEGERS[short]
        numbers = rng.integers(t.low, t.high, dims, endpoint=True).tolist()
        return np.array(numbers, numpy_of(scalar_type(short))), numbers
    f = FORMATS[short]
    patterns = [f.encode(v) for v in rng.uniform(-2, 2, math.prod(dims)).tolist()]
    numbers = np.array([Fraction(f.decode(p)) for p in patterns], object).reshape(dims).tolist()
    return array_of(short, patterns).reshape(dims), numbers


@pytest.mark.parametrize("types", DOTS, ids="-".join)
def test_dot_is_as_exact_as_its_accumulator(types: tuple[str, str, str]) -> None:
    dims = [(3, 5), (5, 4), (3, 4)]
    arrays, numbers = zip(
        *(random_matrix(t, d, i) for i, (t, d) in enumerate(zip(types, dims, strict=True))),
        strict=True,
    )
    tiles = [Tile(d, scalar_type(t)) for t, d in zip(types, dims, strict=True)]
    (out,) = run_op(dot.Dot, tiles, arrays)
    expected = [e for row in exact_product(*numbers) for e in row]
    if types[2] == "i32":
        assert out.ravel().tolist() == [INTEGERS["i32"].wrap(e) for e in expected]
        return
    f = FORMATS[types[2]]
    found = numbers_of(types[2], out)
    if types[2] != "fp64":  # the sum is exact in fp64, or nearly, and rounded once
        assert found == [f.encode(e) for e in expected]
        return
    for p, e in zip(found, expected, strict=True):
        assert abs(Fraction(f.decode(p)) - e) <= Fraction(1, 2**45)


def test_dot_of_a_batch() -> None:
    rng = np.random.default_rng(5)
    a, b, c = (rng.integers(-5, 5, d).astype(np.float32) for d in [(2, 3, 4), (2, 4, 5), (2, 3, 5)])
    (out,) = run_op(dot.Dot, [Tile(x.shape, FP32) for x in (a, b, c)], [a, b, c])
    for k in range(2):
        assert out[k].tolist() == exact_product(a[k].tolist(), b[k].tolist(), c[k].tolist())


def test_integer_dot_wraps() -> None:
    a, b = np.full((1, 4), -128, np.int8), np.full((4, 1), -128, np.int8)
    acc = np.full((1, 1), 2**31 - 1, np.int32)
    tiles = [Tile((1, 4), scalar_type("i8")), Tile((4, 1), scalar_type("i8")), Tile((1, 1), I32)]
    (out,) = run_op(dot.Dot, tiles, [a, b, acc])
    assert out[0, 0] == -(2**31) - 1 + 4 * 128 * 128


def test_tf32_rounds_the_operands_to_10_bits_and_ieee_does_not() -> None:
    tf32 = FORMATS["fp16"]  # has 10 bits as well, and the numbers are within its range
    values = [1 + Fraction(1, 2**11) + Fraction(k, 2**23) for k in (-1, 0, 1, 4096)] + [
        Fraction(3, 2) + Fraction(3, 2**11)
    ]
    lhs = np.array([[float(v) for v in values]], np.float32).T
    one, zero = np.ones((1, 1), np.float32), np.zeros((5, 1), np.float32)
    tiles = [Tile((5, 1), FP32), Tile((1, 1), FP32), Tile((5, 1), FP32)]
    (exact,) = run_op(dot.Dot, tiles, [lhs, one, zero], precision="ieee")
    assert exact.tolist() == lhs.tolist()
    (rounded,) = run_op(dot.Dot, tiles, [lhs, one, zero], precision="tf32")
    assert rounded.ravel().tolist() == [tf32.decode(tf32.encode(v)) for v in values]


def test_tf32_keeps_infinities_and_nans() -> None:
    lhs = np.array([[math.inf], [-math.inf], [math.nan]], np.float32)
    tiles = [Tile((3, 1), FP32), Tile((1, 1), FP32), Tile((3, 1), FP32)]
    args = [lhs, np.ones((1, 1), np.float32), np.zeros((3, 1), np.float32)]
    (out,) = run_op(dot.Dot, tiles, args, precision="tf32")
    assert [str(float(v)) for v in out.ravel()] == ["inf", "-inf", "nan"]


@pytest.mark.parametrize("short", [t for t in INTEGERS if t != "i1"])
@pytest.mark.parametrize("dims", [(1,), (8,), (7,), (3, 5)], ids=str)
def test_sort(short: str, dims: Index) -> None:
    t = INTEGERS[short]
    count = math.prod(dims)
    numbers = [t.samples(count)[i * 7 % count] for i in range(count)]
    value = array_of(short, numbers).reshape(dims)
    rows = [list(row) for row in value.reshape(-1, dims[-1]).tolist()]
    for descending in (False, True):
        (out,) = run_op(sort.Sort, [Tile(dims, element(short))], [value], descending=descending)
        expected = [sorted(row, reverse=descending) for row in rows]
        assert out.reshape(-1, dims[-1]).tolist() == expected


@pytest.mark.parametrize("extent", [1, 2, 3, 4, 5, 6, 7, 8, 12, 16])
def test_network_sorts_every_sequence_of_zeros_and_ones(extent: int) -> None:
    """A network of exchanges that does so sorts all sequences (Knuth, 5.3.4, the 0-1 principle)."""
    rows = np.array(list(product([0, 1], repeat=extent)))
    for mask, top in sort.network(extent):
        for i in range(extent):
            if i & top == 0 and i ^ mask < extent:
                low, high = rows[:, i].copy(), rows[:, i ^ mask].copy()
                rows[:, i], rows[:, i ^ mask] = np.minimum(low, high), np.maximum(low, high)
    assert (np.diff(rows, axis=1) >= 0).all()


@pytest.mark.parametrize("descending", [False, True])
def test_merge_of_a_rising_and_a_falling_sequence(descending: bool) -> None:
    rows = [[1, 4, 6, 9, 8, 5, 2, 0], [9, 7, 3, 1, 0, 2, 2, 5], [5, 5, 5, 5, 5, 5, 5, 5]]
    value = np.array(rows, np.int32)
    t = Tile((3, 8), I32)
    (out,) = run_op(sort.Sort, [t], [value], descending=descending, merge=True)
    assert out.tolist() == [sorted(row, reverse=descending) for row in rows]


@pytest.mark.parametrize("short", [t for t in INTEGERS if t != "i1"])
def test_histogram(short: str) -> None:
    numbers = [0, 3, 3, 1, 0, 3, 2, *INTEGERS[short].samples(4)[:4]]
    value = array_of(short, numbers)
    t = Tile((len(numbers),), element(short))
    mask = np.array([i % 4 != 1 for i in range(len(numbers))])
    (out,) = run_op(histogram.Histogram, [t], [value], bins=3, mask=None)
    assert out.dtype == np.int32
    assert out.tolist() == [numbers.count(i) for i in range(3)]
    fn = f"""func @f(%a: {len(numbers)}x{short}, %m: {len(numbers)}xi1) -> 4xi32 {{
      %b = tile.histogram %a, %m, bins=4 : ({len(numbers)}x{short}, {len(numbers)}xi1) -> 4xi32
      control.return [%b] : 4xi32 -> ()
    }}"""
    (out,) = run_text(fn, [value, mask])
    left = [n for n, counted in zip(numbers, mask, strict=True) if counted]
    assert out.tolist() == [left.count(i) for i in range(4)]


def test_map_runs_control_flow_for_each_element() -> None:
    fn = """func @f(%a: 2x3xi32) -> (2x3xi32, 2x3xi1) {
      %b, %c = tile.map [%a], pack=1 : 2x3xi32 -> (2x3xi32, 2x3xi1) {
        (%x: i32)
        %zero = arith.constant value=0, type=i32 : () -> i32
        %one = arith.constant value=1, type=i32 : () -> i32
        %n = control.for %zero, %x, %one, [%zero], num_stages=0, unroll=0, hints=()
          : (i32, i32, i32, i32) -> i32 {
          (%i: i32, %sum: i32)
          %next = arith.add %sum, %i : (i32, i32) -> i32
          control.yield [%next] : i32 -> ()
        }
        %odd = arith.cmp %n, %one, predicate="eq" : (i32, i32) -> i1
        control.yield [%n, %odd] : (i32, i1) -> ()
      }
      control.return [%b, %c] : (2x3xi32, 2x3xi1) -> ()
    }"""
    sums, ones = run_text(fn, [np.array([[0, 1, 2], [3, -4, 5]], np.int32)])
    assert sums.tolist() == [[0, 0, 1], [3, 0, 10]]
    assert ones.tolist() == [[False, False, True], [False, False, False]]


def test_map_takes_neighbours_in_row_major_order() -> None:
    fn = """func @f(%a: 2x3xi32, %b: 2x3xi32) -> (2x3xi32, 2x3xi32) {
      %c, %d = tile.map [%a, %b], pack=2 : (2x3xi32, 2x3xi32) -> (2x3xi32, 2x3xi32) {
        (%w: i32, %x: i32, %y: i32, %z: i32)
        %s = arith.sub %w, %x : (i32, i32) -> i32
        control.yield [%x, %w, %s, %z] : (i32, i32, i32, i32) -> ()
      }
      control.return [%c, %d] : (2x3xi32, 2x3xi32) -> ()
    }"""
    a, b = np.arange(6, dtype=np.int32) ** 2, np.arange(6, dtype=np.int32) + 50
    c, d = run_text(fn, [a.reshape(2, 3), b.reshape(2, 3)])
    assert c.ravel().tolist() == [1, 0, 9, 4, 25, 16]
    assert d.ravel().tolist() == [-1, 51, -5, 53, -9, 55]
