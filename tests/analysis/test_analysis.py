"""Parts of the analyses that the `.ir` files do not cover."""

import numpy as np
import pytest

from tilewright.analysis import ranges
from tilewright.analysis.axis_rules import AxisInfo, power_of_two_in
from tilewright.analysis.pointers import base_of, may_overlap, split_pointer
from tilewright.analysis.ranges import value_range
from tilewright.analysis.signs import not_negative
from tilewright.ir.core import Module, Op, Value
from tilewright.ir.interpret import interpret
from tilewright.ir.parser import parse_module
from tilewright.ops.arith import Sub

POINTERS = """
func @f(%p: ptr<i32> {alias=0}, %q: ptr<i32> {alias=1}, %r: ptr<i32>, %u: i64) {
  %a = tile.arange start=0, end=8 : () -> 8xi32
  %s = mem.addptr %p, %u : (ptr<i32>, i64) -> ptr<i32>
  %t = tile.splat %s, shape=(8,) : ptr<i32> -> 8xptr<i32>
  %v = mem.addptr %t, %a : (8xptr<i32>, 8xi32) -> 8xptr<i32>
  %w = tile.splat %q, shape=(8,) : ptr<i32> -> 8xptr<i32>
  %x = mem.addptr %v, %a : (8xptr<i32>, 8xi32) -> 8xptr<i32>
  control.return [] : () -> ()
}
"""


def _named(module: Module) -> dict[str, Value]:
    """The results by the order of their ops: s, t, v, w, x as in the text, and the arguments."""
    results = [op.result for op in module.entry.body if op.results]
    return dict(zip("astvwx", results, strict=True)) | dict(
        zip("pqru", module.entry.args, strict=True)
    )


def test_canonical_pointer_is_split_into_its_parts() -> None:
    v = _named(parse_module(POINTERS))
    assert split_pointer(v["v"]) == (v["p"], v["u"], v["a"])
    assert split_pointer(v["t"]) == (v["p"], v["u"], None)
    assert split_pointer(v["s"]) == (v["p"], v["u"], None)
    assert split_pointer(v["w"]) == (v["q"], None, None)
    assert split_pointer(v["p"]) == (v["p"], None, None)


def test_pointer_in_another_form_is_its_own_base() -> None:
    v = _named(parse_module(POINTERS))
    assert split_pointer(v["x"]) == (v["v"], None, v["a"])
    assert base_of(v["x"]) is v["p"]


def test_pointers_overlap_unless_their_classes_differ() -> None:
    module = parse_module(POINTERS)
    v = _named(module)
    assert not may_overlap(module.entry, v["v"], v["w"])
    assert may_overlap(module.entry, v["v"], v["p"])
    assert may_overlap(module.entry, v["v"], v["r"])


BOOLS = """
func @f(%p: ptr<i1> {alias=0}, %q: ptr<i32> {alias=1}, %u: i64) {
  %a = tile.arange start=0, end=8 : () -> 8xi32
  %s = mem.addptr %p, %u : (ptr<i1>, i64) -> ptr<i1>
  %t = tile.splat %s, shape=(8,) : ptr<i1> -> 8xptr<i1>
  %v = mem.addptr %t, %a : (8xptr<i1>, 8xi32) -> 8xptr<i1>
  %w = arith.bitcast %v, to=ptr<i8> : 8xptr<i1> -> 8xptr<i8>
  %x = arith.bitcast %q, to=ptr<i8> : ptr<i32> -> ptr<i8>
  control.return [] : () -> ()
}
"""


def test_pointers_of_bools_are_those_of_their_bytes() -> None:
    """A cast to elements of another size ends the form, as offsets are in elements."""
    module = parse_module(BOOLS)
    a, _, _, _, w, x = (op.result for op in module.entry.body if op.results)
    p, q, u = module.entry.args
    assert split_pointer(w) == (p, u, a)
    assert split_pointer(x) == (x, None, None)
    assert base_of(x) is q
    assert not may_overlap(module.entry, w, q)


@pytest.mark.parametrize(("number", "power"), [(1, 1), (12, 4), (-8, 8), (0, 1 << 32), (7, 1)])
def test_power_of_two_in(number: int, power: int) -> None:
    assert power_of_two_in(number) == power


def test_vector_length_is_bounded_by_contiguity_and_alignment() -> None:
    info = AxisInfo((1, 64), (4, 16), (1, 1))
    assert info.vector_length(1, element_bytes=2) == 8
    assert info.vector_length(1, element_bytes=32) == 1
    assert info.vector_length(0, element_bytes=2) == 1


RANGES = """
func @f(%x: i32, %n: i32) {
  %c = arith.constant value=100, type=i32 : () -> i32
  %r = arith.rem %x, %c : (i32, i32) -> i32
  %q = arith.idiv %n, %c : (i32, i32) -> i32
  %p = program.id axis=0 : () -> i32
  %d = arith.idiv %p, %c : (i32, i32) -> i32
  %e = arith.mul %p, %c : (i32, i32) -> i32
  %m = arith.min %p, %c : (i32, i32) -> i32
  %w = arith.cast %p, to=i64, rounding="rtne" : i32 -> i64
  %k = arith.constant value=100, type=i64 : () -> i64
  %l = arith.mul %w, %k : (i64, i64) -> i64
  %s = arith.idiv %p, %n : (i32, i32) -> i32
  control.return [] : () -> ()
}
"""


def _range_of(name: str) -> tuple[int, int]:
    module = parse_module(RANGES)
    ops: list[Op] = list(module.entry.body)
    return value_range(ops["crqpdemwkls".index(name)].result)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("r", -99, 99),
        ("q", -(2**31) // 100 + 1, (2**31 - 1) // 100),
        ("d", 0, (2**31 - 2) // 100),
        ("e", -(2**31), 2**31 - 1),  # it may wrap
        ("m", 0, 100),
        ("l", 0, (2**31 - 2) * 100),
        ("s", -(2**31) + 2, 2**31 - 2),  # the divisor may be negative
    ],
)
def test_range(name: str, low: int, high: int) -> None:
    assert _range_of(name) == (low, high)


REST = """
func @f(%x: i8, %d: i8) {{
  %a = arith.hint %x, divisibility=(0,), contiguity=(0,), constancy=(0,), low={x[0]}, high={x[1]}
    : i8 -> i8
  %b = arith.hint %d, divisibility=(0,), contiguity=(0,), constancy=(0,), low={d[0]}, high={d[1]}
    : i8 -> i8
  %q = arith.idiv %a, %b : (i8, i8) -> i8
  %p = arith.mul %b, %q : (i8, i8) -> i8
  %r = arith.sub %a, %p : (i8, i8) -> i8
  control.return [] : () -> ()
}}
"""


@pytest.mark.parametrize("x", [(-128, 127), (-128, -1), (5, 90), (-3, 2), (0, 0)])
@pytest.mark.parametrize("d", [(-128, 127), (-9, -1), (-1, -1), (1, 1), (3, 50), (0, 7), (0, 0)])
def test_range_of_rest(x: tuple[int, int], d: tuple[int, int]) -> None:
    """The bounds of ``x - x // d * d`` hold for all operands, also where nothing is divided."""
    *_, quotient, scaled, rest, _ = parse_module(REST.format(x=x, d=d)).entry.body
    dividends, divisors = np.meshgrid(*(np.arange(a, b + 1, dtype=np.int8) for a, b in (x, d)))
    with np.errstate(over="ignore"):  # the quotient of -128 by -1
        subtracted = scaled.evaluate(divisors, quotient.evaluate(dividends, divisors))
        found = rest.evaluate(dividends, subtracted)
    low, high = value_range(rest.result)
    assert low <= found.min() <= found.max() <= high
    assert not_negative(rest.result) == (found.min() >= 0)
    if 0 not in range(d[0], d[1] + 1):
        assert max(-low, high) < max(map(abs, d))


def test_shared_operands_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each path, of which there are 2 to the power of the depth."""
    steps = "".join(
        f"  %{i + 1} = arith.min %{i}, %{i}, propagate_nan=False : (i32, i32) -> i32\n"
        for i in range(30)
    )
    text = f"func @f() {{\n  %0 = program.id axis=0 : () -> i32\n{steps}"
    *_, last, _ = parse_module(text + "  control.return [] : () -> ()\n}\n").entry.body
    count = 0
    type_range = ranges.type_range

    def counted(value: Value) -> ranges.Range:
        nonlocal count
        count += 1
        return type_range(value)

    monkeypatch.setattr(ranges, "type_range", counted)
    assert value_range(last.result) == type_range(last.result)
    assert count == ranges.MAX_DEPTH + 1


PARTS = """
func @f(%p: ptr<{type}>, %n: {type}) {{
  %none = arith.constant value=0, type={type} : () -> {type}
  %one = arith.constant value=1, type={type} : () -> {type}
  %size = arith.constant value={size}, type={type} : () -> {type}
  %more = arith.constant value={more}, type={type} : () -> {type}
  %most = arith.add %n, %more : ({type}, {type}) -> {type}
  %parts = arith.idiv %most, %size : ({type}, {type}) -> {type}
  control.for %none, %parts, %one, [], num_stages=0, unroll=0, hints=()
    : ({type}, {type}, {type}) -> () {{
    (%i: {type})
    %begin = arith.mul %i, %size : ({type}, {type}) -> {type}
    %rest = arith.sub %n, %begin : ({type}, {type}) -> {type}
    %to = mem.addptr %p, %i : (ptr<{type}>, {type}) -> ptr<{type}>
    mem.store %to, %rest, _, cache="", evict="" : (ptr<{type}>, {type}) -> ()
    control.yield [] : () -> ()
  }}
  control.return [] : () -> ()
}}
"""


def _rests(type: str, size: int, more: int) -> tuple[Module, tuple[int, int]]:
    """A loop that stores the elements from each part on, and the range of their number."""
    module = parse_module(PARTS.format(type=type, size=size, more=more))
    rest = next(op for op in module.walk() if isinstance(op, Sub))
    return module, value_range(rest.result)


@pytest.mark.parametrize("type", ["i8", "u8"])
@pytest.mark.parametrize("size", [1, 16, 100])
def test_elements_from_a_part_on_are_at_least_one(type: str, size: int) -> None:
    """Also where the rounded number of elements wraps."""
    module, (low, _) = _rests(type, size, size - 1)
    assert low == 1
    numbers = np.dtype({"i8": np.int8, "u8": np.uint8}[type])
    for n in range(np.iinfo(numbers).min, np.iinfo(numbers).max + 1):
        stored = np.ones(256, numbers)
        interpret(module, 1, [stored, n])
        assert (stored >= 1).all(), n
        assert stored.max() == max(n, 1) or n + size - 1 > np.iinfo(numbers).max


@pytest.mark.parametrize("more", [14, 16])
def test_elements_from_a_part_on_of_other_numbers_of_parts(more: int) -> None:
    assert _rests("i32", 16, more)[1] == (-(2**31), 2**31 - 1)
