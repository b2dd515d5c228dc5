"""Quotients of coordinates are uniform only where no lane reaches the next multiple."""

from itertools import product
from math import gcd

import numpy as np
import pytest

from tests.targets.cpu.harness import assert_same
from tilewright.ir.builder import Builder as IrBuilder
from tilewright.ir.core import Function, Module, Value
from tilewright.ir.types import I32, Pointer
from tilewright.lowering.emit import I64, VOID, Builder
from tilewright.lowering.emit import Module as LlvmModule
from tilewright.ops.arith import Cmp, Constant
from tilewright.ops.control import Return
from tilewright.ops.memory import AddPtr, Load, Store
from tilewright.ops.shape import Arange, Broadcast, ExpandDims, Permute, Reshape, Splat
from tilewright.targets.cpu.lanes import Lanes, add, divmod_const, index, is_run, mul, sub


def _builder() -> Builder:
    return Builder(LlvmModule("m").function("f", VOID, [(I64, "")]))


@pytest.mark.parametrize("lanes", [2, 3, 4, 8])
def test_lanes_of_quotient_and_remainder(lanes: int) -> None:
    """Every known fact holds for each base that is consistent with what is known."""
    b = _builder()
    claims = 0
    for m, r, stride, n in product(
        (1, 3, 4, 8, 12), (0, 1, 5, 7), (-2, -1, 0, 1, 2), (3, 4, 8, 24)
    ):
        x = Lanes(b.function.params[0], stride, 0, (m, r))
        quotient, rest = divmod_const(b, x, n, lanes)
        if quotient.stride is None:
            continue
        claims += stride != 0
        for base in range(r % m, 120, m):
            places = [base + k * stride for k in range(lanes)]
            if places[-1] < 0:
                continue
            assert {p // n for p in places} == {base // n}
            assert [p % n for p in places] == [base % n + k * stride for k in range(lanes)]
            for found, number in ((quotient, base // n), (rest, base % n)):
                of, left = found.known
                assert (number - left) % of == 0 if of else number == left
    assert claims  # some are linear


def test_arithmetic_preserves_facts_about_the_base() -> None:
    b = _builder()
    base = b.function.params[0]
    x, y = Lanes(base, 1, 0, (8, 0)), Lanes(base, 0, 0, (12, 3))
    assert add(b, x, y, 8).known == (gcd(8, 12), 3)
    assert sub(b, index(15), x, 8).known == (8, 15)
    assert mul(b, y, index(4), 8).known == (48, 12)
    assert mul(b, y, Lanes(base), 8).known == (3, 0)
    assert add(b, x, Lanes(base), 8).known == (1, 0)


def test_facts_about_repeated_squares_stay_short() -> None:
    b = _builder()
    x = Lanes(b.function.params[0], 0, 0, (16, 5))
    y = Lanes(b.function.params[0], 0, 0, (16, 0))
    for _ in range(100):
        x, y = mul(b, x, x, 4), mul(b, y, y, 4)
        assert max(*x.known, *y.known) < 1 << 63
        assert x.known == (1, 0) or x.known[1] % 16 in (5, 9, 1)


def test_runs_start_at_multiples_of_their_length() -> None:
    base = _builder().function.params[0]
    assert is_run(Lanes(base, 1, 0, (16, 0)), 8)
    assert is_run(Lanes(base, 1, 0, (16, 8)), 8)
    assert not is_run(Lanes(base, 1, 0, (16, 4)), 8)
    assert not is_run(Lanes(base, 1, 0, (4, 0)), 8)
    assert not is_run(Lanes(base, -1, 0, (16, 0)), 8)
    assert not is_run(Lanes(base, None), 8)


class _Tiles:
    """A kernel that stores tiles one after the other."""

    def __init__(self) -> None:
        self.fn = Function("kernel", [Pointer(I32), Pointer(I32)])
        self.build = IrBuilder()
        self.stored = 0

    def load(self, shape: tuple[int, ...], mask: Value | None = None) -> Value:
        pointer = self.places(self.fn.args[0], shape, 0)
        return self.build.value(Load(pointer, mask, None, "", "", False))

    def places(self, base: Value, shape: tuple[int, ...], start: int) -> Value:
        count = int(np.prod(shape))
        offsets = self.build.value(Reshape(self.build.value(Arange(start, start + count)), shape))
        return self.build.value(AddPtr(self.build.value(Splat(base, shape)), offsets))

    def store(self, value: Value, shape: tuple[int, ...]) -> None:
        pointer = self.places(self.fn.args[1], shape, self.stored)
        self.build.insert(Store(pointer, value, None, "", ""))
        self.stored += int(np.prod(shape))

    def check(self) -> None:
        self.build.insert(Return([]))
        x = np.arange(4096, dtype=np.int32)
        assert_same(Module([self.fn]), (1, 1, 1), [x, np.zeros(self.stored, np.int32)])


def test_reshapes_of_permuted_tiles() -> None:
    tiles = _Tiles()
    with tiles.build.at_end(tiles.fn.body):
        for source, order, shape in [
            ((8, 3, 3), (1, 2, 0), (8, 9)),
            ((8, 17), (1, 0), (8, 17)),
            ((16, 17), (1, 0), (16, 17)),
            ((16, 33), (1, 0), (16, 33)),
            ((48, 8), (1, 0), (32, 12)),
            ((48, 8), (0, 1), (32, 12)),
        ]:
            moved = tiles.build.value(Permute(tiles.load(source), order))
            tiles.store(tiles.build.value(Reshape(moved, shape)), shape)
        tiles.check()


@pytest.mark.parametrize(("count", "bound"), [(16, 5), (32, 20), (48, 16)])
def test_mask_that_is_periodic_along_the_lanes(count: int, bound: int) -> None:
    """A comparison that holds in the first lanes of each row of what was reshaped does not fail
    for good where it first does."""
    tiles = _Tiles()
    with tiles.build.at_end(tiles.fn.body):
        one = tiles.build.value(ExpandDims(tiles.build.value(Arange(0, count)), 0))
        rows = tiles.build.value(Broadcast(one, (4, count)))
        place = tiles.build.value(Reshape(rows, (4 * count,)))
        limit = tiles.build.value(Constant(bound, place.type))
        mask = tiles.build.value(Cmp(place, limit, "lt"))
        tiles.store(tiles.load((4 * count,), mask), (4 * count,))
        tiles.check()
