"""The interpreter's memory: loads, stores, atomics, and the checks."""

import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright.base.diagnostics import InterpreterError
from tilewright.ir.interpret import Buffer, Checks, evaluate_function, interpret
from tilewright.ir.parser import parse_module
from tilewright.ir.types import SCALARS, DType, numpy_of
from tilewright.ir.verify import verify_module
from tilewright.ops.atomic import KINDS


def run(body: str, signature: str, args: list[Any], grid: Any = 1, **options: Any) -> None:
    """Interpret a kernel with this body; its first op is on line 2 of `kernel.ir`."""
    module = parse_module(
        f"func @k({signature}) {{\n{body.strip()}\ncontrol.return [] : () -> ()\n}}", "kernel.ir"
    )
    verify_module(module)
    interpret(module, grid, args, **options)


def result(body: str, signature: str, type: str, args: list[Any]) -> Any:
    """What `%r` is after the body."""
    text = f"func @f({signature}) -> {type} {{\n{body}\ncontrol.return [%r] : {type} -> ()\n}}"
    module = parse_module(text, "kernel.ir")
    verify_module(module)
    return evaluate_function(module.entry, args)[0]


def gather(type: str, n: int, shape: str = "") -> str:
    """Ops that load `n` elements at the indices %i from %p under the mask %m."""
    return f"""
    %ps = tile.splat %p, shape=({n},) : ptr<{type}> -> {n}xptr<{type}>
    %q = mem.addptr %ps, %i : ({n}xptr<{type}>, {n}xi32) -> {n}xptr<{type}>
    """


def samples(t: DType, n: int) -> Any:
    raw = np.random.default_rng(7).integers(0, 256, n * t.nbytes_in_memory, np.uint8)
    return raw % 2 == 1 if t.is_bool() else raw.view(numpy_of(t))


def bits(a: Any) -> Any:
    return np.ascontiguousarray(a).view(f"u{a.dtype.itemsize}")


@pytest.mark.parametrize("t", SCALARS, ids=lambda t: t.short)
def test_every_type_is_loaded_and_stored_bit_for_bit(t: DType) -> None:
    source, target = samples(t, 8), np.zeros(8, numpy_of(t))
    index = np.array([7, 0, 3, 3], np.int32)
    body = (
        gather(t.short, 4)
        + f"""
    %v = mem.load %q, _, _ : 4xptr<{t.short}> -> 4x{t.short}
    %a = tile.arange start=0, end=4 : () -> 4xi32
    %os = tile.splat %o, shape=(4,) : ptr<{t.short}> -> 4xptr<{t.short}>
    %oq = mem.addptr %os, %a : (4xptr<{t.short}>, 4xi32) -> 4xptr<{t.short}>
    mem.store %oq, %v, _ : (4xptr<{t.short}>, 4x{t.short}) -> ()
    """
    )
    run(body, f"%p: ptr<{t.short}>, %o: ptr<{t.short}>, %i: 4xi32", [source, target, index])
    np.testing.assert_array_equal(bits(target[:4]), bits(source[index]))
    assert not bits(target[4:]).any()


def test_bool_is_true_for_any_byte_but_0() -> None:
    data = np.array([0, 1, 2, 255], np.uint8)
    r = result(
        gather("i1", 4) + "%r = mem.load %q, _, _ : 4xptr<i1> -> 4xi1",
        "%p: ptr<i1>, %i: 4xi32",
        "4xi1",
        [data, np.arange(4, dtype=np.int32)],
    )
    assert r.tolist() == [False, True, True, True]


MASK = np.array([True, False, True, False])
FAR = np.array([0, 10**6, 2, -(10**6)], np.int32)


def test_masked_off_lanes_return_other_and_access_nothing() -> None:
    x = np.array([1, 2, 3], np.float32)
    load = (
        gather("fp32", 4)
        + """
    %s = mem.load %q, %m, _ : (4xptr<fp32>, 4xi1) -> 4xfp32
    %t = mem.load %q, %m, %other : (4xptr<fp32>, 4xi1, 4xfp32) -> 4xfp32
    %r = tile.cat %s, %t, axis=0 : (4xfp32, 4xfp32) -> 8xfp32
    """
    )
    other = np.full(4, 9, np.float32)
    signature = "%p: ptr<fp32>, %i: 4xi32, %m: 4xi1, %other: 4xfp32"
    got = result(load, signature, "8xfp32", [x, FAR, MASK, other])
    assert got.tolist() == [1, 0, 3, 0, 1, 9, 3, 9]
    assert other.tolist() == [9] * 4


STORE = gather("fp32", 4) + "mem.store %q, %v, %m : (4xptr<fp32>, 4xfp32, 4xi1) -> ()"
STORE_ARGS = "%p: ptr<fp32>, %i: 4xi32, %v: 4xfp32, %m: 4xi1"


def test_masked_store_writes_nothing_else() -> None:
    x, v = np.zeros(3, np.float32), np.arange(1, 5, dtype=np.float32)
    run(STORE, STORE_ARGS, [x, FAR, v, MASK])
    assert x.tolist() == [1, 0, 3]


def test_of_equal_addresses_the_last_lane_wins() -> None:
    x, v = np.zeros(2, np.float32), np.arange(1, 5, dtype=np.float32)
    run(STORE, STORE_ARGS, [x, np.array([1, 0, 1, 0], np.int32), v, np.ones(4, np.bool_)])
    assert x.tolist() == [4, 3]


def test_scalar_access_with_a_mask() -> None:
    body = """
    %s = mem.load %p, %m, %v : (ptr<i32>, i1, i32) -> i32
    mem.store %o, %s, %n : (ptr<i32>, i32, i1) -> ()
    """
    for m in (False, True):
        for n in (False, True):
            out = np.array([-1], np.int32)
            run(
                body,
                "%p: ptr<i32>, %o: ptr<i32>, %v: i32, %m: i1, %n: i1",
                [np.array([5], np.int32), out, 8, m, n],
            )
            assert out[0] == ((5 if m else 8) if n else -1)


def test_one_access_may_reach_several_arguments() -> None:
    a, b = np.array([1, 2], np.int32), np.array([3, 4], np.int32)
    body = "%r = mem.load %q, _, _ : 4xptr<i32> -> 4xi32"
    start = a.ctypes.data, b.ctypes.data
    addresses = np.array([start[1] + 4, start[0], start[1], start[0] + 4], np.uint64)
    got = result(body, "%a: ptr<i32>, %b: ptr<i32>, %q: 4xptr<i32>", "4xi32", [a, b, addresses])
    assert got.tolist() == [4, 1, 3, 2]


def test_pointers_in_memory_reach_registered_memory() -> None:
    data = np.array([42], np.int32)
    table = np.array([data.ctypes.data], np.uint64)
    out = np.zeros(1, np.int32)
    body = """
    %d = mem.load %p, _, _ : ptr<ptr<i32>> -> ptr<i32>
    %v = mem.load %d, _, _ : ptr<i32> -> i32
    mem.store %o, %v, _ : (ptr<i32>, i32) -> ()
    """
    signature = "%p: ptr<ptr<i32>>, %o: ptr<i32>"
    run(body, signature, [table, out], reachable=[data])
    assert out[0] == 42
    with pytest.raises(InterpreterError, match="out of bounds"):
        run(body, signature, [table, out])


# -- atomics ---------------------------------------------------------------------------------------


def atomic(kind: str, type: str, x: Any, index: Any, value: Any, mask: Any = None) -> Any:
    """Result of an atomic on x[index], which changes x."""
    n = len(index)
    m = f"%m: {n}xi1, " if mask is not None else ""
    name, more = ("%m", f", {n}xi1") if mask is not None else ("_", "")
    body = gather(type, n) + (
        f'%r = atomic.rmw %q, %v, {name}, kind="{kind}" '
        f": ({n}xptr<{type}>, {n}x{type}{more}) -> {n}x{type}"
    )
    args = [x, np.array(index, np.int32), value, *([] if mask is None else [mask])]
    signature = f"%p: ptr<{type}>, %i: {n}xi32, %v: {n}x{type}, {m}".rstrip(", ")
    return result(body, signature, f"{n}x{type}", args)


def one_by_one(x: list[int], index: list[int], value: list[int], f: Any) -> list[int]:
    old: list[int] = []
    for i, v in zip(index, value, strict=True):
        old.append(x[i])
        x[i] = f(x[i], v)
    return old


@pytest.mark.parametrize("t", ["i32", "u32", "i64", "u64"])
@pytest.mark.parametrize("kind", KINDS)
def test_integer_atomics_act_lane_after_lane(kind: str, t: str) -> None:
    width, signed = int(t[1:]), t[0] == "i"

    def wrap(v: int) -> int:
        v %= 2**width
        return v - 2**width if signed and v >= 2 ** (width - 1) else v

    combine = {
        "add": lambda a, b: wrap(a + b), "max": max, "min": min, "xchg": lambda a, b: b,
        "and": lambda a, b: wrap(a & b), "or": lambda a, b: wrap(a | b),
        "xor": lambda a, b: wrap(a ^ b),
    }[kind]  # fmt: skip
    rng = np.random.default_rng(3)
    dtype = np.dtype(f"{'i' if signed else 'u'}{width // 8}")
    x, value = (rng.integers(0, 2**63, n, np.uint64).view(np.int64).astype(dtype) for n in (4, 64))
    index = rng.integers(0, 4, 64).tolist()
    expected_x = x.tolist()
    expected = one_by_one(expected_x, index, value.tolist(), combine)
    assert atomic(kind, t, x, index, value).tolist() == expected
    assert x.tolist() == expected_x


@pytest.mark.parametrize("t", ["fp16", "bf16", "fp32", "fp64"])
def test_float_add_rounds_after_each_lane(t: str) -> None:
    dtype = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16, "fp32": np.float32}.get(t, np.float64)
    big = 2.0 ** {"bf16": 8, "fp16": 11, "fp32": 24, "fp64": 53}[t]
    x = np.array([0], dtype)
    old = atomic("add", t, x, [0] * 4, np.array([big, 1, 1, -big], dtype))
    assert old.astype(np.float64).tolist() == [0, big, big, big]  # big + 1 rounds back to big
    assert x[0] == 0


@pytest.mark.parametrize(
    ("kind", "before", "value", "after"),
    [
        ("min", "nan", "1.0", "1.0"),
        ("max", "1.0", "nan", "1.0"),
        ("min", "nan", "nan", "nan"),
        ("min", "0.0", "-0.0", "-0.0"),
        ("min", "-0.0", "0.0", "-0.0"),
        ("max", "0.0", "-0.0", "0.0"),
        ("max", "-0.0", "0.0", "0.0"),
        ("max", "-inf", "-1.0", "-1.0"),
        ("min", "3.0", "2.0", "2.0"),
    ],
)
@pytest.mark.parametrize("t", ["fp32", "fp64"])
def test_float_extremes(t: str, kind: str, before: str, value: str, after: str) -> None:
    dtype = np.float32 if t == "fp32" else np.float64
    x = np.array([float(before)], dtype)
    atomic(kind, t, x, [0], np.array([float(value)], dtype))
    assert str(float(x[0])) == after


def test_masked_off_atomic_lanes_return_0_and_access_nothing() -> None:
    x = np.array([10, 20, 30], np.int32)
    old = atomic("add", "i32", x, FAR, np.array([1, 2, 3, 4], np.int32), MASK)
    assert old.tolist() == [10, 0, 30, 0]
    assert x.tolist() == [11, 20, 33]


CAS = (
    gather("fp32", 4)
    + """
%r = atomic.cas %q, %e, %v, _ : (4xptr<fp32>, 4xfp32, 4xfp32) -> 4xfp32
"""
)


def test_compare_and_swap_compares_bits_lane_after_lane() -> None:
    nan = float("nan")
    x = np.array([0.0, nan, 5.0], np.float32)
    expected = np.array([-0.0, nan, 5.0, 6.0], np.float32)
    value = np.array([1.0, 2.0, 6.0, 7.0], np.float32)
    index = np.array([0, 1, 2, 2], np.int32)
    old = result(
        CAS,
        "%p: ptr<fp32>, %i: 4xi32, %e: 4xfp32, %v: 4xfp32",
        "4xfp32",
        [x, index, expected, value],
    )
    np.testing.assert_array_equal(old, np.array([0.0, nan, 5.0, 6.0], np.float32))
    np.testing.assert_array_equal(x, np.array([0.0, 2.0, 7.0], np.float32))


def test_masked_off_lanes_swap_nothing() -> None:
    x = np.array([1, 2, 3], np.float32)
    masked = CAS.replace("%v, _ : (4xptr<fp32>, 4xfp32, 4xfp32)",
                         "%v, %m : (4xptr<fp32>, 4xfp32, 4xfp32, 4xi1)")  # fmt: skip
    old = result(
        masked,
        "%p: ptr<fp32>, %i: 4xi32, %e: 4xfp32, %v: 4xfp32, %m: 4xi1",
        "4xfp32",
        [x, FAR, np.array([1, 2, 9, 9], np.float32), np.full(4, 7, np.float32), MASK],
    )
    assert x.tolist() == [7, 2, 3]
    assert old.tolist() == [1, 0, 3, 0]


def test_misaligned_atomic_is_rejected() -> None:
    x = np.zeros(16, np.uint8)[1:9].view(np.int64)
    with pytest.raises(InterpreterError, match=r"misaligned: lane \(0,\) updates 8 bytes at 0x"):
        atomic("add", "i64", x, [0], np.ones(1, np.int64))


# -- bounds ----------------------------------------------------------------------------------------

LOAD = "%v = mem.load %p, _, _ : ptr<i32> -> i32"


def load_at(offset: int, array: Any, **options: Any) -> str:
    """The message of a load `offset` elements from the array's start, which must fail."""
    body = """
    %q = mem.addptr %p, %i : (ptr<i32>, i32) -> ptr<i32>
    %v = mem.load %q, _, _ : ptr<i32> -> i32
    """
    with pytest.raises(InterpreterError) as caught:
        run(body, "%p: ptr<i32>, %i: i32", [array, offset], **options)
    return str(caught.value).splitlines()[0]


@pytest.mark.parametrize(
    ("offset", "where"),
    [(-1, "4 bytes before the start of"), (4, "just past the end of"), (6, "8 bytes past the end")],
)
def test_out_of_bounds_error_states_the_distance(offset: int, where: str) -> None:
    message = load_at(offset, np.zeros(4, np.int32))
    assert message.startswith("kernel.ir:3:1: mem.load: out of bounds: it reads 4 bytes at 0x")
    assert f"{where} " in message
    assert message.endswith("argument 0 (16 bytes)")


def test_access_across_the_end_is_out_of_bounds() -> None:
    data = np.zeros(4, np.int32)
    at = data.ctypes.data
    message = load_at(0, Buffer(at + 6, (at, at + 8), name="x"))
    assert message.endswith("2 bytes before the end of x (8 bytes)")


def test_out_of_bounds_names_the_lane_and_counts_them() -> None:
    x, v = np.zeros(3, np.float32), np.zeros(4, np.float32)
    index = np.array([0, -1, 2, 3], np.int32)
    with pytest.raises(InterpreterError) as caught:
        run(STORE, STORE_ARGS, [x, index, v, np.array([False, False, True, True])], (2,))
    assert "lane (3,) writes 4 bytes" in str(caught.value)
    assert "program (0, 0, 0) of the grid (2, 1, 1)" in str(caught.value)
    with pytest.raises(InterpreterError, match=r"lane \(1,\) writes .* \(2 lanes do so\)"):
        run(STORE, STORE_ARGS, [x, index, v + 1, np.ones(4, np.bool_)])
    assert not x.any(), "a store that fails writes nothing"


def test_lane_of_a_rank_2_tile() -> None:
    x = np.zeros(2, np.int32)
    addresses = np.full((2, 3), x.ctypes.data, np.uint64)
    addresses[1, 2] -= np.uint64(1 << 20)
    with pytest.raises(InterpreterError, match=r"lane \(1, 2\) reads"):
        run(
            "%v = mem.load %q, _, _ : 2x3xptr<i32> -> 2x3xi32",
            "%p: ptr<i32>, %q: 2x3xptr<i32>",
            [x, addresses],
        )


def test_out_of_bounds_in_a_later_wave_of_an_atomic_names_its_lane() -> None:
    x = np.zeros(2, np.int32)
    with pytest.raises(InterpreterError, match=r"lane \(1,\) updates"):
        atomic("add", "i32", x, [0, 7, 0, 7], np.ones(4, np.int32))


def test_buffer_without_a_name_is_called_by_its_argument() -> None:
    data = np.zeros(4, np.int32)
    at = data.ctypes.data
    message = load_at(4, Buffer(at, (at, at + 16), owner=data))
    assert message.endswith("just past the end of argument 0 (16 bytes)")


def test_null_pointer() -> None:
    for null in (0, Buffer(0)):
        with pytest.raises(InterpreterError, match="at 0x0, a null pointer"):
            run(LOAD, "%p: ptr<i32>", [null])


def test_addresses_beyond_all_memory() -> None:
    message = load_at(0, Buffer(2**64 - 2, (2**64 - 4096, 2**64 - 4096), name="x"))
    assert "out of bounds" in message


def test_read_only_array_is_not_written() -> None:
    x = np.zeros(4, np.float32)
    x.flags.writeable = False
    with pytest.raises(
        InterpreterError, match=r"read-only: lane \(0,\) writes byte 0 of argument 0"
    ):
        run(STORE, STORE_ARGS, [x, np.arange(4, dtype=np.int32), x + 1, np.ones(4, np.bool_)])
    assert not x.any()


def test_memory_of_unknown_extent_is_reached_by_address() -> None:
    x = np.array([1, 2, 3, 4], np.float32)
    address = x.ctypes.data
    run(
        STORE,
        STORE_ARGS,
        [
            address,
            np.array([3, 0, 1, 3], np.int32),
            np.array([5, 6, 7, 8], np.float32),
            np.ones(4, np.bool_),
        ],
    )
    assert x.tolist() == [6, 7, 3, 8]
    got = result(
        gather("fp32", 4) + "%r = mem.load %q, _, _ : 4xptr<fp32> -> 4xfp32",
        "%p: ptr<fp32>, %i: 4xi32",
        "4xfp32",
        [address, np.arange(4, dtype=np.int32)],
    )
    assert got.tolist() == x.tolist()


def test_without_the_check_any_memory_is_reached() -> None:
    x = np.array([1, 2, 3, 4], np.int32)
    assert "out of bounds" in load_at(2, x[:2])
    out = np.zeros(1, np.int32)
    body = """
    %q = mem.addptr %p, %i : (ptr<i32>, i32) -> ptr<i32>
    %v = mem.load %q, _, _ : ptr<i32> -> i32
    mem.store %o, %v, _ : (ptr<i32>, i32) -> ()
    """
    run(
        body,
        "%p: ptr<i32>, %i: i32, %o: ptr<i32>",
        [x[:2], 2, out],
        checks=Checks(out_of_bounds=False),
    )
    assert out[0] == 3


def test_memory_keeps_no_reference_after_the_run() -> None:
    x = np.zeros(4, np.int32)
    before = sys.getrefcount(x)
    run(LOAD, "%p: ptr<i32>", [x])
    assert sys.getrefcount(x) == before


# -- bytes never written ---------------------------------------------------------------------------

HALVES = """
mem.store %p, %h, _ : (ptr<i16>, i16) -> ()
%w = arith.bitcast %p, to=ptr<i32> : ptr<i16> -> ptr<i32>
%v = mem.load %w, _, _ : ptr<i32> -> i32
"""


def test_read_of_bytes_never_written() -> None:
    checks = Checks(uninitialised=True)
    raw = Buffer.of(np.zeros(8, np.int16), initialised=False, name="raw")
    message = r"mem\.load: uninitialised: it reads byte 0 of raw \(16 bytes\), which was never"
    with pytest.raises(InterpreterError, match=message):
        run(HALVES, "%p: ptr<i16>, %h: i16", [raw, 1], checks=checks)
    run(HALVES, "%p: ptr<i16>, %h: i16", [raw, 1])  # the check is off
    whole = HALVES.replace(
        "%w =",
        """%one = arith.constant value=1, type=i32 : () -> i32
        %n = mem.addptr %p, %one : (ptr<i16>, i32) -> ptr<i16>
        mem.store %n, %h, _ : (ptr<i16>, i16) -> ()
        %w =""",
    )
    run(whole, "%p: ptr<i16>, %h: i16", [raw, 1], checks=checks)


def test_atomics_count_as_reads_and_initialised_buffers_may_be_read() -> None:
    checks = Checks(uninitialised=True)
    body = 'atomic.rmw %p, %v, _, kind="add" : (ptr<i32>, i32) -> i32'
    x = np.zeros(1, np.int32)
    run(body, "%p: ptr<i32>, %v: i32", [x, 1], checks=checks)
    with pytest.raises(InterpreterError, match="uninitialised: it reads"):
        run(body, "%p: ptr<i32>, %v: i32", [Buffer.of(x, initialised=False), 1], checks=checks)


# -- races -----------------------------------------------------------------------------------------

RACES = Checks(races=True)
ID = "%i = program.id axis=0 : () -> i32"
WRITE = "mem.store %p, %i, _ : (ptr<i32>, i32) -> ()"
WRITE_LOCK = "mem.store %l, %i, _ : (ptr<i32>, i32) -> ()"
READ = "mem.load %p, _, _ : ptr<i32> -> i32"
TAKE = 'atomic.rmw %l, %i, _, kind="max", sem="acquire" : (ptr<i32>, i32) -> i32'
GIVE = 'atomic.rmw %l, %i, _, kind="max", sem="release" : (ptr<i32>, i32) -> i32'
BOTH = 'atomic.rmw %l, %i, _, kind="max" : (ptr<i32>, i32) -> i32'
RELAXED = 'atomic.rmw %l, %i, _, kind="max", sem="relaxed" : (ptr<i32>, i32) -> i32'
ON_P = 'atomic.rmw %p, %i, _, kind="max", sem="relaxed" : (ptr<i32>, i32) -> i32'


def race(*ops: str, grid: Any = 2) -> None:
    run(
        "\n".join([ID, *ops]),
        "%p: ptr<i32>, %l: ptr<i32>",
        [np.zeros(1, np.int32), np.zeros(1, np.int32)],
        grid,
        checks=RACES,
    )


@pytest.mark.parametrize(
    "ops",
    [
        [WRITE], [READ, WRITE], [WRITE, READ], [RELAXED, WRITE, RELAXED], [ON_P, WRITE],
        [WRITE, ON_P], [TAKE, WRITE], [WRITE, GIVE], [GIVE, WRITE, TAKE], [BOTH, WRITE],
        [WRITE, BOTH, READ],
    ],
)  # fmt: skip
def test_unordered_accesses_race(ops: list[str]) -> None:
    with pytest.raises(InterpreterError, match="race"):
        race(*ops)


@pytest.mark.parametrize(
    "ops",
    [
        [READ], [ON_P], [READ, ON_P], [TAKE, WRITE, GIVE], [BOTH, READ, WRITE, BOTH],
        [TAKE, READ, WRITE, ON_P, GIVE], [BOTH, ON_P, WRITE, BOTH], [BOTH, WRITE_LOCK, BOTH],
    ],
)  # fmt: skip
def test_ordered_accesses_do_not_race(ops: list[str]) -> None:
    race(*ops, grid=5)


def test_race_names_both_lines_and_both_programs() -> None:
    with pytest.raises(InterpreterError) as caught:
        race(READ, WRITE, grid=(2, 2))
    first, where = str(caught.value).splitlines()[:2]
    assert first == (
        "kernel.ir:3:1: mem.load: race: it reads byte 0 of argument 0 (4 bytes), which program "
        "(0, 0, 0) accessed by mem.store at kernel.ir:4:1; nothing orders the two"
    )
    assert where == "  in program (1, 0, 0) of the grid (2, 2, 1)"


def test_store_races_with_an_earlier_reader() -> None:
    # Programs 0 and 1 read; then program 1 stores, whose own read came last.
    body = f"""{ID}
    {READ}
    %one = arith.constant value=1, type=i32 : () -> i32
    %m = arith.cmp %i, %one, predicate="eq" : (i32, i32) -> i1
    mem.store %p, %i, %m : (ptr<i32>, i32, i1) -> ()
    """
    with pytest.raises(InterpreterError, match=r"program \(0, 0, 0\) accessed by mem\.load"):
        run(body, "%p: ptr<i32>", [np.zeros(1, np.int32)], 2, checks=RACES)


def test_order_is_transitive_and_kept_per_address() -> None:
    # Each program takes lock i and gives lock i + 1, so 0 is before 1 is before 2.
    body = f"""{ID}
    %one = arith.constant value=1, type=i32 : () -> i32
    %j = arith.add %i, %one : (i32, i32) -> i32
    %mine = mem.addptr %l, %i : (ptr<i32>, i32) -> ptr<i32>
    %next = mem.addptr %l, %SIDE : (ptr<i32>, i32) -> ptr<i32>
    %t = atomic.rmw %mine, %i, _, kind="max", sem="acquire" : (ptr<i32>, i32) -> i32
    %two = arith.constant value=2, type=i32 : () -> i32
    %odd = arith.cmp %i, %one, predicate="ne" : (i32, i32) -> i1
    mem.store %p, %i, %odd : (ptr<i32>, i32, i1) -> ()
    %g = atomic.rmw %next, %i, _, kind="max", sem="release" : (ptr<i32>, i32) -> i32
    """

    def args() -> list[Any]:
        return [np.zeros(1, np.int32), np.zeros(8, np.int32)]

    run(body.replace("SIDE", "j"), "%p: ptr<i32>, %l: ptr<i32>", args(), 3, checks=RACES)
    with pytest.raises(InterpreterError, match="race"):
        run(body.replace("SIDE", "i"), "%p: ptr<i32>, %l: ptr<i32>", args(), 3, checks=RACES)


def test_disjoint_stores_of_many_programs_do_not_race() -> None:
    body = f"""{ID}
    %q = mem.addptr %p, %i : (ptr<i32>, i32) -> ptr<i32>
    mem.store %q, %i, _ : (ptr<i32>, i32) -> ()
    """
    x = np.zeros(3000, np.int32)
    run(body, "%p: ptr<i32>", [x], 3000, checks=RACES)
    assert x.tolist() == list(range(3000))


def test_overlapping_arguments_share_their_history() -> None:
    body = f"""{ID}
    mem.store %p, %i, _ : (ptr<i32>, i32) -> ()
    %v = mem.load %l, _, _ : ptr<i32> -> i32
    """
    x = np.zeros(4, np.int32)
    with pytest.raises(InterpreterError, match="race"):
        run(body, "%p: ptr<i32>, %l: ptr<i32>", [x[:3], x], 2, checks=RACES)
